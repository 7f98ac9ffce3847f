"""The origins of a program's functions, and the name of its application."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path, PurePath
from typing import Any

from holdfast.domain.origin import module_of_file

#: The names of a main script: in its own process, in a child of multiprocessing, and in a child process of a worker.
MAIN_MODULES = frozenset({"__main__", "__mp_main__", "__holdfast_main__"})
#: The package of Holdfast itself, which is no application.
_OWN_PACKAGE = __name__.partition(".")[0]


def origin_of(function: Callable[..., Any]) -> str:
    """Where a function lives: ``module:qualname``."""
    name = getattr(function, "__module__", None) or "__main__"
    variables = getattr(inspect.unwrap(function), "__globals__", {})
    if variables.get("__name__") != name:
        variables = vars(sys.modules[name]) if name in sys.modules else {}
    qualname = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{module_of(variables, name)}:{qualname}"


def application_of(variables: Mapping[str, Any]) -> str | None:
    """The application that code with these global variables belongs to: its top-level package or module.

    None for code without a file, and for Holdfast itself.
    """
    name = module_of(variables, str(variables.get("__name__", "__main__"))).partition(".")[0]
    return None if name in (*MAIN_MODULES, _OWN_PACKAGE) else name


def module_of(variables: Mapping[str, Any], name: str) -> str:
    """The module of code with these global variables, by its file where the name depends on who imports it.

    Code without a file (a notebook, ``python -c``) belongs to ``__main__``.
    """
    file, spec = variables.get("__file__"), variables.get("__spec__")
    is_main = name in MAIN_MODULES
    if is_main and spec is not None and spec.name not in MAIN_MODULES:  # python -m
        name, is_main = spec.name, False
    if not isinstance(file, str) or not Path(file).is_file():
        return "__main__" if is_main else name
    place = Path(file).resolve() if is_main else Path(file).absolute()
    if not is_main and not _is_package(place.parent):
        return name
    return module_of_file(place, [Path(folder) for folder in sys.path if folder], _is_package)


def _is_package(folder: PurePath) -> bool:
    return (Path(folder) / "__init__.py").is_file()

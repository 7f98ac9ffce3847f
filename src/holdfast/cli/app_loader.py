"""From ``MODULE:APP`` to an application."""

from __future__ import annotations

import importlib
import re
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from holdfast.app import Holdfast
from holdfast.errors import ConfigurationError


def load_app(target: str | None, *, url: str | None = None) -> Holdfast:
    """The application that ``MODULE:APP`` names, or an empty one.

    Raises:
        ConfigurationError: The module cannot be imported, or holds no such application.
    """
    if target is None:
        return Holdfast(url)
    name, _, attribute = target.partition(":")
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", name) or not (attribute or "app").isidentifier():
        raise ConfigurationError(f"{target!r} is no application", hint="Write MODULE:APP, for example shop.jobs:app.")
    module = _imported(name)
    app = getattr(module, attribute or "app", None)
    if not isinstance(app, Holdfast):
        found = [key for key, value in vars(module).items() if isinstance(value, Holdfast)]
        hint = f"Did you mean {name}:{found[0]}?" if found else "Name it as MODULE:APP."
        raise ConfigurationError(f"{name!r} has no application {attribute or 'app'!r}", hint=hint)
    if url is not None:
        app.use(url)
    return app


def load_object(target: str) -> Any:
    """What ``MODULE:NAME`` names.

    Raises:
        ConfigurationError: The module cannot be imported, or holds no such name.
    """
    name, _, attribute = target.partition(":")
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", name) or not attribute.isidentifier():
        raise ConfigurationError(f"{target!r} names nothing", hint="Write MODULE:NAME, for example shop.jobs:resync.")
    module = _imported(name)
    if not hasattr(module, attribute):
        raise ConfigurationError(f"{name!r} has no {attribute!r}", hint=f"Its names: {_names(module)}.")
    return getattr(module, attribute)


def _names(module: ModuleType) -> str:
    return ", ".join(sorted(name for name in vars(module) if not name.startswith("_")))[:200]


def _imported(name: str) -> ModuleType:
    """The module, with the current directory on the path. What it raises is told by its last line."""
    try:
        sys.path.insert(0, str(Path.cwd()))
    except FileNotFoundError:
        raise ConfigurationError("the current directory does not exist any more") from None
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            hint = "The current directory is importable; is this the right one? Write MODULE:APP."
            raise ConfigurationError(f"there is no module {name!r}", hint=hint) from None
        raise _not_imported(name, error) from error
    except (Exception, SystemExit) as error:
        raise _not_imported(name, error) from error


def _not_imported(name: str, error: BaseException) -> ConfigurationError:
    where = traceback.extract_tb(error.__traceback__)[-1]
    file, line = where.filename, where.lineno
    if isinstance(error, SyntaxError):
        file, line = error.filename or file, error.lineno
    last = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
    return ConfigurationError(f"the module {name!r} cannot be imported: {last}", hint=f"See {file}, line {line}.")

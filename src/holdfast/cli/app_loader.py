"""Applications and functions that the command line names as ``MODULE:NAME``."""

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

_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def load_app(target: str | None, *, url: str | None = None) -> Holdfast:
    """The application that ``MODULE:APP`` names; without a target, one that has no kinds."""
    if target is None:
        return Holdfast(url)
    name, _, attribute = target.partition(":")
    if not _MODULE.fullmatch(name) or not (attribute or "app").isidentifier():
        raise ConfigurationError(f"{target!r} is no application", hint="Write MODULE:APP, for example shop.jobs:app.")
    module = _import(name)
    app = getattr(module, attribute or "app", None)
    if not isinstance(app, Holdfast):
        apps = [key for key, value in vars(module).items() if isinstance(value, Holdfast)]
        hint = f"Did you mean {name}:{apps[0]}?" if apps else "Name it as MODULE:APP."
        raise ConfigurationError(f"{name!r} has no application {attribute or 'app'!r}", hint=hint)
    if url is not None:
        app.use(url)
    return app


def load_object(target: str) -> Any:
    """The object that ``MODULE:NAME`` names."""
    name, _, attribute = target.partition(":")
    if not _MODULE.fullmatch(name) or not attribute.isidentifier():
        raise ConfigurationError(f"{target!r} names nothing", hint="Write MODULE:NAME, for example shop.jobs:resync.")
    module = _import(name)
    if not hasattr(module, attribute):
        names = ", ".join(sorted(name for name in vars(module) if not name.startswith("_")))[:200]
        raise ConfigurationError(f"{name!r} has no {attribute!r}", hint=f"Its names: {names}.")
    return getattr(module, attribute)


def _import(name: str) -> ModuleType:
    """Import a module with the current directory on the path; any failure becomes a ConfigurationError."""
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
        raise _import_failure(name, error) from error
    except (Exception, SystemExit) as error:
        raise _import_failure(name, error) from error


def _import_failure(name: str, error: BaseException) -> ConfigurationError:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    file, line = frame.filename, frame.lineno
    if isinstance(error, SyntaxError):
        file, line = error.filename or file, error.lineno
    last = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
    return ConfigurationError(f"the module {name!r} cannot be imported: {last}", hint=f"See {file}, line {line}.")

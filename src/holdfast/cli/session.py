"""The session of one command line: its flags, settings, output, store and application."""

from __future__ import annotations

import importlib
import os
import re
import sys
import time
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any

from holdfast.errors import ConfigurationError, HoldfastError, InvalidInput
from holdfast.output.printer import Format, Output

if TYPE_CHECKING:
    from holdfast.admin.actions.actions import Actions
    from holdfast.app import Holdfast
    from holdfast.settings import LoadedSettings
    from holdfast.store import Store

#: The value of ``--output`` for text with all columns of a table.
WIDE = "wide"
_MODULE = r"[^\W\d]\w*(\.[^\W\d]\w*)*"


class CliSession:
    """Holds the shared options of a command line and opens its output, store and application on first use."""

    def __init__(self, *, format: Format | None = None) -> None:  # noqa: A002
        self.began = time.monotonic()
        #: Whether the command changes the store: a store that was moved refuses it.
        self.changes = False
        #: Whether the command may create a missing store.
        self.creates = False
        #: Whether the command may migrate an older store.
        self.may_migrate = False
        #: Whether the command works on the store of a development version, which other commands refuse.
        self.any_schema = False
        #: Shared options from the command line, by parameter name.
        self.flags: dict[str, Any] = {} if format is None else {"output": format}

    @cached_property
    def loaded(self) -> LoadedSettings:
        """Every setting with its origin, without the flags."""
        from holdfast.settings import read_settings  # the help needs none

        return read_settings(file=self.flags.get("config"))

    def setting(self, name: str, flag: Any = None) -> Any:
        """The effective value of a setting: the flag if it is set, else the configured value."""
        return getattr(self.loaded.settings, name) if flag is None or flag == () else flag

    @cached_property
    def output(self) -> Output:
        try:
            format_ = Format.TEXT if self.is_wide else Format(self.setting("output", self.flags.get("output")))
        except ConfigurationError:
            format_ = Format.TEXT  # the command itself reports the broken configuration file
        color = False if self.flags.get("no_color") else None
        return Output(format_, quiet=bool(self.flags.get("quiet")), color=color, began=self.began)

    @property
    def is_wide(self) -> bool:
        """Whether tables show all their columns, in lines of any length."""
        return self.flags.get("output") == WIDE

    @property
    def url(self) -> str:
        return str(self.setting("url", self.flags.get("url")))

    @property
    def url_flag(self) -> str | None:
        """The store that the command line selects; None leaves the choice to the application."""
        return self.url if self.flags.keys() & {"url", "config"} else None

    @property
    def named_url(self) -> str | None:
        """The store that the command line, the environment or a file names; None if only the default is left."""
        return None if self._is_default_url else self.url

    @property
    def _is_default_url(self) -> bool:
        return "url" not in self.flags and self.loaded.values["url"].origin == "default"

    @cached_property
    def app(self) -> Holdfast:
        from holdfast.app import Holdfast

        return Holdfast(self.url)

    @cached_property
    def store(self) -> Store:
        """The store without an application, which most commands do not need and which is slower to load."""
        from holdfast.store import open_store

        create = self.creates or self._is_default_url
        store = open_store(self.url, create=create, may_migrate=self.may_migrate, any_schema=self.any_schema)
        try:
            if self.changes:
                store.database.refuse_moved()
            elif (successor := store.backend.tools.successor) is not None:
                self.output.note(f"warning: this store was copied to {successor}, and is out of date")
        except BaseException:
            store.close()
            raise
        return store

    def refuse_moved(self) -> None:
        """Refuse a store that was copied elsewhere: for commands that change nothing, but rely on its workers."""
        self.store.database.refuse_moved()

    @property
    def actor(self) -> str:
        """The name of the user, for the history and the audit log."""
        from holdfast.worker.commands.identity import user_name

        return user_name()

    @cached_property
    def actions(self) -> Actions:
        """The actions service, on behalf of the user at the keyboard."""
        from holdfast.admin.actions.actions import Actions
        from holdfast.domain.access.audit import Via
        from holdfast.settings import log_folder

        return Actions(self.store, actor=self.actor, via=Via.CLI, logs=log_folder(self.url))

    def check_key(self) -> None:
        """Refuse a change if the configuration requires a key and ``HOLDFAST_API_KEY`` does not match it."""
        if (required := self.setting("api_key_sha256")) is not None:
            from holdfast.domain.access.tokens import check_api_key

            check_api_key(os.environ.get("HOLDFAST_API_KEY", ""), required)

    def confirm(self, change: str, *, yes: bool, hint: str = "Add --yes.") -> None:
        """Prompt for confirmation on a terminal; without one, refuse the change unless *yes* is set."""
        if yes:
            return
        if self.output.format != "text" or not sys.stdin.isatty():
            raise InvalidInput(f"this would {change}", hint=hint)
        import click

        click.confirm(f"{change}?", abort=True, err=True)

    def close(self) -> None:
        if "output" in vars(self):
            self.output.flush()
        for name in ("app", "store"):
            if name in vars(self):
                vars(self)[name].close()


def load_app(target: str | None, *, url: str | None = None) -> Holdfast:
    """The application that ``MODULE:APP`` names; without a target, one that has no kinds."""
    from holdfast.app import Holdfast

    if target is None:
        return Holdfast(url)
    name, _, attribute = target.partition(":")
    if not re.fullmatch(_MODULE, name) or not (attribute or "app").isidentifier():
        raise ConfigurationError(
            f"{target!r} is not an application", hint="Write MODULE:APP, for example shop.jobs:app."
        )
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
    if not re.fullmatch(_MODULE, name) or not attribute.isidentifier():
        raise ConfigurationError(f"{target!r} is not MODULE:NAME", hint="Write it like shop.jobs:resync.")
    module = _import(name)
    if not hasattr(module, attribute):
        names = ", ".join(sorted(name for name in vars(module) if not name.startswith("_")))[:200]
        raise ConfigurationError(f"{name!r} has no {attribute!r}", hint=f"Its names: {names}.")
    return getattr(module, attribute)


def _import(name: str) -> ModuleType:
    """Import a module with the current directory on the path; any failure becomes a ConfigurationError."""
    from holdfast.settings import current_directory  # the help needs none

    sys.path.insert(0, str(current_directory()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            hint = "Write MODULE:APP. Modules of the current directory can be imported: is this the right one?"
            raise ConfigurationError(f"there is no module {name!r}", hint=hint) from None
        raise _import_failure(name, error) from error
    except (Exception, SystemExit) as error:
        raise _import_failure(name, error) from error


def _import_failure(name: str, error: BaseException) -> ConfigurationError:
    from holdfast.errors.frames import short_error, user_place  # the help needs none

    own = error if isinstance(error, HoldfastError) else None
    text = short_error(error) if own is None else own.message
    place = user_place(error)
    hints = ["" if own is None else own.hint, "" if place is None else f"See {place}."]
    return ConfigurationError(f"the module {name!r} cannot be imported: {text}", hint=" ".join(filter(None, hints)))

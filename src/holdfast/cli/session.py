"""One run of the program: its settings, its output, its store."""

from __future__ import annotations

import os
import time
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import ConfigurationError, Refused
from holdfast.output.printer import Format, Output
from holdfast.settings import LoadedSettings, read_settings

if TYPE_CHECKING:
    from holdfast.admin.actions.actions import Actions
    from holdfast.app import Holdfast
    from holdfast.store import Store


class Session:
    """Holds what the shared options say, wherever on the line they stood, and what else is set."""

    def __init__(self, *, format: Format | None = None) -> None:  # noqa: A002
        #: What the line says, by the names of the options.
        self.began = time.monotonic()
        #: Whether the command may make a store that is not there.
        self.creates = False
        self.flags: dict[str, Any] = {} if format is None else {"output": format}

    def set(self, name: str, value: Any) -> None:
        self.flags[name] = value

    @cached_property
    def loaded(self) -> LoadedSettings:
        """Every setting with its origin, without the flags."""
        file = self.flags.get("config")
        return read_settings(file=None if file is None else Path(file))

    def setting(self, name: str, flag: Any = None) -> Any:
        """What is in force: the flag, or what is configured."""
        return getattr(self.loaded.settings, name) if flag is None or flag == () else flag

    @cached_property
    def output(self) -> Output:
        color = False if self.flags.get("no_color") else None
        return Output(self._format(), quiet=bool(self.flags.get("quiet")), color=color, began=self.began)

    def _format(self) -> Format:
        try:
            return Format(self.setting("output", self.flags.get("output")))
        except ConfigurationError:
            return Format.TEXT  # the command itself will tell what is wrong with the file

    @property
    def url(self) -> str:
        url: str = self.setting("url", self.flags.get("url"))
        return url

    @property
    def asked_url(self) -> str | None:
        """The store that the line itself asks for; None leaves it to the application."""
        return self.url if self.flags.keys() & {"url", "config"} else None

    @property
    def named_url(self) -> str | None:
        """The store that the line, the environment or a file names; None where only the default is left."""
        named = "url" in self.flags or self.loaded.values["url"].origin != "default"
        return self.url if named else None

    @cached_property
    def app(self) -> Holdfast:
        from holdfast.app import Holdfast

        return Holdfast(self.url)

    @cached_property
    def store(self) -> Store:
        """The store alone: most commands need no more, and answer sooner."""
        from holdfast.store.engine.url import open_store

        default = "url" not in self.flags and self.loaded.values["url"].origin == "default"
        return open_store(self.url, create=self.creates or default)

    @property
    def actor(self) -> str:
        """Who does this, for the history."""
        import getpass

        try:
            return getpass.getuser()
        except (KeyError, OSError):
            return "unknown"

    @cached_property
    def actions(self) -> Actions:
        """Where whoever is at the keyboard acts."""
        from holdfast.admin.actions.actions import Actions
        from holdfast.domain.access.roles import Via

        return Actions(self.store, actor=self.actor, via=Via.CLI)

    def check_key(self) -> None:
        """Refuse a change where the configuration asks for a key and the environment does not hold it.

        Raises:
            Refused: ``HOLDFAST_API_KEY`` is missing or wrong.
        """
        requested: str | None = self.setting("api_key_sha256")
        if requested is None:
            return
        import hashlib
        import hmac

        key = os.environ.get("HOLDFAST_API_KEY", "")
        if not hmac.compare_digest(hashlib.sha256(key.encode()).hexdigest(), requested.lower()):
            raise Refused("changes on this store need a key" + (", and this is another one" if key else ""))

    def close(self) -> None:
        if "output" in vars(self):
            self.output.flush()
        for name in ("app", "store"):
            if name in vars(self):
                vars(self)[name].close()

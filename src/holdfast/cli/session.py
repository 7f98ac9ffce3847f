"""One run of the program: its settings, its output, its store."""

from __future__ import annotations

import getpass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.output import Format, Output

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.store import Store


class Session:
    """Holds what the shared options say, wherever on the line they stood."""

    def __init__(self, *, format: Format = Format.TEXT) -> None:  # noqa: A002
        self.settings: dict[str, Any] = {"output": format}

    def set(self, name: str, value: Any) -> None:
        self.settings[name] = value

    @cached_property
    def output(self) -> Output:
        color = False if self.settings.get("no_color") else None
        return Output(Format(self.settings["output"]), quiet=bool(self.settings.get("quiet")), color=color)

    @property
    def url(self) -> str:
        """``--url``, else what the configuration says."""
        from holdfast.config import default_url

        given: str | None = self.settings.get("url")
        return given or default_url(file=self.config)

    @property
    def config(self) -> Path | None:
        given = self.settings.get("config")
        return None if given is None else Path(given)

    @cached_property
    def app(self) -> Holdfast:
        from holdfast.app import Holdfast

        return Holdfast(self.url)

    @cached_property
    def store(self) -> Store:
        """The store alone: most commands need no more, and answer sooner."""
        from holdfast.store.url import open_store

        return open_store(self.url)

    @property
    def actor(self) -> str:
        """Who does this, for the history."""
        try:
            return getpass.getuser()
        except (KeyError, OSError):
            return "unknown"

    def close(self) -> None:
        for name in ("app", "store"):
            if name in vars(self):
                vars(self)[name].close()

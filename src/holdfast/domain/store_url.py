"""URLs of stores: the file and options of a SQLite store, passwords in others."""

from __future__ import annotations

import re
from pathlib import PurePath
from urllib.parse import quote, unquote

from msgspec import Struct

from holdfast.errors import ConfigurationError

SCHEME = "sqlite:"
HINT = "Use sqlite:///relative.db or sqlite:////absolute/path.db; write ? # and % in a path as %3F %23 and %25."


class SqliteUrl(Struct, frozen=True):
    """The path as it was written, relative or not, and the options after it."""

    path: str
    options: dict[str, str]

    @classmethod
    def parse(cls, url: str) -> SqliteUrl:
        """Read a URL: ``sqlite:///PATH`` or ``sqlite:PATH``, then ``?NAME=VALUE&…``.

        Raises:
            ConfigurationError: It names no file, or its options cannot be read.
        """
        place, _, query = url.removeprefix(SCHEME).partition("?")
        path = unquote(place.removeprefix("///"))
        pairs = [pair.partition("=") for pair in query.split("&") if pair]
        odd = [name for name, assigned, _ in pairs if not assigned]
        no_host = not place.startswith("//") or place.startswith("///")
        if odd or not no_host or "#" in url or "\0" in path or path in ("", ":memory:") or path.endswith("/"):
            raise ConfigurationError(f"{url!r} names no file", hint=HINT)
        return cls(path, {unquote(name): unquote(value) for name, _, value in pairs})

    @property
    def is_relative(self) -> bool:
        """Whether the path begins in the current directory; ``~`` is a home directory."""
        return not self.path.startswith(("/", "~"))


def sqlite_url(path: PurePath | str) -> str:
    """The URL of a SQLite file."""
    return f"{SCHEME}///{quote(str(path))}"


def anchored(url: str, folder: PurePath) -> str:
    """The same URL; the relative path of a SQLite file begins in *folder*."""
    if not url.startswith(SCHEME):
        return url
    parsed = SqliteUrl.parse(url)
    if not parsed.is_relative:
        return url
    _, mark, query = url.partition("?")
    return f"{sqlite_url(folder / parsed.path)}{mark}{query}"


def without_driver(url: str) -> str:
    """The same URL without the name of a driver, which SQLAlchemy writes: ``postgresql+psycopg://``."""
    return re.sub(r"\A(postgres(?:ql)?)\+\w+(?=:)", r"\1", url) if url.startswith("postgres") else url


def without_password(url: str) -> str:
    """The same URL without the passwords in it, and without a driver: all names of one store have the same."""
    text = re.sub(r"(//[^:@/]*):[^@/]*@", r"\1@", without_driver(url), count=1)
    return re.sub(r"(?i)([?&])(?:ssl)?password=[^&]*&?", r"\1", text).rstrip("?&")

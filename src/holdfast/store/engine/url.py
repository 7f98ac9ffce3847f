"""Opening a store by its URL. A driver is imported only when a URL names its backend."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from urllib.parse import parse_qsl, unquote, urlsplit

from holdfast.errors import ConfigurationError, MissingDriver, UnknownScheme
from holdfast.store import Store


def open_store(url: str, *, create: bool = True, patience: timedelta | None = None) -> Store:
    """Open the store that *url* names; its query may hold ``durability`` or ``schema`` and ``prepare``.

    *patience* limits the time of each statement, for servers whose users wait for a page.

    Raises:
        SchemaMissing: The database holds no store, and *create* is false.
        UnknownScheme: No backend handles this scheme.
        MissingDriver: The driver is not installed.
    """
    scheme = url.partition(":")[0]
    match scheme:
        case "sqlite":
            return _open_sqlite(url, create=create, patience=patience)
        case "postgresql" | "postgres":
            return _open_postgres(url, create=create, patience=patience)
        case _:
            if not re.fullmatch(r"[a-z][a-z0-9+]{0,20}", scheme):
                raise UnknownScheme("this is no URL")  # not repeated: it may hold a password
            raise UnknownScheme(f"there is no store for {scheme!r} URLs", scheme=scheme)


def _open_sqlite(url: str, *, create: bool, patience: timedelta | None) -> Store:
    from holdfast.store.sqlite.backend import SqliteBackend

    split = urlsplit(url)
    path = unquote(split.path.removeprefix("/"))
    options = dict(parse_qsl(split.query))
    durability = options.pop("durability", "full")
    if split.netloc or split.fragment or "\0" in path or path in ("", ":memory:"):
        raise ConfigurationError(
            f"{url!r} names no file", hint="Use sqlite:///relative.db or sqlite:////absolute/path.db."
        )
    if durability not in ("full", "fast"):
        raise ConfigurationError(f"durability is 'full' or 'fast', not {durability!r}")
    _refuse_unknown(options)
    return Store(SqliteBackend(path, durability=durability, create=create, patience=patience))


def _open_postgres(url: str, *, create: bool, patience: timedelta | None) -> Store:
    try:
        from holdfast.store.postgres.backend import PostgresBackend
        from holdfast.store.postgres.connection_options import is_readable
    except ImportError as error:
        raise MissingDriver(f"PostgreSQL needs psycopg: {error}") from error

    server, _, text = url.partition("?")
    options = dict(parse_qsl(text, keep_blank_values=True))
    schema = options.pop("schema", "holdfast")
    prepare = options.pop("prepare", "on")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,62}", schema):
        raise ConfigurationError(f"{schema!r} is no name for a schema", hint="Use letters, digits and underscores.")
    if prepare not in ("on", "off"):
        raise ConfigurationError(f"prepare is 'on' or 'off', not {prepare!r}")
    rest = "&".join(pair for pair in text.split("&") if pair.split("=")[0] not in ("schema", "prepare"))
    target = f"{server}?{rest}" if rest else server
    if not is_readable(target):
        raise ConfigurationError(
            "the URL of the database cannot be read", hint="Write @, : and / in a password as %40, %3A and %2F."
        )
    return Store(PostgresBackend(target, schema=schema, prepare=prepare == "on", create=create, patience=patience))


def _refuse_unknown(options: Mapping[str, str]) -> None:
    if options:
        raise ConfigurationError(f"the URL has an unknown option {min(options)!r}")

"""Translation of SQLite's errors into Holdfast's."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.errors import NotAStore, StoreFull, StoreMoved, StoreReadOnly, StoreUnavailable


@contextmanager
def translated() -> Iterator[None]:
    """Raise Holdfast's errors in place of SQLite's."""
    try:
        yield
    except sqlite3.Error as error:
        raise _translate(error) from error


def _translate(error: sqlite3.Error) -> Exception:
    code = getattr(error, "sqlite_errorcode", None)
    primary = None if code is None else code & 0xFF
    match primary:
        case sqlite3.SQLITE_FULL:
            return StoreFull("the disk is full")
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return StoreReadOnly(f"the store cannot be written: {error}")
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
            return NotAStore(f"the file is not a SQLite database, or it is damaged: {error}")
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreUnavailable(f"another process kept the store locked for too long: {error}")
        case sqlite3.SQLITE_INTERRUPT:
            return StoreUnavailable("a look took too long and was given up", hint="Ask for less: narrow the filter.")
        case sqlite3.SQLITE_CANTOPEN:
            return StoreUnavailable(f"the store cannot be opened: {error}")
        case sqlite3.SQLITE_CONSTRAINT if str(error).startswith("E_STORE_MOVED: "):
            return StoreMoved(str(error).removeprefix("E_STORE_MOVED: "))
        case sqlite3.SQLITE_IOERR:
            return StoreUnavailable(f"the disk failed: {error}")
        case _:
            return error

"""The schema of a SQLite store: created on first use, migrated forward."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from holdfast.errors import SchemaTooNew
from holdfast.store.engine import sql
from holdfast.store.engine.backend import OLDEST_CODE, SCHEMA_VERSION
from holdfast.store.sqlite.files import translated


def check_or_migrate(connection: sqlite3.Connection) -> str:
    """Create or migrate the schema, check that this code may use it, and return the installation's id.

    Raises:
        SchemaTooNew: The schema needs newer code.
    """
    with translated():
        meta = _read_meta(connection)
        if meta is None or meta[0] < SCHEMA_VERSION:
            migrate(connection)
            meta = _read_meta(connection)
        assert meta is not None
        version, oldest_code, installation = meta
    if oldest_code > SCHEMA_VERSION:
        raise SchemaTooNew(
            f"the store has schema {version}, which needs code for schema {oldest_code}; this is {SCHEMA_VERSION}",
            version=version,
            code=SCHEMA_VERSION,
        )
    return installation


def holds_store(path: Path) -> bool:
    """Return whether the file holds a store, without creating or changing it."""
    if not path.is_file():
        return False
    with translated(), closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as connection:
        return _read_meta(connection) is not None


def migrate(connection: sqlite3.Connection) -> list[int]:
    """Apply the missing migrations in one transaction and return their numbers."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        meta = _read_meta(connection)
        applied = []
        for number, text in enumerate(sql.migrations("sqlite"), start=1):
            if meta is None or meta[0] < number:
                for statement in split_script(text):
                    connection.execute(statement)
                applied.append(number)
        if applied:
            connection.execute(
                "INSERT INTO holdfast_meta (single_row, version, oldest_code) VALUES (1, ?, ?)"
                " ON CONFLICT (single_row) DO UPDATE"
                " SET version = excluded.version, oldest_code = excluded.oldest_code",
                (applied[-1], OLDEST_CODE),
            )
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return applied


def split_script(text: str) -> Iterator[str]:
    """Yield the statements of a script; a ``;`` inside a trigger does not end one."""
    statement = ""
    for line in text.splitlines(keepends=True):
        if not statement and (not line.strip() or line.lstrip().startswith("--")):
            continue
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement.strip()
            statement = ""


def _read_meta(connection: sqlite3.Connection) -> tuple[int, int, str] | None:
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'holdfast_meta'").fetchone() is None:
        return None
    meta: tuple[int, int, str] | None = connection.execute(
        "SELECT version, oldest_code, installation FROM holdfast_meta"
    ).fetchone()
    return meta

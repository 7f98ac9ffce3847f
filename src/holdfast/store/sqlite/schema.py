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
from holdfast.store.sqlite.errors import translated


def check_or_migrate(connection: sqlite3.Connection) -> str:
    """Make sure that this code may work on the store, and return the installation's id.

    Raises:
        SchemaTooNew: A newer Holdfast has set it up and no longer accepts this one.
    """
    with translated():
        found = _read_meta(connection)
        if found is None or found[0] < SCHEMA_VERSION:
            migrate(connection)
            found = _read_meta(connection)
        assert found is not None
        version, oldest_code, installation = found
    if oldest_code > SCHEMA_VERSION:
        raise SchemaTooNew(
            f"the store has schema {version}, which needs code for schema {oldest_code}; this is {SCHEMA_VERSION}",
            version=version,
            code=SCHEMA_VERSION,
        )
    return installation


def holds_store(path: Path) -> bool:
    """Whether there is a store in the file; nothing is written, and nothing made."""
    if not path.is_file():
        return False
    with translated(), closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as connection:
        return _read_meta(connection) is not None


def migrate(connection: sqlite3.Connection) -> list[int]:
    """Apply the migrations that are missing, all of them in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        found = _read_meta(connection)
        applied = []
        for number, text in enumerate(sql.migrations("sqlite"), start=1):
            if found is None or found[0] < number:
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
    """The statements of a script; a trigger's body does not end one."""
    statement = ""
    for line in text.splitlines(keepends=True):
        if not statement and (not line.strip() or line.lstrip().startswith("--")):
            continue
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement.strip()
            statement = ""


def _read_meta(connection: sqlite3.Connection) -> tuple[int, int, str] | None:
    there = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'holdfast_meta'").fetchone()
    if there is None:
        return None
    found: tuple[int, int, str] | None = connection.execute(
        "SELECT version, oldest_code, installation FROM holdfast_meta"
    ).fetchone()
    return found

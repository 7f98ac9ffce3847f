"""The schema of a SQLite store: created on first use, migrated forward on request."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import msgspec

from holdfast.errors import NotAStore, SchemaOutdated
from holdfast.store.engine.backend import OLDEST_CODE, SCHEMA_VERSION
from holdfast.store.engine.migrations import (
    OpenedSchema,
    SchemaMeta,
    SchemaRecord,
    all_migrations,
    fits,
    refuse_development,
    refuse_newer,
)
from holdfast.store.sqlite.files import translated


def open_schema(connection: sqlite3.Connection, *, may_migrate: bool = False, any_schema: bool = False) -> OpenedSchema:
    """Create the schema, or migrate it if *may_migrate*, and check that this code may use it.

    Raises:
        SchemaMismatch: A development version made the store, and *any_schema* is false.
        SchemaTooNew: The schema needs newer code.
        SchemaOutdated: This code needs a newer schema, and *may_migrate* is false.
    """
    applied: list[int] = []
    meta = _read_meta(connection)
    if meta is not None and not fits("sqlite", meta):
        if any_schema:
            return OpenedSchema(meta.installation, [], fits=False)
        refuse_development(list_tables(connection))
    if meta is not None and meta.version < SCHEMA_VERSION and not may_migrate:
        raise SchemaOutdated(f"the store has schema {meta.version}, and this code needs {SCHEMA_VERSION}")
    if meta is None or meta.version < SCHEMA_VERSION:
        applied = migrate(connection)
        meta = _read_meta(connection)
    assert meta is not None
    refuse_newer(meta)
    return OpenedSchema(meta.installation, applied)


def list_tables(connection: sqlite3.Connection) -> list[str]:
    """The tables of the store, without their prefix."""
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB 'holdfast_*' ORDER BY name"
    return [name.removeprefix("holdfast_") for (name,) in connection.execute(query)]


def holds_store(path: Path) -> bool:
    """Return whether the file holds a store, without creating or changing it."""
    if not path.is_file():
        return False
    with translated(path), closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as connection:
        return _read_meta(connection) is not None


def migrate(connection: sqlite3.Connection) -> list[int]:
    """Apply the missing migrations in one transaction and return their numbers."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        meta = _read_meta(connection)
        migrations = all_migrations("sqlite")
        missing = [each for each in migrations if meta is None or meta.version < each.number]
        for migration in missing:
            for statement in split_script(migration.text):
                connection.execute(statement)
        if missing:
            checksums = {} if meta is None else read_record(connection).checksums
            checksums |= {str(each.number): each.checksum for each in missing}
            record = (msgspec.json.encode(each).decode() for each in (checksums, read_objects(connection)))
            connection.execute(
                "INSERT INTO holdfast_meta (single_row, version, oldest_code, checksums, objects)"
                " VALUES (1, ?, ?, ?, ?) ON CONFLICT (single_row) DO UPDATE SET version = excluded.version,"
                " oldest_code = excluded.oldest_code, checksums = excluded.checksums, objects = excluded.objects",
                (missing[-1].number, OLDEST_CODE, *record),
            )
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return [each.number for each in missing]


def read_record(connection: sqlite3.Connection) -> SchemaRecord:
    """The checksums and objects that the last migration recorded."""
    checksums, objects = connection.execute("SELECT checksums, objects FROM holdfast_meta").fetchone()
    return SchemaRecord(msgspec.json.decode(checksums), msgspec.json.decode(objects))


def read_objects(connection: sqlite3.Connection) -> dict[str, str]:
    """The columns, indexes, triggers and views of the store. Triggers of a store that was moved are left out."""
    rows = connection.execute(
        "SELECT 'column ' || item.name || '.' || field.name, field.type"
        " FROM sqlite_master AS item JOIN pragma_table_info(item.name) AS field"
        " WHERE item.type = 'table' AND item.name GLOB 'holdfast_*'"
        " UNION ALL SELECT type || ' ' || name, sql FROM sqlite_master"
        " WHERE type <> 'table' AND name GLOB 'holdfast_*' AND name NOT GLOB 'holdfast_closed_*'"
    )
    return dict(rows.fetchall())


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


def _read_meta(connection: sqlite3.Connection) -> SchemaMeta | None:
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'holdfast_meta'").fetchone() is None:
        return None
    query = "SELECT version, oldest_code, installation, {} FROM holdfast_meta"
    try:
        row = connection.execute(query.format("checksums")).fetchone()
    except sqlite3.OperationalError as error:
        if "no such column" not in str(error):
            raise
        row = connection.execute(query.format("'{}'")).fetchone()  # early development versions recorded none
    if row is None:
        return None
    try:
        values = (*row[:3], msgspec.json.decode(row[3]))
        return msgspec.convert(dict(zip(SchemaMeta.__struct_fields__, values, strict=True)), SchemaMeta)
    except (TypeError, ValueError) as error:  # SQLite reads values of a damaged page that no program has written
        raise NotAStore(f"the file is damaged: its table holdfast_meta holds {row!r:.200}") from error

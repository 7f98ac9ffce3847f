"""The schema of a PostgreSQL store: created on first use, migrated forward on request."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
from psycopg import errors
from psycopg.types.json import Json

from holdfast.errors import NO_STORE, SchemaMissing, SchemaOutdated, StoreUnavailable
from holdfast.store.engine.backend import OLDEST_CODE, SCHEMA_VERSION
from holdfast.store.engine.migrations import (
    Migration,
    OpenedSchema,
    SchemaMeta,
    SchemaRecord,
    all_migrations,
    fits,
    refuse_development,
    refuse_newer,
)
from holdfast.store.postgres.roles import list_tables, renew_grants
from holdfast.store.postgres.statements import Statements, quoted

#: The advisory lock that serialises migrations over all processes.
_MIGRATION_LOCK = 0x686F6C6466617374
#: The longest wait of a migration for a lock: claims queue behind it meanwhile.
LOCK_TIMEOUT_S = 2.0
#: Pauses between attempts to get the locks.
RETRY_DELAYS_S = (0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0)
_BLOCKED = (
    "Find the transaction with SELECT pid, query FROM pg_stat_activity WHERE state <> 'idle', and try again after its"
    " end. A dump is one, too."
)
#: Tests replace the clock of the store, so its definition is not compared. Ranges of finished jobs come and go.
_OBJECTS = """
SELECT 'column ' || class.relname || '.' || attname, format_type(coalesce(nullif(typbasetype, 0), atttypid), atttypmod)
FROM pg_attribute JOIN pg_class AS class ON class.oid = attrelid JOIN pg_type AS type ON type.oid = atttypid
JOIN pg_namespace AS namespace ON namespace.oid = relnamespace
WHERE nspname = %(schema)s AND relkind IN ('r', 'p') AND NOT relispartition AND attnum > 0 AND NOT attisdropped
UNION ALL
SELECT CASE relkind WHEN 'v' THEN 'view ' ELSE 'index ' END || relname,
    CASE relkind WHEN 'v' THEN '' ELSE md5(pg_get_indexdef(class.oid)) END
FROM pg_class AS class JOIN pg_namespace AS namespace ON namespace.oid = relnamespace
WHERE nspname = %(schema)s AND relkind IN ('i', 'I', 'v') AND NOT relispartition
UNION ALL
SELECT 'function ' || proname, CASE proname WHEN 'now' THEN '' ELSE md5(prosrc) END
FROM pg_proc JOIN pg_namespace AS namespace ON namespace.oid = pronamespace WHERE nspname = %(schema)s
UNION ALL
SELECT 'trigger ' || tgname, '' FROM pg_trigger JOIN pg_class AS class ON class.oid = tgrelid
JOIN pg_namespace AS namespace ON namespace.oid = relnamespace WHERE nspname = %(schema)s AND NOT tgisinternal
    AND NOT relispartition
"""

Connection = psycopg.Connection[Any]


def open_schema(
    connection: Connection,
    statements: Statements,
    *,
    create: bool = True,
    may_migrate: bool = False,
    any_schema: bool = False,
) -> OpenedSchema:
    """Create the schema, or migrate it if *may_migrate*, and check that this code may use it.

    Raises:
        SchemaMismatch: A development version made the store, and *any_schema* is false.
        SchemaTooNew: The schema needs newer code.
        SchemaOutdated: This code needs a newer schema, and *may_migrate* is false.
        SchemaMissing: There is none and *create* is false, or this role may not change it.
    """
    meta = _read_meta(connection, statements)
    applied: list[int] = []
    if meta is None and not create:
        raise SchemaMissing(f"there is no store in schema {statements.schema!r}", hint=NO_STORE)
    if meta is not None and not fits("postgres", meta):
        if any_schema:
            return OpenedSchema(meta.installation, [], fits=False)
        refuse_development(list_tables(connection, statements.schema))
    if meta is not None and meta.version < SCHEMA_VERSION and not may_migrate:
        raise SchemaOutdated(f"the store has schema {meta.version}, and this code needs {SCHEMA_VERSION}")
    if meta is None or meta.version < SCHEMA_VERSION:
        try:
            applied = migrate(connection, statements)
        except errors.InsufficientPrivilege as error:
            raise SchemaMissing(
                f"schema {statements.schema!r} is not up to date, and may not be changed: {error}"
            ) from error
        meta = _read_meta(connection, statements)
    assert meta is not None
    refuse_newer(meta)
    return OpenedSchema(meta.installation, applied)


def migrate(connection: Connection, statements: Statements) -> list[int]:
    """Apply the missing migrations one by one and return their numbers.

    Roles that exist get their privileges on new tables in the same transaction.

    Raises:
        StoreUnavailable: Another transaction has locked a table for too long.
    """
    return [each.number for each in all_migrations("postgres") if _apply_patiently(connection, statements, each)]


def _apply_patiently(connection: Connection, statements: Statements, migration: Migration) -> bool:
    """Apply one migration. It waits for locks only briefly, because claims queue behind it, and tries again."""
    pause = threading.Event()
    for delay in RETRY_DELAYS_S:
        try:
            return _apply(connection, statements, migration)
        except errors.LockNotAvailable:
            pause.wait(delay)
    try:
        return _apply(connection, statements, migration)
    except errors.LockNotAvailable as error:
        text = f"migration {migration.number} cannot lock its tables: {str(error).splitlines()[0]}"
        raise StoreUnavailable(text, hint=_BLOCKED) from error


def _apply(connection: Connection, statements: Statements, migration: Migration) -> bool:
    """Apply a migration, unless the store has it already."""
    if migration.concurrent:
        return _apply_concurrently(connection, statements, migration)
    with connection.transaction():
        connection.execute(f"SET LOCAL lock_timeout = {int(LOCK_TIMEOUT_S * 1000)}".encode())
        connection.execute("SET LOCAL statement_timeout = 0")
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATION_LOCK,))
        meta = _read_meta(connection, statements)
        if meta is not None and meta.version >= migration.number:
            return False
        if meta is None:
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(statements.schema)}".encode())
        connection.execute(statements.in_schema(migration.text).encode())
        _record(connection, statements, migration, first=meta is None)
        renew_grants(connection, statements.schema)
    return True


def _apply_concurrently(connection: Connection, statements: Statements, migration: Migration) -> bool:
    """Build indexes while others write. It waits for running transactions, and blocks none."""
    connection.execute("SELECT set_config('statement_timeout', '0', false)")
    connection.execute("SELECT pg_advisory_lock(%s)", (_MIGRATION_LOCK,))
    try:
        meta = _read_meta(connection, statements)
        if meta is not None and meta.version >= migration.number:
            return False
        _drop_invalid_indexes(connection, statements)
        for statement in migration.statements:
            connection.execute(statements.in_schema(statement).encode())
        with connection.transaction():
            _record(connection, statements, migration, first=False)
        return True
    finally:
        if not connection.closed:
            connection.execute("SELECT pg_advisory_unlock(%s)", (_MIGRATION_LOCK,))
            connection.execute("RESET statement_timeout")


def _drop_invalid_indexes(connection: Connection, statements: Statements) -> None:
    """Drop an incomplete index, whose creation was interrupted."""
    query = (
        "SELECT relname FROM pg_index JOIN pg_class AS class ON class.oid = indexrelid"
        " JOIN pg_namespace AS namespace ON namespace.oid = relnamespace WHERE nspname = %s AND NOT indisvalid"
    )
    for (name,) in connection.execute(query, (statements.schema,)).fetchall():
        connection.execute(f"DROP INDEX CONCURRENTLY {quoted(statements.schema)}.{quoted(name)}".encode())


def _record(connection: Connection, statements: Statements, migration: Migration, *, first: bool) -> None:
    """Write the version, the checksum of the migration, and the objects that the schema has now."""
    checksums = {} if first else read_record(connection, statements).checksums
    checksums[str(migration.number)] = migration.checksum
    text = statements.in_schema(
        "INSERT INTO holdfast.meta (version, oldest_code, checksums, objects) VALUES (%s, %s, %s, %s)"
        " ON CONFLICT (single_row) DO UPDATE SET version = excluded.version, oldest_code = excluded.oldest_code,"
        " checksums = excluded.checksums, objects = excluded.objects"
    )
    objects = read_objects(connection, statements)
    connection.execute(text.encode(), (migration.number, OLDEST_CODE, Json(checksums), Json(objects)))


def read_record(connection: Connection, statements: Statements) -> SchemaRecord:
    """The checksums and objects that the last migration recorded."""
    text = statements.in_schema("SELECT checksums, objects FROM holdfast.meta")
    checksums, objects = connection.execute(text.encode()).fetchone() or ({}, {})
    return SchemaRecord(checksums, objects)


def read_objects(connection: Connection, statements: Statements) -> dict[str, str]:
    """The columns, indexes, functions, triggers and views of the schema, whatever this database quotes."""
    with connection.transaction():
        connection.execute("SET LOCAL quote_all_identifiers = off")
        return dict(connection.execute(_OBJECTS, {"schema": statements.schema}).fetchall())


def _read_meta(connection: Connection, statements: Statements) -> SchemaMeta | None:
    # The catalogue's rows, not to_regclass(): its cache may predate the lock.
    query = (
        "SELECT EXISTS (SELECT FROM pg_catalog.pg_attribute WHERE attrelid = class.oid AND attname = 'checksums')"
        " FROM pg_catalog.pg_class AS class JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = relnamespace"
        " WHERE nspname = %s AND relname = 'meta'"
    )
    present = connection.execute(query, (statements.schema,)).fetchone()
    if present is None:
        return None
    text = statements.in_schema("SELECT version, oldest_code, installation::text, checksums FROM holdfast.meta")
    if not present[0]:  # early development versions recorded none
        text = text.replace("checksums", "'{}'::json")
    row = connection.execute(text.encode()).fetchone()
    return None if row is None else SchemaMeta(*row)

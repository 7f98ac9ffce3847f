"""The schema of a PostgreSQL store: created on first use, migrated forward."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import errors

from holdfast.errors import NO_STORE, SchemaMissing, SchemaTooNew
from holdfast.store.engine import sql
from holdfast.store.engine.backend import OLDEST_CODE, SCHEMA_VERSION
from holdfast.store.postgres.roles import renew_grants
from holdfast.store.postgres.statements import Statements, quoted

#: The advisory lock that serialises migrations over all processes.
_MIGRATION_LOCK = 0x686F6C6466617374


def check_or_migrate(connection: psycopg.Connection[Any], statements: Statements, *, create: bool = True) -> str:
    """Create or migrate the schema, check that this code may use it, and return the installation's id.

    Raises:
        SchemaTooNew: The schema needs newer code.
        SchemaMissing: The schema is missing or too old, and this role may not change it.
    """
    meta = _read_meta(connection, statements)
    if meta is None and not create:
        raise SchemaMissing(f"there is no store in schema {statements.schema!r}", hint=NO_STORE)
    if meta is None or meta[0] < SCHEMA_VERSION:
        try:
            migrate(connection, statements)
        except errors.InsufficientPrivilege as error:
            raise SchemaMissing(
                f"schema {statements.schema!r} is not up to date, and may not be changed: {error}"
            ) from error
        meta = _read_meta(connection, statements)
    assert meta is not None
    version, oldest_code, installation = meta
    if oldest_code > SCHEMA_VERSION:
        raise SchemaTooNew(
            f"the store has schema {version}, which needs code for schema {oldest_code}; this is {SCHEMA_VERSION}",
            version=version,
            code=SCHEMA_VERSION,
        )
    return installation


def migrate(connection: psycopg.Connection[Any], statements: Statements) -> list[int]:
    """Apply the missing migrations, each in its own transaction, and return their numbers.

    Roles that exist get their privileges on new tables in the same transaction.
    """
    applied = []
    for number, text in enumerate(sql.migrations("postgres"), start=1):
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATION_LOCK,))
            meta = _read_meta(connection, statements)
            if meta is not None and meta[0] >= number:
                continue
            if meta is None:
                connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(statements.schema)}".encode())
            connection.execute(statements.in_schema(text).encode())
            _write_version(connection, statements, number)
            renew_grants(connection, statements.schema)
            applied.append(number)
    return applied


def _write_version(connection: psycopg.Connection[Any], statements: Statements, number: int) -> None:
    text = statements.in_schema(
        "INSERT INTO holdfast.meta (version, oldest_code) VALUES (%s, %s) ON CONFLICT (single_row)"
        " DO UPDATE SET version = excluded.version, oldest_code = excluded.oldest_code"
    )
    connection.execute(text.encode(), (number, OLDEST_CODE))


def _read_meta(connection: psycopg.Connection[Any], statements: Statements) -> tuple[int, int, str] | None:
    # The catalogue's rows, not to_regclass(): its cache may predate the lock.
    query = (
        "SELECT 1 FROM pg_catalog.pg_class AS class"
        " JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = relnamespace"
        " WHERE nspname = %s AND relname = 'meta'"
    )
    if connection.execute(query, (statements.schema,)).fetchone() is None:
        return None
    text = statements.in_schema("SELECT version, oldest_code, installation::text FROM holdfast.meta")
    meta: tuple[int, int, str] | None = connection.execute(text.encode()).fetchone()
    return meta

"""The schema of a PostgreSQL store: created on first use, migrated forward."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import errors

from holdfast.errors import NO_STORE, SchemaMissing, SchemaTooNew
from holdfast.store.engine import sql
from holdfast.store.engine.backend import OLDEST_CODE, SCHEMA_VERSION
from holdfast.store.postgres.statements import Statements, quoted

#: Serialises migrations over all processes, for the length of their transaction.
_LOCK = 0x686F6C6466617374


def check_or_migrate(connection: psycopg.Connection[Any], statements: Statements, *, create: bool = True) -> str:
    """Make sure that this code may work on the store, and return the installation's id.

    Raises:
        SchemaTooNew: A newer Holdfast has set it up and no longer accepts this one.
        SchemaMissing: It is not there, or too old, and this role may not change it.
    """
    found = _read_meta(connection, statements)
    if found is None and not create:
        raise SchemaMissing(f"there is no store in schema {statements.schema!r}", hint=NO_STORE)
    if found is None or found[0] < SCHEMA_VERSION:
        try:
            migrate(connection, statements)
        except errors.InsufficientPrivilege as error:
            raise SchemaMissing(
                f"schema {statements.schema!r} is not up to date, and may not be changed: {error}"
            ) from error
        found = _read_meta(connection, statements)
    assert found is not None
    version, oldest_code, installation = found
    if oldest_code > SCHEMA_VERSION:
        raise SchemaTooNew(
            f"the store has schema {version}, which needs code for schema {oldest_code}; this is {SCHEMA_VERSION}",
            version=version,
            code=SCHEMA_VERSION,
        )
    return installation


def migrate(connection: psycopg.Connection[Any], statements: Statements) -> list[int]:
    """Apply the migrations that are missing, each in a transaction of its own."""
    applied = []
    for number, text in enumerate(sql.migrations("postgres"), start=1):
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            found = _read_meta(connection, statements)
            if found is not None and found[0] >= number:
                continue
            if found is None:
                connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(statements.schema)}".encode())
            connection.execute(statements.in_schema(text).encode())
            _write_version(connection, statements, number)
            applied.append(number)
    return applied


def _write_version(connection: psycopg.Connection[Any], statements: Statements, number: int) -> None:
    text = statements.in_schema(
        "INSERT INTO holdfast.meta (version, oldest_code) VALUES (%s, %s) ON CONFLICT (single_row)"
        " DO UPDATE SET version = excluded.version, oldest_code = excluded.oldest_code"
    )
    connection.execute(text.encode(), (number, OLDEST_CODE))


def _read_meta(connection: psycopg.Connection[Any], statements: Statements) -> tuple[int, int, str] | None:
    # The catalogue's own rows, not to_regclass(): that may remember from before the lock that there was none.
    query = (
        "SELECT 1 FROM pg_catalog.pg_class AS class JOIN pg_catalog.pg_namespace AS place ON place.oid = relnamespace"
        " WHERE nspname = %s AND relname = 'meta'"
    )
    if connection.execute(query, (statements.schema,)).fetchone() is None:
        return None
    text = statements.in_schema("SELECT version, oldest_code, installation::text FROM holdfast.meta")
    found: tuple[int, int, str] | None = connection.execute(text.encode()).fetchone()
    return found

"""Statements without a cursor: the same effect, the same errors."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from holdfast.store.postgres.prepared import PreparedStatement

VALUES = {
    "label": 'a\n"\\ ö',
    "number": -(2**62),
    "part": 0.1,
    "yes": True,
    "nothing": None,
    "delay": timedelta(days=-1, seconds=5, microseconds=7),
    "at": datetime(2020, 2, 29, 1, 2, 3, 4, tzinfo=UTC),
}
TEXT = b"""INSERT INTO sink SELECT %(label)s, %(number)s, %(part)s, %(yes)s, %(nothing)s, %(delay)s, %(at)s,
    %(number)s::bigint %% 10"""
TABLE = """CREATE TABLE sink (label text, number bigint, part double precision, yes boolean, nothing text, delay interval,
    at timestamptz, last bigint)"""


@pytest.fixture
def connection(postgres_database):
    with psycopg.connect(postgres_database.url, autocommit=True) as connection:
        connection.execute("CREATE TEMPORARY TABLE gone (); SET search_path = pg_temp, public")
        connection.execute(TABLE.replace("TABLE", "TEMPORARY TABLE"))
        yield connection


def rows(connection):
    return connection.execute("SELECT label, number, part, yes, nothing, delay, at FROM sink").fetchall()


@pytest.mark.parametrize("settings", ["", "SET intervalstyle = sql_standard", "SET datestyle = 'SQL, DMY'"])
def test_values_of_every_type_arrive(connection, settings):
    """Whatever the settings of the session are."""
    connection.execute(settings or "SELECT 1")
    statement = PreparedStatement("sink", TEXT)
    for _ in range(2):
        statement.run(connection, VALUES)
    connection.execute("SET intervalstyle = postgres; SET datestyle = 'ISO'")
    assert rows(connection) == [tuple(VALUES.values())] * 2


def test_its_rows_are_those_of_a_cursor(connection):
    """Types and the order of columns; a statement without rows has an empty list."""
    PreparedStatement("sink", TEXT).run(connection, VALUES)
    text = (
        b"SELECT label, number, part, yes, nothing, delay, at FROM sink WHERE NOT number = ANY(%(left_out)s::bigint[])"
    )
    statement = PreparedStatement("rows", text)
    assert statement.run(connection, {"left_out": []}) == [tuple(VALUES.values())]
    assert statement.run(connection, {"left_out": f"{{{VALUES['number']}}}"}) == []


def test_a_statement_that_the_server_has_forgotten_is_prepared_again(connection):
    """The driver deallocates all statements after some errors."""
    statement = PreparedStatement("sink", TEXT)
    statement.run(connection, VALUES)
    connection.execute("DEALLOCATE ALL")
    statement.run(connection, VALUES)
    assert len(rows(connection)) == 2


def test_an_error_of_the_server_is_that_of_the_driver(connection):
    """The connection can be used afterwards."""
    connection.execute("ALTER TABLE sink ADD UNIQUE (number)")
    statement = PreparedStatement("sink", TEXT)
    statement.run(connection, VALUES)
    with pytest.raises(psycopg.errors.UniqueViolation) as caught:
        statement.run(connection, VALUES)
    assert caught.value.diag.constraint_name == "sink_number_key"
    assert len(rows(connection)) == 1


def test_a_connection_that_is_lost_is_reported(connection):
    """As the driver reports it."""
    statement = PreparedStatement("sink", TEXT)
    statement.run(connection, VALUES)
    with psycopg.connect(connection.info.dsn, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))
    with pytest.raises(psycopg.OperationalError):
        statement.run(connection, VALUES)

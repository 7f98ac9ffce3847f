"""Statements without a cursor: the same effect, the same errors."""

from __future__ import annotations

import select
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from psycopg.pq import ExecStatus
from psycopg.waiting import Ready

from holdfast.store.postgres.prepared import PreparedStatement, _answers
from tests.support.proxy import proxy_to

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
#: A server that refuses a transaction at its end, when it has already answered its statements.
AT_COMMIT = """CREATE FUNCTION pg_temp.at_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {}; RETURN NULL; END $$;
    CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON sink DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION pg_temp.at_commit()"""
REFUSALS = [
    ("RAISE EXCEPTION 'no'", psycopg.errors.RaiseException),
    ("PERFORM pg_terminate_backend(pg_backend_pid())", psycopg.errors.AdminShutdown),
]
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
        statement.run(connection, [(statement, VALUES)])
    connection.execute("SET intervalstyle = postgres; SET datestyle = 'ISO'")
    assert rows(connection) == [tuple(VALUES.values())] * 2


def test_its_rows_are_those_of_a_cursor(connection):
    """Types and the order of columns; a statement without rows has an empty list."""
    sink = PreparedStatement("sink", TEXT)
    sink.run(connection, [(sink, VALUES)])
    text = (
        b"SELECT label, number, part, yes, nothing, delay, at FROM sink WHERE NOT number = ANY(%(left_out)s::bigint[])"
    )
    statement = PreparedStatement("rows", text)
    assert statement.run(connection, [(statement, {"left_out": []})]) == [tuple(VALUES.values())]
    assert statement.run(connection, [(statement, {"left_out": f"{{{VALUES['number']}}}"})]) == []


def test_a_statement_that_the_server_has_forgotten_is_prepared_again(connection):
    """The driver deallocates all statements after some errors."""
    statement = PreparedStatement("sink", TEXT)
    statement.run(connection, [(statement, VALUES)])
    connection.execute("DEALLOCATE ALL")
    statement.run(connection, [(statement, VALUES)])
    assert len(rows(connection)) == 2


def test_an_error_of_the_server_is_that_of_the_driver(connection):
    """The connection can be used afterwards."""
    connection.execute("ALTER TABLE sink ADD UNIQUE (number)")
    statement = PreparedStatement("sink", TEXT)
    statement.run(connection, [(statement, VALUES)])
    with pytest.raises(psycopg.errors.UniqueViolation) as caught:
        statement.run(connection, [(statement, VALUES)])
    assert caught.value.diag.constraint_name == "sink_number_key"
    assert len(rows(connection)) == 1


def test_a_connection_that_is_lost_is_reported(connection):
    """As the driver reports it."""
    statement = PreparedStatement("sink", TEXT)
    statement.run(connection, [(statement, VALUES)])
    with psycopg.connect(connection.info.dsn, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))
    with pytest.raises(psycopg.OperationalError):
        statement.run(connection, [(statement, VALUES)])


@pytest.mark.parametrize(("action", "error"), REFUSALS)
def test_a_commit_that_fails_is_reported(connection, action, error):
    """The statement was answered before: its rows are not an acknowledgement."""
    connection.execute(AT_COMMIT.format(action))
    sink = PreparedStatement("sink", TEXT)
    with pytest.raises(error):
        sink.run(connection, [(sink, VALUES)])


def test_rows_without_the_end_of_an_answer_are_no_acknowledgement(postgres_database):
    """I1: a server that is stopped at once sends the rows of a transaction, which is rolled back, and no error."""
    with proxy_to(postgres_database.url) as proxy, psycopg.connect(proxy.url, autocommit=True) as connection:
        connection.execute(TABLE.replace("TABLE", "TEMPORARY TABLE"))
        sink = PreparedStatement("sink", TEXT)
        proxy.keeps_rows = True
        proxy.lose_answer("INSERT INTO sink")
        with suppress(psycopg.OperationalError):
            sink.run(connection, [(sink, VALUES)])
            pytest.fail("I1 is broken")
        assert connection.closed


# -- with a lock ----------------------------------------------------------------------------

LOCK = b"""SELECT pg_advisory_xact_lock(%(key)s::bigint)
    WHERE set_config('lock_timeout', '50', true) IS NOT NULL"""


@pytest.fixture
def locked(connection):
    """Run the statement, after one that takes an advisory lock."""
    lock, statement = PreparedStatement("lock", LOCK), PreparedStatement("sink", TEXT)
    return lambda: statement.run(connection, [(lock, {"key": 7}), (statement, VALUES)])


def test_an_answer_that_is_there_is_read_in_one_step(connection):
    """Before each further step the threads of handlers would run for some time."""
    lock, statement = PreparedStatement("lock", LOCK), PreparedStatement("sink", TEXT)
    steps = [(lock, {"key": 7}), (statement, VALUES)]
    for each, _ in steps:
        each.prepare(connection)
    connection.pgconn.enter_pipeline_mode()
    for each, values in steps:
        each.send(connection, values)
    connection.pgconn.pipeline_sync()
    answers, waits = [], 0

    def receive():
        answers.extend((yield from _answers(connection.pgconn, 3)))

    waiting = receive()
    with suppress(StopIteration):
        next(waiting)
        while True:
            select.select([connection], [], [])
            waits += 1
            waiting.send(Ready.R)
    connection.pgconn.exit_pipeline_mode()
    statuses = [[result.status for result in answer] for answer in answers]
    assert statuses == [[ExecStatus.TUPLES_OK], [ExecStatus.COMMAND_OK], [ExecStatus.PIPELINE_SYNC]]
    assert waits == 1


def test_a_statement_and_its_lock_are_sent_at_once(connection, locked, tmp_path):
    """A process that is stopped in between would keep the lock."""
    locked()
    with (tmp_path / "trace").open("w") as trace:
        connection.pgconn.trace(trace.fileno())
        locked()
        connection.pgconn.untrace()
    lines = [line.split("\t") for line in (tmp_path / "trace").read_text().splitlines()]
    sent, answers = [[line[3] for line in lines if line[1] == side] for side in "FB"]
    order = [each for each in sent if each in {"Execute", "Sync", "Query"}]
    assert order == ["Execute", "Execute", "Sync"], "S12 is broken"
    assert answers.count("ReadyForQuery") == 1
    assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    assert len(rows(connection)) == 2
    held = connection.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()")
    assert held.fetchone() == (0,)


def test_without_its_lock_a_statement_does_nothing(connection, locked):
    """The connection can be used afterwards."""
    with psycopg.connect(connection.info.dsn) as other:
        other.execute("SELECT pg_advisory_xact_lock(7)")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            locked()
        assert rows(connection) == []
    locked()
    assert len(rows(connection)) == 1


def test_a_forgotten_statement_is_prepared_again_with_its_lock(connection, locked):
    locked()
    connection.execute("DEALLOCATE ALL")
    locked()
    assert len(rows(connection)) == 2


def test_a_connection_that_is_lost_behind_a_lock_is_reported(connection, locked):
    locked()
    with psycopg.connect(connection.info.dsn, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))
    with pytest.raises(psycopg.OperationalError):
        locked()
    assert connection.closed


@pytest.mark.parametrize(("action", "error"), REFUSALS)
def test_a_commit_that_fails_behind_a_lock_is_reported(connection, locked, action, error):
    """The server says so after the answers of both statements."""
    connection.execute(AT_COMMIT.format(action))
    with pytest.raises(error):
        locked()
    assert connection.closed

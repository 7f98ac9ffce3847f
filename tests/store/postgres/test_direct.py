"""Statements without a cursor: the same effect, the same errors."""

from __future__ import annotations

import itertools
import select
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from psycopg.pq import ExecStatus, PipelineStatus, TransactionStatus
from psycopg.waiting import Ready

from holdfast.errors import InvalidInput, InvalidText
from holdfast.store.engine.operation import Query
from holdfast.store.postgres import direct
from holdfast.store.postgres.connections import translate
from holdfast.store.postgres.direct import DirectStatement
from holdfast.store.postgres.statements import Statements, encode
from tests.support.processes import wait_until
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


def run(connection, *steps):
    """Statements with their values by name."""
    encoded = [(each, [encode(values[name], "utf-8") for name in each.parameters]) for each, values in steps]
    return direct.run(connection, encoded)


def rows(connection):
    return connection.execute("SELECT label, number, part, yes, nothing, delay, at FROM sink").fetchall()


@pytest.mark.parametrize("settings", ["", "SET intervalstyle = sql_standard", "SET datestyle = 'SQL, DMY'"])
def test_values_of_every_type_arrive(connection, settings):
    """Whatever the settings of the session are."""
    connection.execute(settings or "SELECT 1")
    statement = DirectStatement("sink", TEXT)
    for _ in range(2):
        run(connection, (statement, VALUES))
    connection.execute("SET intervalstyle = postgres; SET datestyle = 'ISO'")
    assert rows(connection) == [tuple(VALUES.values())] * 2


def test_its_rows_are_those_of_a_cursor(connection):
    """Types and the order of columns; a statement without rows has an empty list."""
    sink = DirectStatement("sink", TEXT)
    run(connection, (sink, VALUES))
    text = (
        b"SELECT label, number, part, yes, nothing, delay, at FROM sink WHERE NOT number = ANY(%(left_out)s::bigint[])"
    )
    statement = DirectStatement("rows", text)
    assert run(connection, (statement, {"left_out": []})) == [tuple(VALUES.values())]
    assert run(connection, (statement, {"left_out": f"{{{VALUES['number']}}}"})) == []


def test_a_statement_that_the_server_has_forgotten_is_prepared_again(connection):
    """The driver deallocates all statements after some errors."""
    statement = DirectStatement("sink", TEXT)
    run(connection, (statement, VALUES))
    connection.execute("DEALLOCATE ALL")
    run(connection, (statement, VALUES))
    assert len(rows(connection)) == 2


def test_an_error_of_the_server_is_that_of_the_driver(connection):
    """The connection can be used afterwards."""
    connection.execute("ALTER TABLE sink ADD UNIQUE (number)")
    statement = DirectStatement("sink", TEXT)
    run(connection, (statement, VALUES))
    with pytest.raises(psycopg.errors.UniqueViolation) as caught:
        run(connection, (statement, VALUES))
    assert caught.value.diag.constraint_name == "sink_number_key"
    assert len(rows(connection)) == 1


def test_a_connection_that_is_lost_is_reported(connection):
    """As the driver reports it."""
    statement = DirectStatement("sink", TEXT)
    run(connection, (statement, VALUES))
    with psycopg.connect(connection.info.dsn, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))
    with pytest.raises(psycopg.OperationalError):
        run(connection, (statement, VALUES))


@pytest.mark.parametrize(("action", "error"), REFUSALS)
def test_a_commit_that_fails_is_reported(connection, action, error):
    """The statement was answered before: its rows are not an acknowledgement."""
    connection.execute(AT_COMMIT.format(action))
    sink = DirectStatement("sink", TEXT)
    with pytest.raises(error):
        run(connection, (sink, VALUES))


def test_rows_without_the_end_of_an_answer_are_no_acknowledgement(postgres_database):
    """I1: a server that is stopped at once sends the rows of a transaction, which is rolled back, and no error."""
    with proxy_to(postgres_database.url) as proxy, psycopg.connect(proxy.url, autocommit=True) as connection:
        connection.execute(TABLE.replace("TABLE", "TEMPORARY TABLE"))
        sink = DirectStatement("sink", TEXT)
        proxy.keeps_rows = True
        proxy.lose_answer("INSERT INTO sink")
        with suppress(psycopg.OperationalError):
            run(connection, (sink, VALUES))
            pytest.fail("I1 is broken")
        assert connection.closed


# -- with a lock ----------------------------------------------------------------------------

LOCK = b"""SELECT pg_advisory_xact_lock(%(key)s::bigint)
    WHERE set_config('lock_timeout', '50', true) IS NOT NULL"""


@pytest.fixture
def locked(connection):
    """Run the statement, after one that takes an advisory lock."""
    lock, statement = DirectStatement("lock", LOCK), DirectStatement("sink", TEXT)
    return lambda: run(connection, (lock, {"key": 7}), (statement, VALUES))


def test_an_answer_that_is_there_is_read_in_one_step(connection):
    """Before each further step the threads of handlers would run for some time."""
    steps = [(DirectStatement("lock", LOCK), {"key": 7}), (DirectStatement("sink", TEXT), VALUES)]
    for each, _ in steps:
        each.prepare(connection)
    connection.pgconn.enter_pipeline_mode()
    for each, values in steps:
        each.send(connection, [encode(values[name], "utf-8") for name in each.parameters])
    connection.pgconn.pipeline_sync()
    results, waits = [], 0

    def receive():
        results.extend((yield from direct._receive(connection.pgconn, 3)))

    waiting = receive()
    with suppress(StopIteration):
        next(waiting)
        while True:
            select.select([connection], [], [])
            waits += 1
            waiting.send(Ready.R)
    connection.pgconn.exit_pipeline_mode()
    assert [each.status for each in results] == [
        ExecStatus.TUPLES_OK,
        ExecStatus.COMMAND_OK,
        ExecStatus.PIPELINE_SYNC,
    ]
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
    assert order == [*["Execute"] * 4, "Sync"], "S12 is broken"  # from BEGIN to COMMIT
    assert answers.count("ReadyForQuery") == 1
    assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    assert len(rows(connection)) == 2
    held = connection.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()")
    assert held.fetchone() == (0,)


@pytest.mark.parametrize("default", ["read committed", "repeatable read", "serializable"])
def test_behind_a_lock_a_statement_sees_what_was_committed_meanwhile(connection, default):
    """K86: whatever the level of the session is."""
    connection.execute(f"SET default_transaction_isolation = '{default}'")
    lock = DirectStatement("lock", b"SELECT pg_advisory_xact_lock(%(key)s::bigint)")
    text = b"SELECT count(*), current_setting('transaction_isolation') FROM pg_class WHERE relname = 'later'"
    count = DirectStatement("count", text)
    with psycopg.connect(connection.info.dsn) as other, ThreadPoolExecutor(1) as pool:
        other.execute("SELECT pg_advisory_xact_lock(7)")
        waiting = pool.submit(run, connection, (lock, {"key": 7}), (count, {}))
        with psycopg.connect(connection.info.dsn, autocommit=True) as observer:
            wait_until(lambda: observer.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone())
        other.execute("CREATE TABLE later ()")
        other.commit()
        other.execute("DROP TABLE later")
    assert waiting.result() == [(1, "read committed")], "K86 is broken"


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
    """The server says so after the answers of both statements. A session that lives on can be used."""
    connection.execute(AT_COMMIT.format(action))
    with pytest.raises(error):
        locked()
    assert connection.closed == (error is psycopg.errors.AdminShutdown)
    assert connection.closed or rows(connection) == []


# -- two of everything, and interrupts --------------------------------------------------------


def test_two_objects_of_one_statement_may_share_a_session(connection):
    """Two threads that need it first at once, two stores, or a pooler that passes on the session."""
    try:
        for _ in range(2):
            sink = DirectStatement("sink", TEXT)
            run(connection, (sink, VALUES))
            direct._prepared.pop(connection)
    except psycopg.errors.DuplicatePreparedStatement:
        pytest.fail("D4 is broken")
    assert len(rows(connection)) == 2


def test_a_name_belongs_to_one_text():
    """Else a session with the statements of another version would run these. PostgreSQL compares 63 bytes."""
    names = [DirectStatement(name, text).name for name in ("sink", "long" * 30) for text in (TEXT, TEXT + b" ")]
    assert len({name[:63] for name in names}) == 4


def test_threads_that_need_a_statement_first_get_one_object(postgres_database):
    """D4: two objects would prepare it twice."""
    query = Query("draw_job_ids", {"count": 1}, direct=True)
    for _ in range(50):
        statements, start = Statements("holdfast"), threading.Barrier(4)

        def first(_, statements=statements, start=start):
            start.wait()
            return statements._statement(query)

        with ThreadPoolExecutor(4) as pool:
            assert len(set(pool.map(first, range(4)))) == 1, "D4 is broken"


class Alarm(Exception):
    """What a handler of SIGALRM raises."""


def alarm(*_):
    raise Alarm


def trace_instructions(work, interrupt=lambda _: False):
    """Run *work*, and raise before an instruction of the module that *interrupt* accepts. Returns those before it."""
    passed = []

    def trace(frame, event, _):
        if frame.f_code.co_filename != direct.__file__:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            passed.append((frame.f_code, frame.f_lasti))
            if interrupt(passed):
                raise Alarm
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with suppress(Alarm):
            work()
    finally:
        sys.settrace(before)
    return passed


@pytest.mark.parametrize("locks", [False, True])
def test_an_interrupt_leaves_no_connection_half_used(postgres_database, request, locks):
    """E2: after an exception at any instruction it is closed, or as it was; what is prepared may be prepared again."""
    steps = [(DirectStatement("lock", LOCK), {"key": 7})] if locks else []
    steps.append((DirectStatement("one", b"SELECT %(number)s::bigint"), {"number": 1}))
    connection, closed = psycopg.connect(postgres_database.url, autocommit=True), 0
    request.addfinalizer(lambda: connection.close())  # noqa: PLW0108 - of the last one
    places = dict.fromkeys(trace_instructions(lambda: run(connection, *steps)))
    for place, nth in itertools.product(places, (1, 2)):  # a statement is prepared first, and then sent
        connection.execute("DEALLOCATE ALL", prepare=False)
        direct._prepared.pop(connection, None)
        trace_instructions(
            lambda: run(connection, *steps),  # noqa: B023 - called at once
            lambda passed: passed[-1] == place and passed.count(place) == nth,  # noqa: B023
        )
        if connection.closed:
            closed += 1
            connection = psycopg.connect(postgres_database.url, autocommit=True)
        assert connection.info.transaction_status == TransactionStatus.IDLE, "E2 is broken"
        assert connection.info.pipeline_status == PipelineStatus.OFF, "E2 is broken"
        assert run(connection, *steps) == [(1,)], "E2 is broken"
    assert closed > 50


def test_a_signal_while_an_answer_is_awaited_closes_the_connection(connection):
    """SIGALRM of a time limit; the answer would be that of the next statement."""
    sleep = DirectStatement("sleep", b"SELECT pg_sleep(%(seconds)s)")
    run(connection, (sleep, {"seconds": 0.0}))

    before = signal.signal(signal.SIGALRM, alarm)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Alarm):
            run(connection, (sleep, {"seconds": 10.0}))
        assert connection.closed
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_keyboard_interrupt_is_not_hidden(connection):
    """The driver cancels the statement, and runs the same generator again."""
    sleep = DirectStatement("sleep", b"SELECT pg_sleep(10)")
    sleep.prepare(connection)

    def interrupt(*_):
        if not connection.closed:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        # The second one comes if Python raised the first in a finalizer, and so ignored it.
        signal.setitimer(signal.ITIMER_REAL, 0.05, 3.0)
        with pytest.raises(KeyboardInterrupt):
            run(connection, (sleep, {}))
        assert connection.closed
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_value_that_cannot_be_sent_leaves_the_connection_as_it_is(postgres_database):
    """PostgreSQL has no NUL, and would end the text there: no name arrives half. UTF-8 has no halves of pairs."""
    refused = []
    try:
        encode("a\0b", "utf-8")
    except psycopg.DataError as error:
        refused.append(translate(error))
    assert [type(error) for error in refused] == [InvalidInput], "S7 is broken"
    store = postgres_database.open()
    with pytest.raises(InvalidText):
        store.backend.run(Query("list_lane_heads", {"queues": ["\ud800"], "kinds": ["k"]}, direct=True))
    assert store.backend.pool_stats().connections == {"in_use": 0, "idle": 1, "abandoned": 0}

"""Statements on connections with other settings than ours."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest
from psycopg import ClientCursor, RawCursor
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row

from holdfast.domain.jobs.dependencies import After
from holdfast.domain.jobs.new_job import KeyScope, NewJob, Unique
from holdfast.errors import InvalidInput, InvalidText
from holdfast.store import open_store
from holdfast.store.engine.operation import Query, query
from holdfast.store.postgres.statements import Statements
from tests.support.jobs import put, take_one

TEXT = '{"text":"日é \\\\d %s"}'


@pytest.mark.parametrize("options", ["", "prepare=off"])
@pytest.mark.parametrize(
    "setting", ["intervalstyle = 'iso_8601'", "datestyle = 'German, DMY'", "client_encoding = 'latin1'"]
)
def test_settings_of_the_database_change_no_answer(postgres_database, setting, options):
    """S7: times are read in their binary form, and texts are UTF-8, whatever the database says."""
    url = postgres_database.url
    name = postgres_database.execute("SELECT current_database()")[0][0]
    postgres_database.execute(f'ALTER DATABASE "{name}" SET {setting}')
    try:
        store = open_store(f"{url}{'&' if '?' in url else '?'}{options}" if options else url)
        put(store, delay=timedelta(hours=1))
        assert timedelta(minutes=59) < store.leases.next_due() <= timedelta(hours=1)
        job_id = put(store, payload=TEXT, unique=Unique("k", KeyScope.PERIOD, timedelta(days=2)))
        lease = take_one(store)
        assert (lease.job_id, lease.payload) == (job_id, TEXT)
        store.close()
    finally:
        postgres_database.execute(f'ALTER DATABASE "{name}" RESET ALL')


def test_a_statement_and_its_lock_are_sent_at_once(postgres_database, tmp_path):
    """A process that is stopped or killed after it has sent its claim keeps neither the queue's lock nor the jobs'."""
    store, statements = postgres_database.open(), Statements("holdfast")
    store.queues.set_limits("default", limit=1)
    lock = query("lock_limited_queues", queues=["default"])
    with (
        (tmp_path / "trace").open("w") as trace,
        psycopg.connect(postgres_database.url, autocommit=True) as connection,
    ):
        connection.pgconn.trace(trace.fileno())
        found = statements.perform(connection, Query("find_limited_queue", lock.parameters, lock=lock))
        connection.pgconn.untrace()
        assert (found, connection.info.transaction_status) == ([("default",)], TransactionStatus.IDLE)
    sent = [line.split("\t")[3] for line in (tmp_path / "trace").read_text().splitlines() if "\tF\t" in line]
    assert (sent.count("Execute"), sent.count("Sync"), sent.count("Query")) == (4, 1, 0), "S12 is broken"


@pytest.mark.parametrize(
    "options", [{"cursor_factory": RawCursor}, {"cursor_factory": ClientCursor}, {"row_factory": dict_row}, {}]
)
def test_connections_of_callers_may_have_any_cursors_and_styles(postgres_database, options):
    """S7: an enqueue depends on no default of the caller's connection."""
    store = postgres_database.open()
    first = put(store)
    with psycopg.connect(postgres_database.url, **options) as connection:
        connection.execute("SET datestyle = 'SQL, DMY'")
        connection.execute("SET intervalstyle = 'sql_standard'")
        period = Unique("k", KeyScope.PERIOD, timedelta(days=2))
        requests = [NewJob(kind="a", payload=TEXT, unique=period), NewJob(kind="b", after=After(ids=(first,)))]
        answers = store.jobs.enqueue_on(connection, requests)
        again = store.jobs.enqueue_on(connection, requests[:1])
    assert again[0].id == answers[0].id
    assert [store.views.get(answer.id).state for answer in answers] == ["ready", "waiting"]


def test_connections_that_cannot_be_used_are_refused(postgres_database):
    """S7: in a pipeline no statement gets its answer at once; latin1 has no word for some texts."""
    store = postgres_database.open()
    with psycopg.connect(postgres_database.url) as connection:
        with connection.pipeline(), pytest.raises(InvalidInput, match="pipeline"):
            store.jobs.enqueue_on(connection, [NewJob(kind="a")])
        connection.execute("SET client_encoding = 'latin1'")
        with pytest.raises(InvalidText, match="latin-1"):
            store.jobs.enqueue_on(connection, [NewJob(kind="a", unique=Unique("日"))])
        connection.rollback()


@pytest.mark.parametrize("texts", [["a"], ["a", 'b "quoted"'], ["\\", "{x,y}", "NULL", "", " ", "日é\n"], ['"', '","']])
def test_texts_reach_the_server_as_they_are(postgres_database, texts):
    (argument,) = Statements("holdfast").arguments(query("lock_schedules", names=texts)).values()
    with psycopg.connect(postgres_database.url) as connection:
        assert connection.execute("SELECT %s::text[]", [argument]).fetchone() == (texts,)

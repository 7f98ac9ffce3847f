"""Ids that a restore or a failover gives out again: every way to enqueue finds free ones."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import psycopg
import pytest

from holdfast.domain.access.audit import Via
from holdfast.domain.batches.batch import BatchState, Sharding
from holdfast.domain.batches.unit import unit_key
from holdfast.domain.jobs.job import WorkerId
from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.schedules.definition import Definition
from holdfast.domain.schedules.plan import Overlap, Plan
from holdfast.store import Store
from holdfast.store.access.audit import AuditedAction
from holdfast.store.batches.runs import RunRequest
from holdfast.store.engine.operation import query
from holdfast.store.postgres.backend import PostgresBackend
from holdfast.store.schedules.fired_plans import Advance, PlanToFire
from tests.support.backends import START
from tests.support.postgres import QUICK, bundled_programs, running
from tests.support.processes import connect

JOB = NewJob(kind="cleanup")


@pytest.fixture
def store(postgres_database):
    """A store whose sequence is behind the ids of its jobs."""
    store = postgres_database.open()
    store.jobs.enqueue_many([JOB] * 50)
    postgres_database.execute("SELECT setval('holdfast.job_id', 1)")
    return postgres_database.open()


@pytest.mark.slow
def test_ids_that_a_crash_of_the_server_gives_out_again():
    """A draw does not wait for the disk. Ids that were drawn before the crash and after it are not given to two jobs."""
    unflushed = {"wal_writer_delay": "10s", "autovacuum": "off"}
    with running(bundled_programs(), settings={**QUICK, **unflushed}) as server:
        before, after = Store(PostgresBackend(server.url())), Store(PostgresBackend(server.url()))
        ids = [before.jobs.enqueue(JOB).id for _ in range(40)]
        drawn = before.backend.draw_ids(100)
        server.stop("immediate")
        server.start()
        assert drawn[-1] >= after.backend.draw_ids(1)[0], "the crash has lost no draw"
        for store in (before, after) * 40:
            ids.append(store.jobs.enqueue(JOB).id)
        assert len({*ids}) == len(ids)
        assert after.views.existing(ids) == {*ids}
        before.close()
        after.close()


def test_a_draw_leaves_commits_durable(postgres_database):
    """Neither the transaction of a caller nor the next one of a connection loses its wait for the disk."""
    store = postgres_database.open()
    waits = "SELECT current_setting('synchronous_commit')"
    with connect(postgres_database.url) as connection:
        store.jobs.enqueue_on(connection, [JOB])
        assert connection.execute(waits).fetchone() == ("on",)
        connection.execute(store.backend.statements.text(query("draw_job_ids", count=3)), {"count": 3})
        assert connection.execute(waits).fetchone() == ("off",), "a draw waits for the disk"
        connection.commit()
        assert connection.execute(waits).fetchone() == ("on",)


def test_draws_at_once_get_different_ids(postgres_database):
    """A draw of many ids has two steps. None comes between those of another, from whatever connection."""
    sources = [postgres_database.open().backend for _ in range(2)]
    query = "SELECT holdfast.draw_job_ids(%s)"

    def draw(number):
        if number % 3:
            return sources[number % 2].draw_ids(1 + number)
        with psycopg.connect(postgres_database.url) as connection:
            ((first,),) = connection.execute(query, (number + 1,))
            return range(first, first + number + 1)

    with ThreadPoolExecutor(6) as pool:
        ids = [job_id for drawn in pool.map(draw, range(60)) for job_id in drawn]
    assert len({*ids}) == len(ids) == sum(range(61))


def test_a_draw_in_an_open_transaction_holds_up_no_other(postgres_database):
    store = postgres_database.open()
    with connect(postgres_database.url) as connection:
        (answer,) = store.jobs.enqueue_on(connection, [JOB])
        assert store.jobs.enqueue(JOB).id > answer.id
        connection.rollback()
    assert store.jobs.enqueue(JOB).id > answer.id, "a rollback returns no ids"


def test_an_enqueue_in_the_callers_transaction(store, postgres_database):
    """S6: it failed once for each id that exists, as long as no other enqueue came."""
    with connect(postgres_database.url) as connection:
        (answer,) = store.jobs.enqueue_on(connection, [JOB])
    assert store.views.get(answer.id).kind == "cleanup"


def test_an_enqueue_in_the_callers_async_transaction(store, postgres_database):
    """S6: the same, on an async connection."""

    async def enqueue():
        async with await psycopg.AsyncConnection.connect(postgres_database.url) as connection:
            return await store.jobs.aenqueue_on(connection, [JOB])

    (answer,) = asyncio.run(enqueue())
    assert store.views.get(answer.id).kind == "cleanup"


def test_an_enqueue_of_a_person(store):
    """S6: the command line and the API write through a store that audits, or in one transaction."""
    audited = store.audited(AuditedAction(actor="ada", via=Via.CLI, action="enqueue", target="cleanup"))
    assert audited.jobs.enqueue(JOB).created
    assert len(store.audit_log.page()) == 1


def test_an_enqueue_with_an_idempotency_key(store):
    """S6: the transaction of the request goes on after ids that were taken."""
    with store.single_transaction() as single:
        answer = single.jobs.enqueue(JOB)
    assert store.views.get(answer.id).kind == "cleanup"


def test_the_jobs_of_plans_runs_and_shards(store, postgres_database):
    """S2, B1: they took the next id that exists at each try. No schedule was planned for up to half an hour."""
    due = Definition(kind="cleanup", every=timedelta(seconds=1), start=START)
    schedule = store.schedules.create("tidy", due, actor="ada")
    fires = [PlanToFire(Plan("tidy", START), JOB)]
    step = Advance(schedule.name, schedule.token, START, None, Overlap.ALLOW, fires)
    assert store.plans.advance([step]).fired == 1, "S2 is broken"
    request = RunRequest(identity="i", kind="work", arguments="{}", source="keys", actor="ada", owner="{}")
    run = store.batches.open(request, worker=WorkerId("w"))
    store.batches.plan(run, [(unit_key(1), 0)])
    postgres_database.execute("SELECT setval('holdfast.job_id', 1)")
    assert store.batches.launch(run, Sharding(kind="shard:work")).state is BatchState.RUNNING

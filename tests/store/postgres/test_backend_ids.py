"""Ids that a restore or a failover gives out again: every way to enqueue finds free ones."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from holdfast.domain.access.audit import Via
from holdfast.domain.jobs.new_job import NewJob
from holdfast.store.access.audit import AuditedAction
from tests.support.processes import connect

JOB = NewJob(kind="cleanup")


@pytest.fixture
def store(postgres_database):
    """A store whose sequence is behind the ids of its jobs."""
    store = postgres_database.open()
    store.jobs.enqueue_many([JOB] * 50)
    postgres_database.execute("SELECT setval('holdfast.job_id', 1)")
    return postgres_database.open()


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

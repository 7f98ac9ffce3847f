"""Priorities, due times and ids at both ends of their types: the same promises as in the middle."""

from __future__ import annotations

import itertools
import logging
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import Context, Holdfast
from holdfast.domain.jobs.job import State
from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.jobs.verdict import Done
from holdfast.domain.quantities import FIRST_YEAR, LAST_YEAR
from tests.support.jobs import put, state, take

LOWEST, HIGHEST = -(2**31), 2**31 - 1
FIRST = datetime(FIRST_YEAR, 1, 1, tzinfo=UTC)
LAST = datetime(LAST_YEAR, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
PAST = datetime(2020, 2, 29, 23, 59, 59, 999999, tzinfo=UTC)
priorities = st.sampled_from([LOWEST, LOWEST + 1, -1, 0, 1, HIGHEST - 1, HIGHEST]) | st.integers(LOWEST, HIGHEST)
past_times = st.sampled_from([FIRST, FIRST + timedelta.resolution, PAST]) | st.datetimes(
    FIRST.replace(tzinfo=None), PAST.replace(tzinfo=None), timezones=st.just(UTC)
)
future_times = st.sampled_from([LAST, LAST - timedelta.resolution, datetime(2500, 1, 1, tzinfo=UTC)])
jobs = st.lists(st.tuples(priorities, past_times | future_times), min_size=1, max_size=12)
examples = settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
numbers = itertools.count()


def order(requests, ids):
    """The ids of the jobs that are due, the best first."""
    due = [
        (-priority, run_at, job_id) for (priority, run_at), job_id in zip(requests, ids, strict=True) if run_at <= PAST
    ]
    return [job_id for *_, job_id in sorted(due)]


@pytest.mark.parametrize("bulk", [False, True])
@examples
@given(requests=jobs)
def test_jobs_are_claimed_in_order_and_settled(store, bulk, requests):
    """I17: by priority, due time and id; one enqueued at the end of time waits."""
    queue = f"q{next(numbers)}"
    new = [NewJob(kind="mail", queue=queue, priority=priority, run_at=run_at) for priority, run_at in requests]
    ids = [each.id for each in (store.jobs.enqueue_many(new) if bulk else map(store.jobs.enqueue, new))]
    claimed = []
    while leases := take(store, 3, queues=(queue,)):
        claimed += [lease.job_id for lease in leases]
        assert [(lease.priority, lease.due_at) for lease in leases] == [
            requests[ids.index(lease.job_id)] for lease in leases
        ]
        for lease in leases:
            store.leases.settle(lease, Done())
    assert claimed == order(requests, ids)
    assert {state(store, job_id) for job_id in claimed} <= {State.DONE}
    assert {state(store, job_id) for job_id in set(ids) - set(claimed)} <= {State.SCHEDULED}


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(requests=st.lists(st.tuples(priorities, past_times), min_size=3, max_size=40))
def test_a_worker_runs_them_in_order_and_without_an_error(real_database, caplog, requests):
    """CORE D3: a position at the highest priority leaves no gap above it."""
    ran, queue = [], f"q{next(numbers)}"
    with Holdfast(real_database.url) as app:

        @app.job(queue=queue)
        def mail(job: Context) -> None:
            ran.append(job.id)

        ids = [put(app.store, queue=queue, priority=priority, run_at=run_at) for priority, run_at in requests]
        with caplog.at_level(logging.WARNING):
            app.worker(slots=1, drain=True).run()
    assert not [record.getMessage() for record in caplog.records]
    assert ran == order(requests, ids)


@pytest.mark.parametrize("first", [2**31 - 2, 2**53 - 2, 2**63 - 30_000])
def test_ids_may_be_as_large_as_their_type(database, make_store, first):
    """Of jobs, dependents and leases."""
    if database.name == "sqlite":
        store = make_store()
        database.execute("UPDATE holdfast_meta SET last_job_id = ?", (first - 1,))
    else:
        database.execute("SELECT setval('holdfast.job_id', %s, false)", (first,))
        store = make_store()
    ids = [put(store), *(each.id for each in store.jobs.enqueue_many([NewJob(kind="mail")] * 5))]
    assert ids[0] >= first
    assert ids == sorted(set(ids))
    leases = take(store, 9)
    assert [lease.job_id for lease in leases] == ids
    for lease in leases:
        store.leases.settle(lease, Done(result="1"))
    assert {state(store, job_id) for job_id in ids} == {State.DONE}

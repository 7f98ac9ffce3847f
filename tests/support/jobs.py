"""Short words for the store suite."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from holdfast.domain.jobs.job import JobId, Lease, State, WorkerId
from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.verdict import Failed
from holdfast.domain.retention import Retention
from holdfast.errors import LeaseLost
from holdfast.store import Store
from holdfast.store.jobs.leases import DEFAULT_LEASE
from holdfast.store.jobs.retention import RULES

WORKER = WorkerId("worker-1")
BOOM = Failed(error="boom")


def put(store: Store, kind: str = "mail", **options) -> JobId:
    """Enqueue a job and return its id."""
    return store.jobs.enqueue(NewJob(kind=kind, **options)).id


def take(
    store: Store,
    limit: int = 1,
    *,
    kinds: tuple[str, ...] = ("mail",),
    queues: tuple[str, ...] = ("default",),
    **options,
) -> list[Lease]:
    """Claim jobs; see :func:`claim_jobs`."""
    return claim_jobs(store, options.pop("worker", WORKER), limit, queues=queues, kinds=kinds, **options)


def claim_jobs(
    store: Store,
    worker: str,
    limit: int = 1,
    *,
    queues: Sequence[str],
    kinds: Sequence[str],
    lease_duration: timedelta = DEFAULT_LEASE,
    started: bool = False,
    **options,
) -> list[Lease]:
    """Claim up to *limit* jobs for free slots, all with the same lease duration; *started*: record their starts."""
    durations = dict.fromkeys(kinds, lease_duration)
    leases = store.leases.claim(WorkerId(worker), queues=list(queues), leases=durations, free=limit, **options)
    if started:
        store.leases.record_starts(leases)
    return leases


def record_start(store: Store, lease: Lease) -> int:
    """Record the start of a run; returns the number of its attempt. A lost lease raises."""
    if not store.leases.record_starts([lease]):
        raise LeaseLost.of(lease.job_id, lease.token)
    return store.views.get(lease.job_id).attempts


def take_one(store: Store, **options) -> Lease:
    """Claim exactly one job."""
    (lease,) = take(store, 1, **options)
    return lease


def state(store: Store, job_id: JobId) -> State:
    return store.views.get(job_id).state


def states(store: Store) -> dict[JobId, State]:
    return {job.id: job.state for job in store.views.all(Selector())}


def lapse(clock, lease_duration: timedelta = DEFAULT_LEASE) -> None:
    """Let all leases of *term* lapse."""
    clock.advance(lease_duration + timedelta(seconds=1))


def prune(store: Store, *names: str, retention: Retention | None = None, limit: int = 1000) -> int:
    """Apply the retention rules of these names; returns the number of pruned rows."""
    rules = [rule for rule in RULES if rule.name in names]
    assert len(rules) == len(names)
    return sum(store.pruner.apply(rule, retention or Retention(), limit=limit) for rule in rules)


def only(*ids: JobId) -> Selector:
    return Selector(ids=ids)

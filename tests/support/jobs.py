"""Short words for the store suite."""

from __future__ import annotations

from datetime import timedelta

from holdfast.domain.jobs.job import JobId, Lease, State, WorkerId
from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.verdict import Failed
from holdfast.store import Store
from holdfast.store.jobs.leases import DEFAULT_LEASE
from holdfast.store.jobs.retention import RULES, Retention

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
    """Claim jobs."""
    options.setdefault("worker", WORKER)
    return store.leases.claim(options.pop("worker"), queues=list(queues), kinds=list(kinds), limit=limit, **options)


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

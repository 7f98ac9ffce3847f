"""Promotion: jobs that could not be claimed become ready, by their time, their dependencies or a new build."""

from __future__ import annotations

from datetime import timedelta

from msgspec import Struct

from holdfast.domain.jobs.history import EventName
from holdfast.domain.jobs.job import JobId
from holdfast.domain.jobs.lane_position import EarlierJobs
from holdfast.domain.jobs.new_job import Actor
from holdfast.store.engine.changes import jobs_at
from holdfast.store.engine.operation import Noun, Operation, Query, query
from holdfast.store.jobs import dependencies, refusals
from holdfast.store.jobs.dependencies import Effects
from holdfast.store.jobs.events import record

FIRST = JobId(0)


class _Wait(Struct, frozen=True):
    wait: timedelta


class Promotion(Noun):
    """Makes jobs ready that were not. Every worker calls it; each step is safe to run concurrently."""

    def next_due(self, *, overdue: bool = True) -> timedelta | None:
        """The time until the next scheduled job is due, negative if one is overdue; None without one."""
        where = () if overdue else ("not_due",)
        rows: list[_Wait] = self._backend.fetch(Query("read_next_due", {}, _Wait, where))
        return rows[0].wait if rows else None

    def offer_refused(self, *, limit: int = 500) -> int:
        """Offer jobs that workers could not read to builds that have not refused them; returns the jobs it changed.

        - A ready job whose reader is gone goes to another build, and is held if there is none.
        - A job that is held because no live worker could read it is released when a worker of a new build is alive.
        - At most *limit* jobs of each lane are changed.
        """
        if not self._fetch("list_refused_lanes"):
            return 0
        return self._wake(self._backend.write(refusals.offer, limit))

    def promote(self, *, limit: int = 1000) -> int:
        """Make due scheduled jobs ready; returns their number."""
        places = self._backend.write(_promote, limit)
        return len(self._wake(places, jobs_at(places)))

    def complete_effects(self, *, limit: int = 500) -> Effects:
        """Do what settlements have left of their effects on other jobs, for up to *limit* of them.

        A settlement leaves effects if another transaction has locked a job that waits for it, or if a long chain of
        jobs is cancelled.
        """
        if not self._fetch("find_pending_effect"):
            return Effects(0, 0)
        effects = self._backend.write(dependencies.complete_effects, limit)
        self._wake(effects.taken)
        return effects

    def check_waiting(self, *, after: JobId = FIRST, limit: int = 1000) -> JobId | None:
        """Judge one page of waiting jobs by their dependencies; returns the start of the next page.

        The last resort: it finds jobs whose dependencies finished without any record that they wait.
        """
        if not self._fetch("list_waiting_jobs", after=after, limit=1):
            return None
        return self._backend.write(dependencies.check_waiting, after, limit)


def _promote(limit: int) -> Operation[list[EarlierJobs]]:
    rows = yield query("promote_due_jobs", limit=limit)
    yield from record(EventName.DUE, dict.fromkeys(row[0] for row in rows), actor=Actor.MAINTENANCE)
    return [dependencies.ready_at(*place) for _, *place in rows]

"""Leases: who may run what until when, and how runs end."""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from msgspec import Struct

from holdfast.domain.jobs.history import EventName
from holdfast.domain.jobs.job import ControlRequest, JobId, Lease, WorkerId
from holdfast.domain.jobs.new_job import Actor
from holdfast.domain.jobs.result import is_json
from holdfast.domain.jobs.verdict import Done, Outcome
from holdfast.domain.text import clean_text
from holdfast.errors import InvalidInput, LeaseLost
from holdfast.store.engine.backend import Backend, Timeouts
from holdfast.store.engine.operation import ById, Operation, query
from holdfast.store.jobs import dependencies, settlement
from holdfast.store.jobs.dependencies import FinishedJob
from holdfast.store.jobs.events import record
from holdfast.store.jobs.settlement import Settlement, TakenOver

T = TypeVar("T")

DEFAULT_LEASE = timedelta(seconds=60)
MAX_MESSAGE = 1000
MAX_CHECKPOINT = 64 * 1024
FIRST = JobId(0)


class Renewal(Struct, frozen=True):
    """A lease that is still the holder's. Not *renewed*: somebody held the row just then."""

    job_id: JobId
    renewed: bool
    requested: ControlRequest | None


class _Wait(Struct, frozen=True):
    wait: timedelta


class Leases:
    """Claims jobs for workers and ends their runs. Every write is fenced by the token."""

    def __init__(self, backend: Backend, *, chance: Callable[[], float] = random.random) -> None:
        self._backend = backend
        self._chance = chance

    def claim(
        self,
        worker: WorkerId,
        *,
        queues: Sequence[str],
        kinds: Sequence[str],
        limit: int = 1,
        lease_duration: timedelta = DEFAULT_LEASE,
        mark: bool = False,
    ) -> list[Lease]:
        """Take leases on up to *limit* ready jobs, the most urgent first.

        - Every job is handed to exactly one holder, with a token higher than any before.
        - Only jobs of these queues and kinds are touched; paused queues start nothing.
        - Limits of queues are exact over all workers; jobs of limited queues come marked.
        - *mark*: the starts are marked at once, each costs an attempt if its holder is lost.
          Jobs that are suspect, or whose ``on_lost`` is not ``retry``, are handed out only so.
        """
        lanes = {"queues": list(queues), "kinds": list(kinds), "worker": worker, "lease_duration": lease_duration}
        lanes |= {"limit": limit, "mark": mark}
        leases: list[Lease] = self._backend.run(query("claim", Lease, **lanes), timeout=Timeouts.brief)
        if leases and leases[-1].token == 0:
            leases = self._backend.write(_claim_ranked, lanes)
        leases.sort(key=lambda lease: (-lease.priority, lease.due_at, lease.job_id))
        return leases

    def renew(
        self, leases: Sequence[Lease], *, lease_duration: timedelta = DEFAULT_LEASE, begun: Container[JobId] = ()
    ) -> list[Renewal]:
        """Extend leases by *term* from now; what is missing in the answer is lost.

        - The runs of *begun* are under way: their starts are marked, if they were not before.

        - A lease that lapsed but that nobody took over is renewed.
        - A row that somebody else has locked holds up no other renewal.
        - The answer tells for which jobs a cancel or a pause is wanted.
        """
        if not leases:
            return []
        held = ById(
            id=[lease.job_id for lease in leases],
            token=[lease.token for lease in leases],
            lease_duration=[lease_duration] * len(leases),
            mark=[lease.job_id in begun for lease in leases],
        )
        return self._backend.run(query("renew_leases", Renewal, leases=held), repeatable=True, timeout=Timeouts.brief)

    def mark(self, lease: Lease) -> int:
        """Mark durably that the run begins, and return its attempt number; idempotent.

        Raises:
            LeaseLost: The job was taken over or given back; nothing was written.
        """
        rows = self._backend.run(query("record_start", id=lease.job_id, token=lease.token), repeatable=True)
        if not rows:
            raise LeaseLost.of(lease.job_id, lease.token)
        number: int = rows[0][0]
        return number

    def settle(self, lease: Lease, outcome: Outcome, *, ran: timedelta | None = None) -> None:
        """Record how a run ended; a repeated settle with the same outcome is a success.

        Raises:
            LeaseLost: The job was taken over or given back; nothing was written.
        """
        if self.settle_many([Settlement(lease, outcome, ran)]):
            raise LeaseLost.of(lease.job_id, lease.token)

    def settle_many(self, settlements: Sequence[Settlement]) -> set[JobId]:
        """Record how many runs ended; answers the jobs whose lease was lost.

        A lost lease changes nothing and holds up no other settlement.
        """
        done = [s for s in settlements if isinstance(s.outcome, Done)]
        others = [s for s in settlements if not isinstance(s.outcome, Done)]
        lost = self._settle_done(done) if done else set()
        if others:
            lost |= self._backend.write(settlement.settle_others, others, self._chance)
            self._backend.notify()
        return lost

    def release(self, leases: Sequence[Lease]) -> int:
        """Return prefetched jobs that were never begun: at no cost, to their places."""
        return self._notify_after(self._backend.write(settlement.release, list(leases)) if leases else 0)

    def release_unknown(self, worker: WorkerId, *, queues: Sequence[str], known: Sequence[JobId]) -> int:
        """Give back what *worker* holds without knowing: the answer to a claim was lost; answers how many.

        Nothing of it was begun, so it costs no attempt. No claim of this worker may be under way.
        """
        return self._notify_after(self._backend.write(settlement.release_unknown, worker, list(queues), list(known)))

    def take_over(self, *, limit: int = 100) -> list[TakenOver]:
        """End leases that have lapsed, and judge their jobs as the rules say.

        - Queue by queue, the longest lapsed first, no more than *limit*.
        - The token is raised: the old holder can no longer write anything.
        - A marked start costs an attempt and counts as a crash; an unmarked one costs
          nothing, and makes the job suspect.
        - No lease is handed out, and no kind needs to be known.
        """
        return self._notify_after(self._backend.write(settlement.take_over, limit, self._chance))

    def next_due(self) -> timedelta | None:
        """How long until the next scheduled job is due, less than nothing when one is; None without one."""
        rows: list[_Wait] = self._backend.look(query("read_next_due", _Wait))
        return rows[0].wait if rows else None

    def any_expired(self) -> bool:
        """Whether there is a lease to take over."""
        return bool(self._backend.look(query("find_expired_lease")))

    def promote(self, *, limit: int = 1000) -> int:
        """Make scheduled jobs ready whose time has come; answers how many."""
        return self._notify_after(self._backend.write(_promote, limit))

    def sweep_waiting(self, *, after: JobId = FIRST, limit: int = 1000) -> JobId | None:
        """Judge one page of waiting jobs by their needs; answers where the next page begins.

        This is the truth about dependencies: whatever was missed is found here.
        """
        if not self._backend.look(query("list_waiting_jobs", after=after, limit=1)):
            return None
        return self._backend.write(dependencies.sweep, after, limit)

    def report(
        self,
        lease: Lease,
        *,
        done: int | None = None,
        total: int | None = None,
        message: str | None = None,
        checkpoint: str | None = None,
    ) -> None:
        """Write progress, or a checkpoint for the next attempt; what is not said stays.

        Raises:
            LeaseLost: The job was taken over or given back; nothing was written.
        """
        text = None if message is None else clean_text(message, limit=MAX_MESSAGE)
        if checkpoint is not None and not is_json(checkpoint, limit=MAX_CHECKPOINT):
            raise InvalidInput(f"a checkpoint is JSON of at most {MAX_CHECKPOINT:,} bytes")
        told = {"done": done, "total": total, "message": text, "checkpoint": checkpoint}
        if not self._backend.run(query("report_progress", id=lease.job_id, token=lease.token, **told), repeatable=True):
            raise LeaseLost.of(lease.job_id, lease.token)

    def _settle_done(self, done: list[Settlement]) -> set[JobId]:
        done.sort(key=lambda each: each.lease.job_id)
        finished: list[FinishedJob] = self._backend.run(settlement.done_statement(done), repeatable=True)
        has_dependents = [job.id for job in finished if job.has_dependents]
        missing = {s.lease.job_id: s for s in done}
        for job in finished:
            del missing[job.id]
        lost: set[JobId] = self._backend.write(settlement.truly_lost, list(missing.values())) if missing else set()
        # Ends that were recorded by an answer that got lost: nobody has told their dependents.
        has_dependents += missing.keys() - lost
        if has_dependents:
            self._backend.write(dependencies.after_end, has_dependents)
            self._backend.notify()
        return lost

    def _notify_after(self, found: T) -> T:
        """Wake workers if there is something new for them."""
        if found:
            self._backend.notify()
        return found


def _promote(limit: int) -> Operation[int]:
    rows = yield query("promote_due_jobs", limit=limit)
    yield from record(EventName.DUE, dict.fromkeys(row[0] for row in rows), actor=Actor.SWEEPER)
    return len(rows)


def _claim_ranked(lanes: dict[str, Any]) -> Operation[list[Lease]]:
    yield query("lock_limited_queues", queues=lanes["queues"])
    leases: list[Lease] = yield query("claim_limited", Lease, **lanes)
    return leases

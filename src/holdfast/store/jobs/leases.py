"""Leases: the right of one worker to run one job until a deadline, and to store its finished steps."""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Mapping, Sequence
from datetime import timedelta
from typing import Any

from msgspec import Struct

from holdfast.domain.jobs.history import EventName
from holdfast.domain.jobs.job import ControlRequest, JobId, Lease, WorkerId
from holdfast.domain.jobs.json_values import MAX_RESULT, is_json
from holdfast.domain.jobs.new_job import Actor
from holdfast.domain.jobs.verdict import Done, Outcome
from holdfast.domain.names import checked_name, clean_text
from holdfast.errors import InvalidInput, LeaseLost
from holdfast.store.engine.backend import Backend, Timeouts
from holdfast.store.engine.operation import ById, Noun, Operation, delegate, query, transaction
from holdfast.store.jobs import dependencies, settlement
from holdfast.store.jobs.dependencies import FinishedJob
from holdfast.store.jobs.events import record
from holdfast.store.jobs.settlement import Settlement, TakenOver

DEFAULT_LEASE = timedelta(seconds=60)
MAX_MESSAGE = 1000
MAX_CHECKPOINT = 64 * 1024
FIRST = JobId(0)


class Renewal(Struct, frozen=True):
    """A lease that its holder still has. Not *renewed*: another transaction had locked its row."""

    job_id: JobId
    renewed: bool
    requested: ControlRequest | None


class _Wait(Struct, frozen=True):
    wait: timedelta


class Leases(Noun):
    """Claims jobs for workers and finishes their runs. The token fences every write."""

    def __init__(self, backend: Backend, *, chance: Callable[[], float] = random.random) -> None:
        super().__init__(backend)
        self._chance = chance

    def claim(
        self,
        worker: WorkerId,
        *,
        queues: Sequence[str],
        leases: Mapping[str, timedelta],
        free: int = 1,
        ahead: int = 0,
        short: Container[str] = (),
        suspects: tuple[int, int] | None = None,
        limits: bool = True,
        autoscaled: Sequence[str] = (),
        unfinished: Sequence[JobId] = (),
    ) -> list[Lease]:
        """Take leases on ready jobs, in one order over all *queues* and kinds: priority, due time, id.

        *leases* holds the lease duration of each kind. The first *free* jobs are claimed for free slots,
        then up to *ahead* jobs to wait for a slot.

        - Every job goes to exactly one holder, with a token higher than any before. No start is recorded.
        - Only jobs of these queues and kinds are touched; paused queues start nothing.
        - Ahead of slots, only jobs of *short* kinds are claimed, and none behind a better job that needs a slot:
          one with ``no_prefetch``, of another kind, of a limited queue, or a poison suspect.
        - *suspects*: the room for poison suspects of level 2 and of level 3; by default there is room for all.
          Suspects without room hold up no other job, nor do *unfinished* jobs, which are left out.
        - Limits of queues are exact over all workers. Without *limits*, limited queues are left out.
        - Commands of *autoscaled* queues are left out.
        """
        few, alone = suspects or (free, free)
        kinds = ById(id=list(leases), lease_duration=list(leases.values()), short=[name in short for name in leases])
        values = {"worker": worker, "queues": list(queues), "kinds": kinds, "free": free, "ahead": ahead}
        values |= {"few": few, "alone": alone, "autoscaled": list(autoscaled), "unfinished": list(unfinished)}
        if limits:
            claimed = self._claim_limited(values)
        else:
            claimed = self._backend.run(query("claim", Lease, **values), timeout=Timeouts.brief)
        claimed.sort(key=lambda lease: (-lease.priority, lease.due_at, lease.job_id))
        return claimed

    @transaction()
    def _claim_limited(self, values: dict[str, Any]) -> Operation[list[Lease]]:
        yield query("lock_limited_queues", queues=values["queues"])
        return (yield query("claim_limited", Lease, **values))

    def any_limited(self, queues: Sequence[str]) -> bool:
        """Whether one of these queues has a limit. A claim without limits is cheaper."""
        return bool(self._fetch("find_limited_queue", queues=list(queues)))

    def renew(
        self, leases: Sequence[Lease], *, lease_duration: timedelta = DEFAULT_LEASE, begun: Container[JobId] = ()
    ) -> list[Renewal]:
        """Extend leases by *lease_duration* from now; leases that are missing in the answer are lost.

        - The runs of *begun* have started: their starts are recorded, if they were not before.
        - An expired lease is renewed if no other worker took it over.
        - A row that another transaction has locked does not delay the other renewals.
        - The answer holds the requested cancels and pauses.
        """
        if not leases:
            return []
        marks = [lease.job_id in begun for lease in leases]
        held = settlement.held_by(leases, lease_duration=[lease_duration] * len(leases), mark=marks)
        return self._backend.run(query("renew_leases", Renewal, leases=held), repeatable=True, timeout=Timeouts.brief)

    def record_starts(self, leases: Sequence[Lease]) -> set[JobId]:
        """Record durably that runs start; returns their jobs. Idempotent.

        A job that is missing in the answer is lost, or another transaction has locked its row.
        """
        if not leases:
            return set()
        held = settlement.held_by(leases)
        rows = self._backend.run(query("record_starts", leases=held), repeatable=True, timeout=Timeouts.brief)
        return {row[0] for row in rows}

    def settle(self, lease: Lease, outcome: Outcome, *, ran: timedelta | None = None) -> None:
        """Record the outcome of a run; a repeated settle with the same outcome is a success.

        Raises:
            LeaseLost: The job was taken over or released; nothing was written.
        """
        if self.settle_many([Settlement(lease, outcome, ran)]):
            raise LeaseLost.of(lease.job_id, lease.token)

    def settle_many(self, settlements: Sequence[Settlement]) -> set[JobId]:
        """Record the outcomes of many runs; returns the jobs whose lease was lost.

        A lost lease changes nothing and does not delay the other settlements.
        """
        done = [s for s in settlements if isinstance(s.outcome, Done)]
        others = [s for s in settlements if not isinstance(s.outcome, Done)]
        lost = self._settle_done(done) if done else set()
        if others:
            lost |= self._backend.write(settlement.settle_others, others, self._chance)
            self._backend.notify()
        return lost

    def release(self, leases: Sequence[Lease]) -> int:
        """Return prefetched jobs that never started to their places in the queue, at no cost; returns their number."""
        return self._wake(self._backend.write(settlement.release, list(leases)) if leases else 0)

    release_unknown = delegate(settlement.release_unknown, wakes=True)

    @transaction(wakes=True)
    def take_over(self, *, limit: int = 100) -> Operation[list[TakenOver]]:
        """Finish up to *limit* expired leases, and decide the next states of their jobs.

        - Queue by queue, the longest expired first.
        - The token is raised: the old holder can no longer write anything.
        - A recorded start costs an attempt and counts as a crash. Without one the run costs
          nothing, and the job becomes a poison suspect; its level rises with each such loss.
        - No lease is granted, and no kind has to be registered.
        """
        return settlement.take_over(limit, self._chance)

    def next_due(self) -> timedelta | None:
        """The time until the next scheduled job is due, negative if one is overdue; None without one."""
        rows: list[_Wait] = self._fetch("read_next_due", _Wait)
        return rows[0].wait if rows else None

    def any_expired(self) -> bool:
        """Whether any lease has expired."""
        return bool(self._fetch("find_expired_lease"))

    @transaction(wakes=True)
    def promote(self, *, limit: int = 1000) -> Operation[int]:
        """Make due scheduled jobs ready; returns their number."""
        rows = yield query("promote_due_jobs", limit=limit)
        yield from record(EventName.DUE, dict.fromkeys(row[0] for row in rows), actor=Actor.MAINTENANCE)
        return len(rows)

    def check_waiting(self, *, after: JobId = FIRST, limit: int = 1000) -> JobId | None:
        """Judge one page of waiting jobs by their dependencies; returns the start of the next page.

        This repairs every wake-up that was missed when a dependency finished.
        """
        if not self._fetch("list_waiting_jobs", after=after, limit=1):
            return None
        return self._backend.write(dependencies.check_waiting, after, limit)

    def report(
        self,
        lease: Lease,
        *,
        done: int | None = None,
        total: int | None = None,
        message: str | None = None,
        checkpoint: str | None = None,
    ) -> None:
        """Write progress, or a checkpoint for the next attempt; None leaves a value as it is.

        Raises:
            LeaseLost: The job was taken over or released; nothing was written.
        """
        text = None if message is None else clean_text(message, limit=MAX_MESSAGE)
        if checkpoint is not None and not is_json(checkpoint, limit=MAX_CHECKPOINT):
            raise InvalidInput(f"a checkpoint is JSON of at most {MAX_CHECKPOINT:,} bytes")
        values = {"done": done, "total": total, "message": text, "checkpoint": checkpoint}
        if not self._backend.run(
            query("report_progress", id=lease.job_id, token=lease.token, **values), repeatable=True
        ):
            raise LeaseLost.of(lease.job_id, lease.token)

    def _settle_done(self, done: list[Settlement]) -> set[JobId]:
        done.sort(key=lambda each: each.lease.job_id)
        finished: list[FinishedJob] = self._backend.run(settlement.done_statement(done), repeatable=True)
        has_dependents = [job.id for job in finished if job.has_dependents]
        missing = {s.lease.job_id: s for s in done}
        for job in finished:
            del missing[job.id]
        lost: set[JobId] = self._backend.write(settlement.truly_lost, list(missing.values())) if missing else set()
        # Their answer got lost after the commit, so their dependents were not judged.
        has_dependents += missing.keys() - lost
        if has_dependents:
            self._backend.write(dependencies.after_end, has_dependents)
            self._backend.notify()
        return lost


class StoredStep(Struct, frozen=True):
    """A finished step with its result as JSON, or a sleep and its remaining time."""

    name: str
    result: str | None
    remaining: timedelta | None


class Steps(Noun):
    """Stores the finished steps of jobs."""

    def kept(self, lease: Lease) -> dict[str, StoredStep]:
        """All steps of the job, by name."""
        steps: list[StoredStep] = self._fetch("list_steps", StoredStep, id=lease.job_id)
        return {step.name: step for step in steps}

    def keep(self, lease: Lease, name: str, result: str | None = None, *, delay: timedelta | None = None) -> StoredStep:
        """Store a step; a step of this name that is stored already stays as it is, and is returned.

        *delay* makes it a sleep that ends after this time.

        Raises:
            LeaseLost: The job was taken over or released; nothing was written.
        """
        checked_name(name, label="the step")
        if result is not None and not is_json(result, limit=MAX_RESULT):
            raise InvalidInput(f"the result of step {name!r} is JSON of at most {MAX_RESULT:,} bytes")
        values = {"name": name, "result": result, "delay": delay}
        steps: list[StoredStep] = self._backend.run(
            query("insert_step", StoredStep, id=lease.job_id, token=lease.token, **values), repeatable=True
        )
        if not steps:
            raise LeaseLost.of(lease.job_id, lease.token)
        return steps[0]

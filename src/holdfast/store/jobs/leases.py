"""Leases: the right of one worker to run one job until a deadline, and to store its finished steps."""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Sequence
from datetime import timedelta
from typing import Any

from msgspec import Struct

from holdfast.domain.jobs.history import EventName
from holdfast.domain.jobs.job import ControlRequest, JobId, Lease, Token, WorkerId
from holdfast.domain.jobs.json_values import MAX_RESULT, is_json
from holdfast.domain.jobs.new_job import Actor
from holdfast.domain.jobs.verdict import Done, Outcome
from holdfast.domain.names import checked_name, clean_text
from holdfast.errors import InvalidInput, LeaseLost
from holdfast.store.engine.backend import Backend, Timeouts
from holdfast.store.engine.operation import Noun, Operation, delegate, query, transaction
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
        kinds: Sequence[str],
        limit: int = 1,
        lease_duration: timedelta = DEFAULT_LEASE,
        mark: bool = False,
    ) -> list[Lease]:
        """Take leases on up to *limit* ready jobs, the most urgent first.

        - Every job goes to exactly one holder, with a token higher than any before.
        - Only jobs of these queues and kinds are touched; paused queues start nothing.
        - Limits of queues are exact over all workers; starts of jobs of limited queues are recorded.
        - *mark*: the starts are recorded at once, and each costs an attempt if its holder is lost.
          Poison suspects, and jobs whose ``on_lost`` is not ``retry``, are claimed only this way.
        """
        lanes = {"queues": list(queues), "kinds": list(kinds), "worker": worker, "lease_duration": lease_duration}
        lanes |= {"limit": limit, "mark": mark}
        leases: list[Lease] = self._backend.run(query("claim", Lease, **lanes), timeout=Timeouts.brief)
        if leases and leases[-1].token == 0:
            leases = self._claim_ranked(lanes)
        leases.sort(key=lambda lease: (-lease.priority, lease.due_at, lease.job_id))
        return leases

    @transaction()
    def _claim_ranked(self, lanes: dict[str, Any]) -> Operation[list[Lease]]:
        yield query("lock_limited_queues", queues=lanes["queues"])
        leases: list[Lease] = yield query("claim_limited", Lease, **lanes)
        return leases

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
        # A short lease needs the answer sooner: a later try may still come in time.
        timeout = min(Timeouts.brief, lease_duration / 5)
        return self._backend.run(query("renew_leases", Renewal, leases=held), repeatable=True, timeout=timeout)

    def record_start(self, lease: Lease) -> int:
        """Record durably that the run starts, and return its attempt number; idempotent.

        Raises:
            LeaseLost: The job was taken over or released; nothing was written.
        """
        rows = self._backend.run(query("record_start", id=lease.job_id, token=lease.token), repeatable=True)
        if not rows:
            raise LeaseLost.of(lease.job_id, lease.token)
        return int(rows[0][0])

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
    def take_over(self, *, limit: int = 100, proceed: Callable[[], bool] = lambda: True) -> Operation[list[TakenOver]]:
        """Finish up to *limit* expired leases, and decide the next states of their jobs.

        - Queue by queue, the longest expired first.
        - The token is raised: the old holder can no longer write anything.
        - A recorded start costs an attempt and counts as a crash. Without one the run costs
          nothing, and the job becomes a poison suspect.
        - No lease is granted, and no kind has to be registered.
        - *proceed* is called in the transaction; if it returns false, nothing happens.
        """
        if not proceed():
            return []
        return (yield from settlement.take_over(limit, self._chance))

    def current_tokens(self, job_ids: Sequence[JobId]) -> dict[JobId, Token]:
        """The tokens of those jobs that run, read without waiting for any writer."""
        return dict(self._fetch("list_current_tokens", ids=list(job_ids)))

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

"""Leases: the right of one worker to run one job until a deadline."""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from operator import attrgetter

from msgspec import Struct

from holdfast.domain.jobs.job import ControlRequest, JobId, Lease, Token, WorkerId
from holdfast.domain.jobs.json_values import is_json
from holdfast.domain.jobs.lane_position import EarlierJobs
from holdfast.domain.jobs.verdict import Done, Outcome, Verdict
from holdfast.domain.names import clean_text
from holdfast.errors import InvalidInput, JobLocked, LeaseLost
from holdfast.store.engine.backend import Backend, Timeouts
from holdfast.store.engine.changes import JOBS, jobs_at
from holdfast.store.engine.operation import Operation, Query, T, query
from holdfast.store.jobs import settlement
from holdfast.store.jobs.claims import Claims
from holdfast.store.jobs.settlement import LeaseKey, ReleaseResult, Settlement, SettleResult, TakenOver

DEFAULT_LEASE = timedelta(seconds=60)
MAX_MESSAGE = 1000
MAX_CHECKPOINT = 64 * 1024
#: How often one settlement is tried while another transaction has locked its job; each try waits 0.2 s.
LOCK_TRIES = 10
#: Lanes in which rows without a job are searched for.
MAX_ORPHAN_LANES = 1000
#: Every lease has expired within this time.
MAX_WINDOW = timedelta(days=36525)


class Renewal(Struct, frozen=True):
    """A lease that its holder still has. Not *renewed*: another transaction had locked its row, or it was only read."""

    job_id: JobId
    renewed: bool
    requested: ControlRequest | None


class Orphan(Struct, frozen=True):
    """A live row without a job that was deleted."""

    id: JobId
    queue: str
    kind: str


class StartedCommand(Struct, frozen=True):
    """A command whose start is recorded. *is_off*: commands are switched off, so it fails."""

    is_off: bool
    label: str | None


class Leases(Claims):
    """Claims jobs for workers and finishes their runs. The token fences every write."""

    def __init__(self, backend: Backend, *, chance: Callable[[], float] = random.random) -> None:
        super().__init__(backend)
        self._chance = chance

    def renew(
        self, leases: Sequence[Lease], *, lease_duration: timedelta = DEFAULT_LEASE, begun: Container[JobId] = ()
    ) -> list[Renewal]:
        """Extend leases of one worker by *lease_duration* from now; leases that are missing in the answer are lost.

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
        return self._backend.run(Query("renew_leases", held, Renewal), repeatable=True, timeout=timeout)

    def requests(self, leases: Sequence[Lease]) -> list[Renewal]:
        """Read the requests to runs of one worker without a renewal; leases that are missing in the answer are lost."""
        if not leases:
            return []
        statement = Query("read_requests", settlement.held_by(leases), Renewal)
        return self._backend.run(statement, repeatable=True, timeout=Timeouts.brief)

    def record_starts(self, leases: Sequence[Lease]) -> set[JobId]:
        """Record durably that runs of one worker start; returns their jobs. Idempotent.

        A job that is missing in the answer is lost, or another transaction has locked its row.
        """
        if not leases:
            return set()
        statement = Query("record_starts", settlement.held_by(leases))
        rows = self._backend.run(statement, repeatable=True, timeout=Timeouts.brief)
        return {row[0] for row in rows}

    def start_command(self, lease: Lease, lease_duration: timedelta = DEFAULT_LEASE) -> StartedCommand | None:
        """Record durably that a command starts, and extend its lease by *lease_duration* from now. Idempotent.

        None: it must not start. Its lease is lost, its row is locked, its queue is paused, the store is stopped, or
        a cancel or a pause is requested.
        """
        statement = _start_command(lease, lease_duration)
        started = self._backend.run(statement, repeatable=True, timeout=Timeouts.brief)
        return started[0] if started else None

    def settle_and_start(
        self, done: Settlement, lease: Lease, lease_duration: timedelta = DEFAULT_LEASE
    ) -> tuple[SettleResult, StartedCommand | None]:
        """Record that a run succeeded and that a command starts: both are on record, or neither. Idempotent.

        It waits for the lock of a file, and tries again after an outage, as long as any write does.
        """

        def settle_and_start() -> Operation[tuple[SettleResult, int, list[StartedCommand]]]:
            result, needed = yield from settlement.settle_with_effects([done], ())
            return result, needed, (yield _start_command(lease, lease_duration))

        result, needed, started = self._backend.write(settle_and_start)
        self._wake(needed)
        return result, started[0] if started else None

    def settle(self, lease: Lease, outcome: Outcome, *, ran: timedelta | None = None) -> None:
        """Record the outcome of a run; a repeated settle with the same outcome is a success.

        Raises:
            LeaseLost: The job was taken over or released; nothing was written.
            JobLocked: Another transaction has kept the job's row locked for seconds; nothing was written.
        """
        for _ in range(LOCK_TRIES):
            result = self.settle_many([Settlement(lease, outcome, ran)])
            if result.lost:
                raise LeaseLost.of(lease.job_id, lease.token)
            if not result.locked:
                return
        raise JobLocked(f"another transaction has locked the row of job {lease.job_id}", job_id=lease.job_id)

    def settle_many(self, settlements: Sequence[Settlement], *, wait: bool = True) -> SettleResult:
        """Record the outcomes of many runs, each judged by its job and token.

        A lost lease and a job that another transaction has locked change nothing, and delay the
        other settlements by a fraction of a second at most; not *wait*: not at all.
        """
        lost, locked, verdicts = set[LeaseKey](), set[LeaseKey](), dict[LeaseKey, Verdict]()
        for group in settlement.one_per_job(settlements, attrgetter("lease")):
            done = [s for s in group if isinstance(s.outcome, Done)]
            others = [s for s in group if not isinstance(s.outcome, Done)]
            for part, settle in ((done, self._settle_done), (others, self._settle_others)):
                if part:
                    result = _unless_locked(partial(settle, part), settlement.UNLOCKED, wait=wait)
                    lost |= result.lost
                    locked |= result.locked
                    verdicts |= result.verdicts
        return SettleResult(lost, locked, verdicts=verdicts)

    def release(self, leases: Sequence[Lease], *, wait: bool = True) -> ReleaseResult:
        """Return prefetched jobs that never started to their places in the queue, at no cost."""
        released, locked = 0, set[LeaseKey]()
        for group in settlement.one_per_job(leases, lambda lease: lease):
            result = _unless_locked(partial(self._release, group), settlement.UNLOCKED, wait=wait)
            released += result.released
            locked |= result.locked
        places = (EarlierJobs(each.queue, each.kind, each.priority, each.due_at, each.due_at) for each in leases)
        changes = jobs_at(places)
        return ReleaseResult(self._wake(released, changes), locked)

    def release_unknown(self, worker: WorkerId, *, queues: Sequence[str], known: Sequence[JobId]) -> int:
        """Release the jobs that *worker* holds without knowing; see :func:`settlement.release_unknown`."""
        return self._wake(self._backend.write(settlement.release_unknown, worker, queues=queues, known=known))

    def take_over(self, *, limit: int = 100, proceed: Callable[[], bool] = lambda: True) -> list[TakenOver]:
        """Finish up to *limit* expired leases, and decide the next states of their jobs.

        - Queue by queue, the longest expired first.
        - The token is raised: the old holder can no longer write anything.
        - A recorded start costs an attempt and counts as a crash. Without one the run costs
          nothing, and the job becomes a poison suspect; its level rises with each such loss.
        - No lease is granted, and no kind has to be registered.
        - A locked job is left for later, and so are the holders of a locked batch.
        - *proceed* is called in the transaction; if it returns false, nothing happens.
        """

        def take_over(where: tuple[str, ...]) -> Operation[list[TakenOver]]:
            if not proceed():
                return []
            return (yield from settlement.take_over(limit, self._chance, where))

        return self._wake(_unless_locked(lambda where: self._backend.write(take_over, where), ("without_units",)))

    def delete_orphans(self, *, limit: int = 20) -> list[Orphan]:
        """Delete live rows that have no job, where they take the place of one; returns them.

        - Of the ready ones, those among the first *limit* of each lane; of the expired leases, the first *limit*.
        - A job whose transaction has not committed has no row yet, so that none is taken for an orphan.
        """
        ids = [row[0] for row in self._fetch("list_orphans", lanes=MAX_ORPHAN_LANES, limit=limit)]
        if not ids:
            return []
        orphans: list[Orphan] = self._backend.run(query("delete_orphans", Orphan, ids=ids))
        return self._wake(orphans)

    def take_over_from(self, dead: WorkerId, *, limit: int = 100) -> list[TakenOver]:
        """Finish up to *limit* leases of a worker that is *dead*, whether or not they have expired.

        - The caller has the proof that the process of the worker has exited, with everything that it started.
        - All else is as for :meth:`take_over`: an old holder that lives all the same can no longer write anything.
        """

        def take_over(where: tuple[str, ...]) -> Operation[list[TakenOver]]:
            return (yield from settlement.take_over(limit, self._chance, where, dead=dead))

        return self._wake(_unless_locked(lambda where: self._backend.write(take_over, where), ("without_units",)))

    def current_tokens(self, worker: WorkerId, job_ids: Sequence[JobId]) -> dict[JobId, Token]:
        """The tokens of those jobs that *worker* runs, read without waiting for any writer."""
        return dict(self._fetch("list_current_tokens", worker=worker, ids=list(job_ids)))

    def any_expired(self, *, window: timedelta = MAX_WINDOW) -> bool:
        """Whether any lease has expired, within the last *window*: PostgreSQL may keep index entries of all leases."""
        return bool(self._fetch("find_expired_lease", window=window))

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
            JobLocked: Another transaction has locked the job's row; nothing was written.
        """
        text = None if message is None else clean_text(message, limit=MAX_MESSAGE)
        if checkpoint is not None and not is_json(checkpoint, limit=MAX_CHECKPOINT):
            raise InvalidInput(f"a checkpoint is JSON of at most {MAX_CHECKPOINT:,} bytes")
        values = {"done": done, "total": total, "message": text, "checkpoint": checkpoint}
        if not self._backend.run(query("report_progress", **lease.fence, **values), repeatable=True):
            raise LeaseLost.of(lease.job_id, lease.token)

    def _settle_done(self, done: list[Settlement], where: tuple[str, ...]) -> SettleResult:
        """One statement for jobs without effects on others; a transaction for the rest, and to find out about it."""
        alone = settlement.settle_done(done, settlement.WITHOUT_EFFECTS + where)
        settled = {job.id for job in self._backend.run(alone, repeatable=True)}
        rest = [s for s in done if s.lease.job_id not in settled]
        if not rest:
            return SettleResult(set(), set())
        result, needed = self._backend.write(settlement.settle_with_effects, rest, where)
        self._wake(needed)
        return result

    def _settle_others(self, others: list[Settlement], where: tuple[str, ...]) -> SettleResult:
        result = self._backend.write(settlement.settle_others, others, self._chance, where)
        self._backend.notify(JOBS)
        return result

    def _release(self, leases: list[Lease], where: tuple[str, ...]) -> ReleaseResult:
        return self._backend.write(settlement.release, leases, where)


def _start_command(lease: Lease, lease_duration: timedelta) -> Query:
    return query("start_command", StartedCommand, **lease.fence, lease_duration=lease_duration)


def _unless_locked(work: Callable[[tuple[str, ...]], T], unlocked: tuple[str, ...], *, wait: bool = True) -> T:
    """Do work that waits briefly for locked rows; if it waits in vain, do it again and leave them out."""
    if wait:
        with suppress(JobLocked):
            return work(())
    return work(unlocked)

"""The lifecycle of a run: its context, its end, the loss of its lease, its settlement."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from msgspec import structs

from holdfast.domain.jobs.job import JobId, Lease
from holdfast.domain.jobs.verdict import Done, Failed, Outcome, Released, Unreadable
from holdfast.errors import HoldfastError
from holdfast.store.jobs.leases import StartedCommand
from holdfast.store.jobs.settlement import Settlement, SettleResult, lease_key
from holdfast.worker.active_runs import ActiveRuns, Run
from holdfast.worker.autoscaler.autoscaler import Autoscaler
from holdfast.worker.batches.turns import ShardTurns
from holdfast.worker.context import MakeRequest, Reporter, RunContext, SendMessage
from holdfast.worker.handler_call import RESULTS, describe_overdue
from holdfast.worker.options import WorkerSetup
from holdfast.worker.run_log import RunLog
from holdfast.worker.settler import Settler
from holdfast.worker.shortage import Shortage
from holdfast.worker.stats import RunTimes, Stats

log = logging.getLogger("holdfast")
#: Outages of the store that a handler may report at no cost, per job and worker. The store has answered after each.
MAX_OUTAGES = 10


class RunLifecycle:
    """Follows runs from their first call to their settlement, and keeps the worker's counts."""

    def __init__(
        self, setup: WorkerSetup, *, request: MakeRequest, leaving: threading.Event, autoscaler: Autoscaler | None
    ) -> None:
        self.counts = Stats()
        self.log = RunLog(setup.worker, setup.served)
        self.run_times = RunTimes()
        self.shortage = Shortage()
        self.active_runs = ActiveRuns()
        self.finish_signal = self.active_runs.finish_signal
        self._turns = ShardTurns(setup, self.active_runs)
        self.settler = Settler(setup.store.reserved_store(), self.active_runs, settled=self._settled)
        self._interruptions: Counter[JobId] = Counter()
        #: Held to count settlements: the settler and the slots of commands write some.
        self._counting = threading.Lock()
        #: Called after each run, when its settlement is queued and its slot is free.
        self.slot_freed: Callable[[], None] = lambda: None
        #: Called after settlements are written.
        self.settled: Callable[[], None] = lambda: None
        self._store, self._worker, self._served = setup.store, setup.worker, setup.served
        self._request = request
        self._leaving = leaving
        self.autoscaler = autoscaler

    def context(self, run: Run) -> RunContext:
        send = self.reporter(run)
        return RunContext(
            run, send, self._worker, self._request, leaving=self._leaving, counts=self.counts, turns=self._turns
        )

    def reporter(self, run: Run) -> SendMessage:
        """The function that carries messages of the handler to the store."""
        return Reporter(run, self._store, enqueued=self._enqueued).answer

    def start_command(self, run: Run) -> StartedCommand | None:
        """Record the start of a command, with the end of another one if that was left for this transaction."""
        leases, duration = self._store.leases, timedelta(seconds=run.lease_duration)
        if (settlement := self.settler.take_joining()) is None:
            return leases.start_command(run.lease, duration)
        try:
            result, started = leases.settle_and_start(settlement, run.lease, duration)
        except BaseException:
            self.settler.put(settlement)
            raise
        self.settler.written([settlement], result)
        return started

    def finished(self, run: Run, settlement: Settlement | None, *, joins: bool = False) -> None:
        """Learn from a finished run and queue its settlement; executors call it in their own threads.

        Without a settlement, the run did not begin. *joins*: the thread starts a command next; see ``Settler.put``.
        """
        if settlement is None:
            self.unbegun(run)
            return
        if settlement.ran is not None:
            self.run_times.learn(run.kind.name, settlement.ran.total_seconds())
        if run.measured and self.autoscaler is not None:
            self.autoscaler.finished(run, settlement.outcome)
        if not isinstance(settlement.outcome, Done):
            settlement = structs.replace(settlement, outcome=self._final(settlement.lease, settlement.outcome))
        elif run.timeout is not None and settlement.ran is not None and settlement.ran.total_seconds() > run.timeout:
            outcome = structs.replace(settlement.outcome, overdue=describe_overdue(settlement.ran, run.timeout))
            settlement = structs.replace(settlement, outcome=outcome)
            self.log.overdue(settlement, outcome)
        self.settler.put(settlement, joins=joins and isinstance(settlement.outcome, Done))

    def _final(self, lease: Lease, outcome: Outcome) -> Outcome:
        """Add the build to a refusal. A handler that reports outages again and again fails."""
        if isinstance(outcome, Unreadable):
            return structs.replace(outcome, build=self._served.build)
        if isinstance(outcome, Released) and outcome.interrupted:
            self._interruptions[lease.job_id] += 1
            if outcome.error is not None and self._interruptions[lease.job_id] > MAX_OUTAGES:
                return Failed(error=outcome.error)
        return outcome

    def unbegun(self, run: Run, *, start_in_doubt: bool = False) -> None:
        """Release a run that will not begin. *start_in_doubt*: its start may be recorded, and is refunded then."""
        run.finished = True
        if run.measured and self.autoscaler is not None:
            self.autoscaler.finished(run, Released())
        if run.started or start_in_doubt:
            self.settler.put(Settlement(run.lease, Released()))
        else:
            self.settler.release([run.lease])

    def refuse_second_runs(self, runs: list[Run]) -> list[Run]:
        """Release the leases on jobs whose handlers still run here, and drop those handlers; returns the other runs.

        Only a store that has lost its last commits returns such a job: it has forgotten the first claim.
        """
        under_way = {run.lease.job_id: run for run in self.active_runs.unfinished}
        second = [run for run in runs if run.lease.job_id in under_way]
        for run in second:
            if not (first := under_way[run.lease.job_id]).lost:
                self.lost(first)
                first.drop()
            self.unbegun(run)
        return [run for run in runs if run not in second] if second else runs

    def lost(self, run: Run) -> None:
        """The lease is gone; the store will refuse the outcome."""
        log.warning("the lease on job %d was lost; its handler gets a stop request", run.lease.job_id)
        self.counts.lost += 1

    @property
    def unfinished(self) -> list[Run]:
        """The runs whose handlers go on. A finished run is settled, never released: its job would run again."""
        return self.active_runs.unfinished

    @property
    def interrupted_once(self) -> tuple[JobId, ...]:
        """The jobs that an outage of the store has interrupted here, but not a second time."""
        return tuple(job_id for job_id, times in self._interruptions.items() if times == 1)

    def release(self, runs: list[Run]) -> None:
        """Release the jobs of handlers that outlast the process; this costs them no attempt."""
        if runs:
            log.warning("handlers that did not finish in time: %d; their jobs are released", len(runs))
            rest = [Settlement(run.lease, Released(interrupted=True)) for run in runs]
            try_write(lambda: self._release(rest))

    def _release(self, rest: list[Settlement]) -> None:
        result = self._store.leases.settle_many(rest)
        self._settled([each for each in rest if lease_key(each.lease) not in result.locked], result)

    def _enqueued(self) -> None:
        self.counts.enqueued += 1

    def _settled(self, settlements: list[Settlement], result: SettleResult) -> None:
        self.settled()
        written = settlements
        if result.lost:
            written = [each for each in settlements if lease_key(each.lease) not in result.lost]
        with self._counting:
            for job_id, _ in result.lost:
                del self._interruptions[job_id]  # it belongs to others now
            self.counts.refused += len(result.lost)
            self._count(written)
        verbose = self.log.is_verbose
        for settlement in written:
            if verbose or not isinstance(settlement.outcome, Done):
                self.log.settled(settlement, result.verdicts.get(lease_key(settlement.lease)))

    def _count(self, settlements: list[Settlement]) -> None:
        now = datetime.now(UTC)
        groups: dict[tuple[str, str, type[Outcome]], tuple[list[float], list[float]]] = {}
        for settlement in settlements:
            lease, ran = settlement.lease, settlement.ran
            labels = lease.queue, lease.kind, type(settlement.outcome)
            runs, waits = groups.get(labels) or groups.setdefault(labels, ([], []))
            if ran is None:
                self.counts.completed[*self.counts.lane(lease.queue, lease.kind), RESULTS[labels[2]]] += 1
                continue
            runs.append(seconds := ran.total_seconds())
            waits.append(max(0.0, (now - lease.due_at).total_seconds() - seconds))
        for (queue, kind, outcome_type), (runs, waits) in groups.items():
            if runs:
                lane = self.counts.lane(queue, kind)
                self.counts.completed[*lane, RESULTS[outcome_type]] += len(runs)
                self.counts.runs.add(lane, runs)
                self.counts.waits.add(lane, waits)


def write_within(seconds: float, write: Callable[[], object]) -> None:
    """Write to the store, but give up after a time: a process that stops must not wait for a silent server."""
    thread = threading.Thread(target=try_write, args=(write,), name="holdfast-last-write", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        log.warning("the store does not answer; the remaining leases will expire")


def try_write(write: Callable[[], object]) -> None:
    """Write to the store if it answers; for writes whose loss expiring leases make good."""
    try:
        write()
    except HoldfastError as error:
        log.warning("the final update of the store failed: %s", error)

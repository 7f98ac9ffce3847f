"""The worker: it claims jobs, has them run, and lets them come to their end."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from msgspec import Struct

from holdfast.domain.context import Context
from holdfast.domain.job import JobId, Lease, OnLost, State, WorkerId
from holdfast.domain.kind import Kind
from holdfast.domain.request import NewJob
from holdfast.domain.selector import Selector
from holdfast.domain.verdict import Done, Released
from holdfast.run import clock
from holdfast.run.context import RunContext
from holdfast.run.execute import Executor
from holdfast.run.execute.thread import ThreadExecutor
from holdfast.run.heartbeat import INTERVAL, Heartbeat
from holdfast.run.held import Held, Run, StopReason
from holdfast.run.pace import Pace
from holdfast.run.part import Mover
from holdfast.run.settler import Settler
from holdfast.run.sweep import Sweeper
from holdfast.store import Store
from holdfast.store.retention import Retention
from holdfast.store.settlement import Settlement

log = logging.getLogger("holdfast")

POLL = 1.0
GRACE = timedelta(seconds=30)

MakeRequest = Callable[[str, Mapping[str, Any], dict[str, Any]], NewJob]


class WorkerOptions(Struct, frozen=True, kw_only=True):
    """How a worker works."""

    queues: tuple[str, ...] = ("default",)
    slots: int = 8
    drain: bool = False
    grace: timedelta = GRACE
    heartbeat: float = INTERVAL
    poll: float = POLL
    retention: Retention | None = None


class Worker:
    """One process's share of the work. ``run`` works until ``stop`` is called."""

    name = "control"

    def __init__(
        self, store: Store, kinds: Mapping[str, Kind], *, options: WorkerOptions, request: MakeRequest
    ) -> None:
        self.id = WorkerId(f"{socket.gethostname()[:40]}-{secrets.token_hex(8)}")
        self.bell = threading.Event()
        self.counts: dict[str, int] = {}
        self._store = store
        self._kinds = dict(kinds)
        self._options = options
        self._request = request
        self._stopping = threading.Event()
        self._held = Held()
        self._pace = Pace()
        self._settler = Settler(store, self._held, settled=self._count)
        self._heartbeat = Heartbeat(store, self.id, self._held, interval=options.heartbeat, lost=self._lost)
        self._sweeper = Sweeper(store, retention=options.retention, ready=self.bell.set)
        self._threads = ThreadExecutor(
            options.slots, context=self._context, finish=self._finish, group=lambda run: self._pace.group(run.kind.name)
        )
        self._loop: Executor | None = None
        self._movers = [Mover(part) for part in (self._heartbeat, self._settler, self._sweeper)]

    # -- life ------------------------------------------------------------------------------

    def run(self) -> None:
        """Work until :meth:`stop` is called, or, draining, until nothing is left; then wind down."""
        self._announce()
        for mover in self._movers:
            mover.start()
        control = Mover(self)
        while not self._stopping.is_set():
            rest = control.tick()
            if self._options.drain and rest > 0 and self._drained():
                break
            if rest > 0:
                self.bell.wait(rest)
            self.bell.clear()
        self._wind_down()

    def stop(self) -> None:
        """Claim nothing more, and let what runs end within the grace; idempotent."""
        self._stopping.set()
        self.bell.set()

    def tick(self) -> float:
        """Claim what there is room for; answers when to look again."""
        self._watch_timeouts()
        if self._heartbeat.fenced:
            return 0.5
        claimed = self._claim_short()
        claimed += self._claim_long(more=claimed == 0)
        return 0.0 if claimed else self._options.poll

    # -- claiming --------------------------------------------------------------------------

    def _claim_short(self) -> int:
        """Fetch short jobs ahead, in large groups."""
        kinds = [name for name, kind in self._kinds.items() if self._pace.is_short(name) and not _careful(kind)]
        if not kinds:
            return 0
        target = max(self._pace.ahead(kinds, self._options.slots), self._options.slots)
        room = target - self._waiting
        if room * 2 < target:
            return 0
        return self._take(kinds, room, mark=False)

    def _claim_long(self, *, more: bool) -> int:
        """Take jobs for free slots, to be begun at once; *more*: short kinds too, for their suspects."""
        free = self._options.slots - self._running - self._waiting
        if free <= 0:
            return 0
        kinds = [name for name, kind in self._kinds.items() if more or not self._pace.is_short(name) or _careful(kind)]
        return self._take(kinds, free, mark=True) if kinds else 0

    def _take(self, kinds: list[str], limit: int, *, mark: bool) -> int:
        taken = 0
        for term, group in _by_lease(self._kinds, kinds).items():
            dated = clock.now()
            leases = self._store.leases.claim(
                self.id, queues=self._options.queues, kinds=group, limit=limit - taken, term=term, mark=mark
            )
            self._begin([Run(lease, self._kinds[lease.kind], dated=dated, term=term) for lease in leases])
            taken += len(leases)
            if taken >= limit:
                break
        return taken

    def _begin(self, runs: list[Run]) -> None:
        self._held.add(runs)
        plain = [run for run in runs if not run.kind.is_async]
        coroutines = [run for run in runs if run.kind.is_async]
        if plain:
            self._threads.submit(plain)
        if coroutines:
            self._loop_executor().submit(coroutines)

    def _loop_executor(self) -> Executor:
        if self._loop is None:
            from holdfast.run.execute.loop import LoopExecutor

            self._loop = LoopExecutor(self._options.slots, context=self._context, finish=self._finish)
        return self._loop

    # -- what runs -------------------------------------------------------------------------

    @property
    def _executors(self) -> list[Executor]:
        return [self._threads] if self._loop is None else [self._threads, self._loop]

    @property
    def _waiting(self) -> int:
        return sum(executor.waiting for executor in self._executors)

    @property
    def _running(self) -> int:
        return sum(executor.running for executor in self._executors)

    def _context(self, run: Run) -> Context:
        return RunContext(run, self._store, self.id, self._request)

    def _finish(self, settlements: list[Settlement]) -> None:
        """Called by executors when runs have ended."""
        for settlement in settlements:
            if settlement.ran is not None:
                self._pace.learn(settlement.lease.kind, settlement.ran.total_seconds())
        self._settler.put(settlements)
        if self._waiting < self._options.slots:
            self.bell.set()

    def _watch_timeouts(self) -> None:
        now = clock.now()
        for run in self._held.all():
            timeout = run.kind.options.timeout
            if timeout is not None and run.begun_at is not None and now - run.begun_at > timeout.total_seconds():
                run.stop(StopReason.RUN_TIMEOUT)

    def _lost(self, run: Run) -> None:
        """The lease is gone: stop the handler; its outcome will be refused."""
        self._tally("lease_lost")
        run.stop(StopReason.LEASE_LOST)

    def _count(self, settlements: list[Settlement], lost: set[JobId]) -> None:
        for settlement in settlements:
            refused = settlement.lease.job_id in lost
            self._tally("refused" if refused else "done" if isinstance(settlement.outcome, Done) else "not_done")

    def _tally(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1

    # -- end -------------------------------------------------------------------------------

    def _drained(self) -> bool:
        """Nothing of the known kinds is ready or running, here or elsewhere."""
        if self._waiting or self._running or len(self._settler) or len(self._held):
            return False
        left = Selector(queues=self._options.queues, kinds=tuple(self._kinds), states=(State.READY, State.RUNNING))
        return self._store.views.count(left, cap=1).count == 0

    def _wind_down(self) -> None:
        self._stopping.set()
        unbegun = [run.lease for executor in self._executors for run in executor.take_back()]
        self._settler.give_back([lease for lease in unbegun if not lease.marked])
        self._settler.put([_released(lease) for lease in unbegun if lease.marked])
        self._await_runs(clock.now() + self._options.grace.total_seconds())
        for run in self._held.all():
            run.stop(StopReason.SHUTDOWN)
        self._await_runs(clock.now() + 1.0)
        self._flush()
        for mover in reversed(self._movers):
            mover.stop(timeout=5)
        for executor in self._executors:
            executor.close()
        self._release_rest()
        self._store.workers.dismiss(self.id)

    def _await_runs(self, deadline: float) -> None:
        wake = threading.Event()
        while self._running and clock.now() < deadline:
            self._watch_timeouts()
            wake.wait(0.02)

    def _flush(self) -> None:
        mover = Mover(self._settler)
        tries = 0
        while len(self._settler) and tries < 100:
            if mover.tick() > 0 and len(self._settler):
                tries += 1

    def _release_rest(self) -> None:
        """The last act: threads that still run lose their jobs; whoever embeds a worker keeps them."""
        rest = [_released(run.lease) for run in self._held.all()]
        if rest:
            log.warning("%d handlers did not end within the grace; their jobs are released", len(rest))
            self._store.leases.settle_many(rest)

    def _announce(self) -> None:
        self._store.workers.announce(
            self.id,
            host=socket.gethostname(),
            pid=os.getpid(),
            queues=list(self._options.queues),
            kinds=sorted(self._kinds),
        )


def _released(lease: Lease) -> Settlement:
    return Settlement(lease, Released(interrupted=True))


def _careful(kind: Kind) -> bool:
    return kind.options.on_lost is not OnLost.RETRY


def _by_lease(kinds: Mapping[str, Kind], names: list[str]) -> dict[timedelta, list[str]]:
    groups: dict[timedelta, list[str]] = {}
    for name in names:
        groups.setdefault(kinds[name].options.lease, []).append(name)
    return groups

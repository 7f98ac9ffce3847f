"""The claimer: claims as many jobs as there is room for, and releases the ones that cannot begin soon."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Sequence
from typing import Any, assert_never

from msgspec import structs

from holdfast.domain.jobs.job import COMMAND, Lease
from holdfast.errors import JobLocked
from holdfast.store.engine.changes import EVERYTHING, NO_CHANGES, Change, Changes, decode, encode, queues_of
from holdfast.store.jobs.leases import DEFAULT_LEASE
from holdfast.worker import clock
from holdfast.worker.active_runs import Run
from holdfast.worker.backoff import Backoff
from holdfast.worker.claims import strategy
from holdfast.worker.claims.request import Answer, Check, Claim, ClaimRequest, Few, Full, Limited, Onward, Search
from holdfast.worker.claims.strategy import Knowledge
from holdfast.worker.claims.unknown_leases import INTERVAL_S, UnknownLeases
from holdfast.worker.executors.pool import ExecutorPool
from holdfast.worker.options import WorkerSetup
from holdfast.worker.service import TickResult
from holdfast.worker.stats import MAX_AHEAD
from holdfast.worker.tracing import start_span

log = logging.getLogger("holdfast")

#: Jobs that were claimed ahead and have waited this long are released: other workers may be idle.
STALE_AFTER_S = 0.5
#: Poll interval while prefetched jobs wait. Polling, because an event reaches this thread only when the handlers
#: release the interpreter.
OVERLAP_INTERVAL_S = 0.005
#: Interval between the first claims that find nothing; it doubles up to the poll interval.
FIRST_INTERVAL_S = 0.05
#: Whether a queue has a limit is read again after a notification, but not more often than this, and at the latest then:
#: notifications do not arrive everywhere.
LIMITS_INTERVAL_S, LIMITS_MAX_AGE_S = 1.0, 4.0
#: The most changes that are kept apart until the next claim.
MAX_CHANGES = 1000
#: The most jobs of a claim. One that fails may have been too large, for memory or for a limit of the database.
MAX_CLAIM = 1 << 20
#: The most jobs that a claim takes ahead of slots after one that found few.
MIN_AHEAD = 32


class Claimer:
    """Claims in one order over all kinds: for free slots, and short jobs ahead of them."""

    name = "claimer"

    def __init__(
        self, setup: WorkerSetup, pool: ExecutorPool, *, poll_interval: Callable[[], float], paused: Callable[[], bool]
    ) -> None:
        self.wake = threading.Event()
        self._store, self._worker, self._served = setup.store, setup.worker, setup.served
        self._knowledge = Knowledge()
        #: The changes of notifications since the last claim. The lock: another thread adds to them.
        self._changes: Changes = NO_CHANGES
        self._changes_lock = threading.Lock()
        self._unknown = UnknownLeases(setup)
        self._pool = pool
        self._run_times = pool.lifecycle.run_times
        self._slots, self._drains = setup.options.slots, setup.options.drain
        self._poll_interval = poll_interval
        self._paused = paused
        self._autoscaler = pool.lifecycle.autoscaler
        #: Whether a queue has a limit, as far as it is known, and when that was read.
        self._limits = True
        self._limits_read_at = float("-inf")
        self._notified = False
        #: With every queue: when to read their names again.
        self._read_queues_at = float("-inf")
        self._reading_queues = False
        self._queues_backoff = Backoff(strategy.MAX_PAUSE_S)
        #: The most jobs of the next claim: half of the last one if that failed, twice as many if it did not.
        self._most = MAX_CLAIM
        #: The most jobs that the next claim takes ahead of slots.
        self._most_ahead = MAX_AHEAD
        #: The last claimed job, or the next ready one, needs a free slot: nothing is claimed ahead.
        self._slot_needed = False
        self._interval = FIRST_INTERVAL_S
        #: More jobs may be ready: the last claim left no slot free, or suspects had no room.
        self._full = True

    def tick(self) -> TickResult:
        # Jobs that wait behind an unexpectedly long run go to other workers.
        if self._pool.waiting:
            self._pool.release(claimed_before=clock.now() - STALE_AFTER_S)
        if self._paused():
            self._unknown.postpone()
            return TickResult(0.5)
        try:
            with self._unknown.after_errors():
                self._unknown.release(lambda: self._pool.job_ids)
                claimed = self._claim() + self._admit()
        except Exception:
            self._most = max(1, min(self._most, self._slots + MAX_AHEAD) // 2)
            raise
        self._most = min(MAX_CLAIM, self._most * 2)
        if claimed and self._full and not (self._slot_needed and self._free <= 0):
            return TickResult(0.0, considered=claimed, processed=claimed)
        return TickResult(self._next_in(claimed), considered=claimed, processed=claimed)

    def on_notify(self, changes: Changes = EVERYTHING) -> None:
        """Claim once, now: the store may have new jobs. Another worker may get them; then it polls as before."""
        self._notified, self._slot_needed = True, False
        with self._changes_lock:
            self._changes |= changes
            if len(self._changes) > MAX_CHANGES:  # no claim was made for long
                self._changes = decode(encode(self._changes))
        anywhere = Change.JOBS in changes or Change.QUEUES in changes
        if self._reading_queues or anywhere or not queues_of(changes) <= set(self._served.queues):
            self._read_queues_at = float("-inf")
        self.wake.set()

    def slot_freed(self) -> None:
        """A run has finished: claim if more jobs may be ready, and fewer wait than there are slots."""
        if self._full and not self.wake.is_set() and self._pool.waiting < self._slots:
            self.wake.set()

    def settled(self) -> None:
        """Runs are settled: a limited queue has free slots again. The last ones may end a drain."""
        all_settled = self._drains and not len(self._pool.lifecycle.active_runs)
        if (self._limits or all_settled) and not self.wake.is_set():
            self.wake.set()

    def _next_in(self, claimed: int) -> float:
        """Seconds until the next tick, unless something wakes the claimer before."""
        self._interval = FIRST_INTERVAL_S if claimed else self._interval * 2
        next_in = min(self._interval, self._poll_interval())
        if self._pool.waiting:
            next_in = min(next_in, OVERLAP_INTERVAL_S if self._full else STALE_AFTER_S)
        if self._unknown.possible:
            next_in = min(next_in, INTERVAL_S)
        if (full_claim_at := self._knowledge.next_full_claim_at()) is not None:
            next_in = min(next_in, max(FIRST_INTERVAL_S, full_claim_at - clock.now()))
        self._interval = min(self._interval, self._poll_interval())
        return next_in * random.uniform(0.8, 1.0)

    def _claim(self) -> int:
        """Claim for free slots and ahead of them, in one round of claims; returns the number of jobs."""
        request = self._request()
        if request is None:
            return 0
        with self._changes_lock:
            changes, self._changes = self._changes, NO_CHANGES
        every_queue = self._served.every_queue
        self._knowledge = strategy.begin(self._knowledge, changes, request, every_queue=every_queue)
        claimed = list[Lease]()
        while (claim := strategy.next_claim(self._knowledge, request, clock.now())) is not None:
            claimed += self._make(claim)
        self._learn(request, claimed)
        return len(claimed)

    def _make(self, claim: Claim) -> Sequence[Lease]:
        """Make one claim, learn from its answer, and begin its runs."""
        sent_at = clock.now()
        try:
            answer = self._carry_out(claim)
        except JobLocked:
            if not isinstance(claim, Full | Limited | Onward) or claim.turn is None:
                raise
            answer = Answer(turn_missed=True)
        except BaseException:
            now = clock.now()
            self._knowledge = strategy.failed(self._knowledge, claim, now - sent_at, now)
            raise
        now = clock.now()
        self._knowledge = strategy.learn(self._knowledge, claim, structs.replace(answer, took=now - sent_at), now)
        self._begin(answer.leases, sent_at)
        return answer.leases

    def _carry_out(self, claim: Claim) -> Answer:
        store, worker, request = self._store.leases, self._worker, claim.request
        lanes: dict[str, Any] = {"queues": request.queues, "leases": request.leases, "free": request.free}
        jobs: dict[str, Any] = {"suspects": request.suspects, "build": self._served.build}
        jobs |= {"autoscaled": request.autoscaled, "unfinished": request.unfinished}
        ahead: dict[str, Any] = {"ahead": request.ahead, "short": request.short}
        match claim:
            case Full() | Limited():
                limits = isinstance(claim, Limited)
                return Answer(leases=store.claim(worker, **lanes, **jobs, **ahead, limits=limits, turn=claim.turn))
            case Few():
                leases, more = store.claim_few(worker, **lanes, **jobs)
                return Answer(leases=leases, more=more)
            case Onward():
                del lanes["queues"]
                return Answer(leases=store.claim_onward(worker, claim.route, **lanes, **ahead, turn=claim.turn))
            case Search():
                return Answer(heads=store.lane_heads(request.queues, list(request.leases)))
            case Check():
                return Answer(more=store.any_elsewhere(claim.route))
            case _:
                assert_never(claim)

    def _request(self) -> ClaimRequest | None:
        """What to claim now, if anything."""
        free, kinds = max(0, self._free), self._served.kinds
        if self._slot_needed and not free:
            self._full = True
            return None
        leases = {name: self._served.leases[name] for name, kind in kinds.items() if not self._pool.is_blocked(kind)}
        if COMMAND in leases:  # its start extends the lease
            leases[COMMAND] = min(leases[COMMAND], DEFAULT_LEASE)
        short = [name for name in leases if self._run_times.is_short(name)]
        ahead = 0 if self._slot_needed else self._ahead(short)
        free, ahead = min(free, self._most), max(0, min(ahead, self._most - free, self._most_ahead))
        self._full = free + ahead == 0 or len(leases) < len(kinds)
        if free + ahead == 0 or not leases or not self._queues():
            return None
        return ClaimRequest(
            queues=self._served.queues,
            leases=leases,
            short=short,
            free=free,
            ahead=ahead,
            suspects=self._pool.suspect_room(),
            limits=self._has_limits(),
            autoscaled=() if self._autoscaler is None else list(self._autoscaler.queues),
            unfinished=self._pool.lifecycle.active_runs.without_lease,
            positions=not self._store.backend.single_writer,
        )

    def _learn(self, request: ClaimRequest, claimed: list[Lease]) -> None:
        """Decide by a round of claims how much the next one should take."""
        is_full, is_complete = len(claimed) == request.jobs, not self._knowledge.only_new
        if is_complete or is_full:
            # Jobs that need a slot end what is claimed ahead: the next claim need not rank many more.
            self._most_ahead = MAX_AHEAD if is_full else max(2 * len(claimed), MIN_AHEAD)
        if claimed:
            last = claimed[-1]
            self._slot_needed = last.slot_only or not self._run_times.is_short(last.kind)
        elif is_complete:
            self._slot_needed = not request.free
        # Poison suspects beyond the room of their level may have taken the places of other jobs.
        suspects = 0 in request.suspects or any(lease.losses > 1 for lease in claimed)
        self._full |= not self._knowledge.exhausted or suspects

    def _queues(self) -> list[str]:
        """The queues to claim from. Those of a worker that serves every queue are read again, at most once a poll.

        That costs one index lookup per queue that has ready jobs; the claim then costs one per queue and kind. Limits,
        pauses and the stop switch hold as for named queues: the claim itself checks them.
        """
        now = clock.now()
        if self._served.every_queue and now >= self._read_queues_at and self._queues_backoff.is_over:
            self._reading_queues = True  # what a notification names meanwhile may be missing in the answer
            self._read_queues_at = now + self._poll_interval()
            with self._queues_backoff.measured():
                queues = [name for name in self._store.queues.with_ready_jobs() if self._served.serves(name)]
            if queues != self._served.queues:
                self._limits_read_at = float("-inf")  # a new one may have a limit
            self._served.queues = queues
            self._reading_queues = False
        return self._served.queues

    def _ahead(self, short: list[str]) -> int:
        """Number of jobs to claim ahead of slots: half of those that should wait, when no more than half are left.

        So the store works on the next claim while the slots run the jobs of the last one. Long runs keep their slots,
        and nothing is claimed for these.
        """
        waiting = max(0, -self._free)  # those that begin at once do not wait
        if waiting > self._run_times.ahead(short, self._slots) // 2:
            return 0
        ahead = self._run_times.ahead(short, self._slots - self._pool.long_runs)
        return max(0, min(ahead - waiting, (ahead + 1) // 2))

    def _has_limits(self) -> bool:
        """Whether a queue may have a limit. An outdated answer breaks no limit: claims check it too."""
        age = clock.now() - self._limits_read_at
        if age > LIMITS_MAX_AGE_S or (self._notified and age > LIMITS_INTERVAL_S):
            self._notified = False
            self._limits_read_at = clock.now()
            self._limits = self._store.leases.any_limited(self._served.queues)
        return self._limits

    @property
    def _free(self) -> int:
        return self._slots - self._pool.waiting - self._pool.running

    def _begin(self, leases: Sequence[Lease], sent_at: float) -> None:
        kinds, durations = self._served.kinds, self._served.leases
        runs = [Run(each, kinds[each.kind], renewed_at=sent_at, lease_duration=durations[each.kind]) for each in leases]
        self._run_times.learn_claim(leases)
        self._begin_runs(runs)

    def _begin_runs(self, runs: list[Run]) -> None:
        runs = self._pool.lifecycle.refuse_second_runs(runs)
        for run in runs:
            start_span(self._store, run)
        recorded = [run for run in runs if run.lease.starts_recorded and run.kind.name != COMMAND]
        self._pool.begin([run for run in runs if run not in recorded] if recorded else runs)
        if recorded:
            self._begin_recorded(recorded)

    def _begin_recorded(self, runs: list[Run]) -> None:
        """Record the starts of runs, then begin them. A run whose start cannot be recorded does not begin.

        The slot of a command records its start.
        """
        self._pool.hold(runs)
        try:
            started = self._store.leases.record_starts([run.lease for run in runs])
        except Exception:
            for run in runs:
                self._pool.lifecycle.unbegun(run, start_in_doubt=True)
            raise
        for run in runs:
            run.started = run.lease.job_id in started
            if not run.started:
                self._pool.lifecycle.unbegun(run)
        self._pool.begin([run for run in runs if run.started])

    def _admit(self) -> int:
        """Begin a command that fits into memory, if a slot is free."""
        if self._autoscaler is None or not self._autoscaler.queues or self._free <= 0:
            return 0
        run = self._autoscaler.admit()
        if run is None:
            return 0
        self._full = True  # the next command may fit too
        self._begin_runs([run])
        return 1

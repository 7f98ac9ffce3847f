"""The claimer: claims as many jobs as there is room for, and releases the ones that cannot begin soon."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta

from holdfast.domain.commands.command import COMMAND
from holdfast.domain.jobs.job import JobId, OnLost
from holdfast.errors import StoreUnavailable
from holdfast.worker import clock
from holdfast.worker.active_runs import Run
from holdfast.worker.executors.pool import ExecutorPool
from holdfast.worker.options import WorkerSetup
from holdfast.worker.service import TickResult
from holdfast.worker.tracing import start_span

#: Jobs that were claimed ahead and have waited this long are released: other workers may be idle.
STALE_AFTER_S = 0.5
#: Shortest time between two claims with a durable start while plain jobs wait here.
DURABLE_INTERVAL_S = 1.0
#: Interval between the first claims that find nothing; it doubles up to the poll interval.
FIRST_INTERVAL_S = 0.02


class Claimer:
    """Claims short jobs ahead, in groups, and long ones only for free slots."""

    name = "claimer"

    def __init__(
        self, setup: WorkerSetup, pool: ExecutorPool, *, poll_interval: Callable[[], float], paused: Callable[[], bool]
    ) -> None:
        self.wake = threading.Event()
        self._store, self._worker, self._kinds = setup.store, setup.worker, setup.kinds
        self._build = setup.build
        self._pool = pool
        self._run_times = pool.lifecycle.run_times
        self._queues = list(setup.options.queues)
        self._slots = setup.options.slots
        self._poll_interval = poll_interval
        self._paused = paused
        self._autoscaler = pool.lifecycle.autoscaler
        #: The last plain job that was claimed with a durable start, and the time of the last such claim.
        self._durable: JobId | None = None
        self._durable_at = clock.now()
        #: The answer to a claim was lost: the store may count leases that this worker does not know.
        self._in_doubt = False
        self._interval = FIRST_INTERVAL_S
        self._notified = False
        self._plain_turn = False
        self._no_ahead_until = 0.0
        self._plain = [name for name, kind in setup.kinds.items() if kind.options.on_lost is OnLost.RETRY]

    def tick(self) -> TickResult:
        # Jobs that wait behind an unexpectedly long run go to other workers.
        if self._pool.waiting and self._pool.release(claimed_before=clock.now() - STALE_AFTER_S):
            self._no_ahead_until = clock.now() + 2 * STALE_AFTER_S
        if self._paused():
            return TickResult(0.5)
        if self._in_doubt:
            # Only this service claims, so no claim is under way: unknown leases are those of a lost answer.
            self._store.leases.release_unknown(self._worker, queues=self._queues, known=self._pool.job_ids)
            self._in_doubt = False
        try:
            claimed = self._claim_turn() + self._admit()
        except StoreUnavailable:
            self._in_doubt = True  # perhaps only the answer was lost
            raise
        if claimed:
            self._interval = FIRST_INTERVAL_S
            return TickResult(0.0, considered=claimed, processed=claimed)
        if self._pool.waiting:
            return TickResult(STALE_AFTER_S)
        poll_interval = self._poll_interval()
        self._interval = min(self._interval * 2, poll_interval)
        return TickResult(min(self._interval, poll_interval) * random.uniform(0.8, 1.0))

    def on_notify(self) -> None:
        """Claim once, now: the store may have new jobs. Another worker may get them; then polling goes on as before."""
        self._notified = True
        self.wake.set()

    def slot_freed(self) -> None:
        """A run has finished: claim when fewer jobs wait than there are slots."""
        if not self.wake.is_set() and self._pool.waiting < self._slots:
            self.wake.set()

    def _claim_turn(self) -> int:
        """Claim plain jobs, else one with a durable start. While idle the two take turns: one statement a tick."""
        notified, self._notified = self._notified, False
        if notified or self._interval <= FIRST_INTERVAL_S:
            return self._claim_plain() or self._claim_durable()
        self._plain_turn = not self._plain_turn
        return self._claim_plain() if self._plain_turn and self._plain else self._claim_durable()

    def _claim_plain(self) -> int:
        """Claim plain jobs for slots that are free soon, then short ones ahead; the heartbeat records their start."""
        short = [name for name in self._plain if self._run_times.is_short(name)]
        ahead = self._run_times.ahead(short, self._slots) if short and clock.now() >= self._no_ahead_until else 0
        if self._pool.waiting * 2 > max(ahead, self._slots):
            return 0
        claimed = 0
        if len(short) < len(self._plain):
            claimed = self._claim(self._plain, self._slots - self._pool.long_runs, durable=False)
        return claimed + self._claim(short, ahead - self._pool.waiting, durable=False)

    def _claim_durable(self) -> int:
        """Claim one job of any kind, its start recorded by the claim. Poison suspects are claimed only this way.

        Only one suspect runs here at a time, so a suspect that kills this worker pays alone. A plain job that is
        first in line may come this way too and would pay for another's kill, hence the minimum interval.
        """
        if self._free <= 0 or self._pool.poison_suspects or self._durable in self._pool.job_ids:
            return 0
        if self._pool.waiting and clock.now() - self._durable_at < DURABLE_INTERVAL_S:
            return 0
        self._durable_at = clock.now()
        return self._claim(list(self._kinds), 1, durable=True)

    @property
    def _free(self) -> int:
        return self._slots - self._pool.waiting - self._pool.running

    def _claim(self, kinds: list[str], limit: int, *, durable: bool) -> int:
        claimed = 0
        for queues, duration, group in self._groups(kinds) if limit > 0 else ():
            sent_at = clock.now()
            leases = self._store.leases.claim(
                self._worker,
                queues=queues,
                kinds=group,
                limit=limit - claimed,
                lease_duration=duration,
                mark=durable,
                build=self._build,
            )
            known = self._kinds
            self._begin([Run(each, known[each.kind], renewed_at=sent_at, lease_duration=duration) for each in leases])
            if durable and leases and known[leases[0].kind].options.on_lost is OnLost.RETRY:
                self._durable = leases[0].job_id
            claimed += len(leases)
            if claimed >= limit:
                break
        return claimed

    def _groups(self, kinds: list[str]) -> Iterator[tuple[list[str], timedelta, list[str]]]:
        """Queues, lease duration and kinds of each claim. The autoscaler claims commands of autoscaled queues."""
        autoscaled = () if self._autoscaler is None else self._autoscaler.queues
        groups: dict[timedelta, list[str]] = {}
        for name in kinds:
            groups.setdefault(self._kinds[name].options.lease, []).append(name)
        for lease_duration, group in groups.items():
            if not autoscaled or COMMAND not in group:
                yield self._queues, lease_duration, group
                continue
            if plain_queues := [queue for queue in self._queues if queue not in autoscaled]:
                yield plain_queues, lease_duration, group
            if others := [kind for kind in group if kind != COMMAND]:
                yield [queue for queue in self._queues if queue in autoscaled], lease_duration, others

    def _begin(self, runs: list[Run]) -> None:
        for run in runs:
            start_span(self._store, run)
        self._pool.begin(runs)

    def _admit(self) -> int:
        """Begin a command that fits into memory, if a slot is free."""
        if self._autoscaler is None or not self._autoscaler.queues or self._free <= 0:
            return 0
        run = self._autoscaler.admit(poison_suspects=self._pool.poison_suspects)
        self._begin([] if run is None else [run])
        return 0 if run is None else 1

"""The settler: writes the outcomes of runs in groups."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import assert_never

from msgspec import structs

from holdfast.domain.jobs.job import COMMAND, Lease
from holdfast.domain.jobs.verdict import Done, Failed, Lost, Outcome, Released, Stopped, Unreadable
from holdfast.errors import InvalidInput, StoreBusy, StoreUnavailable
from holdfast.store import Store
from holdfast.store.jobs.settlement import Settlement, SettleResult, lease_key
from holdfast.worker import clock
from holdfast.worker.active_runs import ActiveRuns
from holdfast.worker.service import TickResult

log = logging.getLogger("holdfast")

#: Settlements of one statement, and their bytes: a larger one may never reach a distant server within its time limit.
MAX_GROUP, MAX_GROUP_BYTES = 1000, 4 * 1024 * 1024
#: A settlement waits this long for others to join its group, unless the group is large enough.
BATCH_WINDOW_S = 0.002
LARGE_GROUP = 200
#: With at most this many active runs, the group is complete when all of them are in it.
FEW_RUNS = 16
IDLE_INTERVAL_S = 60.0
#: When this many settlements of a group cannot be written one by one, and none was, the others are not tried.
MAX_FAILURES = 3
#: Delay before jobs whose rows are locked by other transactions are tried again.
LOCKED_RETRY_S = 1.0
#: The outcome of a handler that returns nothing.
NO_RESULT = Done()
#: Longest duration of :meth:`Settler.flush` by default, and the interval between the ticks that it forces.
FLUSH_TIMEOUT_S, FLUSH_INTERVAL_S = 5.0, 0.1


class Settler:
    """Collects settlements and writes them in groups of at most :data:`MAX_GROUP`.

    A job whose row another transaction has locked holds up no other: it is tried again until it is written.
    """

    name = "settler"

    def __init__(
        self, store: Store, active_runs: ActiveRuns, *, settled: Callable[[list[Settlement], SettleResult], None]
    ) -> None:
        self.wake = threading.Event()
        self._store = store
        self._active_runs = active_runs
        self._settled = settled
        self._waiting: deque[Settlement] = deque()
        #: Settlements that the starts of commands take along.
        self._joining: deque[Settlement] = deque()
        self._unbegun: deque[Lease] = deque()
        #: Settlements and leases whose jobs were locked, and the time of their next try. Slots of commands append some.
        self._locked: list[Settlement] = []
        self._locked_unbegun: list[Lease] = []
        self._retry_at = 0.0

    def put(self, settlement: Settlement, *, joins: bool = False) -> None:
        """Queue a settlement; the next tick writes it.

        *joins*: the caller starts a command next, whose transaction takes it along, or calls :meth:`write_joining`.
        """
        if joins:
            self._joining.append(settlement)
            return
        self._waiting.append(settlement)
        if not self.wake.is_set():
            self.wake.set()

    def write_joining(self) -> None:
        """Let the next tick write settlements that were left for the start of a command: none follows."""
        if self._joining:
            self.wake.set()

    def take_joining(self) -> Settlement | None:
        """A settlement that was left for the start of a command. The caller writes it, or puts it back."""
        try:
            return self._joining.popleft()
        except IndexError:  # there is none, or the tick of a flush has taken it
            return None

    def tick(self) -> TickResult:
        """Write one group. A group that fails is retried: writing a settlement twice is harmless."""
        while (settlement := self.take_joining()) is not None:
            self._waiting.append(settlement)
        if 0 < len(self._waiting) < LARGE_GROUP:
            self._collect()
        group = _take_group(self._waiting)
        if group:
            self._write(group)
        if self._unbegun:
            self._release([self._unbegun.popleft() for _ in range(len(self._unbegun))])
        if (self._locked or self._locked_unbegun) and clock.now() >= self._retry_at:
            self._retry_locked()
        self._active_runs.finish_signal.notify()
        idle = LOCKED_RETRY_S if self._locked or self._locked_unbegun else IDLE_INTERVAL_S
        return TickResult(0.0 if self._waiting else idle, considered=len(group), processed=len(group))

    def _collect(self) -> None:
        """Give other settlements time to join the group, but do not wait when none can: all active runs are in it.

        On SQLite those of commands have joined the starts of others. A failure may pause the queue, and is written at
        once.
        """
        if self._store.backend.single_writer and self._waiting[0].lease.kind == COMMAND:
            return
        if len(self._active_runs) > FEW_RUNS:  # more would wake this thread too often
            clock.sleep(BATCH_WINDOW_S)
            return
        until = clock.now() + BATCH_WINDOW_S
        while len(self._waiting) < len(self._active_runs) and (left := until - clock.now()) > 0:
            self.wake.wait(left)
            self.wake.clear()

    def release(self, leases: list[Lease]) -> None:
        """Queue leases of jobs that have not begun; the next tick returns them to the store."""
        self._unbegun.extend(leases)
        self.wake.set()

    def flush(self, deadline: float | None = None, *, locked: bool = True) -> None:
        """Wait until everything is written, or until *deadline*. Leases of jobs that are not settled expire later.

        *locked*: wait for jobs that another transaction has locked, too.
        """
        until = clock.now() + FLUSH_TIMEOUT_S if deadline is None else deadline
        signal = self._active_runs.finish_signal

        def written() -> bool:
            return not (len(self) if locked else len(self._waiting) + len(self._joining) + len(self._unbegun))

        while not written() and clock.now() < until:
            self._retry_at = 0.0
            self.wake.set()
            signal.wait_for(written, deadline=min(until, clock.now() + FLUSH_INTERVAL_S))

    def __len__(self) -> int:
        unwritten = len(self._waiting) + len(self._joining) + len(self._unbegun)
        return unwritten + len(self._locked) + len(self._locked_unbegun)

    def _retry_locked(self) -> None:
        self._retry_at = clock.now() + LOCKED_RETRY_S
        leases, self._locked_unbegun = self._locked_unbegun, []
        if leases:
            self._release(leases, wait=False)
        settlements = deque(self._locked)
        del self._locked[: len(settlements)]
        while settlements:
            try:
                self._write(_take_group(settlements), wait=False)
            except Exception:
                self._locked.extend(settlements)
                raise

    def _release(self, leases: list[Lease], *, wait: bool = True) -> None:
        try:
            locked = self._store.leases.release(leases, wait=wait).locked
        except Exception:
            self._unbegun.extendleft(reversed(leases))
            raise
        self._locked_unbegun += [lease for lease in leases if lease_key(lease) in locked]
        self._active_runs.discard([lease for lease in leases if lease_key(lease) not in locked])

    def _write(self, group: list[Settlement], *, wait: bool = True) -> None:
        try:
            result = self._store.leases.settle_many(group, wait=wait)
        except (StoreUnavailable, StoreBusy):
            self._waiting.extendleft(reversed(group))
            raise
        except Exception as error:  # noqa: BLE001 - one outcome that cannot be written must not hold up the others
            if len(group) > 1:
                self._write_each(group, wait=wait)
                return
            result = self._write_refusal(group[0], error)
        self.written(group, result)

    def written(self, group: list[Settlement], result: SettleResult) -> None:
        """Forget the runs whose settlements are written, and count them. Those of locked jobs are tried again."""
        written = group
        if result.locked:
            self._locked.extend(each for each in group if lease_key(each.lease) in result.locked)
            written = [settlement for settlement in group if lease_key(settlement.lease) not in result.locked]
        self._active_runs.discard([settlement.lease for settlement in written])
        self._settled(written, result)

    def _write_each(self, group: list[Settlement], *, wait: bool) -> None:
        """Write settlements one by one: only those that cannot be written are held up."""
        written = 0
        while group:
            if len(self._locked) == MAX_FAILURES and not written:  # the cause is not one of them: try all again later
                self._locked.extend(group)
                return
            settlement, group = group[0], group[1:]
            try:
                self._write([settlement], wait=wait)
            except Exception:
                self._waiting.extendleft(reversed(group))
                raise
            written += settlement not in self._locked

    def _write_refusal(self, settlement: Settlement, error: Exception) -> SettleResult:
        """Make a run whose outcome is refused a failure. Other errors are not its fault: it is tried again later."""
        log.error("the outcome of job %d cannot be stored: %s", settlement.lease.job_id, error)
        failed = Failed(error=f"its outcome cannot be stored: {error}")
        if isinstance(error, InvalidInput):
            try:
                return self._store.leases.settle_many([structs.replace(settlement, outcome=failed)])
            except (StoreUnavailable, StoreBusy):
                self._waiting.appendleft(settlement)
                raise
        self._retry_at = clock.now() + LOCKED_RETRY_S
        return SettleResult(set(), {lease_key(settlement.lease)})


def _take_group(waiting: deque[Settlement]) -> list[Settlement]:
    """Take the first settlements that one statement should write."""
    group: list[Settlement] = []
    size = 0
    while waiting and len(group) < MAX_GROUP and size < MAX_GROUP_BYTES:
        group.append(settlement := waiting.popleft())
        if settlement.outcome != NO_RESULT:  # few have one
            size += _size(settlement.outcome)
    return group


def _size(outcome: Outcome) -> int:
    """The length of the result or the error, which are the long parts of a settlement."""
    match outcome:
        case Done():
            return len(outcome.result or "")
        case Failed() | Lost() | Unreadable():
            return len(outcome.error or "")
        case Released() | Stopped():
            return 0
        case _:
            assert_never(outcome)

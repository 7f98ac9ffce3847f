"""The runner of units: retries, timeouts, rates."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable
from contextvars import copy_context
from itertools import repeat
from time import monotonic
from typing import Any, NamedTuple, Protocol

from msgspec import structs

from holdfast.domain.batches.batch import Batch
from holdfast.domain.batches.done_units import SHORTEST_S, outcome_of
from holdfast.domain.batches.unit import TakenUnit, UnitKey, UnitOutcome
from holdfast.domain.jobs.retry_curve import Curve, delay_after
from holdfast.store.engine import forks
from holdfast.worker import clock
from holdfast.worker.batches.outages import MAX_OUTAGE_S, RETRY_S
from holdfast.worker.batches.unit import AddDone, AddResult, Perform, PerformAll, Take, UnitResult
from holdfast.worker.exit import exit_process

#: A thread gets several units at a time while they take less than QUICK_S together.
QUICK_S = 0.005


class TimedUnit(Protocol):
    """A unit in flight that can be stopped."""

    def stop(self) -> None: ...

    def time_out(self) -> float | None:
        """Stop the unit because its time is up. Returns the seconds after which to call this again, if at all."""
        ...


class UnitTimeouts:
    """Stops units that take longer than *timeout_s* seconds."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        #: Called when a unit is due earlier than the last :meth:`check` returned.
        self.wake: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self._due: dict[TimedUnit, float] = {}
        self._next_check = math.inf

    @property
    def message(self) -> str:
        """The error of a unit that timed out."""
        return f"it took longer than its timeout of {self.timeout_s:g} s"

    def begin(self, unit: TimedUnit) -> None:
        with self._lock:
            self._due[unit] = due = clock.now() + self.timeout_s
            is_earlier, self._next_check = due < self._next_check, min(due, self._next_check)
        if is_earlier:
            self.wake()

    def end(self, unit: TimedUnit) -> None:
        with self._lock:
            self._due.pop(unit, None)

    def check(self) -> float:
        """Stop units whose time is up. Returns the seconds until the next one is due."""
        with self._lock:
            now = clock.now()
            late = [unit for unit, due in self._due.items() if due <= now]
            for unit in late:
                del self._due[unit]
                more = unit.time_out()
                if more is not None:
                    self._due[unit] = now + more
            self._next_check = min(self._due.values(), default=math.inf)
            return max(0.0, self._next_check - now)

    def each(self, call: Callable[[TimedUnit], None]) -> None:
        """Call a function with every unit in flight."""
        with self._lock:
            in_flight = list(self._due)
        for unit in in_flight:
            call(unit)


class Throttle:
    """Lets at most *rate* units begin in a second."""

    def __init__(self, rate: float) -> None:
        self._interval_s = 1 / rate
        self._lock = threading.Lock()
        self._next = clock.now()

    def wait(self, stopping: threading.Event) -> None:
        """Wait until the next unit may begin, or until the run stops."""
        with self._lock:
            turn = max(self._next, clock.now())
            self._next = turn + self._interval_s
        stopping.wait(max(0.0, turn - clock.now()))


class ResultOf(Protocol):
    """The result of a first attempt that returned a value or raised an error."""

    def __call__(
        self, unit: TakenUnit, took_s: float, returned: Any = None, *, error: BaseException | None = None
    ) -> UnitResult: ...


class KeyCall(NamedTuple):
    """A first attempt that is nothing but a call with the key."""

    decode: Callable[[str], Any]
    function: Callable[[Any], Any]
    #: For a call that did not just return None.
    result_of: ResultOf


class Attempts(Protocol):
    """Makes attempts at units: in the calling thread, or in a child process."""

    def open(self, runner: UnitRunner) -> tuple[Perform, KeyCall | None, Callable[[], None]]:
        """The function with which one thread makes its attempts, a shorter one if there is one, and its cleanup."""
        ...

    def renewed(self, timestamp: float) -> None:
        """Note that the lease of the run was renewed by a call sent at *timestamp*."""

    def close(self) -> None:
        """Release resources; no unit runs after this."""


class UnitRunner:
    """Runs the units of one run of a batch, in the threads that call it, and retries failed attempts."""

    def __init__(
        self,
        *,
        batch: Batch,
        attempts: Attempts,
        retries: int = 0,
        curve: Curve,
        timeouts: UnitTimeouts | None = None,
        transaction: Callable[..., Any] = lambda _: None,
    ) -> None:
        self.batch = batch
        self.stopping = threading.Event()
        self.timeouts = timeouts
        self.transaction = transaction
        #: Units whose own transactions may have committed without an answer, with their outcomes if those are known.
        self.unknown_commits: dict[UnitKey, UnitOutcome | None] = {}
        self._attempts = attempts
        self._retries = retries
        self._curve = curve

    @property
    def timeout_message(self) -> str:
        """The error of a unit that timed out."""
        return "" if self.timeouts is None else self.timeouts.message

    def stop(self) -> None:
        """Begin no more units, and send those in flight a stop request."""
        self.stopping.set()
        if self.timeouts is not None:
            self.timeouts.each(lambda unit: unit.stop())

    def renewed(self, timestamp: float) -> None:
        """Note that the lease of the run was renewed by a call sent at *timestamp*."""
        self._attempts.renewed(timestamp)

    def close(self) -> None:
        """Release resources; no unit runs after this."""
        self._attempts.close()

    def performer(self) -> tuple[PerformAll, Callable[[], None]]:  # noqa: C901 - a call for a part of the loop costs
        """The function with which one thread runs its units, and its cleanup. After a stop no unit begins."""
        attempt, key_call, close = self._attempts.open(self)
        stopping, depth = self.stopping.is_set, forks.depth
        decode, function, result_of = key_call or (str, str, None)

        def perform_all(take: Take, count: int, add_done: AddDone, add: AddResult) -> None:  # noqa: C901 - as above
            result: Any  # cast() would be a call for each unit
            began = now = monotonic()
            until = began + QUICK_S
            for _ in repeat(None, count):
                try:
                    unit = take()
                except IndexError:  # other threads took the last ones
                    return
                if stopping():  # the unit stays in flight, and is left pending
                    return
                if result_of is None or type(unit) is not tuple:
                    result, now = attempt(unit), monotonic()
                else:  # the common case, without a call of our own
                    try:
                        returned = copy_context().run(function, decode(unit[0]))
                    except BaseException as error:  # noqa: BLE001 - SystemExit of a unit must not end the run
                        result = result_of(unit, monotonic() - began, error=error)
                    else:
                        now = monotonic()
                        if returned is None and now - began < SHORTEST_S and forks.depth == depth:
                            add_done(unit)
                            if (began := now) > until:
                                return
                            continue
                        result = (*unit, now - began) if returned is None else result_of(unit, now - began, returned)
                if not (is_done := type(result) is tuple):
                    result, now = self._retried(attempt, result), monotonic()
                if forks.depth != depth:
                    exit_process(0, "a fork that a unit left behind ends here: it must not write results")
                (add_done if is_done else add)(result)
                if (began := now) > until:
                    return

        return perform_all, close

    def _retried(self, attempt: Perform, result: UnitResult) -> UnitResult:
        """Try a unit again until an attempt does not fail, or until no retries are left."""
        if not result.retry:
            return result
        result = self._outlasted(attempt, result)
        for tries in range(1, self._retries + 1):
            if not result.retry:
                break
            delay = delay_after(self._curve, tries, chance=random.random())
            if self.stopping.is_set() or self.stopping.wait(delay.total_seconds()):
                return UnitResult(result.row, None, interrupted=True)
            assert result.outcome is not None
            failed = result.outcome
            suspect = result.row.poison_suspect or failed.poison_suspect
            row = structs.replace(result.row, attempts=failed.attempts, crashes=failed.crashes, poison_suspect=suspect)
            again = attempt(row)
            assert isinstance(again, UnitResult)  # the short form is that of a first attempt
            again = self._outlasted(attempt, again)
            errors = (*result.outcome.earlier_errors, result.outcome.error or "")
            outcome = None if again.outcome is None else structs.replace(again.outcome, earlier_errors=errors)
            result = again._replace(row=result.row, outcome=outcome)
        return result

    def _outlasted(self, attempt: Perform, result: UnitResult) -> UnitResult:
        """Repeat an attempt while the store does not answer; that costs nothing."""
        until = clock.now() + MAX_OUTAGE_S
        while result.outage and clock.now() < until:
            if self.stopping.wait(RETRY_S):
                return UnitResult(result.row, None, interrupted=True)
            again = attempt(result.row)
            result = again if isinstance(again, UnitResult) else UnitResult(result.row, outcome_of(again))
        return result

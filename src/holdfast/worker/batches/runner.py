"""The runner of units: attempts, retries, limits, outcomes."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from holdfast.domain.batches.batch import Batch
from holdfast.domain.batches.unit import UnitOutcome, UnitRow, UnitState
from holdfast.domain.jobs.context import AlreadyFinished, Cancelled, Fatal, Skip
from holdfast.domain.jobs.retry_curve import Curve, delay_after
from holdfast.worker import clock
from holdfast.worker.batches.unit import Perform, Unit, UnitResult
from holdfast.worker.handler import describe_error


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
        self._lock = threading.Lock()
        self._due: dict[TimedUnit, float] = {}

    @property
    def message(self) -> str:
        """The error of a unit that timed out."""
        return f"it took longer than its timeout of {self.timeout_s:g} s"

    def begin(self, unit: TimedUnit) -> None:
        with self._lock:
            self._due[unit] = clock.now() + self.timeout_s

    def end(self, unit: TimedUnit) -> None:
        with self._lock:
            self._due.pop(unit, None)

    def check(self) -> float | None:
        """Stop units whose time is up. Returns the seconds until the next one is due."""
        with self._lock:
            now = clock.now()
            late = [unit for unit, due in self._due.items() if due <= now]
            for unit in late:
                del self._due[unit]
                more = unit.time_out()
                if more is not None:
                    self._due[unit] = now + more
            soonest = min(self._due.values(), default=None)
        return None if soonest is None else max(0.0, soonest - now)

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


#: The label of units that a verifier confirmed after a lost run.
VERIFIED = "verified"


class UnitRunner:
    """Runs the units of one run of a batch, in the threads that call it."""

    def __init__(
        self,
        *,
        batch: Batch,
        function: Callable[[Unit], Any] = lambda _: None,
        key_function: Callable[[Any], Any] | None = None,
        decode: Callable[[str], Any] = str,
        retries: int,
        curve: Curve,
        timeout_s: float | None = None,
        verify: Callable[[Any], bool] | None = None,
        transaction: Callable[..., Any] = lambda _: None,
    ) -> None:
        self._verify = verify
        self.batch = batch
        self.stopping = threading.Event()
        self.timeouts = None if timeout_s is None else UnitTimeouts(timeout_s)
        self.transaction = transaction
        #: True once it is unknown whether a unit's own transaction committed: its row may be in the ledger.
        self.commit_unknown = False
        #: Set when a unit raised Fatal.
        self.fatal = threading.Event()
        self._function = function
        #: The same function for calls with the key alone; None if it takes a unit.
        self._key_function = key_function
        self._decode = decode
        self._retries = retries
        self._curve = curve

    def stop(self) -> None:
        """Begin no more units, and send those in flight a stop request."""
        self.stopping.set()
        if self.timeouts is not None:
            self.timeouts.each(lambda unit: unit.stop())

    def stop_fatally(self) -> None:
        """Stop the run because a unit raised Fatal."""
        self.fatal.set()
        self.stop()

    def performer(self) -> tuple[Perform, Callable[[], None]]:
        """The function with which one thread runs its units, and its cleanup."""
        return self.run, lambda: None

    def renewed(self, timestamp: float) -> None:
        """Note that the lease of the run was renewed by a call sent at *timestamp*."""

    def close(self) -> None:
        """Release resources; no unit runs after this."""

    def run(self, row: UnitRow) -> UnitResult | UnitOutcome:
        """Run one unit."""
        began = time.monotonic()
        try:
            key = self._decode(row.key)
        except Exception as error:  # noqa: BLE001 - the user's own types
            message = f"the key does not fit the function: {error}"
            return UnitResult(row, Unit(self, row, row.key).outcome(UnitState.FAILED, message, 0.0), written=False)
        if row.poison_suspect and self._verify is not None:
            verified = self._verified(row, key, self._verify)
            if verified is not None:
                return verified
        if self._key_function is None:
            return self._tried(Unit(self, row, key), began)
        try:
            returned = self._key_function(key)
        except BaseException as error:  # noqa: BLE001 - SystemExit of a unit must not end the run
            return self._tried(Unit(self, row, key), began, error)
        took_s = time.monotonic() - began
        if returned is None and row.state is UnitState.PENDING and not row.attempts:  # the common case creates no Unit
            duration_ms = round(took_s * 1000)
            return UnitOutcome(key=row.key, position=row.position, state=UnitState.DONE, duration_ms=duration_ms)
        outcome = Unit(self, row, key).outcome(UnitState.DONE, None, took_s, returned=returned)
        return UnitResult(row, outcome, written=False)

    def _verified(self, row: UnitRow, key: Any, verify: Callable[[Any], bool]) -> UnitResult | None:
        """The result of a unit that a lost run has done already; None if it has not."""
        unit = Unit(self, row, key)
        try:
            if not verify(key):
                return None
        except Exception as error:  # noqa: BLE001 - the user's own code
            return UnitResult(row, unit.outcome(UnitState.FAILED, describe_error(error), 0.0), written=False)
        unit.done(VERIFIED)
        return UnitResult(row, unit.outcome(UnitState.DONE, None, 0.0), written=False)

    def _tried(self, unit: Unit, began: float, error: BaseException | None = None) -> UnitResult:
        """Try the unit until it is finished; *error* is the exception of a first attempt."""
        tries, returned = 0, None
        outcome: UnitOutcome | None
        while True:
            if error is None:
                try:
                    returned = self._call(unit)
                except BaseException as raised:  # noqa: BLE001 - as above
                    error = raised
            if isinstance(error, AlreadyFinished):
                return UnitResult(unit.row, None, written=True)
            took_s = time.monotonic() - began
            tries += 1
            if error is None:
                outcome = unit.outcome(UnitState.DONE, None, took_s, returned=returned)
            else:
                outcome = self._after(error, unit, tries, took_s)
            if unit.settled is not None:
                return UnitResult(unit.row, unit.settled, written=True)
            if outcome is not None or self.stopping.is_set():
                return UnitResult(unit.row, outcome, written=False)
            unit.attempt += 1
            error = None

    def _call(self, unit: Unit) -> Any:
        if self.timeouts is None:
            return self._function(unit)
        unit.begin()
        self.timeouts.begin(unit)
        try:
            return self._function(unit)
        finally:
            self.timeouts.end(unit)

    def _after(self, error: BaseException, unit: Unit, tries: int, took_s: float) -> UnitOutcome | None:
        """The outcome of a failed attempt; None if the unit is tried again, or was interrupted."""
        match error:
            case Cancelled() if unit.timed_out and self.timeouts is not None:
                error = TimeoutError(self.timeouts.message)
            case Cancelled() if self.stopping.is_set():
                return None
            case Skip():
                unit.warn(str(error))
                return unit.outcome(UnitState.SKIPPED, None, took_s)
            case Fatal():
                self.stop_fatally()
                return unit.outcome(UnitState.FAILED, describe_error(error), took_s)
        if tries > self._retries:
            return unit.outcome(UnitState.FAILED, describe_error(error), took_s)
        self.stopping.wait(delay_after(self._curve, tries, chance=random.random()).total_seconds())
        return None

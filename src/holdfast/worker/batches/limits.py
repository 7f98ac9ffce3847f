"""Limits of units: their timeout and their rate."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from holdfast.worker import clock


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
            self._due.pop(unit, None)
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

"""When units may begin, and how long they may take."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from holdfast.worker import clock


class Timed(Protocol):
    """A unit under way that can be told to stop."""

    def stop(self) -> None: ...

    def time_out(self) -> float | None:
        """Its time is up; answers in how many seconds it is to be told once more."""
        ...


class Alarms:
    """Tells units that take longer than *timeout* seconds."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._lock = threading.Lock()
        self._due: dict[Timed, float] = {}

    @property
    def said(self) -> str:
        """What is said of a unit whose time was up."""
        return f"it took longer than its timeout of {self.timeout:g} s"

    def begin(self, unit: Timed) -> None:
        with self._lock:
            self._due.pop(unit, None)
            self._due[unit] = clock.now() + self.timeout

    def end(self, unit: Timed) -> None:
        with self._lock:
            self._due.pop(unit, None)

    def notify(self) -> float | None:
        """Tell those whose time is up; answers in how many seconds the next is due."""
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

    def each(self, tell: Callable[[Timed], None]) -> None:
        """Call *tell* for every unit under way."""
        with self._lock:
            under_way = list(self._due)
        for unit in under_way:
            tell(unit)


class Throttle:
    """Lets units begin no faster than *rate* a second."""

    def __init__(self, rate: float) -> None:
        self._every = 1 / rate
        self._lock = threading.Lock()
        self._next = clock.now()

    def wait(self, stopping: threading.Event) -> None:
        """Wait for one's turn, or until the run is to stop."""
        with self._lock:
            turn = max(self._next, clock.now())
            self._next = turn + self._every
        stopping.wait(max(0.0, turn - clock.now()))

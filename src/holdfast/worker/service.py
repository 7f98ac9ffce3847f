"""The one lifecycle of everything that moves: tick, rest, stop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from holdfast.errors import HoldfastError
from holdfast.worker import clock

log = logging.getLogger("holdfast")

#: After a bad tick a part rests so long, longer each time, and no longer than the last.
BACKOFF = (0.1, 0.2, 0.5, 1.0, 2.0)


class TickResult(Struct, frozen=True):
    """What a tick did, and after how many seconds the next one is due.

    *skipped*: it did nothing, since another one was under way.
    """

    rest: float
    considered: int = 0
    processed: int = 0
    swept: int = 0
    skipped: bool = False

    def __add__(self, other: TickResult) -> TickResult:
        return TickResult(
            min(self.rest, other.rest),
            self.considered + other.considered,
            self.processed + other.processed,
            self.swept + other.swept,
            self.skipped or other.skipped,
        )


class Service(Protocol):
    """Something that moves: ``tick`` does what is due now and never waits for long; ``bell`` calls it sooner."""

    name: str
    bell: threading.Event

    def tick(self) -> TickResult: ...


class ServiceThread:
    """A thread that ticks a part until it is stopped. A bad tick is told and survived."""

    def __init__(self, part: Service, *, told: Callable[[str, str], None]) -> None:
        self._part = part
        self._told = told
        self._stopping = threading.Event()
        self._ticking = threading.Lock()
        self._failures = 0
        self._moved_at = clock.now()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to tick; a second start does nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"holdfast-{self._part.name}", daemon=True)
            self._thread.start()

    def stop(self, timeout: float | None = None) -> None:
        """Let the tick under way end, and wait for it; idempotent."""
        self._stopping.set()
        self._part.bell.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    @property
    def quiet_for(self) -> float:
        """Seconds since the last tick ended."""
        return clock.now() - self._moved_at

    def tick(self) -> TickResult:
        """One tick, by hand or by the thread. It never overlaps itself; its failures are counted, not raised."""
        if not self._ticking.acquire(blocking=False):
            self._told(self._part.name, "skipped")
            return TickResult(0.0, skipped=True)
        try:
            ticked = self._part.tick()
        except Exception as error:
            # What Holdfast raises on purpose says enough; a traceback at every try would bury it.
            unexpected = not isinstance(error, HoldfastError)
            log.warning("a tick of %s failed: %s", self._part.name, error, exc_info=unexpected)
            self._told(self._part.name, "error")
            self._failures += 1
            return TickResult(BACKOFF[min(self._failures, len(BACKOFF)) - 1])
        finally:
            self._moved_at = clock.now()
            self._ticking.release()
        self._failures = 0
        self._told(self._part.name, "processed")
        return ticked

    def _run(self) -> None:
        while not self._stopping.is_set():
            rest = self.tick().rest
            if rest > 0:
                self._part.bell.wait(rest)
            self._part.bell.clear()

"""Services of a worker: the lifecycle that all of them share."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct

from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.worker import clock

log = logging.getLogger("holdfast")

#: Seconds until the next tick after the first, second, ... failed tick in a row.
BACKOFF_S = (0.1, 0.2, 0.5, 1.0, 2.0)
#: Seconds between two lines of one service about the same outage.
REPORT_INTERVAL_S = 30.0


class TickResult(Struct, frozen=True):
    """Seconds until the next tick, and the work of this one. *skipped*: another tick was running."""

    next_in: float
    considered: int = 0
    processed: int = 0
    skipped: bool = False

    def __add__(self, other: TickResult) -> TickResult:
        return TickResult(
            min(self.next_in, other.next_in),
            self.considered + other.considered,
            self.processed + other.processed,
            self.skipped or other.skipped,
        )


class Service(Protocol):
    """``tick`` does the work that is due and never blocks for long; setting ``wake`` makes it tick sooner."""

    name: str
    wake: threading.Event

    def tick(self) -> TickResult: ...


S = TypeVar("S", bound=Service)


class ServiceThread(Generic[S]):
    """A thread that ticks a service until it is stopped. A failed tick is logged and retried."""

    def __init__(self, service: S, *, on_tick: Callable[[str, str], None]) -> None:
        self.service = service
        self._on_tick = on_tick
        self._stopping = threading.Event()
        self._ticking = threading.Lock()
        self._failures, self._reported_at = 0, -math.inf
        #: The error of the last tick; None if it succeeded.
        self.error: str | None = None
        self._ticked_at = clock.now()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to tick; a second start does nothing."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=f"holdfast-{self.service.name}", daemon=True)
            thread.start()
            self._thread = thread

    def stop(self, timeout: float | None = None) -> None:
        """Wait until the running tick has finished, then end the thread; idempotent."""
        self._stopping.set()
        self.service.wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    @property
    def stopped(self) -> bool:
        """Whether a stop was requested: helpers stop when the grace period begins, which may be long."""
        return self._stopping.is_set()

    @property
    def seconds_since_tick(self) -> float:
        return clock.now() - self._ticked_at

    def tick(self) -> TickResult:
        """Tick once. Ticks of one service never overlap; failures are counted, not raised."""
        name = self.service.name
        if not self._ticking.acquire(blocking=False):
            self._on_tick(name, "skipped")
            return TickResult(0.0, skipped=True)
        try:
            result = self.service.tick()
        except Exception as error:
            # An error of our own explains itself; a traceback at every retry would bury it.
            if not isinstance(error, StoreUnavailable) or clock.now() - self._reported_at >= REPORT_INTERVAL_S:
                self._reported_at = clock.now()
                log.warning("a tick of %s failed: %s", name, error, exc_info=not isinstance(error, HoldfastError))
            self._on_tick(name, "error")
            self._failures += 1
            self.error = str(error) or type(error).__name__
            return TickResult(BACKOFF_S[min(self._failures, len(BACKOFF_S)) - 1])
        finally:
            self._ticked_at = clock.now()
            self._ticking.release()
        self._failures, self._reported_at = 0, -math.inf
        self.error = None
        self._on_tick(name, "processed")
        return result

    def _run(self) -> None:
        while not self._stopping.is_set():
            next_in = self.tick().next_in
            # A tick may have cleared the wake-up of the stop, as the settler does while it collects.
            if next_in > 0 and not self._stopping.is_set():
                self.service.wake.wait(next_in)
            self.service.wake.clear()


def stop_threads(threads: Sequence[ServiceThread[Any]], timeout: float) -> None:
    """Stop services one after another, within *timeout* seconds in all."""
    deadline = clock.now() + timeout
    for thread in threads:
        thread.stop(max(0.0, deadline - clock.now()))

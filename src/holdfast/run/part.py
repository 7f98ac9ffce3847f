"""The one lifecycle of everything that moves: tick, rest, stop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger("holdfast")

#: After a bad tick a part rests so long, longer each time, and no longer than the last.
BACKOFF = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class Part(Protocol):
    """Something that moves.

    ``tick`` does what is due now, never waits for long, and answers after how many seconds
    it wants to be called again; ``bell`` calls it sooner.
    """

    name: str
    bell: threading.Event

    def tick(self) -> float: ...


class Mover:
    """A thread that ticks a part until it is stopped. A bad tick is told and survived."""

    def __init__(self, part: Part, *, told: Callable[[str, str], None] | None = None) -> None:
        self._part = part
        self._told = told or (lambda *_: None)
        self._stopping = threading.Event()
        self._failures = 0
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

    def tick(self) -> float:
        """One tick, by hand or by the thread; its failures are counted, never raised."""
        try:
            rest = self._part.tick()
        except Exception:
            log.exception("a tick of %s failed", self._part.name)
            self._told(self._part.name, "error")
            self._failures += 1
            return BACKOFF[min(self._failures, len(BACKOFF)) - 1]
        self._failures = 0
        self._told(self._part.name, "processed")
        return rest

    def _run(self) -> None:
        while not self._stopping.is_set():
            rest = self.tick()
            self._part.bell.wait(rest)
            self._part.bell.clear()

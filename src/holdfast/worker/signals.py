"""Two levels of stop: the first signal asks, the second one ends the process."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable
from typing import Any, Self

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """Hears SIGINT, SIGTERM and SIGHUP in a thread: a handler in the main one could find it holding a lock.

    *first* is called for the first signal, *second* for each later one. As a context manager, what was
    there before is restored at the end.
    """

    def __init__(self, first: Callable[[], None], second: Callable[[], None]) -> None:
        self._first = first
        self._second = second
        self._line, self._wake = socket.socketpair()
        self._wake.setblocking(False)
        self._before: dict[int, Any] = {}
        self._wakeup = -1

    def start(self) -> None:
        """Begin to hear; only the main thread may call it."""
        self._wakeup = signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        for number in STOPS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup leaves SIGHUP
                self._before[number] = signal.signal(number, lambda *_: None)
        threading.Thread(target=self._hear, name="holdfast-signals", daemon=True).start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        self._wake.close()

    def _hear(self) -> None:
        seen = 0
        while heard := self._heard():
            for number in heard:
                if number in STOPS:
                    seen += 1
                    self._first() if seen == 1 else self._second()
        self._line.close()

    def _heard(self) -> bytes:
        try:
            return self._line.recv(64)
        except OSError:
            # A handler has closed what is not its own: a process that cannot hear must not go on.
            os._exit(1)

"""Stop signals in two levels: the first requests a stop, the second ends the process."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable
from typing import Any, Self

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """Receives SIGINT, SIGTERM and SIGHUP in a thread: the main thread could hold a lock when a signal arrives.

    The first signal calls *first*, each later one *second*. A context manager that restores the previous handlers.
    """

    def __init__(self, first: Callable[[], None], second: Callable[[], None]) -> None:
        self._first = first
        self._second = second
        self._receiver, self._wake = socket.socketpair()
        self._wake.setblocking(False)
        self._before: dict[int, Any] = {}
        self._wakeup = -1

    def start(self) -> None:
        """Begin to receive; only the main thread may call it."""
        self._wakeup = signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        for number in STOP_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP
                self._before[number] = signal.signal(number, lambda *_: None)
        threading.Thread(target=self._receive, name="holdfast-signals", daemon=True).start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        self._wake.close()

    def _receive(self) -> None:
        count = 0
        while numbers := self._next():
            for number in numbers:
                if number in STOP_SIGNALS:
                    count += 1
                    self._first() if count == 1 else self._second()
        self._receiver.close()

    def _next(self) -> bytes:
        try:
            return self._receiver.recv(64)
        except OSError:
            # A job handler has closed our socket. A process that cannot receive signals must not continue.
            os._exit(1)

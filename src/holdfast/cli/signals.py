"""What SIGINT and SIGTERM do to a worker."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable

from holdfast.run.worker import Worker

#: How long the second signal may take to give jobs back, in seconds.
LAST_ACT = 0.7
SECOND_SIGNAL = 130
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Say = Callable[[str], None]


class Signals:
    """Two levels of stop, heard in a thread: a handler that runs in the main one could find it holding a lock."""

    def __init__(self, worker: Worker, grace: str, say: Say) -> None:
        self._worker = worker
        self._say = say
        self._grace = grace
        self._line, wake = socket.socketpair()
        self._line.setblocking(True)
        wake.setblocking(False)
        self._wake = wake

    def start(self) -> None:
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        for number in STOPS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup leaves SIGHUP
                signal.signal(number, lambda *_: None)
        threading.Thread(target=self._hear, name="holdfast-signals", daemon=True).start()

    def _hear(self) -> None:
        seen = 0
        while True:
            for number in self._heard():
                if number in STOPS:
                    seen += 1
                    self._first() if seen == 1 else self._second()

    def _heard(self) -> bytes:
        try:
            return self._line.recv(64)
        except OSError:
            # A handler has closed what is not its own: a worker that cannot hear must not go on.
            os._exit(1)

    def _first(self) -> None:
        self._say(f"stopping: {self._worker.running} jobs may end within {self._grace}; once more to leave at once")
        self._worker.stop()

    def _second(self) -> None:
        self._say("leaving at once; jobs that ran are given back")
        last = threading.Thread(target=self._worker.abandon, daemon=True)
        last.start()
        last.join(LAST_ACT)
        os._exit(SECOND_SIGNAL)

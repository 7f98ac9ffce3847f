"""Stop signals in two levels: the first requests a stop, the second ends the process."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

from holdfast.store.engine.sockets import socket_pair
from holdfast.worker.exit import exit_process

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """Receives SIGINT, SIGTERM and SIGHUP in a thread: the main thread could hold a lock when a signal arrives.

    The first signal calls *first*, each later one *second*. A context manager that restores the previous handlers.
    A forked child gets the previous handlers too: a signal to it must not reach its parent.
    """

    def __init__(self, first: Callable[[], None], second: Callable[[], None]) -> None:
        self._first = first
        self._second = second
        self._receiver, self._wake = socket_pair()
        self._wake.setblocking(False)
        self._before: dict[int, Any] = {}
        self._wakeup = -1

    def start(self) -> None:
        """Begin to receive; only the main thread may call it."""
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
            # Who started us ignored it. Exit codes of programs that handlers run would be lost.
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _ACTIVE.append(self)
        self._wakeup = signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        for number in STOP_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP
                self._before[number] = signal.signal(number, lambda *_: None)
        threading.Thread(target=self._receive, name="holdfast-signals", daemon=True).start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self not in _ACTIVE:
            return  # this is a forked child
        self._restore()
        signal.set_wakeup_fd(self._wakeup)
        _ACTIVE.remove(self)
        self._wake.close()

    def detach(self) -> None:
        """Remove all traces from a forked child; the parent continues to receive."""
        self._restore()
        for connection in (self._wake, self._receiver):
            connection.close()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

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
        except OSError as error:
            # A job handler has closed our socket. A process that cannot receive signals must not continue.
            exit_process(1, f"the socket that receives signals was closed within this process ({error}): it ends")


#: The instances that receive now, the innermost last.
_ACTIVE: list[Signals] = []
#: The signal mask of a thread that forks, from before the fork.
_mask = threading.local()


def _before_fork() -> None:
    """Block stop signals: until the child is detached, a signal to it would wake the parent."""
    _mask.before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS) if _ACTIVE else None


def _after_fork_in_parent() -> None:
    if (before := getattr(_mask, "before", None)) is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _after_fork_in_child() -> None:
    if _ACTIVE:
        with suppress(ValueError):  # a sub-interpreter has no signals
            signal.set_wakeup_fd(-1)
            for active in reversed(_ACTIVE):
                active.detach()
        _ACTIVE.clear()
    _after_fork_in_parent()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)

"""The queue of writers: processes that write to the same file take turns by a lock file beside it.

SQLite has no queue. A connection that finds the file locked sleeps, up to 100 ms at a time, and others may be faster
again and again. Waiters for a lock file sleep until it is free, and the first one gets it. The turn decides only the
order: SQLite's own lock protects the file. So a writer that gets no turn in time, or cannot use the lock file, writes
without one.
"""

from __future__ import annotations

import _thread
import fcntl
import os
from contextlib import suppress

#: Longest wait for a turn, in seconds. A process that is stopped during its own turn delays each other process once.
TURN_WAIT_S = 1.0


class WriterQueue:
    """The place of this process in the queue. One thread at a time uses it."""

    def __init__(self, database: str) -> None:
        self._file = f"{database}-writers"
        self._descriptor: int | None = None
        self._wait: _Wait | None = None

    def enter(self, timeout: float) -> None:
        """Wait for a turn, at most *timeout* seconds. Afterwards the caller may write, with a turn or without one."""
        if self._wait is not None and not self._wait.finished:
            return  # the turn of another process lasts too long
        try:
            if self._descriptor is None:
                self._descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._enter_later(max(0.0, min(timeout, TURN_WAIT_S)))
        except OSError:  # a directory that cannot be written, or no descriptor is free
            return

    def leave(self) -> None:
        """End the turn, if there is one."""
        if self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the lock file. A forked child must do so too: it would keep the turn of a parent that dies."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __del__(self) -> None:
        self.close()

    def _enter_later(self, timeout: float) -> None:
        """Wait in a thread: a wait for the lock has no time limit."""
        assert self._descriptor is not None
        wait = _Wait(self._descriptor)
        try:
            _thread.start_new_thread(wait.run, ())
        except RuntimeError:  # no more threads
            return
        self._wait = wait
        try:
            wait.granted.acquire(timeout=timeout)
        finally:
            if wait.abandon():
                self._descriptor = None


class _Wait:
    """A wait for the lock of a descriptor. One that is abandoned takes the descriptor, and ends its turn at once."""

    def __init__(self, descriptor: int) -> None:
        self.finished = False
        self.granted = _thread.allocate_lock()
        self.granted.acquire()
        self._descriptor = descriptor
        self._abandoned = False
        self._lock = _thread.allocate_lock()

    def run(self) -> None:
        with suppress(OSError):
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        with self._lock:
            self.finished = True
            if self._abandoned:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)  # a forked child may have the descriptor too
                os.close(self._descriptor)
            else:
                self.granted.release()

    def abandon(self) -> bool:
        """End the wait; false if it has ended before."""
        with self._lock:
            self._abandoned = not self.finished
            return self._abandoned

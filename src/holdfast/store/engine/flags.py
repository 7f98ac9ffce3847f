"""A flag that one thread waits for, and that a finalizer may raise.

The interpreter runs a finalizer in any thread and between any two instructions, and at its exit when other threads have
stopped for ever. One that takes a lock may wait for its own thread, or for one that stopped: :class:`threading.Event`
takes one.
"""

from __future__ import annotations

from _thread import allocate_lock
from contextlib import suppress


class Flag:
    """As :class:`threading.Event` for one waiting thread. No method but :meth:`wait` waits."""

    __slots__ = ("_free", "_raised")

    def __init__(self) -> None:
        self._raised = False
        #: Taken while the flag is down. It is released to wake the thread that waits for it.
        self._free = allocate_lock()
        self._free.acquire()

    def is_set(self) -> bool:
        return self._raised

    def set(self) -> None:
        self._raised = True
        with suppress(RuntimeError):  # it is released already
            self._free.release()

    def clear(self) -> None:
        self._raised = False
        self._free.acquire(blocking=False)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the flag is set, or *timeout* seconds. It may return a little too early: ask again."""
        if not self._raised:
            self._free.acquire(timeout=-1 if timeout is None else max(0.0, timeout))
        return self._raised

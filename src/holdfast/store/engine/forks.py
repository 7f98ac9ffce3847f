"""Forks of this process: each backend prepares for them, and both sides continue on connections of their own."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket

#: Longest time that a fork waits for other threads, in seconds.
FORK_TIMEOUT_S = 10.0


class ForkSafe:
    """Is called in the thread that forks. Other threads exist before the fork and in the parent, not in the child."""

    def before_fork(self) -> None:
        """Prepare both sides."""

    def after_fork_in_parent(self) -> None:
        """Continue in the parent."""

    def after_fork_in_child(self) -> None:
        """Continue in the child."""


#: Held from before a fork until after it, and while a thread registers a member or imports modules. Threads fork one by
#: one: the end of one fork would let threads continue that another has stopped. A child would wait for ever for a lock
#: that another thread of its parent had: the lock of a module, or of SQLite's memory.
first_use = threading.RLock()
#: The number of forks between this process and the one that imported this module. A thread that finds it changed is in
#: a fork that its caller has left. Reading it costs less than a call of the system for the process id.
depth = 0
_MEMBERS: weakref.WeakSet[ForkSafe] = weakref.WeakSet()
_CLOSED: weakref.WeakSet[socket.socket] = weakref.WeakSet()
#: Called in a child before all else: from then on no finalizer can end what the parent uses.
_cuts: list[Callable[[], None]] = []
#: Whether the garbage collector was on before a fork. Until the child is cut off, no finalizer may run.
_collects = False


def survive_forks(member: ForkSafe) -> None:
    """Call the methods of *member* at every fork, as long as it exists. Waits while another thread forks."""
    with first_use:
        _MEMBERS.add(member)


def is_child() -> bool:
    """Whether this process was forked, after this module was imported."""
    return depth > 0


def cut_in_children(cut: Callable[[], None]) -> None:
    """Call *cut* first in every forked child."""
    _cuts.append(cut)


def close_in_forks(connection: socket.socket) -> None:
    """Close the copy of *connection* in every fork: an address would stay taken for as long as the child lives."""
    _CLOSED.add(connection)


def _before() -> None:
    global _collects  # noqa: PLW0603 - of the process
    first_use.acquire(timeout=FORK_TIMEOUT_S)
    _collects = gc.isenabled()
    gc.disable()
    for member in list(_MEMBERS):
        member.before_fork()


def _after_in_parent() -> None:
    if _collects:
        gc.enable()
    try:
        for member in list(_MEMBERS):
            member.after_fork_in_parent()
    finally:  # a signal handler may raise anywhere above: Python ignores that, and other threads would wait for ever
        try:  # noqa: SIM105 - a handler may raise in suppress, too
            first_use.release()
        except RuntimeError:  # the fork did not wait longer for another thread
            pass


def _after_in_child() -> None:
    global depth, first_use  # noqa: PLW0603 - of the process
    first_use = threading.RLock()
    for cut in _cuts:
        cut()
    if _collects:
        gc.enable()
    depth += 1
    for member in list(_MEMBERS):
        member.after_fork_in_child()
    for connection in list(_CLOSED):
        connection.close()


os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)

"""Forks of this process: each backend prepares for them, and both sides continue on connections of their own."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
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


class ForkGate:
    """Counts the threads in its short ``with`` blocks. A fork waits until they have left, and keeps others out."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._users: dict[int, int] = {}
        self._guests = 0
        self._shut = False

    def __enter__(self) -> None:
        me = threading.get_ident()
        with self._changed:
            while self._shut and me not in self._users:
                self._changed.wait()
            self._users[me] = self._users.get(me, 0) + 1

    def __exit__(self, *_: object) -> None:
        me = threading.get_ident()
        with self._changed:
            uses = self._users.pop(me) - 1
            if uses:
                self._users[me] = uses
            elif self._shut:
                self._changed.notify_all()

    @contextmanager
    def guest(self) -> Iterator[None]:
        """A use that may last: no fork waits for it, and its children cannot use the file."""
        with self:
            self._guests += 1
        try:
            yield
        finally:
            with self._changed:
                self._guests -= 1

    def shut(self) -> bool:
        """Keep other threads out; false if one stays inside, or this one is inside."""
        me = threading.get_ident()
        with self._changed:
            self._shut = True
            if self._guests or self._users.get(me):
                return False
            return self._changed.wait_for(lambda: not self._users, FORK_TIMEOUT_S)

    def open(self) -> None:
        with self._changed:
            self._shut = False
            self._changed.notify_all()


#: Entered to import modules and to register members. A child would wait for ever for a lock that another thread of its
#: parent had: the lock of a module, or that of SQLite's memory.
first_uses = ForkGate()
#: Held from before a fork until after it: the end of another fork would let threads continue that this one has stopped.
_forking = threading.RLock()
#: The number of forks between this process and the one that imported this module. A thread that finds it changed is in
#: a fork that its caller has left. Reading it costs less than a call of the system for the process id.
depth = 0
_MEMBERS: weakref.WeakSet[ForkSafe] = weakref.WeakSet()
_CLOSED: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def survive_forks(member: ForkSafe) -> None:
    """Call the methods of *member* at every fork, as long as it exists. Waits while another thread forks."""
    with first_uses:
        _MEMBERS.add(member)


def is_child() -> bool:
    """Whether this process was forked, after this module was imported."""
    return depth > 0


def close_in_forks(connection: socket.socket) -> None:
    """Close the copy of *connection* in every fork: an address would stay taken for as long as the child lives."""
    _CLOSED.add(connection)


def _before() -> None:
    _forking.acquire()
    first_uses.shut()
    for member in list(_MEMBERS):
        member.before_fork()


def _after_in_parent() -> None:
    for member in list(_MEMBERS):
        member.after_fork_in_parent()
    first_uses.open()
    _forking.release()


def _after_in_child() -> None:
    global depth, first_uses, _forking  # noqa: PLW0603 - of the process
    first_uses, _forking = ForkGate(), threading.RLock()
    depth += 1
    for member in list(_MEMBERS):
        member.after_fork_in_child()
    for connection in list(_CLOSED):
        connection.close()


os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)

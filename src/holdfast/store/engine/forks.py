"""Forks of this process: each backend prepares for them, and both sides continue on connections of their own."""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket


class ForkSafe:
    """Is called in the thread that forks. Other threads exist before the fork and in the parent, not in the child."""

    def before_fork(self) -> None:
        """Prepare both sides."""

    def after_fork_in_parent(self) -> None:
        """Continue in the parent."""

    def after_fork_in_child(self) -> None:
        """Continue in the child."""


#: The number of forks between this process and the one that imported this module. A thread that finds it changed is in
#: a fork that its caller has left. Reading it costs less than a call of the system for the process id.
depth = 0
_MEMBERS: weakref.WeakSet[ForkSafe] = weakref.WeakSet()
_CLOSED: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def survive_forks(member: ForkSafe) -> None:
    """Call the methods of *member* at every fork, as long as it exists."""
    _MEMBERS.add(member)


def is_child() -> bool:
    """Whether this process was forked, after this module was imported."""
    return depth > 0


def close_in_forks(connection: socket.socket) -> None:
    """Close the copy of *connection* in every fork: an address would stay taken for as long as the child lives."""
    _CLOSED.add(connection)


def _before() -> None:
    for member in list(_MEMBERS):
        member.before_fork()


def _after_in_parent() -> None:
    for member in list(_MEMBERS):
        member.after_fork_in_parent()


def _after_in_child() -> None:
    global depth  # noqa: PLW0603 - of the process
    depth += 1
    for member in list(_MEMBERS):
        member.after_fork_in_child()
    for connection in list(_CLOSED):
        connection.close()


os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)

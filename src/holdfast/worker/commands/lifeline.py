"""The lifeline of a process: the proof for other processes of this host that it has exited, with its supervisors.

It is a socket with a name, which the kernel closes with the last process that holds it: the process itself, its
supervisors and its forks. No clock, file or lease is part of the proof, so a suspended process counts as alive.
"""

from __future__ import annotations

import errno
import os
import secrets
import socket
import threading
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from holdfast.store.engine.sockets import new_socket
from holdfast.worker.commands.identity import ProcessId

_NAMESPACES = ("pid", "net", "user")


class Space(Struct, frozen=True):
    """The kernel, the namespaces and the user of a process. The proof holds only within one space.

    The same number means another process elsewhere: a container has the name of its host, and its own numbers.
    """

    boot: str
    namespaces: list[int]
    user: int

    @classmethod
    def here(cls) -> Space | None:
        """The space of this process; None where the system does not show it."""
        try:
            boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
            numbers = [Path("/proc/self/ns", name).stat().st_ino for name in _NAMESPACES]
        except (OSError, ValueError):
            return None
        return cls(boot, numbers, os.geteuid()) if boot else None


class Life(Struct, frozen=True):
    """A process as a store keeps it: its space, its identity, and the name of its lifeline."""

    space: Space
    process: ProcessId
    lifeline: str

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()


def proves_death(*, same_space: bool, started: int | None, gone: bool, held: bool | None) -> bool:
    """Whether a process is proven to be dead, with its supervisors.

    *started*: its start as it was recorded. *gone*: no process has its number and its start. *held*: whether a process
    holds its lifeline; None: the system does not say.
    """
    return same_space and started is not None and gone and held is False


def is_dead(encoded: str) -> bool:
    """Whether the process of this :class:`Life` is proven to be dead. False: it lives, or nothing is known."""
    try:
        life = msgspec.json.decode(encoded, type=Life)
    except msgspec.MsgspecError:
        return False
    if life.space != Space.here():
        return False
    return proves_death(
        same_space=True,
        started=life.process.started,
        gone=life.process.is_gone,
        held=_is_held(life.lifeline),
    )


class _Own:
    """The lifeline of this process, made at its first use. A forked child makes its own, and keeps this one open."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.pid: int | None = None
        #: The open socket. It is never closed: the end of the process closes it.
        self.descriptor: int | None = None
        self.life: Life | None = None

    def open(self) -> None:
        if self.pid == os.getpid():
            return
        self.pid, self.descriptor, self.life = os.getpid(), None, None
        space, process = Space.here(), ProcessId.of(os.getpid())
        if space is None or process.started is None:
            return
        name = f"holdfast-{secrets.token_hex(16)}"
        connection = new_socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            connection.bind(f"\0{name}")
        except OSError:
            connection.close()
            return
        self.descriptor, self.life = connection.detach(), Life(space, process, name)


_own = _Own()


def _renew_lock() -> None:
    """Another thread of the parent may have held the lock at the fork."""
    _own.lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def own_life() -> Life | None:
    """This process, for others to see whether it has exited; None where the system offers no proof."""
    with _own.lock, suppress(OSError):
        _own.open()
    return _own.life


def own_descriptor() -> int | None:
    """The descriptor of this process's lifeline, for a supervisor to hold."""
    own_life()
    return _own.descriptor


def _is_held(name: str) -> bool | None:
    """Whether a process holds the lifeline of this name; None: unknown."""
    with new_socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(f"\0{name}")
        except OSError as error:
            return False if error.errno == errno.ECONNREFUSED else None
    return True

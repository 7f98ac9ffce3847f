"""Sockets within this program. None of them has a time limit: a program or a library may have set a default one."""

from __future__ import annotations

import os
import socket
from contextlib import suppress


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Two connected sockets."""
    pair = socket.socketpair()
    for each in pair:
        each.settimeout(None)
    return pair


def new_socket(family: int, kind: int) -> socket.socket:
    """A socket that is not connected."""
    made = socket.socket(family, kind)
    made.settimeout(None)
    return made


def inherited_socket(descriptor: int) -> socket.socket:
    """The socket of a descriptor that the parent process has passed on."""
    inherited = socket.socket(fileno=descriptor)
    inherited.settimeout(None)
    return inherited


def shut_down(descriptor: int) -> None:
    """End the connection of a driver's socket, from any thread. Its time limit is left to the driver."""
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as copy:
        copy.shutdown(socket.SHUT_RDWR)

"""The channel between a worker and its processes, with the messages of their supervisor."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct, field

#: A message is its length and its JSON.
LENGTH = struct.Struct("!I")

T = TypeVar("T")


def frame(value: Any) -> bytes:
    """A value as it is sent."""
    body = msgspec.json.encode(value)
    return LENGTH.pack(len(body)) + body


class Channel(Generic[T]):
    """Sends values as JSON and receives values of one type. Any thread may send; only one may receive."""

    def __init__(self, connection: socket.socket, receives: Any, incoming: socket.socket | None = None) -> None:
        """*incoming*: where values come from. A thread that waits on a socket also wakes when the other side reads."""
        self._connection = connection
        self._incoming = incoming or connection
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(receives)
        self._sending = threading.Lock()

    def send(self, value: Any, descriptors: Sequence[int] = ()) -> None:
        """Send a value, with descriptors at its beginning. Raises OSError when the other side is gone."""
        self.send_frame(frame(value), descriptors)

    def send_frame(self, data: bytes, descriptors: Sequence[int] = ()) -> None:
        """Send a value that :func:`frame` has encoded."""
        with self._sending:
            sent = socket.send_fds(self._connection, [data], descriptors) if descriptors else 0
            if sent < len(data):
                self._connection.sendall(data[sent:])

    def receive(self) -> T | None:
        """Wait for the next value; None when the other side is gone."""
        head = self._exactly(LENGTH.size)
        body = None if head is None else self._exactly(LENGTH.unpack(head)[0])
        return None if body is None else self._decoder.decode(body)

    def shut(self) -> None:
        """Shut the connection down, from any thread; :meth:`receive` then returns None."""
        for each in (self._connection, self._incoming):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._connection.close()
        self._incoming.close()

    def _exactly(self, size: int) -> bytes | None:
        chunks: list[bytes] = []
        while size:
            try:
                chunk = self._incoming.recv(min(size, 1 << 20))
            except OSError:
                return None
            if not chunk:
                return None
            chunks.append(chunk)
            size -= len(chunk)
        return b"".join(chunks)


#: The exit status of a command that could not be started.
CANNOT_START = 127


class StartProcess(Struct, frozen=True, tag=True):
    """Start a child. A descriptor comes with the message: its connection, or the output of a *command*.

    A command gets exactly the environment *env*; caps put it into a control group. *measured*: report its memory.
    *until*: its first deadline, since the worker may be stopped before it can send another message.
    """

    argv: list[str]
    command: bool = False
    cwd: str | None = None
    env: dict[str, str] | None = None
    memory: int | None = None
    cpus: float | None = None
    #: Refuse the start if the kernel does not enforce the caps.
    require_cap: bool = False
    measured: bool = False
    #: A second descriptor comes with the first one: its standard input.
    stdin: bool = False
    until: float | None = None
    child: str = field(default_factory=lambda: os.urandom(8).hex())


class ProcessLimits(Struct, frozen=True, tag=True):
    """Kill the child when the clock passes *until*, or when it takes more than *memory* bytes."""

    child: str
    until: float | None = None
    memory: int | None = None


class KillProcess(Struct, frozen=True, tag=True):
    """Kill the child; *gently*: with SIGTERM, which it may ignore."""

    child: str
    gently: bool = False


class FreezeProcess(Struct, frozen=True, tag=True):
    """Suspend or continue the child and its descendants."""

    child: str
    frozen: bool


class MemoryMeasured(Struct, frozen=True, tag=True):
    """Resident memory of children, each with its descendants, in bytes."""

    resident: dict[str, int]


class ProcessExited(Struct, frozen=True, tag=True):
    """A child and its descendants have ended. A signal makes *status* negative.

    *cpu*: processor seconds. *peak*: largest resident memory in bytes. *enforcer*: method of its caps. None: unknown.
    *error* and *errno*: why it could not be started.
    """

    child: str
    status: int
    oom: bool
    error: str | None = None
    cpu: float | None = None
    peak: int | None = None
    enforcer: str | None = None
    errno: int | None = None


ToSupervisor = StartProcess | ProcessLimits | KillProcess | FreezeProcess
FromSupervisor = ProcessExited | MemoryMeasured

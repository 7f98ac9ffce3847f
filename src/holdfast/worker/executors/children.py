"""Child processes from the worker's side: their messages, and the client of their supervisor."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any

from msgspec import Struct, structs

from holdfast.domain.jobs.job import Lease
from holdfast.worker.commands.kernel import kill_abandoned, kill_children
from holdfast.worker.context import Message
from holdfast.worker.executors.channel import (
    Channel,
    FreezeProcess,
    FromSupervisor,
    KillProcess,
    MemoryMeasured,
    ProcessExited,
    ProcessLimits,
    StartProcess,
)

#: Longest wait for the supervisor's report of a child's end.
EXIT_TIMEOUT_S = 10.0


class ChildOptions(Struct, frozen=True):
    """A child is replaced after *jobs* jobs, or when it has grown to *memory* bytes."""

    jobs: int = 1000
    memory: int = 512 * 1024 * 1024


class ChildSetup(Struct, frozen=True):
    """The first message to a child: import path, main script, and the module of each kind."""

    path: list[str]
    main: str | None
    worker: str
    modules: dict[str, str]


class BeginRun(Struct, frozen=True, tag=True):
    lease: Lease


class StopRun(Struct, frozen=True, tag=True):
    reason: str


class MessageReply(Struct, frozen=True, tag=True):
    """The answer to the message with the same number: a JSON value, or the class name of an error."""

    value: Any = None
    error: str | None = None
    message: str = ""
    number: int = 0


class ChildReady(Struct, frozen=True, tag=True):
    """The child waits for runs."""


class HandlerMessage(Struct, frozen=True, tag=True):
    """A message of a handler. The token identifies the run, since a thread may outlive its run."""

    token: int
    job_id: int
    message: Message
    number: int = 0


class RunFinished(Struct, frozen=True, tag=True):
    """The outcome of a run, its fields, and the resident memory of the child in bytes."""

    token: int
    job_id: int
    outcome: str
    fields: dict[str, Any]
    resident: int


ToChild = BeginRun | StopRun | MessageReply
FromChild = ChildReady | HandlerMessage | RunFinished


class SupervisorClient:
    """The supervisor of this worker. It starts with the first child, and again after it was killed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reported = threading.Condition()
        self._exits: dict[str, ProcessExited] = {}
        self._resident: dict[str, int] = {}
        self._living: set[str] = set()
        self._channel: Channel[FromSupervisor] | None = None
        self._descriptors: socket.socket | None = None

    def start(self) -> tuple[str, socket.socket]:
        """Start a child; returns its name and this end of its connection."""
        ours, theirs = socket.socketpair()
        with theirs:
            argv = [sys.executable, "-m", "holdfast.worker.executors.child"]
            return self.start_process(StartProcess(argv), theirs.fileno()), ours

    def start_process(self, message: StartProcess, descriptor: int, *, stdin: int | None = None) -> str:
        """Start a process with a descriptor for its connection or its output; returns its name."""
        message = structs.replace(message, stdin=stdin is not None)
        with self._lock:
            channel, descriptors = self._connected()
            self._living.add(message.child)
            channel.send(message)
            socket.send_fds(descriptors, [b"!"], [descriptor] if stdin is None else [descriptor, stdin])
        return message.child

    def limit(self, child: str, *, until: float | None = None, memory: int | None = None) -> None:
        self._send(ProcessLimits(child, until, memory))

    def freeze(self, child: str, *, frozen: bool) -> None:
        self._send(FreezeProcess(child, frozen))

    def resident(self, child: str) -> int:
        """Resident memory of a measured command at its last measurement, in bytes."""
        return self._resident.get(child, 0)

    def kill(self, child: str, *, gently: bool = False) -> None:
        self._send(KillProcess(child, gently))

    def exit_of(self, child: str, *, timeout: float = EXIT_TIMEOUT_S) -> ProcessExited | None:
        """The end of a child; None if the supervisor is gone too, or the child still runs after *timeout* seconds."""
        with self._reported:
            self._reported.wait_for(lambda: child in self._exits or self._channel is None, timeout)
            return self._exits.pop(child, None)

    @property
    def gone(self) -> bool:
        """Whether the supervisor has ended, and its children with it."""
        return self._channel is None

    def close(self) -> None:
        with self._lock:
            if self._channel is not None:
                self._channel.shut()

    def _send(self, message: KillProcess | ProcessLimits | FreezeProcess) -> None:
        with suppress(OSError):  # the supervisor is gone, and its children with it
            if (channel := self._channel) is not None:
                channel.send(message)

    def _connected(self) -> tuple[Channel[FromSupervisor], socket.socket]:
        if self._channel is None or self._descriptors is None:
            kill_abandoned()
            connection, their_connection = socket.socketpair()
            self._descriptors, their_descriptors = socket.socketpair()
            with their_connection, their_descriptors:
                numbers = [their_connection.fileno(), their_descriptors.fileno()]
                process = subprocess.Popen(  # noqa: S603 - our own module
                    [sys.executable, "-m", "holdfast.worker.commands.supervisor", *map(str, numbers)],
                    pass_fds=numbers,
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )
            self._channel = Channel(connection, FromSupervisor)
            arguments = (self._channel, self._descriptors, process)
            threading.Thread(target=self._receive, args=arguments, name="holdfast-children", daemon=True).start()
        return self._channel, self._descriptors

    def _receive(
        self, channel: Channel[FromSupervisor], descriptors: socket.socket, process: subprocess.Popen[bytes]
    ) -> None:
        while (message := channel.receive()) is not None:
            if isinstance(message, MemoryMeasured):
                self._resident = message.resident
                continue
            with self._reported:
                self._living.discard(message.child)
                self._exits[message.child] = message
                self._reported.notify_all()
        # It may have been killed. Its children are killed before any caller learns that it is gone.
        kill_children(self._living)
        with self._reported:
            self._living.clear()
            if self._channel is channel:
                self._channel = self._descriptors = None
            self._reported.notify_all()
        channel.close()
        descriptors.close()
        process.wait()

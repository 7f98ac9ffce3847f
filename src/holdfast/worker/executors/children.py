"""Child processes from the worker's side: their messages, and the client of their supervisor."""

from __future__ import annotations

import logging
import socket
import struct
import subprocess
import sys
import threading
from queue import Empty, SimpleQueue
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.domain.jobs.job import Lease
from holdfast.errors import InvalidInput
from holdfast.store.engine.forks import ForkSafe, survive_forks
from holdfast.store.engine.sockets import socket_pair
from holdfast.worker.commands.kernel import kill_abandoned, kill_children, proc_problem
from holdfast.worker.commands.lifeline import own_descriptor
from holdfast.worker.context import Message
from holdfast.worker.executors.channel import (
    LENGTH,
    Channel,
    FreezeProcess,
    FromSupervisor,
    KillProcess,
    MemoryMeasured,
    ProcessExited,
    ProcessLimits,
    StartProcess,
    frame,
)
from holdfast.worker.shortage import WorkerShortage

log = logging.getLogger("holdfast")

#: Longest wait for the supervisor's report of a child's end.
EXIT_TIMEOUT_S = 10.0
#: A supervisor that does not take a message, or does not end, for this long is given up.
HUNG_S = 10


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


class ChildFailed(Struct, frozen=True, tag=True):
    """The child ends, because one of its own threads has: no answer would reach its handler."""

    error: str


class RunBegun(Struct, frozen=True, tag=True):
    """The child begins a run. A child that ends before this message has not touched the run."""

    token: int
    job_id: int


class RunFinished(Struct, frozen=True, tag=True):
    """The outcome of a run, its fields, and the resident memory of the child in bytes."""

    token: int
    job_id: int
    outcome: str
    fields: dict[str, Any]
    resident: int


ToChild = BeginRun | StopRun | MessageReply
#: Messages about the child itself, not about a run.
OfChild = ChildReady | ChildFailed
FromChild = OfChild | HandlerMessage | RunBegun | RunFinished
_FROM_CHILD: msgspec.json.Decoder[FromChild] = msgspec.json.Decoder(FromChild)


def handler_frame(message: HandlerMessage) -> bytes:
    """A message of a handler as it is sent.

    Raises:
        InvalidInput: It holds a value that the worker could not read.
    """
    try:
        data = frame(message)
        _FROM_CHILD.decode(memoryview(data)[LENGTH.size :])
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput(f"a value of this call cannot be sent to the worker: {error}") from None
    return data


class SupervisorClient(ForkSafe):
    """The supervisor of this worker. It starts with the first child, and again after it was killed.

    A forked child of this process has a supervisor of its own.
    """

    def __init__(self) -> None:
        self._reset()
        survive_forks(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        #: The report of each child whose end a caller waits for; None: it was lost with the supervisor.
        self._reports: dict[str, SimpleQueue[ProcessExited | None]] = {}
        self._resident: dict[str, int] = {}
        self._living: set[str] = set()
        self._channel: Channel[FromSupervisor] | None = None

    def after_fork_in_child(self) -> None:
        """Close the copy of the connection: while one is open, the supervisor takes the worker for alive."""
        if self._channel is not None:
            self._channel.close()
        self._reset()

    def start(self, *, until: float) -> tuple[str, socket.socket]:
        """Start a child with its first deadline; returns its name and this end of its connection."""
        ours, theirs = socket_pair()
        with theirs:
            argv = [sys.executable, "-m", "holdfast.worker.executors.child"]
            try:
                return self.start_process(StartProcess(argv, until=until), theirs.fileno()), ours
            except BaseException:
                ours.close()
                raise

    def prepare(self) -> None:
        """Start the supervisor before the first child needs it."""
        with self._lock:
            self._connected()

    def start_process(self, message: StartProcess, descriptor: int, *, stdin: int | None = None) -> str:
        """Start a process with a descriptor for its connection or its output, and *stdin* if the message announces it.

        Returns its name.
        """
        with self._lock:
            channel = self._connected()
            self._living.add(message.child)
            self._reports[message.child] = SimpleQueue()
            try:
                channel.send(message, [descriptor] if stdin is None else [descriptor, stdin])
            except OSError as error:
                channel.shut()
                self._reports.pop(message.child, None)
                raise WorkerShortage(error.errno, f"the supervisor of child processes is gone: {error}") from None
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
        if (reports := self._reports.get(child)) is None:
            return None
        try:
            exited = reports.get(timeout=timeout)
        except Empty:
            return None
        self._reports.pop(child, None)
        return exited

    def has_lost(self, child: str) -> bool:
        """Whether a child ended with its supervisor, and :meth:`exit_of` can report no more of it."""
        return child not in self._reports

    def dismiss(self, child: str, *, until: float) -> None:
        """Do not keep the report of a child that ends by itself; it is killed if it has not by *until*."""
        self._reports.pop(child, None)
        self.limit(child, until=until)

    def close(self) -> None:
        with self._lock:
            if (channel := self._channel) is not None:
                channel.shut()

    def _send(self, message: KillProcess | ProcessLimits | FreezeProcess) -> None:
        if (channel := self._channel) is None:
            return
        try:
            channel.send(message)
        except BlockingIOError:
            log.warning("the supervisor of child processes does not answer; it and its children are abandoned")
            channel.shut()
        except OSError:
            pass  # the supervisor is gone, and its children with it

    def _connected(self) -> Channel[FromSupervisor]:
        if (channel := self._channel) is None:
            channel, process = _start_supervisor()
            receiver = threading.Thread(
                target=self._receive, args=(channel, process), name="holdfast-children", daemon=True
            )
            self._channel = channel
            receiver.start()
            kill_abandoned()  # while the supervisor starts
            if (problem := proc_problem()) is not None:
                log.warning("child processes: %s", problem)
        return channel  # a receiver may have seen the end of the supervisor, and reset the field

    def _receive(self, channel: Channel[FromSupervisor], process: subprocess.Popen[bytes]) -> None:
        while (message := channel.receive()) is not None:
            if isinstance(message, MemoryMeasured):
                self._resident = message.resident
                continue
            self._living.discard(message.child)
            if (reports := self._reports.get(message.child)) is not None:
                reports.put(message)
        # It may have been killed. Its children are killed before any caller learns that it is gone.
        kill_children(self._living)
        self._living.clear()
        lost = list(self._reports.values())  # before the next supervisor can start
        if self._channel is channel:
            self._channel = None
        for reports in lost:
            reports.put(None)
        channel.close()
        try:
            process.wait(HUNG_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _start_supervisor() -> tuple[Channel[FromSupervisor], subprocess.Popen[bytes]]:
    """Start a supervisor; returns the channel to it, and its process."""
    connection, theirs = socket_pair()
    incoming, reports = socket_pair()
    with theirs, reports:
        numbers = [theirs.fileno(), reports.fileno()]
        lifeline = own_descriptor()  # while the supervisor lives, its children may
        if lifeline is not None:
            numbers.append(lifeline)
        try:
            process = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-m", "holdfast.worker.commands.supervisor", *map(str, numbers)],
                pass_fds=numbers,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            connection.close()
            incoming.close()
            raise WorkerShortage(error.errno, f"the supervisor of child processes cannot be started: {error}") from None
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", HUNG_S, 0))
    return Channel(connection, FromSupervisor, incoming), process

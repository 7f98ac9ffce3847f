"""Children as the worker sees them: started and watched by the supervisor, spoken to over a line of their own."""

from __future__ import annotations

import secrets
import socket
import subprocess
import sys
import threading
from typing import Any

from msgspec import Struct

from holdfast.domain.jobs.job import Lease
from holdfast.worker.commands.child_marks import end_abandoned, end_marked
from holdfast.worker.commands.supervisor import (
    Deadlines,
    FreezeProcess,
    KillProcess,
    MemoryMeasured,
    ProcessExited,
    StartProcess,
)
from holdfast.worker.executors.channel import Channel
from holdfast.worker.messages import Message

#: How long the supervisor may take to tell of a child's end, in seconds.
PATIENCE = 10.0


class ChildOptions(Struct, frozen=True):
    """A child is replaced after so many jobs, or when it has grown to so many bytes."""

    jobs: int = 1000
    memory: int = 512 * 1024 * 1024


class ChildSetup(Struct, frozen=True):
    """What a new child has to know: where modules are found, the main program, and the module of each kind."""

    path: list[str]
    main: str | None
    worker: str
    modules: dict[str, str]


class BeginRun(Struct, frozen=True, tag=True):
    """Run a job."""

    lease: Lease


class StopRun(Struct, frozen=True, tag=True):
    """Tell the handler to stop."""

    reason: str


class MessageReply(Struct, frozen=True, tag=True):
    """The answer to a message: JSON, or an error by its name."""

    value: Any = None
    error: str | None = None
    message: str = ""


class ChildReady(Struct, frozen=True, tag=True):
    """The child is up and waits for runs."""


class HandlerMessage(Struct, frozen=True, tag=True):
    """What the handler of a run says. The token tells which run: a thread may outlive its own."""

    token: int
    job_id: int
    message: Message


class RunFinished(Struct, frozen=True, tag=True):
    """How a run ended, and how large the child has grown, in bytes."""

    token: int
    job_id: int
    outcome: str
    facts: dict[str, Any]
    resident: int


ToChild = BeginRun | StopRun | MessageReply
FromChild = ChildReady | HandlerMessage | RunFinished


class SupervisorClient:
    """The supervisor of this worker, started with the first child, and anew when it was killed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told = threading.Condition()
        self._exits: dict[str, ProcessExited] = {}
        self._resident: dict[str, int] = {}
        self._living: set[str] = set()
        self._line: Channel[ProcessExited | MemoryMeasured] | None = None
        self._lines: socket.socket | None = None

    def start(self) -> tuple[str, socket.socket]:
        """A new child; answers its name and our end of its line."""
        name = secrets.token_hex(8)
        ours, theirs = socket.socketpair()
        with self._lock, theirs:
            line, lines = self._connected()
            self._living.add(name)
            line.send(StartProcess(name, [sys.executable, "-m", "holdfast.worker.executors.child"]))
            socket.send_fds(lines, [b"!"], [theirs.fileno()])
        return name, ours

    def command(
        self,
        argv: list[str],
        output: int,
        *,
        cwd: str | None,
        env: dict[str, str],
        memory: int | None = None,
        cpus: float | None = None,
        measured: bool = False,
    ) -> str:
        """Start a program that writes to the descriptor *output*, in this environment alone; answers its name.

        One that is *measured* has its peak told when it has ended, and :meth:`resident` meanwhile.
        """
        name = secrets.token_hex(8)
        with self._lock:
            line, lines = self._connected()
            self._living.add(name)
            started = StartProcess(
                name, argv, command=True, cwd=cwd, env=env, memory=memory, cpus=cpus, measured=measured
            )
            line.send(started)
            socket.send_fds(lines, [b"!"], [output])
        return name

    def limit(self, child: str, *, until: float | None = None, memory: int | None = None) -> None:
        self._send(Deadlines(child, until, memory))

    def freeze(self, child: str, *, frozen: bool) -> None:
        """Stop a child for a while, or let it go on."""
        self._send(FreezeProcess(child, frozen))

    def resident(self, child: str) -> int:
        """What a measured program took when it was last looked at, in bytes."""
        return self._resident.get(child, 0)

    def kill(self, child: str, *, gently: bool = False) -> None:
        self._send(KillProcess(child, gently))

    def exit_of(self, child: str, *, patience: float = PATIENCE) -> ProcessExited | None:
        """How a child ended; None when the supervisor went with it, or when it has not ended yet."""
        with self._told:
            self._told.wait_for(lambda: child in self._exits or self._line is None, patience)
            return self._exits.pop(child, None)

    @property
    def gone(self) -> bool:
        """Whether the supervisor has ended, and its children with it."""
        return self._line is None

    def close(self) -> None:
        with self._lock:
            if self._line is not None:
                self._line.shut()

    def _send(self, order: KillProcess | Deadlines | FreezeProcess) -> None:
        line = self._line
        if line is not None:
            try:
                line.send(order)
            except OSError:
                return  # it is gone, and its children with it

    def _connected(self) -> tuple[Channel[ProcessExited | MemoryMeasured], socket.socket]:
        if self._line is None or self._lines is None:
            end_abandoned()
            orders, their_orders = socket.socketpair()
            self._lines, their_lines = socket.socketpair()
            with their_orders, their_lines:
                descriptors = [their_orders.fileno(), their_lines.fileno()]
                process = subprocess.Popen(  # noqa: S603 - our own module
                    [sys.executable, "-m", "holdfast.worker.commands.supervisor", *map(str, descriptors)],
                    pass_fds=descriptors,
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )
            self._line = Channel(orders, ProcessExited | MemoryMeasured)
            threading.Thread(
                target=self._hear, args=(self._line, self._lines, process), name="holdfast-children", daemon=True
            ).start()
        return self._line, self._lines

    def _hear(
        self, line: Channel[ProcessExited | MemoryMeasured], lines: socket.socket, process: subprocess.Popen[bytes]
    ) -> None:
        while (exited := line.receive()) is not None:
            if isinstance(exited, MemoryMeasured):
                self._resident = exited.resident
                continue
            with self._told:
                self._living.discard(exited.child)
                self._exits[exited.child] = exited
                self._told.notify_all()
        # It may have been killed: whoever learns that it is gone can rely on its children being gone, too.
        end_marked(self._living)
        with self._told:
            self._living.clear()
            if self._line is line:
                self._line = self._lines = None
            self._told.notify_all()
        line.close()
        lines.close()
        process.wait()

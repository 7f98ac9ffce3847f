"""The supervisor: a small process that ends children in time, whatever becomes of their worker.

It is told each lease's deadline, and ends a child with everything the child has started when the
deadline passes or when the worker is gone: stopped, frozen and killed workers leave nothing
running past a lease. It knows nothing of jobs and opens no store.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from holdfast.run import clock
from holdfast.run.channel import Channel

MARK = "HOLDFAST_CHILD"
LOOK_EVERY = 0.1
#: The status of a program that could not be started.
CANNOT_START = 127
_SUBREAPER = 36


class Start(Struct, frozen=True, tag=True):
    """Start a child; a descriptor follows on the socket beside: its line, or where a *command* writes."""

    child: str
    argv: list[str]
    command: bool = False
    cwd: str | None = None
    env: dict[str, str] = {}


class Limits(Struct, frozen=True, tag=True):
    """End the child when the clock passes *until*, or when it takes more than *memory* bytes."""

    child: str
    until: float | None = None
    memory: int | None = None


class Kill(Struct, frozen=True, tag=True):
    """End the child now; *gently*: ask it to end, which it may refuse."""

    child: str
    gently: bool = False


class Exited(Struct, frozen=True, tag=True):
    """A child has ended, with all that it had started. *status* is negative for a signal."""

    child: str
    status: int
    oom: bool
    error: str | None = None


Order = Start | Limits | Kill


class _Child:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.limits: Limits | None = None
        self.oom = False


class Supervisor:
    """Starts and ends children as it is told."""

    def __init__(self, orders: socket.socket, lines: socket.socket) -> None:
        self._orders = orders
        self._lines = lines
        self._channel: Channel[Order] = Channel(orders, Order)
        self._children: dict[str, _Child] = {}

    def run(self) -> None:
        """Until the worker is gone; then end all children."""
        look = select.poll()
        look.register(self._orders, select.POLLIN)
        while True:
            ready = look.poll(LOOK_EVERY * 1000 if self._children else None)
            if ready:
                order = self._channel.receive()
                if order is None:
                    break
                self._obey(order)
            self._enforce()
            self._reap()
        for name, child in self._children.items():
            self._end(child)
            child.process.wait()
            _end_orphans(name)

    def _obey(self, order: Order) -> None:
        match order:
            case Start():
                self._begin(order)
            case Limits():
                if order.child in self._children:
                    self._children[order.child].limits = order
            case Kill():
                if order.child in self._children:
                    self._end(self._children[order.child], signal.SIGTERM if order.gently else signal.SIGKILL)

    def _begin(self, order: Start) -> None:
        try:
            self._children[order.child] = self._start(order)
        except (OSError, ValueError) as error:
            if not order.command:
                raise
            self._channel.send(Exited(order.child, CANNOT_START, False, str(error)))

    def _start(self, order: Start) -> _Child:
        _, descriptors, _, _ = socket.recv_fds(self._lines, 1, 1)
        (line,) = descriptors
        told: dict[str, Any] = {"stdout": line, "stderr": line} if order.command else {"pass_fds": [line]}
        try:
            return _Child(
                subprocess.Popen(  # noqa: S603 - what our own worker asks for
                    order.argv if order.command else [*order.argv, str(line)],
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                    cwd=order.cwd,
                    env={**os.environ, **order.env, MARK: order.child},
                    **told,
                )
            )
        finally:
            os.close(line)

    def _enforce(self) -> None:
        now = clock.now()
        for child in self._children.values():
            limits = child.limits
            if limits is None:
                continue
            if limits.until is not None and now > limits.until:
                self._end(child)
            elif limits.memory is not None and _resident(child.process.pid) > limits.memory:
                child.oom = True
                self._end(child)

    def _end(self, child: _Child, number: signal.Signals = signal.SIGKILL) -> None:
        """The whole session at once; what left it is found afterwards, since orphans come to us."""
        with suppress(ProcessLookupError):
            os.killpg(child.process.pid, number)

    def _reap(self) -> None:
        for name, child in list(self._children.items()):
            status = child.process.poll()
            if status is not None:
                self._end(child)
                _end_orphans(name)
                del self._children[name]
                with suppress(OSError):
                    self._channel.send(Exited(name, status, child.oom))
        if not self._children:
            _bury()


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _end_orphans(child: str) -> None:
    """Kill what a child left behind: it carries the child's mark, and has no parent but us."""
    mark = f"{MARK}={child}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and mark in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)


def _bury() -> None:
    """Collect orphans that have ended. Only while no child of our own is left, whose status others want."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def _become_subreaper() -> None:
    """Orphans of our children come to us, not to init; where the system cannot, they are not found."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _become_subreaper()
    orders, lines = (socket.socket(fileno=int(text)) for text in sys.argv[1:3])
    Supervisor(orders, lines).run()


if __name__ == "__main__":
    main()

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
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any

from msgspec import Struct

from holdfast.worker import clock
from holdfast.worker.commands.cgroups import Cap, CapMethod, best_cap_method
from holdfast.worker.commands.child_marks import MARK, mark_of, parents
from holdfast.worker.commands.process_tree import freeze, resident, thaw, tree_resident
from holdfast.worker.executors.channel import Channel

LOOK_EVERY = 0.1
#: How often a supervisor that ends looks for orphans that are still there: some cannot be killed at once.
LAST_LOOKS = 50
#: The status of a program that could not be started.
CANNOT_START = 127
_SUBREAPER = 36
#: The unit of what the system tells of the largest process, in bytes.
_MAXRSS = 1 if sys.platform == "darwin" else 1024
#: How often programs are measured, in seconds: it takes a look at all processes.
MEASURE_EVERY = 0.5


class StartProcess(Struct, frozen=True, tag=True):
    """Start a child; a descriptor follows on the socket beside: its line, or where a *command* writes.

    A command has the environment that it is given and no other. It is put into a cell if it has caps. What one that is
    *measured* takes is told from time to time.
    """

    child: str
    argv: list[str]
    command: bool = False
    cwd: str | None = None
    env: dict[str, str] | None = None
    memory: int | None = None
    cpus: float | None = None
    measured: bool = False


class Deadlines(Struct, frozen=True, tag=True):
    """End the child when the clock passes *until*, or when it takes more than *memory* bytes."""

    child: str
    until: float | None = None
    memory: int | None = None


class KillProcess(Struct, frozen=True, tag=True):
    """End the child now; *gently*: ask it to end, which it may refuse."""

    child: str
    gently: bool = False


class FreezeProcess(Struct, frozen=True, tag=True):
    """Stop the child with all that it has started for a while, or let them go on."""

    child: str
    frozen: bool


class MemoryMeasured(Struct, frozen=True, tag=True):
    """What children take now, with all that they have started, in bytes."""

    resident: dict[str, int]


class ProcessExited(Struct, frozen=True, tag=True):
    """A child has ended, with all that it had started. *status* is negative for a signal.

    *cpu* is the time it took of the processor, in seconds, *peak* the most bytes of memory, as far as these are known;
    *enforcer* says who saw to its caps.
    """

    child: str
    status: int
    oom: bool
    error: str | None = None
    cpu: float | None = None
    peak: int | None = None
    enforcer: str | None = None


SupervisorOrder = StartProcess | Deadlines | KillProcess | FreezeProcess


class _Child:
    """A process that is watched: by its descriptor, which tells of its end at once, where the system has them."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        cell: Cap | None,
        *,
        command: bool,
        memory: int | None,
        measured: bool = False,
    ) -> None:
        self.process = process
        self.measured = measured
        self.frozen = False
        self.cell = cell
        self.limits: Deadlines | None = None
        #: A cap that no cell sees to.
        self.watched = memory if cell is None else None
        self.peak = 0
        self.oom = False
        #: A program that nobody had to kill.
        self.obedient = command
        self.descriptor: int | None = None
        with suppress(AttributeError, OSError):
            self.descriptor = os.pidfd_open(process.pid)

    def wait(self) -> tuple[int, float] | None:
        """Its status and the time it took of the processor; None: it goes on."""
        pid, status, used = os.wait4(self.process.pid, os.WNOHANG)
        if not pid:
            return None
        self.process.returncode = os.waitstatus_to_exitcode(status)
        if self.measured and not self.peak:
            # Over before it was looked at. This holds what we took ourselves when it was started: an upper bound.
            self.peak = used.ru_maxrss * _MAXRSS
        return self.process.returncode, used.ru_utime + used.ru_stime

    def close(self, name: str = "", status: int = 0, cpu: float | None = None) -> ProcessExited:
        """It has ended: what was measured."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None
        if self.cell is None:
            enforcer = None if self.watched is None else "watch"
            return ProcessExited(name, status, self.oom, cpu=cpu, peak=self.peak or None, enforcer=enforcer)
        oom, peak, enforcer = self.oom or self.cell.oom(), self.cell.peak(), self.cell.enforcer
        self.cell.remove()
        return ProcessExited(name, status, oom, cpu=cpu, peak=peak, enforcer=enforcer)


class Supervisor:
    """Starts and ends children as it is told."""

    def __init__(self, orders: socket.socket, lines: socket.socket) -> None:
        self._orders = orders
        self._lines = lines
        self._channel: Channel[SupervisorOrder] = Channel(orders, SupervisorOrder)
        self._children: dict[str, _Child] = {}
        #: When to look for what children have left behind; None: all is clean.
        self._sweep_at: float | None = None
        #: Whether orphans are left that have not ended, or were not collected.
        self._unburied = False
        self._measured_at = 0.0
        self._look = select.poll()
        self._look.register(orders, select.POLLIN)

    @cached_property
    def _rung(self) -> CapMethod | None:
        return best_cap_method()

    def run(self) -> None:
        """Until the worker is gone; then end all children."""
        while True:
            busy = self._children or self._sweep_at is not None or self._unburied
            ready = self._look.poll(LOOK_EVERY * 1000 if busy else None)
            if any(descriptor == self._orders.fileno() for descriptor, _ in ready):
                order = self._channel.receive()
                if order is None:
                    break
                self._obey(order)
            self._enforce()
            self._measure()
            self._reap()
            self._sweep()
        for child in self._children.values():
            self._end(child)
        for child in self._children.values():
            child.process.wait()
            child.close()
        for _ in range(LAST_LOOKS):
            _end_orphans({})
            if not _bury():
                break
            select.poll().poll(LOOK_EVERY * 1000)  # of nobody: a pause

    def _obey(self, order: SupervisorOrder) -> None:
        match order:
            case StartProcess():
                self._begin(order)
            case Deadlines():
                if order.child in self._children:
                    self._children[order.child].limits = order
            case KillProcess():
                if order.child in self._children:
                    self._end(self._children[order.child], signal.SIGTERM if order.gently else signal.SIGKILL)
            case FreezeProcess():
                if order.child in self._children:
                    self._freeze(self._children[order.child], frozen=order.frozen)

    def _begin(self, order: StartProcess) -> None:
        try:
            child = self._start(order)
        except (OSError, ValueError) as error:
            if not order.command:
                raise
            self._channel.send(ProcessExited(order.child, CANNOT_START, False, str(error)))
            return
        self._children[order.child] = child
        if child.descriptor is not None:
            self._look.register(child.descriptor, select.POLLIN)

    def _start(self, order: StartProcess) -> _Child:
        _, descriptors, _, _ = socket.recv_fds(self._lines, 1, 1)
        (line,) = descriptors
        told: dict[str, Any] = {"stdout": line, "stderr": line} if order.command else {"pass_fds": [line]}
        capped = order.command and (order.memory is not None or order.cpus is not None)
        cell = None
        try:
            if capped and self._rung is not None:
                cell = self._rung.make(order.child, memory=order.memory, cpus=order.cpus)
            argv = order.argv if order.command else [*order.argv, str(line)]
            process = subprocess.Popen(  # noqa: S603 - what our own worker asks for
                argv if cell is None else cell.around(argv),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                cwd=order.cwd,
                env={**(os.environ if order.env is None else order.env), MARK: order.child},
                **told,
            )
        except BaseException:
            if cell is not None:
                cell.remove()
            raise
        finally:
            os.close(line)
        memory = order.memory if order.command else None
        return _Child(process, cell, command=order.command, memory=memory, measured=order.measured)

    def _freeze(self, child: _Child, *, frozen: bool) -> None:
        if frozen != child.frozen and child.process.returncode is None:
            (freeze if frozen else thaw)(child.process.pid)
            child.frozen = frozen

    def _measure(self) -> None:
        """One look at all processes tells of all programs."""
        if clock.now() < self._measured_at + MEASURE_EVERY:
            return
        self._measured_at = clock.now()
        measured = {name: child for name, child in self._children.items() if child.measured}
        if not measured:
            return
        known = parents()
        found = {name: tree_resident(child.process.pid, known) for name, child in measured.items()}
        for name, child in measured.items():
            child.peak = max(child.peak, found[name])
        with suppress(OSError):
            self._channel.send(MemoryMeasured(found))

    def _enforce(self) -> None:
        now = clock.now()
        for child in self._children.values():
            limits = child.limits
            if limits is not None and limits.until is not None and now > limits.until:
                self._end(child)
            elif limits is not None and limits.memory is not None and resident(child.process.pid) > limits.memory:
                child.oom = True
                self._end(child)
            elif child.watched is not None:
                child.peak = max(child.peak, tree_resident(child.process.pid))
                if child.peak > child.watched:
                    child.oom = True
                    self._end(child)

    def _end(self, child: _Child, number: signal.Signals = signal.SIGKILL) -> None:
        """The whole session at once; what left it is in its cell, or is found afterwards, since orphans come to us."""
        child.obedient = child.obedient and child.process.returncode is not None
        with suppress(ProcessLookupError):
            os.killpg(child.process.pid, number)
        self._freeze(child, frozen=False)  # who is frozen hears of nothing but the end
        if child.cell is not None and number is signal.SIGKILL:
            child.cell.kill()

    def _reap(self) -> None:
        for name, child in list(self._children.items()):
            finished = child.wait()
            if finished is None:
                continue
            self._end(child)
            del self._children[name]
            if child.descriptor is not None:
                self._look.unregister(child.descriptor)
            # The lease of one that had to be killed may be another's in a moment.
            if child.obedient or _end_orphans(self._living()):
                self._sweep_at = self._sweep_at or clock.now() + LOOK_EVERY
            exited = child.close(name, *finished)
            with suppress(OSError):
                self._channel.send(exited)
        self._unburied = not self._children and _bury()

    def _sweep(self) -> None:
        """A look at all processes takes a while: programs that end by themselves share one.

        Who was killed may have left others to us: it is looked again until there is nobody.
        """
        if self._sweep_at is not None and clock.now() >= self._sweep_at:
            self._sweep_at = clock.now() + LOOK_EVERY if _end_orphans(self._living()) else None

    def _living(self) -> dict[str, int]:
        return {name: child.process.pid for name, child in self._children.items()}


def _end_orphans(living: Mapping[str, int]) -> bool:
    """Kill what children have left behind: it has no parent but us, and the mark of one that is gone.

    Who has lost its mark may belong to any, and is spared while one lives. Answers whether there was anybody.
    """
    pids, killed = set(living.values()), False
    for pid, parent in parents().items():
        if parent == os.getpid() and pid not in pids:
            mark = mark_of(pid)
            if mark not in living and (mark is not None or not living):
                killed = True
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
    return killed


def _bury() -> bool:
    """Collect orphans that have ended, and say whether others are left.

    Only while no child of our own is left, whose status others want.
    """
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        return False
    return True


def _become_subreaper() -> None:
    """Orphans of our children come to us, not to init; where the system cannot, they are not found."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # A handler, not SIG_IGN: that would be handed on to every program.
        signal.signal(number, lambda *_: None)
    _become_subreaper()
    orders, lines = (socket.socket(fileno=int(text)) for text in sys.argv[1:3])
    Supervisor(orders, lines).run()


if __name__ == "__main__":
    main()

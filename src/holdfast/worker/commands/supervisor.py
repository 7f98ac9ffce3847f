"""The supervisor: a small process that kills children in time, even when their worker cannot.

It receives the deadline of each lease. It kills a child with its descendants when the deadline passes or when the
worker is gone, so a stopped, frozen or killed worker leaves nothing running past a lease. It opens no store.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from functools import cached_property
from typing import Any

from holdfast.worker import clock
from holdfast.worker.commands import kernel
from holdfast.worker.commands.caps import NOT_ENFORCED, WATCH, Cap, CapMethod, best_cap_method
from holdfast.worker.executors import channel
from holdfast.worker.executors.channel import Channel, ProcessExited, StartProcess, ToSupervisor
from holdfast.worker.shortage import SHORTAGES

CHECK_INTERVAL_S = 0.1
#: Checks for orphans at the end of the supervisor: some cannot be killed at once.
LAST_CHECKS = 50
#: Interval between measurements of commands; one measurement reads all of /proc.
MEASURE_INTERVAL_S = 0.5
#: PR_SET_CHILD_SUBREAPER of prctl.
_SUBREAPER = 36
#: The unit of ru_maxrss, in bytes.
_MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024


class _Child:
    """A supervised process. Where the system has pidfds, its descriptor reports the end at once."""

    def __init__(self, process: subprocess.Popen[bytes], cap: Cap | None, start: StartProcess) -> None:
        self.process = process
        self.measured = start.measured
        self.frozen = False
        self.cap = cap
        self.limits: channel.ProcessLimits | None = None
        #: A memory cap in bytes that only this supervisor enforces.
        self.watched = start.memory if cap is None and start.command else None
        self.peak = 0
        self.oom = False
        #: A command that has not been killed.
        self.exits_alone = start.command
        self.descriptor: int | None = None
        with suppress(AttributeError, OSError):
            self.descriptor = os.pidfd_open(process.pid)

    def wait(self) -> tuple[int, float] | None:
        """The exit status and processor seconds; None while the process runs."""
        pid, status, used = os.wait4(self.process.pid, os.WNOHANG)
        if not pid:
            return None
        self.process.returncode = os.waitstatus_to_exitcode(status)
        if self.measured and not self.peak:
            # It ended before the first measurement. ru_maxrss includes our own memory at the fork: an upper bound.
            self.peak = used.ru_maxrss * _MAXRSS_BYTES
        return self.process.returncode, used.ru_utime + used.ru_stime

    def close(self, name: str = "", status: int = 0, cpu: float | None = None) -> ProcessExited:
        """Free the resources of an ended process; returns its report."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None
        oom, peak, enforcer = self.oom, self.peak or None, None if self.watched is None else WATCH
        if self.cap is not None:
            oom, peak, enforcer = oom or self.cap.oom(), self.cap.peak(), self.cap.enforcer
            self.cap.delete()
        return ProcessExited(name, status, oom, cpu=cpu, peak=peak, enforcer=enforcer)


class Supervisor:
    """Starts and kills children for one worker."""

    def __init__(self, connection: socket.socket, descriptors: socket.socket) -> None:
        self._connection = connection
        self._descriptors = descriptors
        self._channel: Channel[ToSupervisor] = Channel(connection, ToSupervisor)
        self._children: dict[str, _Child] = {}
        #: When to kill orphans of ended children next; None: there are none.
        self._clean_at: float | None = None
        #: Whether orphans are left that still run or were not collected.
        self._unreaped = False
        self._measured_at = 0.0
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)

    @cached_property
    def _cap_method(self) -> CapMethod | None:
        return best_cap_method()

    def run(self) -> None:
        """Serve until the worker is gone, then kill all children."""
        while True:
            busy = self._children or self._clean_at is not None or self._unreaped
            ready = self._poll.poll(CHECK_INTERVAL_S * 1000 if busy else None)
            if any(descriptor == self._connection.fileno() for descriptor, _ in ready):
                message = self._channel.receive()
                if message is None:
                    break
                self._apply(message)
            self._enforce()
            self._measure()
            self._reap()
            self._clean()
        self._kill_all()

    def _kill_all(self) -> None:
        for child in self._children.values():
            self._kill(child)
        for child in self._children.values():
            child.process.wait()
            child.close()
        for _ in range(LAST_CHECKS):
            kernel.kill_orphans({})
            if not kernel.reap_orphans():
                break
            clock.sleep(CHECK_INTERVAL_S)

    def _apply(self, message: ToSupervisor) -> None:
        if isinstance(message, StartProcess):
            self._begin(message)
            return
        child = self._children.get(message.child)
        if child is None:
            return
        match message:
            case channel.ProcessLimits():
                child.limits = message
            case channel.KillProcess():
                self._kill(child, signal.SIGTERM if message.gently else signal.SIGKILL)
            case channel.FreezeProcess():
                self._freeze(child, frozen=message.frozen)

    def _begin(self, message: StartProcess) -> None:
        try:
            child = self._start(message)
        except (OSError, ValueError) as error:
            number = getattr(error, "errno", None)
            if not message.command and number not in SHORTAGES:
                raise
            exited = ProcessExited(message.child, channel.CANNOT_START, False, str(error), errno=number)
            self._channel.send(exited)
            return
        self._children[message.child] = child
        if child.descriptor is not None:
            self._poll.register(child.descriptor, select.POLLIN)

    def _start(self, message: StartProcess) -> _Child:
        _, received, _, _ = socket.recv_fds(self._descriptors, 1, 2)
        if len(received) < 1 + message.stdin:  # the kernel drops a descriptor that finds no room
            for number in received:
                os.close(number)
            raise OSError(errno.EMFILE, "the supervisor has no file descriptor left")
        descriptor = received[0]
        files: dict[str, Any] = (
            {"stdout": descriptor, "stderr": descriptor} if message.command else {"pass_fds": [descriptor]}
        )
        cap = None
        try:
            if message.command and (message.memory is not None or message.cpus is not None):
                cap = self._make_cap(message)
            argv = message.argv if message.command else [*message.argv, str(descriptor)]
            process = subprocess.Popen(  # noqa: S603 - requested by our own worker
                argv if cap is None else cap.wrap(argv),
                stdin=received[1] if message.stdin else subprocess.DEVNULL,
                start_new_session=True,
                cwd=message.cwd,
                env={**(os.environ if message.env is None else message.env), kernel.CHILD_VARIABLE: message.child},
                **files,
            )
        except BaseException:
            if cap is not None:
                cap.delete()
            raise
        finally:
            for number in received:
                os.close(number)
        return _Child(process, cap, message)

    def _make_cap(self, message: StartProcess) -> Cap | None:
        """The cap of a command; None: it is only watched. A required cap that nothing enforces is refused."""
        method = self._cap_method
        cap = None if method is None else method(message.child, message.memory, message.cpus)
        if message.require_cap and (cap is None or not cap.complete):
            if cap is not None:
                cap.delete()
            raise ValueError(NOT_ENFORCED)
        return cap

    def _freeze(self, child: _Child, *, frozen: bool) -> None:
        if frozen != child.frozen and child.process.returncode is None:
            (kernel.freeze if frozen else kernel.thaw)(child.process.pid)
            child.frozen = frozen

    def _measure(self) -> None:
        """Measure all measured commands in one pass over /proc, and report them."""
        if clock.now() < self._measured_at + MEASURE_INTERVAL_S:
            return
        self._measured_at = clock.now()
        measured = {name: child for name, child in self._children.items() if child.measured}
        if not measured:
            return
        known = kernel.parents()
        sizes = {name: kernel.tree_resident(child.process.pid, known) for name, child in measured.items()}
        for name, child in measured.items():
            child.peak = max(child.peak, sizes[name])
        with suppress(OSError):
            self._channel.send(channel.MemoryMeasured(sizes))

    def _enforce(self) -> None:
        now = clock.now()
        for child in self._children.values():
            limits = child.limits
            if limits is not None and limits.until is not None and now > limits.until:
                self._kill(child)
            elif (
                limits is not None and limits.memory is not None and kernel.resident(child.process.pid) > limits.memory
            ):
                child.oom = True
                self._kill(child)
            elif child.watched is not None:
                child.peak = max(child.peak, kernel.tree_resident(child.process.pid))
                if child.peak > child.watched:
                    child.oom = True
                    self._kill(child)

    def _kill(self, child: _Child, number: signal.Signals = signal.SIGKILL) -> None:
        """Signal the whole session. Processes that have left it are in the cap, or come to us as orphans."""
        child.exits_alone = child.exits_alone and child.process.returncode is not None
        with suppress(ProcessLookupError):
            os.killpg(child.process.pid, number)
        self._freeze(child, frozen=False)  # a frozen process receives no signal but SIGKILL
        if child.cap is not None and number is signal.SIGKILL:
            child.cap.kill()

    def _reap(self) -> None:
        for name, child in list(self._children.items()):
            status = child.wait()
            if status is None:
                continue
            self._kill(child)
            del self._children[name]
            if child.descriptor is not None:
                self._poll.unregister(child.descriptor)
            # Orphans of a killed child are killed now: another worker may take its job over at once.
            if child.exits_alone or kernel.kill_orphans(self._living()):
                self._clean_at = self._clean_at or clock.now() + CHECK_INTERVAL_S
            exited = child.close(name, *status)
            with suppress(OSError):
                self._channel.send(exited)
        self._unreaped = not self._children and kernel.reap_orphans()

    def _clean(self) -> None:
        """Kill orphans of commands that ended by themselves, until none is left: a killed one may leave others."""
        if self._clean_at is not None and clock.now() >= self._clean_at:
            self._clean_at = clock.now() + CHECK_INTERVAL_S if kernel.kill_orphans(self._living()) else None

    def _living(self) -> dict[str, int]:
        return {name: child.process.pid for name, child in self._children.items()}


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # A handler, not SIG_IGN: every child would inherit that.
        signal.signal(number, lambda *_: None)
    if sys.platform == "linux":
        # Inherit the orphans of our children; without this system call they go to init and are not found.
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    connection, descriptors = (socket.socket(fileno=int(number)) for number in sys.argv[1:3])
    Supervisor(connection, descriptors).run()


if __name__ == "__main__":
    main()

"""One process under the supervisor: a command, or a child that runs handlers."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from typing import Any

from holdfast.worker.commands import kernel
from holdfast.worker.commands.identity import CHILD_VARIABLE, ChildId
from holdfast.worker.commands.resource_caps import NOT_ENFORCED, WATCH, Cap, CapMethod
from holdfast.worker.executors.channel import ProcessExited, ProcessLimits, StartProcess

#: The unit of ru_maxrss, in bytes.
_MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024


class SupervisedProcess:
    """A started process. It needs no descriptor: however many run, the supervisor does not run out of them."""

    def __init__(self, process: subprocess.Popen[bytes], cap: Cap | None, start: StartProcess) -> None:
        self.process = process
        self.pid = process.pid
        self.measured = start.measured
        self.limits = ProcessLimits(start.child, start.until)
        #: A memory cap in bytes that only the supervisor enforces.
        self.watched = start.memory if cap is None and start.command else None
        self.peak = 0
        self.oom = False
        #: A command that has not been killed.
        self.exits_alone = start.command
        self._cap = cap
        self._frozen = False

    def is_late(self, now: float) -> bool:
        return self.limits.until is not None and now > self.limits.until

    def check_memory(self, tree_bytes: int | None) -> None:
        """Kill the process beyond its memory. *tree_bytes*: the memory of its whole tree, where it was measured."""
        limit = self.limits.memory
        if tree_bytes is not None:
            self.peak = max(self.peak, tree_bytes)
        if (limit is not None and kernel.resident(self.pid) > limit) or (
            self.watched is not None and self.peak > self.watched
        ):
            self.oom = True
            self.kill()

    def freeze(self, *, frozen: bool) -> None:
        if frozen != self._frozen and self.process.returncode is None:
            (kernel.freeze if frozen else kernel.thaw)(self.pid)
            self._frozen = frozen

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Signal the whole session. Processes that have left it are in the cap, or come to us as orphans."""
        self.exits_alone = False
        self._signal_session(number)

    def collect(self) -> tuple[int, float | None] | None:
        """The exit status and processor seconds, after the rest of the session was killed; None while it runs."""
        exited = kernel.has_exited(self.pid)
        if exited:
            self._signal_session(signal.SIGKILL)  # its number is ours until it is collected
        status = None if exited is False else self._wait()
        if exited is None and status is not None:
            self._signal_session(signal.SIGKILL)
        return status

    def _wait(self) -> tuple[int, float | None] | None:
        try:
            pid, status, used = os.wait4(self.pid, os.WNOHANG)
        except ChildProcessError:  # another caller collected it: its exit code is unknown, and counts as a failure
            self.process.returncode = -signal.SIGKILL
            return self.process.returncode, None
        if not pid:
            return None
        self.process.returncode = os.waitstatus_to_exitcode(status)
        if self.measured and not self.peak:
            # It ended before the first measurement. ru_maxrss includes our own memory at the fork: an upper bound.
            self.peak = used.ru_maxrss * _MAXRSS_BYTES
        return self.process.returncode, used.ru_utime + used.ru_stime

    def close(self, name: str = "", status: int = 0, cpu: float | None = None) -> ProcessExited:
        """Free the resources of an ended process; returns its report."""
        oom, peak, enforcer = self.oom, self.peak or None, None if self.watched is None else WATCH
        if self._cap is not None:
            oom, peak, enforcer = oom or self._cap.oom(), self._cap.peak(), self._cap.enforcer
            self._cap.delete()
        return ProcessExited(name, status, oom, cpu=cpu, peak=peak, enforcer=enforcer)

    def _signal_session(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)
        if number is signal.SIGKILL:
            if self._cap is not None:
                self._cap.kill()
        else:
            self.freeze(frozen=False)  # a frozen process receives no signal but SIGKILL


def start(message: StartProcess, descriptors: socket.socket, method: CapMethod | None) -> SupervisedProcess:
    """Start a process. Its descriptors were sent before the message, and *descriptors* does not block."""
    _, received, _, _ = socket.recv_fds(descriptors, 1, 2)
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
            cap = _make_cap(message, method)
        argv = message.argv if message.command else [*message.argv, str(descriptor)]
        env = os.environ if message.env is None else message.env
        process = subprocess.Popen(  # noqa: S603 - requested by our own worker
            argv if cap is None else cap.wrap(argv),
            stdin=received[1] if message.stdin else subprocess.DEVNULL,
            start_new_session=True,
            cwd=message.cwd,
            env={**env, CHILD_VARIABLE: str(ChildId.here(message.child))},
            **files,
        )
    except BaseException:
        if cap is not None:
            cap.delete()
        raise
    finally:
        for number in received:
            os.close(number)
    return SupervisedProcess(process, cap, message)


def _make_cap(message: StartProcess, method: CapMethod | None) -> Cap | None:
    """The cap of a command; None: it is only watched. A required cap that nothing enforces is refused."""
    cap = None if method is None else method(message.child, message.memory, message.cpus)
    if message.require_cap and (cap is None or not cap.complete):
        if cap is not None:
            cap.delete()
        raise ValueError(NOT_ENFORCED)
    return cap

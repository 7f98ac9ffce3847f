"""One process under the supervisor: a command, or a child that runs handlers."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache

from holdfast.worker.commands import kernel
from holdfast.worker.commands.identity import CHILD_VARIABLE, ChildId
from holdfast.worker.commands.resource_caps import NOT_ENFORCED, WATCH, Cap, CapMethod
from holdfast.worker.executors.channel import ProcessExited, ProcessLimits, StartProcess

#: The unit of ru_maxrss, in bytes.
_MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024
#: Signals that Python ignores, and that a program expects to end it.
_IGNORED_HERE = [getattr(signal, name) for name in ("SIGPIPE", "SIGXFSZ") if hasattr(signal, name)]


class SupervisedProcess:
    """A started process. It needs no descriptor: however many run, the supervisor does not run out of them."""

    def __init__(self, pid: int, cap: Cap | None, start: StartProcess) -> None:
        self.pid = pid
        self._collected = False
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
        if frozen != self._frozen and not self._collected:
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
        status = None if exited is False else self.wait(os.WNOHANG)
        if exited is None and status is not None:
            self._signal_session(signal.SIGKILL)
        return status

    def wait(self, options: int = 0) -> tuple[int, float | None] | None:
        """Collect the process; returns its exit status and processor seconds. With WNOHANG: None while it runs."""
        try:
            pid, status, used = os.wait4(self.pid, options)
        except ChildProcessError:  # another caller collected it: its exit code is unknown, and counts as a failure
            self._collected = True
            return -signal.SIGKILL, None
        if not pid:
            return None
        self._collected = True
        if self.measured and not self.peak:
            # It ended before the first measurement. ru_maxrss includes our own memory at the fork: an upper bound.
            self.peak = used.ru_maxrss * _MAXRSS_BYTES
        return os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime

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


def start(message: StartProcess, descriptors: list[int], method: CapMethod | None) -> SupervisedProcess:
    """Start a process. Its *descriptors* came with the message, and are closed here."""
    try:
        if len(descriptors) < 1 + message.stdin:
            raise OSError(errno.EMFILE, "the supervisor has no file descriptor left")
        _lift(descriptors)
        env = {**(os.environ if message.env is None else message.env), CHILD_VARIABLE: str(ChildId.here(message.child))}
        if not message.command:
            os.set_inheritable(descriptors[0], True)
            return SupervisedProcess(_spawn([*message.argv, str(descriptors[0])], env, None, []), None, message)
        files = [(os.POSIX_SPAWN_DUP2, descriptors[0], 1), (os.POSIX_SPAWN_DUP2, descriptors[0], 2)]
        if message.stdin:
            files.append((os.POSIX_SPAWN_DUP2, descriptors[1], 0))
        cap = None if message.memory is None and message.cpus is None else _make_cap(message, method)
        try:
            argv = message.argv if cap is None else cap.wrap(message.argv)
            return SupervisedProcess(_spawn(argv, env, message.cwd, files), cap, message)
        except BaseException:
            if cap is not None:
                cap.delete()
            raise
    finally:
        for number in descriptors:
            os.close(number)


def _lift(descriptors: list[int]) -> None:
    """Move descriptors out of the places of the standard streams."""
    for place, number in enumerate(descriptors):
        if number <= 2:
            descriptors[place] = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 3)
            os.close(number)


def _spawn(argv: list[str], env: Mapping[str, str], cwd: str | None, files: Sequence[tuple[int, ...]]) -> int:
    """Start a program in a session of its own; returns its number. Half the work of :class:`subprocess.Popen`.

    It inherits the standard streams and the *files*: other descriptors of this process are closed at its start.
    """
    actions = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0), *files]
    folders = [""] if os.sep in argv[0] else env.get("PATH", os.defpath).split(os.pathsep)
    error: OSError = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0])
    own = _own_directory()
    if cwd is not None:  # a new process begins where its parent is, and this process has one thread
        os.chdir(cwd)
    try:
        for folder in folders:
            path = f"{folder}/{argv[0]}" if folder else argv[0]
            if not folder or os.access(path, os.X_OK):
                try:
                    return os.posix_spawn(path, argv, env, file_actions=actions, setsid=True, setsigdef=_IGNORED_HERE)
                except OSError as failed:
                    error = failed
    finally:
        if cwd is not None:
            os.fchdir(own)
    raise error


@cache
def _own_directory() -> int:
    """A descriptor of the directory that this process works in; it may not be readable."""
    return os.open(".", getattr(os, "O_PATH", os.O_RDONLY) | os.O_CLOEXEC)


def _make_cap(message: StartProcess, method: CapMethod | None) -> Cap | None:
    """The cap of a command; None: it is only watched. A required cap that nothing enforces is refused."""
    cap = None if method is None else method(message.child, message.memory, message.cpus)
    if message.require_cap and (cap is None or not cap.complete):
        if cap is not None:
            cap.delete()
        raise ValueError(NOT_ENFORCED)
    return cap

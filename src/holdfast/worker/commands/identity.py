"""The identity of processes: a number with a start time, and the variable that names the child of a supervisor.

A number alone is used again. With its start time it means one process, in one PID namespace, until the machine stops.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Self

from msgspec import Struct

#: Every child of a supervisor has it, and every descendant inherits it.
CHILD_VARIABLE = "HOLDFAST_CHILD"
_ASSIGNMENT = f"\0{CHILD_VARIABLE}=".encode()
#: States of a process that has ended.
_EXITED = (b"Z", b"X")


def user_name() -> str:
    """The person that this process runs as, for histories and the audit log."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def os_user() -> str:
    """The user of the operating system that runs this process, by its uid: ``ada (1000)``. No variable changes it."""
    import pwd

    try:
        return f"{pwd.getpwuid(os.getuid()).pw_name} ({os.getuid()})"
    except KeyError:
        return str(os.getuid())


class ProcessId(Struct, frozen=True):
    """One process. *started*: its start in clock ticks since the machine started; None where /proc does not show it."""

    pid: int
    started: int | None = None

    @classmethod
    def of(cls, pid: int) -> Self:
        stat = _state_and_start(pid)
        return cls(pid, None if stat is None else stat[1])

    @property
    def is_gone(self) -> bool:
        """Whether the process has ended, also as a zombie. One that cannot be seen counts as alive."""
        try:
            os.kill(self.pid, 0)
        except (ProcessLookupError, OverflowError):
            return True
        except PermissionError:
            pass
        stat = _state_and_start(self.pid)
        if stat is None:
            return False
        return stat[0] in _EXITED or (self.started is not None and stat[1] != self.started)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to this process, and never to a later one with its number."""
        with suppress(ProcessLookupError):
            try:
                descriptor = os.pidfd_open(self.pid)
            except (AttributeError, OSError):  # not Linux, or before 5.3; ProcessLookupError comes again below
                if not self.is_gone:
                    os.kill(self.pid, number)
                return
            try:
                if not self.is_gone:
                    signal.pidfd_send_signal(descriptor, number)
            finally:
                os.close(descriptor)


class ChildId(Struct, frozen=True):
    """A child: its supervisor, the PID namespace in which this number is valid, and its name."""

    supervisor: ProcessId
    namespace: int
    name: str

    @classmethod
    def here(cls, name: str) -> Self:
        """The identity of a child of this process."""
        return cls(_own_id(os.getpid()), pid_namespace(), name)

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """The child that a process descends from; None if its environment names none."""
        with suppress(OSError, ValueError):
            _, separator, rest = (b"\0" + Path(f"/proc/{pid}/environ").read_bytes()).partition(_ASSIGNMENT)
            return cls._parse(rest.partition(b"\0")[0].decode("ascii")) if separator else None
        return None

    @classmethod
    def _parse(cls, value: str) -> Self:
        pid, started, namespace, name = value.split(":")
        return cls(ProcessId(int(pid), int(started) if started else None), int(namespace), name)

    def __str__(self) -> str:
        """The value of the variable."""
        started = "" if self.supervisor.started is None else self.supervisor.started
        return f"{self.supervisor.pid}:{started}:{self.namespace}:{self.name}"

    def is_abandoned(self) -> bool:
        """Whether the supervisor is known to be gone. Of another namespace, nothing is known."""
        return self.namespace == pid_namespace() and self.supervisor.is_gone


@cache
def is_proc_foreign() -> bool:
    """Whether the numbers in /proc are not those of this process's PID namespace, or there is no /proc."""
    try:
        return str(Path("/proc/self").readlink()) != str(os.getpid())
    except OSError:
        return True


@cache
def pid_namespace() -> int:
    """The number of this process's PID namespace; 0 where it is unknown."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


@cache
def _own_id(pid: int) -> ProcessId:
    return ProcessId.of(pid)


def _state_and_start(pid: int) -> tuple[bytes, int] | None:
    if is_proc_foreign():
        return None
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return fields[0], int(fields[19])
    except (OSError, ValueError, IndexError):
        return None

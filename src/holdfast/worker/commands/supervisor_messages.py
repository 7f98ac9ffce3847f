"""Messages between a worker and its supervisor."""

from __future__ import annotations

from msgspec import Struct

#: The exit status of a command that could not be started.
CANNOT_START = 127


class StartProcess(Struct, frozen=True, tag=True):
    """Start a child. A descriptor follows on the second socket: its connection, or the output of a *command*.

    A command gets exactly the environment *env*. Caps put it into a control group. The memory of a *measured*
    command is reported from time to time.
    """

    child: str
    argv: list[str]
    command: bool = False
    cwd: str | None = None
    env: dict[str, str] | None = None
    memory: int | None = None
    cpus: float | None = None
    measured: bool = False


class ProcessLimits(Struct, frozen=True, tag=True):
    """Kill the child when the clock passes *until*, or when it takes more than *memory* bytes."""

    child: str
    until: float | None = None
    memory: int | None = None


class KillProcess(Struct, frozen=True, tag=True):
    """Kill the child; *gently*: ask it to end, which it may refuse."""

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

    *cpu* is processor time in seconds, *peak* the largest resident memory in bytes, *enforcer* the method of its caps;
    each is None where it is unknown.
    """

    child: str
    status: int
    oom: bool
    error: str | None = None
    cpu: float | None = None
    peak: int | None = None
    enforcer: str | None = None


ToSupervisor = StartProcess | ProcessLimits | KillProcess | FreezeProcess
FromSupervisor = ProcessExited | MemoryMeasured

"""Caps on the memory and processor time of commands, by the best method of the host.

The methods, best first: a delegated cgroup of version 2, cgroups of version 1, a systemd scope. Without any of them
the supervisor watches the resident memory of the process tree.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Protocol

from holdfast.worker.commands.cgroups import CGROUP1, CGROUP2, CgroupsV1, CgroupsV2

WATCH = "watch"


class Cap(Protocol):
    """The cap on one command and its descendants."""

    enforcer: str

    def wrap(self, argv: list[str]) -> list[str]:
        """The command line that starts the command under the cap."""
        ...

    def oom(self) -> bool:
        """Whether the kernel has killed a process of the command for its memory."""
        ...

    def peak(self) -> int | None:
        """The largest memory of the command in bytes, if it is known."""
        ...

    def kill(self) -> None:
        """Kill all processes under the cap."""
        ...

    def delete(self) -> None: ...


class CapMethod(Protocol):
    """A method to enforce caps."""

    def make(self, name: str, *, memory: int | None, cpus: float | None) -> Cap: ...


class SystemdScope:
    """A transient scope of systemd, which starts, limits and deletes it."""

    enforcer = "systemd"

    def __init__(self, memory: int | None, cpus: float | None) -> None:
        self._memory = memory
        self._cpus = cpus

    def wrap(self, argv: list[str]) -> list[str]:
        limits = (
            [] if self._memory is None else [f"-pMemoryMax={self._memory}", "-pMemorySwapMax=0", "-pOOMPolicy=kill"]
        )
        limits += [] if self._cpus is None else [f"-pCPUQuota={self._cpus:.0%}"]
        user = [] if os.geteuid() == 0 else ["--user"]
        return ["systemd-run", *user, "--scope", "--quiet", "--collect", *limits, "--", *argv]

    def oom(self) -> bool:
        return False

    def peak(self) -> int | None:
        return None

    def kill(self) -> None:
        """Nothing: the supervisor kills the session."""

    def delete(self) -> None:
        """Nothing: systemd deletes the scope."""


class SystemdScopes:
    """Caps by scopes of systemd."""

    @classmethod
    def detect(cls) -> SystemdScopes | None:
        runs = Path("/run/systemd/system").is_dir() and shutil.which("systemd-run") is not None
        return cls() if runs else None

    def make(self, name: str, *, memory: int | None, cpus: float | None) -> Cap:
        del name
        return SystemdScope(memory, cpus)


def best_cap_method() -> CapMethod | None:
    """The best method of this host. None: only watching is possible, or ``HOLDFAST_CAPS=watch`` requests it."""
    if os.environ.get("HOLDFAST_CAPS") == WATCH:
        return None
    return CgroupsV2.detect() or CgroupsV1.detect() or SystemdScopes.detect()


def enforcer_here() -> str:
    """The name of the method that caps on this host would use, as far as a read-only check can tell."""
    if os.environ.get("HOLDFAST_CAPS") == WATCH:
        return WATCH
    if CgroupsV2.home() is not None:
        return CGROUP2
    if CgroupsV1.detect() is not None:
        return CGROUP1
    return SystemdScope.enforcer if SystemdScopes.detect() is not None else WATCH

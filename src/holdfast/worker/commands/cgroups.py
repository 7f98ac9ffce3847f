"""Caps: how much memory and processor time a command may take, and who sees to it.

The rungs of a ladder, the best that the machine has: a delegated cgroup of version 2, cgroups of version 1, a scope of
systemd, or a watch over the resident memory of the tree.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from holdfast.worker.commands import kernel

#: Where the kernel shows its control groups.
ROOT = Path("/sys/fs/cgroup")
#: The processor's time is shared out in periods of so many microseconds.
PERIOD = 100_000
#: A shell that moves itself into groups and becomes the command: no other process is ever in them.
JOIN = 'while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs" || exit 126; shift; done; shift; exec "$@"'
#: How often a group that is killed is looked at again.
TRIES = 100


class Cap(Protocol):
    """What holds the processes of one command."""

    enforcer: str

    def around(self, argv: list[str]) -> list[str]:
        """The command, put into the cell."""
        ...

    def oom(self) -> bool:
        """Whether something in it was killed for its memory."""
        ...

    def peak(self) -> int | None:
        """The most bytes that it ever took."""
        ...

    def kill(self) -> None:
        """End all that is in it."""
        ...

    def remove(self) -> None: ...


class CapMethod(Protocol):
    """One way to enforce caps."""

    def make(self, name: str, *, memory: int | None, cpus: float | None) -> Cap: ...


class _Group:
    """Directories of control groups that a command is put into."""

    enforcer = ""

    def __init__(self, folders: list[Path], limits: Mapping[Path, object], *, if_any: Mapping[Path, object]) -> None:
        """*limits* must be kept; those *if_any* are, where the kernel has them."""
        self.folders = folders
        try:
            for folder in folders:
                folder.mkdir()
            for file, value in limits.items():
                _put(file, value)
        except OSError:
            self.remove()
            raise
        for file, value in if_any.items():
            with suppress(OSError):
                _put(file, value)

    def around(self, argv: list[str]) -> list[str]:
        return ["/bin/sh", "-c", JOIN, "sh", *map(str, self.folders), "--", *argv]

    def kill(self) -> None:
        """Again and again, until nobody is left: who forks while he is counted is met the next time."""
        pause = threading.Event()
        for _ in range(TRIES):
            pids = kernel.words(self.folders[0] / "cgroup.procs")
            if not pids:
                return
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            pause.wait(0.001)  # the kernel ends them, and tells nobody when

    def remove(self) -> None:
        for folder in self.folders:
            with suppress(OSError):
                folder.rmdir()


class _GroupV1(_Group):
    enforcer = "cgroup1"

    def __init__(self, homes: dict[str, Path], name: str, memory: int | None, cpus: float | None) -> None:
        self._memory = homes["memory"] / name
        folders = [self._memory]
        limits: dict[Path, object] = {}
        if_any: dict[Path, object] = {}
        if memory is not None:
            limits[self._memory / "memory.limit_in_bytes"] = memory
            # A kernel that does not count swap has no such files.
            if_any = {self._memory / "memory.memsw.limit_in_bytes": memory, self._memory / "memory.swappiness": 0}
        if cpus is not None and "cpu" in homes:
            cpu = homes["cpu"] / name
            folders.append(cpu)
            limits |= {cpu / "cpu.cfs_period_us": PERIOD, cpu / "cpu.cfs_quota_us": int(cpus * PERIOD)}
        super().__init__(folders, limits, if_any=if_any)

    def oom(self) -> bool:
        return kernel.facts(self._memory / "memory.oom_control").get("oom_kill", 0) > 0

    def peak(self) -> int | None:
        return kernel.number(self._memory / "memory.max_usage_in_bytes")


class _GroupV2(_Group):
    enforcer = "cgroup2"

    def __init__(self, home: Path, name: str, memory: int | None, cpus: float | None) -> None:
        self._own = home / name
        limits: dict[Path, object] = {}
        if memory is not None:
            limits |= {self._own / "memory.max": memory, self._own / "memory.oom.group": 1}
        if cpus is not None:
            limits[self._own / "cpu.max"] = f"{int(cpus * PERIOD)} {PERIOD}"
        super().__init__([self._own], limits, if_any={self._own / "memory.swap.max": 0})

    def oom(self) -> bool:
        return kernel.facts(self._own / "memory.events").get("oom_kill", 0) > 0

    def peak(self) -> int | None:
        return kernel.number(self._own / "memory.peak")

    def kill(self) -> None:
        try:
            _put(self._own / "cgroup.kill", 1)
        except OSError:  # before Linux 5.14
            super().kill()


class GroupsV1:
    """Control groups of version 1: memory, and processor time where that controller is there."""

    def __init__(self, homes: dict[str, Path]) -> None:
        self._homes = homes

    @classmethod
    def found(cls) -> GroupsV1 | None:
        homes = {}
        for controller in ("memory", "cpu"):
            own = _own_group(controller)
            home = None if own is None else ROOT / controller / own
            if home is not None and home.is_dir() and os.access(home, os.W_OK):
                homes[controller] = home
        return cls(homes) if "memory" in homes and _can_make(homes["memory"]) else None

    def make(self, name: str, *, memory: int | None, cpus: float | None) -> Cap:
        return _GroupV1(self._homes, cell_name(name), memory, cpus)


class GroupsV2:
    """Control groups of version 2 that were delegated to us."""

    def __init__(self, home: Path) -> None:
        self._home = home

    @staticmethod
    def home() -> Path | None:
        """Our own group, if it was delegated to us with its memory."""
        own = _own_group("")
        home = None if own is None else ROOT / own
        if home is None or "memory" not in kernel.words(home / "cgroup.controllers") or not os.access(home, os.W_OK):
            return None
        return home

    @classmethod
    def found(cls) -> GroupsV2 | None:
        home = cls.home()
        if home is None:
            return None
        try:
            _make_room(home)
            _put(home / "cgroup.subtree_control", "+memory +cpu")
        except OSError:
            return None
        return cls(home) if _can_make(home) else None

    def make(self, name: str, *, memory: int | None, cpus: float | None) -> Cap:
        return _GroupV2(self._home, cell_name(name), memory, cpus)


class SystemdScope:
    """A scope of systemd, where that answers."""

    enforcer = "systemd"

    def __init__(self, memory: int | None, cpus: float | None) -> None:
        self._memory = memory
        self._cpus = cpus

    def around(self, argv: list[str]) -> list[str]:
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
        """The process group is ended by who started it."""

    def remove(self) -> None:
        """Systemd does."""


class SystemdScopes:
    """Scopes of systemd."""

    @classmethod
    def found(cls) -> SystemdScopes | None:
        there = Path("/run/systemd/system").is_dir() and shutil.which("systemd-run") is not None
        return cls() if there else None

    def make(self, name: str, *, memory: int | None, cpus: float | None) -> Cap:
        del name
        return SystemdScope(memory, cpus)


def best_cap_method() -> CapMethod | None:
    """The best way that this machine has; None: only a watch is left, or wanted (``HOLDFAST_CAPS=watch``)."""
    if os.environ.get("HOLDFAST_CAPS") == "watch":
        return None
    return GroupsV2.found() or GroupsV1.found() or SystemdScopes.found()


def enforcer_here() -> str:
    """Who would see to caps on this host, as far as a look can tell: it changes nothing."""
    if os.environ.get("HOLDFAST_CAPS") == "watch":
        return "watch"
    if GroupsV2.home() is not None:
        return _GroupV2.enforcer
    if GroupsV1.found() is not None:
        return _GroupV1.enforcer
    return SystemdScope.enforcer if SystemdScopes.found() is not None else "watch"


# -- files of the kernel ---------------------------------------------------------------------


def _own_group(controller: str) -> str | None:
    """The group that this process is in, as a path without its slash; an empty controller is version 2."""
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, names, path = line.split(":", 2)
            if controller in names.split(","):
                return path.lstrip("/")
    return None


def cell_name(name: str) -> str:
    """The group of one command: it says which process made it, and among which processes that one is counted."""
    return f"{_makers()}{os.getpid()}-{name}"


def _makers() -> str:
    """How the names of all cells begin that processes of this namespace have made."""
    try:
        space = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        space = 0
    return f"holdfast-{space}-"


def abandoned(home: Path) -> list[Path]:
    """Cells whose maker is dead. One of a live supervisor may be empty, too: its command is about to enter."""
    prefix, found = _makers(), []
    for cell in home.glob(f"{prefix}*"):
        pid = cell.name.removeprefix(prefix).partition("-")[0]
        if pid.isdecimal() and not Path(f"/proc/{pid}").exists():
            found.append(cell)
    return found


def _can_make(home: Path) -> bool:
    """Whether groups can be made here; those that a killed supervisor has left, and that are empty, go."""
    for left in abandoned(home):
        with suppress(OSError):
            left.rmdir()
    folder = home / cell_name(f"try-{threading.get_ident()}")
    try:
        folder.mkdir()
        folder.rmdir()
    except OSError:
        return False
    return True


def _make_room(home: Path) -> None:
    """A group that hands out controllers may hold no processes of its own: they go into a leaf."""
    pids = kernel.words(home / "cgroup.procs")
    leaf = home / "holdfast"
    if pids:
        leaf.mkdir(exist_ok=True)
        for pid in pids:
            _put(leaf / "cgroup.procs", pid)


def _put(file: Path, value: object) -> None:
    file.write_text(str(value))

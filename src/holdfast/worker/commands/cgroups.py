"""Control groups of versions 1 and 2 as caps on commands."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from holdfast.worker import clock
from holdfast.worker.commands import kernel

#: Where the kernel shows its control groups.
ROOT = kernel.CGROUPS
CGROUP1, CGROUP2 = "cgroup1", "cgroup2"
#: The period in which processor time is shared out.
PERIOD_US = 100_000
#: A shell moves itself into the groups and then becomes the command, so no other process is ever in them.
JOIN = 'while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs" || exit 126; shift; done; shift; exec "$@"'
#: Rounds of a kill, and the pause between them: a process that forks during one round is met in the next.
KILL_ROUNDS, KILL_PAUSE_S = 100, 0.001


class Cgroup:
    """The directories of control groups that a command is put into."""

    enforcer = ""

    def __init__(self, folders: list[Path], limits: Mapping[Path, object], *, optional: Mapping[Path, object]) -> None:
        """*limits* must be set; *optional* limits are set where the kernel has them."""
        self.folders = folders
        try:
            for folder in folders:
                folder.mkdir()
            for file, value in limits.items():
                _put(file, value)
        except OSError:
            self.delete()
            raise
        for file, value in optional.items():
            with suppress(OSError):
                _put(file, value)

    def wrap(self, argv: list[str]) -> list[str]:
        return ["/bin/sh", "-c", JOIN, "sh", *map(str, self.folders), "--", *argv]

    def kill(self) -> None:
        for _ in range(KILL_ROUNDS):
            pids = kernel.words(self.folders[0] / "cgroup.procs")
            if not pids:
                return
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            clock.sleep(KILL_PAUSE_S)  # the kernel does not report when they have ended

    def delete(self) -> None:
        for folder in self.folders:
            with suppress(OSError):
                folder.rmdir()


class CgroupV1(Cgroup):
    """Groups of the memory and cpu controllers."""

    enforcer = CGROUP1

    def __init__(self, homes: dict[str, Path], name: str, memory: int | None, cpus: float | None) -> None:
        self._memory = homes["memory"] / name
        folders = [self._memory]
        limits: dict[Path, object] = {}
        optional: dict[Path, object] = {}
        if memory is not None:
            limits[self._memory / "memory.limit_in_bytes"] = memory
            # A kernel that does not count swap lacks these files.
            optional = {self._memory / "memory.memsw.limit_in_bytes": memory, self._memory / "memory.swappiness": 0}
        if cpus is not None and "cpu" in homes:
            cpu = homes["cpu"] / name
            folders.append(cpu)
            limits |= {cpu / "cpu.cfs_period_us": PERIOD_US, cpu / "cpu.cfs_quota_us": int(cpus * PERIOD_US)}
        super().__init__(folders, limits, optional=optional)

    def oom(self) -> bool:
        return kernel.fields(self._memory / "memory.oom_control").get("oom_kill", 0) > 0

    def peak(self) -> int | None:
        return kernel.integer(self._memory / "memory.max_usage_in_bytes")


class CgroupV2(Cgroup):
    """A group of the unified hierarchy."""

    enforcer = CGROUP2

    def __init__(self, home: Path, name: str, memory: int | None, cpus: float | None) -> None:
        self._own = home / name
        limits: dict[Path, object] = {}
        if memory is not None:
            limits |= {self._own / "memory.max": memory, self._own / "memory.oom.group": 1}
        if cpus is not None:
            limits[self._own / "cpu.max"] = f"{int(cpus * PERIOD_US)} {PERIOD_US}"
        super().__init__([self._own], limits, optional={self._own / "memory.swap.max": 0})

    def oom(self) -> bool:
        return kernel.fields(self._own / "memory.events").get("oom_kill", 0) > 0

    def peak(self) -> int | None:
        return kernel.integer(self._own / "memory.peak")

    def kill(self) -> None:
        try:
            _put(self._own / "cgroup.kill", 1)
        except OSError:  # before Linux 5.14
            super().kill()


class CgroupsV1:
    """Caps by control groups of version 1; on processor time only where that controller is writable."""

    def __init__(self, homes: dict[str, Path]) -> None:
        self._homes = homes

    @classmethod
    def detect(cls) -> CgroupsV1 | None:
        homes = {}
        for controller in ("memory", "cpu"):
            own = kernel.own_cgroup(controller)
            home = None if own is None else ROOT / controller / own
            if home is not None and home.is_dir() and os.access(home, os.W_OK):
                homes[controller] = home
        return cls(homes) if "memory" in homes and _can_make(homes["memory"]) else None

    def make(self, name: str, *, memory: int | None, cpus: float | None) -> CgroupV1:
        return CgroupV1(self._homes, group_name(name), memory, cpus)


class CgroupsV2:
    """Caps by control groups of version 2 that were delegated to this process."""

    def __init__(self, home: Path) -> None:
        self._home = home

    @staticmethod
    def home() -> Path | None:
        """The group of this process, if it is delegated with its memory controller."""
        own = kernel.own_cgroup("")
        home = None if own is None else ROOT / own
        if home is None or "memory" not in kernel.words(home / "cgroup.controllers") or not os.access(home, os.W_OK):
            return None
        return home

    @classmethod
    def detect(cls) -> CgroupsV2 | None:
        home = cls.home()
        if home is None:
            return None
        try:
            _move_to_leaf(home)
            _put(home / "cgroup.subtree_control", "+memory +cpu")
        except OSError:
            return None
        return cls(home) if _can_make(home) else None

    def make(self, name: str, *, memory: int | None, cpus: float | None) -> CgroupV2:
        return CgroupV2(self._home, group_name(name), memory, cpus)


def group_name(name: str) -> str:
    """The name of a command's group: it contains the PID namespace and the PID of this process."""
    return f"{_name_prefix()}{os.getpid()}-{name}"


def _name_prefix() -> str:
    """The common prefix of all groups that processes of this PID namespace make."""
    try:
        namespace = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        namespace = 0
    return f"holdfast-{namespace}-"


def abandoned(home: Path) -> list[Path]:
    """Groups of dead supervisors. A group of a live one may be empty too: its command is about to join."""
    prefix, groups = _name_prefix(), []
    for group in home.glob(f"{prefix}*"):
        pid = group.name.removeprefix(prefix).partition("-")[0]
        if pid.isdecimal() and not Path(f"/proc/{pid}").exists():
            groups.append(group)
    return groups


def _can_make(home: Path) -> bool:
    """Whether groups can be made here. Empty groups of dead supervisors are deleted first."""
    for group in abandoned(home):
        with suppress(OSError):
            group.rmdir()
    folder = home / group_name(f"try-{threading.get_ident()}")
    try:
        folder.mkdir()
        folder.rmdir()
    except OSError:
        return False
    return True


def _move_to_leaf(home: Path) -> None:
    """Move the processes of a group into a leaf: a group that hands out controllers may not contain processes."""
    pids = kernel.words(home / "cgroup.procs")
    leaf = home / "holdfast"
    if pids:
        leaf.mkdir(exist_ok=True)
        for pid in pids:
            _put(leaf / "cgroup.procs", pid)


def _put(file: Path, value: object) -> None:
    file.write_text(str(value))

"""Caps on the memory and processor time of commands, by the best method of the host.

The methods, best first: a delegated cgroup of version 2, cgroups of version 1, a systemd scope. Without any of them
the supervisor watches the resident memory of the process tree.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from holdfast.worker import clock
from holdfast.worker.commands import kernel
from holdfast.worker.commands.identity import ChildId, ProcessId, pid_namespace

#: Where the kernel shows its control groups.
ROOT = kernel.CGROUPS
CGROUP1, CGROUP2, WATCH = "cgroup1", "cgroup2", "watch"
NOT_ENFORCED = "this host cannot enforce its limits, and --require-cap is set"
#: The period of processor quotas.
PERIOD_US = 100_000
#: A shell moves itself into the groups and then becomes the command, so no other process is ever in them.
JOIN = 'while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs" || exit 126; shift; done; shift; exec "$@"'
#: Rounds of a kill, and the pause between them: a process that forks during one round is killed in the next.
KILL_ROUNDS, KILL_PAUSE_S = 100, 0.001


class Cap:
    """The cap on one command and its descendants."""

    enforcer = ""
    #: Whether the kernel enforces every limit; otherwise a controller is missing.
    complete = True

    def wrap(self, argv: list[str]) -> list[str]:
        """The command line that starts the command under the cap."""
        return argv

    def oom(self) -> bool:
        """Whether the kernel has killed a process of the command for its memory."""
        return False

    def peak(self) -> int | None:
        """The largest memory of the command in bytes, if it is known."""
        return None

    def kill(self) -> None:
        """Kill all processes under the cap; the supervisor kills the session in any case."""

    def delete(self) -> None:
        """Free the resources of the cap."""


#: Makes the cap of a command from the command's name, memory in bytes and number of processors.
CapMethod = Callable[[str, int | None, float | None], Cap]


class Cgroup(Cap):
    """The directories of control groups that a command is put into."""

    def __init__(self, folders: list[Path], limits: Mapping[Path, object], *, optional: Mapping[Path, object]) -> None:
        """*limits* must be set; *optional* limits, those of swap, are set where the kernel has them."""
        self.folders = folders
        try:
            for folder in folders:
                folder.mkdir()
            for file, value in limits.items():
                _put(file, value)
        except OSError:
            self.delete()
            raise
        # One of the optional limits keeps the command from swap. Without any, a host with swap does not keep the cap.
        done = [_try_put(file, value) for file, value in optional.items()]
        self.complete = any(done) or not optional or not kernel.fields(kernel.PROC / "meminfo").get("SwapTotal:", 0)

    def wrap(self, argv: list[str]) -> list[str]:
        return ["/bin/sh", "-c", JOIN, "sh", *map(str, self.folders), "--", *argv]

    def kill(self) -> None:
        for _ in range(KILL_ROUNDS):
            pids = kernel.words(self.folders[0] / "cgroup.procs")
            if not pids:
                return
            for pid in pids:
                with suppress(ProcessLookupError, PermissionError):
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
        self._memory = homes["memory"] / group_name(name)
        folders = [self._memory]
        limits: dict[Path, object] = {}
        optional: dict[Path, object] = {}
        if memory is not None:
            limits[self._memory / "memory.limit_in_bytes"] = memory
            # A kernel that does not count swap lacks these files.
            optional = {self._memory / "memory.memsw.limit_in_bytes": memory, self._memory / "memory.swappiness": 0}
        if cpus is not None and "cpu" in homes:
            cpu = homes["cpu"] / group_name(name)
            folders.append(cpu)
            limits |= {cpu / "cpu.cfs_period_us": PERIOD_US, cpu / "cpu.cfs_quota_us": int(cpus * PERIOD_US)}
        super().__init__(folders, limits, optional=optional)
        self.complete = self.complete and (cpus is None or "cpu" in homes)

    def oom(self) -> bool:
        return kernel.fields(self._memory / "memory.oom_control").get("oom_kill", 0) > 0

    def peak(self) -> int | None:
        return kernel.integer(self._memory / "memory.max_usage_in_bytes")


class CgroupV2(Cgroup):
    """A group of the unified hierarchy."""

    enforcer = CGROUP2

    def __init__(self, home: Path, name: str, memory: int | None, cpus: float | None) -> None:
        self._own = home / group_name(name)
        limits: dict[Path, object] = {}
        if memory is not None:
            limits |= {self._own / "memory.max": memory, self._own / "memory.oom.group": 1}
        if cpus is not None:
            limits[self._own / "cpu.max"] = f"{int(cpus * PERIOD_US)} {PERIOD_US}"
        optional = {} if memory is None else {self._own / "memory.swap.max": 0}
        super().__init__([self._own], limits, optional=optional)

    def oom(self) -> bool:
        return kernel.fields(self._own / "memory.events").get("oom_kill", 0) > 0

    def peak(self) -> int | None:
        return kernel.integer(self._own / "memory.peak")

    def kill(self) -> None:
        try:
            _put(self._own / "cgroup.kill", 1)
        except OSError:  # before Linux 5.14
            super().kill()


class SystemdScope(Cap):
    """A transient scope of systemd, which starts, limits and deletes it."""

    enforcer = "systemd"

    def __init__(self, name: str, memory: int | None, cpus: float | None) -> None:
        del name
        self._limits = [] if memory is None else [f"-pMemoryMax={memory}", "-pMemorySwapMax=0", "-pOOMPolicy=kill"]
        self._limits += [] if cpus is None else [f"-pCPUQuota={cpus:.0%}"]
        needed = {"memory": memory, "cpu": cpus}
        # systemd accepts limits without a word whose controllers it does not have.
        self.complete = {name for name, limit in needed.items() if limit is not None} <= _systemd_controllers()

    def wrap(self, argv: list[str]) -> list[str]:
        user = [] if os.geteuid() == 0 else ["--user"]
        return ["systemd-run", *user, "--scope", "--quiet", "--collect", *self._limits, "--", *argv]


def best_cap_method() -> CapMethod | None:
    """The best method of this host. None: only watching is possible, or ``HOLDFAST_CAPS=watch`` requests it."""
    if os.environ.get("HOLDFAST_CAPS") == WATCH:
        return None
    home = _v2_home()
    if home is not None and _can_hand_out(home) and _can_make(home):
        return partial(CgroupV2, home)
    homes = _v1_homes()
    if homes:
        return partial(CgroupV1, homes)
    return SystemdScope if _has_systemd() else None


def enforcer_here() -> str:
    """The name of the method that caps on this host would use, as a read-only check finds it."""
    if os.environ.get("HOLDFAST_CAPS") == WATCH:
        return WATCH
    if _v2_home() is not None:
        return CGROUP2
    if _v1_homes():
        return CGROUP1
    return SystemdScope.enforcer if _has_systemd() else WATCH


def _v1_homes() -> dict[str, Path]:
    """The writable groups of this process by controller; empty without the memory controller."""
    homes = {}
    for controller in ("memory", "cpu"):
        own = kernel.own_cgroup(controller)
        home = None if own is None else ROOT / controller / own
        if home is not None and home.is_dir() and os.access(home, os.W_OK):
            homes[controller] = home
    return homes if "memory" in homes and _can_make(homes["memory"]) else {}


def _v2_home() -> Path | None:
    """The group of this process, if it is delegated with its memory controller."""
    own = kernel.own_cgroup("")
    home = None if own is None else ROOT / own
    delegated = home is not None and "memory" in kernel.words(home / "cgroup.controllers") and os.access(home, os.W_OK)
    return home if delegated else None


def _has_systemd() -> bool:
    import shutil

    return Path("/run/systemd/system").is_dir() and shutil.which("systemd-run") is not None


def _systemd_controllers() -> set[str]:
    """The controllers that the systemd of this user can give to a scope."""
    user = os.geteuid()
    home = ROOT if user == 0 else ROOT / f"user.slice/user-{user}.slice/user@{user}.service"
    unified = set(kernel.words(home / "cgroup.controllers"))
    return unified or {name for name in ("memory", "cpu") if user == 0 and (ROOT / name).is_dir()}


def group_name(name: str) -> str:
    """The name of a command's group: the PID namespace, the PID and the start time of this process are in it."""
    supervisor = ChildId.here(name).supervisor
    return f"{_name_prefix()}{supervisor.pid}-{supervisor.started or 0}-{name}"


def _name_prefix() -> str:
    """The common prefix of all groups that processes of this PID namespace make."""
    return f"holdfast-{pid_namespace()}-"


def abandoned(home: Path) -> list[Path]:
    """Groups of dead supervisors. A group of a live one may be empty too: its command is about to join."""
    return [group for group in home.glob(f"{_name_prefix()}*") if _has_dead_supervisor(group)]


def _has_dead_supervisor(group: Path) -> bool:
    pid, started, *_ = [*group.name.removeprefix(_name_prefix()).split("-"), ""]
    return pid.isdecimal() and started.isdecimal() and ProcessId(int(pid), int(started) or None).is_gone


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


def _can_hand_out(home: Path) -> bool:
    """Hand out the controllers of a group. It may not contain processes then, so they move into a leaf first."""
    leaf = home / "holdfast"
    try:
        for pid in kernel.words(home / "cgroup.procs"):
            leaf.mkdir(exist_ok=True)
            _put(leaf / "cgroup.procs", pid)
        _put(home / "cgroup.subtree_control", "+memory +cpu")
    except OSError:
        return False
    return True


def _put(file: Path, value: object) -> None:
    file.write_text(str(value))


def _try_put(file: Path, value: object) -> bool:
    try:
        _put(file, value)
    except OSError:
        return False
    return True

"""Files of the Linux kernel: process trees, control groups, numbers. A missing file reads as empty.

The supervisor gives each child an environment variable. Descendants inherit it, so it identifies them even after
their parents have died.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []


def integer(file: Path) -> int | None:
    """The number that a file begins with."""
    first = words(file)[:1]
    return int(first[0]) if first and first[0].isdecimal() else None


def fields(file: Path) -> dict[str, int]:
    """The lines that begin with a name and a number."""
    values: dict[str, int] = {}
    with suppress(OSError):
        for line in file.read_text().splitlines():
            columns = line.split()
            if len(columns) > 1 and columns[1].isdecimal():
                values[columns[0]] = int(columns[1])
    return values


def own_cgroup(controller: str, proc: Path = PROC) -> str | None:
    """The path of this process's control group, without its slash. An empty controller means version 2."""
    with suppress(OSError):
        for line in (proc / "self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controller in controllers.split(","):
                return path.lstrip("/")
    return None


CHILD_VARIABLE = "HOLDFAST_CHILD"
#: How a supervisor appears in a command line. The second is the module path before 0.2: such workers may still run.
SUPERVISORS = (b"holdfast.worker.commands.supervisor", b"holdfast.run.supervisor")
#: Rounds of a kill and of a freeze: a process that forks during one round is found in the next.
KILL_ROUNDS, FREEZE_ROUNDS = 50, 20
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def parents() -> dict[int, int]:
    pids: dict[int, int] = {}
    if not Path("/proc/self/stat").exists():
        return pids
    with os.scandir("/proc") as folders:
        for folder in folders:
            if folder.name.isdecimal():
                with suppress(OSError, ValueError, IndexError):
                    stat = Path(folder.path, "stat").read_bytes()
                    pids[int(folder.name)] = int(stat.rpartition(b")")[2].split()[1])
    return pids


def child_of(pid: int) -> str | None:
    """The name of the child that a process descends from; None if its environment does not name one."""
    with suppress(OSError):
        for word in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if word.startswith(f"{CHILD_VARIABLE}=".encode()):
                return word.decode(errors="replace").partition("=")[2]
    return None


def resident(pid: int | str) -> int:
    """Resident memory of a process in bytes; 0 when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0


def tree(root: int, known: Mapping[int, int]) -> set[int]:
    """A process and its descendants, by the parents in *known*."""
    pids = more = {root}
    while more:
        more = {pid for pid, parent in known.items() if parent in pids} - pids
        pids = pids | more
    return pids


def tree_resident(root: int, known: Mapping[int, int] | None = None) -> int:
    """Resident memory of a process and its descendants, in bytes."""
    return sum(map(resident, tree(root, parents() if known is None else known)))


def freeze(root: int) -> None:
    """Suspend a process and its descendants until :func:`thaw`."""
    stopped: set[int] = set()
    for _ in range(FREEZE_ROUNDS):
        more = tree(root, parents()) - stopped
        if not more:
            return
        _send(more, signal.SIGSTOP)
        stopped |= more


def thaw(root: int) -> None:
    _send(tree(root, parents()), signal.SIGCONT)


def kill_children(children: Collection[str]) -> None:
    """Kill all descendants of these children, wherever they are in the tree."""
    for _ in range(KILL_ROUNDS if children else 0):
        pids = [pid for pid in parents() if pid != os.getpid() and child_of(pid) in children]
        if not pids:
            return
        _send(pids, signal.SIGKILL)


def kill_abandoned() -> None:
    """Kill the children of a worker that was killed together with its supervisor."""
    for _ in range(KILL_ROUNDS):
        known = parents()
        children = {pid for pid in known if pid != os.getpid() and child_of(pid) is not None}
        pids = [pid for pid in children if known[pid] not in children and not _is_supervised(known[pid])]
        if not pids:
            return
        _send(pids, signal.SIGKILL)


def _is_supervised(parent: int) -> bool:
    """Whether the parent of a child is a supervisor, or was started by one."""
    with suppress(OSError):
        command_line = Path(f"/proc/{parent}/cmdline").read_bytes()
        return any(name in command_line for name in SUPERVISORS)
    return True  # the parent has just ended: the next round sees the new one


def kill_orphans(living: Mapping[str, int]) -> bool:
    """Kill orphans of dead children that this process has inherited; returns whether there were any."""
    pids, killed = set(living.values()), False
    for pid, parent in parents().items():
        if parent == os.getpid() and pid not in pids:
            child = child_of(pid)
            # An orphan without the variable may belong to any child, so it is spared while one lives.
            if child not in living and (child is not None or not living):
                killed = True
                _send([pid], signal.SIGKILL)
    return killed


def reap_orphans() -> bool:
    """Collect ended orphans; returns whether others are left. Only without living children: it takes their status."""
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        return False
    return True


def _send(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, number)

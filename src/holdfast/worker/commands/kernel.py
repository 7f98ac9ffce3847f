"""Files of the Linux kernel: process trees, control groups, numbers. A missing file reads as empty."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from holdfast.worker.commands.identity import ChildId, is_proc_foreign

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


#: Rounds of a kill and of a freeze: a process that forks during one round is found in the next.
KILL_ROUNDS, FREEZE_ROUNDS = 50, 20
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def proc_problem() -> str | None:
    """What of the processes below this one /proc does not show; None if it shows all."""
    if is_proc_foreign():
        return (
            "/proc does not show the processes of this PID namespace: processes that leave their session are not found"
        )
    if not Path("/proc/1").exists():
        return "/proc hides the processes of other users (hidepid): programs that change their user are not found"
    return None


def parents() -> dict[int, int]:
    """All processes with their parents; empty where /proc does not show them."""
    pids: dict[int, int] = {}
    if is_proc_foreign():
        return pids
    with os.scandir("/proc") as folders:
        for folder in folders:
            if folder.name.isdecimal():
                with suppress(OSError, ValueError, IndexError):
                    stat = _read(f"/proc/{folder.name}/stat")
                    pids[int(folder.name)] = int(stat.rpartition(b")")[2].split(None, 2)[1])
    return pids


def own_children() -> list[int]:
    """The children of this process. The list is complete: it has one thread, and no other collects them."""
    if is_proc_foreign():
        return []
    try:
        return [int(pid) for pid in Path("/proc/thread-self/children").read_bytes().split()]
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
        return [pid for pid, parent in parents().items() if parent == os.getpid()]


def _read(path: str) -> bytes:
    """Read a short file of the kernel, in a third of the time of :class:`Path`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 4096)
    finally:
        os.close(descriptor)


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
        pids = [pid for pid in parents() if pid != os.getpid() and _child_name(pid) in children]
        if not pids:
            return
        _send(pids, signal.SIGKILL)


def kill_abandoned() -> bool:
    """Kill the children of supervisors that are gone; returns whether none is left.

    Children of a live one stay, with any parent.
    """
    for _ in range(KILL_ROUNDS):
        pids = [pid for pid in parents() if pid != os.getpid() and _is_abandoned(pid)]
        if not pids:
            return True
        _send(pids, signal.SIGKILL)
    return False


def _is_abandoned(pid: int) -> bool:
    child = ChildId.of(pid)
    return child is not None and child.is_abandoned()


def _child_name(pid: int) -> str | None:
    child = ChildId.of(pid)
    return None if child is None else child.name


def kill_orphans(living: Mapping[str, int]) -> bool:
    """Kill orphans of dead children that this process has inherited; returns whether there were any."""
    pids, killed = set(living.values()), False
    for pid in own_children():
        if pid not in pids:
            child = _child_name(pid)
            # An orphan without the variable may belong to any child, so it is spared while one lives.
            if child not in living and (child is not None or not living):
                killed = True
                _send([pid], signal.SIGKILL)
    return killed


def has_exited(pid: int) -> bool | None:
    """Whether a child of this process has ended; None: the system cannot report it without collecting it.

    Its status is kept, and its number is not used again.
    """
    if not hasattr(os, "waitid"):
        return None
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def reap_orphans(children: Collection[int]) -> None:
    """Collect the orphans that have ended, up to the first of *children* that has: its status is left for its owner."""
    with suppress(ChildProcessError, AttributeError):  # without waitid there is no subreaper either
        while (exited := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if exited.si_pid in children:
                return
            os.waitpid(exited.si_pid, 0)


def _send(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, number)

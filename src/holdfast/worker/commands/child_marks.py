"""Processes that carry the mark of a supervisor's child: found and ended without the supervisor."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

MARK = "HOLDFAST_CHILD"
#: How a supervisor is started. The second is the module path of releases before 0.2: such workers may still run.
SUPERVISORS = (b"holdfast.worker.commands.supervisor", b"holdfast.run.supervisor")
#: Who forks while he is counted is met the next time.
TRIES = 50


def parents() -> dict[int, int]:
    """Every process and its parent."""
    found: dict[int, int] = {}
    if not Path("/proc/self/stat").exists():
        return found
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdecimal():
                with suppress(OSError, ValueError, IndexError):
                    stat = Path(entry.path, "stat").read_bytes()
                    found[int(entry.name)] = int(stat.rpartition(b")")[2].split()[1])
    return found


def mark_of(pid: int) -> str | None:
    """The child that a process descends from, if it has not lost its mark."""
    with suppress(OSError):
        for word in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if word.startswith(f"{MARK}=".encode()):
                return word.decode(errors="replace").partition("=")[2]
    return None


def end_marked(children: Collection[str]) -> None:
    """End all that descends from these children, wherever it has gone."""
    for _ in range(TRIES if children else 0):
        found = [pid for pid in parents() if pid != os.getpid() and mark_of(pid) in children]
        if not found:
            return
        _kill(found)


def end_abandoned() -> None:
    """End what was left by a worker that was killed together with its supervisor: no supervisor is above it."""
    for _ in range(TRIES):
        known = parents()
        marked = {pid for pid in known if pid != os.getpid() and mark_of(pid) is not None}
        found = [pid for pid in marked if known[pid] not in marked and not _is_watched(known[pid])]
        if not found:
            return
        _kill(found)


def _is_watched(parent: int) -> bool:
    """Whether the parent of a marked process is a supervisor, or somebody who was started by one."""
    with suppress(OSError):
        command_line = Path(f"/proc/{parent}/cmdline").read_bytes()
        return any(name in command_line for name in SUPERVISORS)
    return True  # it has just ended: the next look tells


def _kill(pids: Collection[int]) -> None:
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)

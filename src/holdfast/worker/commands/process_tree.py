"""Trees of processes: who descends from a program, what they take, and how they are stopped for a while."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from holdfast.worker.commands.child_marks import parents

_PAGE = os.sysconf("SC_PAGE_SIZE")
#: Who forks while a tree is frozen is met the next time.
TRIES = 20


def resident(pid: int) -> int:
    """The memory that a process takes, in bytes; nothing when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0


def tree(root: int, known: Mapping[int, int]) -> set[int]:
    """A process and all that descend from it, of those *known* with their parents."""
    found = {root}
    for _ in range(len(known)):
        more = {pid for pid, parent in known.items() if parent in found} - found
        if not more:
            break
        found |= more
    return found


def tree_resident(root: int, known: Mapping[int, int] | None = None) -> int:
    """The memory of a process and of all that descend from it."""
    return sum(map(resident, tree(root, parents() if known is None else known)))


def freeze(root: int) -> None:
    """Stop a process and all that descend from it, until :func:`thaw`."""
    stopped: set[int] = set()
    for _ in range(TRIES):
        more = tree(root, parents()) - stopped
        if not more:
            return
        _send(more, signal.SIGSTOP)
        stopped |= more


def thaw(root: int) -> None:
    """Let a frozen tree go on."""
    _send(tree(root, parents()), signal.SIGCONT)


def _send(pids: set[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, number)

"""The file descriptors of workers on this host: their limit, their use, and what their slots may need."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

from holdfast.admin.views.fleet import WorkerView
from holdfast.domain.health_check import HealthCheck, warn
from holdfast.worker.shortage import needed_descriptors

FIX = "Raise it (ulimit -n; LimitNOFILE= of a systemd unit), or run fewer slots."
#: A worker that has used this share of its limit is about to run out.
NEARLY_ALL = 0.8


def descriptors(workers: Sequence[WorkerView], *, processes: Path = Path("/proc")) -> Iterator[HealthCheck]:
    """Report workers on this host whose limit is too low for their slots, or nearly used up."""
    for worker in workers:
        limit = _limit(processes / str(worker.pid)) if worker.host == socket.gethostname() else None
        if limit is None:
            continue
        used, needed = _used(processes / str(worker.pid)), needed_descriptors(worker.slots or 0)
        if used >= NEARLY_ALL * limit:
            yield warn("open files", f"worker {worker.id} has {used:,} of {limit:,} files open", FIX)
        elif limit < needed:
            text = f"worker {worker.id} may open {limit:,} files, and {worker.slots:,} slots may need {needed:,}"
            yield warn("open files", text, FIX)


def _limit(process: Path) -> int | None:
    """The soft limit of open files of a process; None if it is unknown or there is none."""
    try:
        match = re.search(r"^Max open files\s+(\d+)", (process / "limits").read_text(), re.MULTILINE)
    except OSError:
        return None
    return None if match is None else int(match[1])


def _used(process: Path) -> int:
    try:
        return len(os.listdir(process / "fd"))  # noqa: PTH208 - only their number counts
    except OSError:
        return 0

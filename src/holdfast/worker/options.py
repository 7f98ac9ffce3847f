"""How a worker works."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from msgspec import Struct

from holdfast.store.jobs.retention import Retention
from holdfast.worker.autoscaler.autoscaler import AutoscalerOptions
from holdfast.worker.commands.output import Echo
from holdfast.worker.executors.children import ChildOptions
from holdfast.worker.heartbeat import INTERVAL

POLL = 1.0
GRACE = timedelta(seconds=30)


class WorkerOptions(Struct, frozen=True, kw_only=True):
    """How a worker works."""

    queues: tuple[str, ...] = ("default",)
    slots: int = 8
    drain: bool = False
    grace: timedelta = GRACE
    heartbeat: float = INTERVAL
    poll: float = POLL
    retention: Retention | None = None
    version: str | None = None
    children: ChildOptions = ChildOptions()
    plans: bool = True
    logs: Path = Path("holdfast-logs")
    echo: Echo | None = None
    scaling: AutoscalerOptions = AutoscalerOptions()

"""Options of a worker, and the setup that its services share."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from msgspec import Struct

from holdfast.domain.fleet.autoscaler import HostLoad
from holdfast.domain.jobs.job import WorkerId
from holdfast.domain.retention import Retention
from holdfast.store import Store
from holdfast.worker.autoscaler.host import read_host
from holdfast.worker.commands.log_files import KEEP_FREE, Echo
from holdfast.worker.executors.children import ChildOptions
from holdfast.worker.served_lanes import ServedLanes


class AutoscalerOptions(Struct, frozen=True, kw_only=True):
    """Settings of the user: memory of commands in bytes by label, and memory limits by host name."""

    memory_profiles: dict[str, int] = {}
    host_limits: dict[str, str] = {}
    host: Callable[[], HostLoad] = read_host


class WorkerOptions(Struct, frozen=True, kw_only=True):
    """Options of a worker. *poll* and *heartbeat* are intervals in seconds."""

    queues: tuple[str, ...] = ("default",)
    slots: int = 8
    drain: bool = False
    grace: timedelta = timedelta(seconds=30)
    heartbeat: float = 10.0
    poll: float = 1.0
    retention: Retention = Retention()
    version: str | None = None
    children: ChildOptions = ChildOptions()
    plans: bool = True
    logs: Path = Path("holdfast-logs")
    #: Free space that logs leave on their disk.
    log_keep_free: str = KEEP_FREE
    #: The URL of the store in the environment of commands.
    url: str | None = None
    echo: Echo | None = None
    #: A descriptor that commands read as their standard input; None: it is empty.
    stdin: int | None = None
    autoscaler: AutoscalerOptions = AutoscalerOptions()


class WorkerSetup(Struct, frozen=True):
    """The store, identity, queues, kinds and options of one worker."""

    store: Store
    worker: WorkerId
    served: ServedLanes
    options: WorkerOptions

"""How an autoscaler stands and what it has decided, as it tells the others."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

import msgspec
from msgspec import Struct

from holdfast.domain.fleet.admission import Refusal
from holdfast.domain.jobs.job import JobId
from holdfast.domain.sizes import format_size


class BlockedJob(Struct, frozen=True):
    """A job in line that may not begin, and why."""

    job_id: JobId
    reason: Refusal
    text: str


class QueueStatus(Struct, frozen=True):
    """One queue on one host: how many programs may run, how many do, and who is refused."""

    queue: str
    least: int
    most: int
    slots: int
    running: int
    blocked: list[BlockedJob] = []


class AutoscalerStatus(Struct, frozen=True, kw_only=True):
    """A worker's autoscaler: what its host has and bears, the room for programs, and its queues. Sizes in bytes.

    *resident* is what its programs take, *forecast* what they will. *strain* is the shortage of memory.
    """

    total: int
    used: int
    limit: int
    room: int
    resident: int
    forecast: int
    cores: float
    load: float
    cpu_pressure: float | None
    memory_pressure: float | None
    strain: str
    frozen: list[JobId]
    lanes: list[QueueStatus]

    def dumps(self) -> str:
        return msgspec.json.encode(self).decode()


def load_autoscaler_status(text: str | None) -> AutoscalerStatus | None:
    """What :meth:`Scaling.dumps` wrote; what a newer worker may have written otherwise is passed by."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=AutoscalerStatus)
    except msgspec.DecodeError:
        return None


class AutoscalerAction(StrEnum):
    """What an autoscaler can decide."""

    STEP_UP = "step_up"
    STEP_BACK = "step_back"
    BLOCKED = "blocked"
    NEVER_FITS = "never_fits"
    STRAIN = "strain"
    FREEZE = "freeze"
    THAW = "thaw"
    EVICT = "evict"


class AutoscalerDecision(Struct, frozen=True):
    """One thing that an autoscaler decided, about a queue or a job of it."""

    queue: str
    action: AutoscalerAction
    text: str
    job_id: JobId | None = None
    slots: int | None = None


class RecordedDecision(Struct, frozen=True):
    """A decision with its time and place."""

    at: datetime
    queue: str
    host: str
    worker: str
    action: AutoscalerAction
    job_id: JobId | None
    slots: int | None
    text: str


def refusals(job_id: JobId, queue: str, told: Sequence[tuple[str, AutoscalerStatus]]) -> list[str]:
    """What the autoscalers, each of a host, say about a ready job, in words; nothing where one would let it begin."""
    found = []
    for host, scaling in told:
        for lane in scaling.lanes:
            if lane.queue == queue:
                text = _refusal(job_id, lane, scaling)
                if text is None:
                    return []
                found.append(f"host {host} does not let it begin: {text}")
    return found


def _refusal(job_id: JobId, lane: QueueStatus, scaling: AutoscalerStatus) -> str | None:
    text = next((blocked.text for blocked in lane.blocked if blocked.job_id == job_id), None)
    if text is not None:
        return text
    if scaling.strain != "easy":
        used = f"{format_size(scaling.used)} of {format_size(scaling.total)}"
        return f"its memory is {scaling.strain} ({used} in use)"
    if lane.running >= lane.slots:
        return f"it runs {lane.running} programs of the queue, and bears {lane.slots} so far (up to {lane.most})"
    return None

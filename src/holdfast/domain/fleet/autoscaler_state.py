"""The state that an autoscaler reports: its status, and its decisions."""

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
    """A ready job that is not admitted, and the reason."""

    job_id: JobId
    reason: Refusal
    text: str


class QueueStatus(Struct, frozen=True):
    """One queue on one host: its slots, its running commands, its blocked jobs."""

    queue: str
    least: int
    most: int
    slots: int
    running: int
    blocked: list[BlockedJob] = []


class AutoscalerStatus(Struct, frozen=True, kw_only=True):
    """The autoscaler of a worker: its host, the memory for commands, its queues. Sizes in bytes.

    *resident* is the memory of its commands now, *forecast* at their peaks. *strain* is the memory shortage.
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
    """The inverse of :meth:`AutoscalerStatus.dumps`; None for the format of a newer worker."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=AutoscalerStatus)
    except msgspec.DecodeError:
        return None


class AutoscalerAction(StrEnum):
    """The action of a decision."""

    STEP_UP = "step_up"
    STEP_BACK = "step_back"
    BLOCKED = "blocked"
    NEVER_FITS = "never_fits"
    STRAIN = "strain"
    FREEZE = "freeze"
    THAW = "thaw"
    EVICT = "evict"


class AutoscalerDecision(Struct, frozen=True):
    """A decision about a queue or one of its jobs."""

    queue: str
    action: AutoscalerAction
    text: str
    job_id: JobId | None = None
    slots: int | None = None


class RecordedDecision(Struct, frozen=True):
    """A decision with its time, host and worker."""

    at: datetime
    queue: str
    host: str
    worker: str
    action: AutoscalerAction
    job_id: JobId | None
    slots: int | None
    text: str


def refusals(job_id: JobId, queue: str, statuses: Sequence[tuple[str, AutoscalerStatus]]) -> list[str]:
    """The reasons of all hosts not to start a ready job; empty if one host would start it."""
    reasons = []
    for host, status in statuses:
        for lane in status.lanes:
            if lane.queue == queue:
                text = _refusal(job_id, lane, status)
                if text is None:
                    return []
                reasons.append(f"host {host} does not let it begin: {text}")
    return reasons


def _refusal(job_id: JobId, lane: QueueStatus, status: AutoscalerStatus) -> str | None:
    text = next((blocked.text for blocked in lane.blocked if blocked.job_id == job_id), None)
    if text is not None:
        return text
    if status.strain != "easy":
        used = f"{format_size(status.used)} of {format_size(status.total)}"
        return f"its memory is {status.strain} ({used} in use)"
    if lane.running >= lane.slots:
        return f"it runs {lane.running} programs of the queue, and bears {lane.slots} so far (up to {lane.most})"
    return None

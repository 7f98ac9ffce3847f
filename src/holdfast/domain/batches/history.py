"""The history of a batch: runs, requests of people, and the reasons of its stops."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from msgspec import Struct


class BatchEventName(StrEnum):
    """The name of a change in the history of a batch. The last six are also states of batches."""

    STARTED = "started"
    JOINED = "joined"
    SUBMITTED = "submitted"
    LOST = "lost"
    PAUSE_REQUESTED = "pause_requested"
    CANCEL_REQUESTED = "cancel_requested"
    RESUMED = "resumed"
    RETRIED = "retried"
    SKIPPED = "skipped"
    EXPIRED = "expired"
    PAUSED = "paused"
    STOPPED = "stopped"
    DONE = "done"
    PARTIAL = "partial"
    FAILED = "failed"
    CANCELLED = "cancelled"


class BatchEvent(Struct, frozen=True):
    """One change of a batch. *actor* is the person who made it; *detail* is JSON."""

    id: int
    at: datetime
    name: BatchEventName
    actor: str | None
    run_number: int
    detail: str | None

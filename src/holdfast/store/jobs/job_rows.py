"""Rows of new jobs: their columns, and statements for jobs that are alike."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any

from holdfast.domain.jobs.job import JobId, State
from holdfast.domain.jobs.new_job import KEPT_COLUMNS, NewJob, due_at
from holdfast.store.engine.operation import Query, columns_of

#: The values of a request that :meth:`Jobs.enqueue_alike` sends once for all its jobs.
_COMMON = (
    *("kind", "kind_version", "queue", "priority", "delay", "run_at", "hold"),
    *("label", "tags", "parent_id", "actor", *KEPT_COLUMNS),
)
_common = attrgetter(*_COMMON)
#: The most jobs of one statement, and the most characters of their payloads.
MAX_ROWS, MAX_CHARACTERS = 10_000, 8_000_000


def _common_values(request: NewJob, nonce: int | None, notification: str | None) -> dict[str, Any]:
    """The values of a request except its id and its payload."""
    values = dict(zip(_COMMON, _common(request), strict=True))
    return {**values, "no_prefetch": request.no_prefetch, "nonce": nonce, "notification": notification}


def insert_one(request: NewJob, ids: Sequence[JobId] | None, nonce: int | None, notification: str | None) -> Query:
    """Insert one job; without an id, the statement draws it."""
    values = {"id": ids[0] if ids else None, "payload": request.payload}
    return Query("insert_job", {**values, **_common_values(request, nonce, notification)}, direct=True)


def insert_alike(
    request: NewJob, payloads: str, ids: Sequence[JobId] | None, nonce: int | None, notification: str | None
) -> Query:
    """Insert jobs with consecutive ids that differ in their payloads alone, which are lines."""
    assert ids is not None
    values = {"first_id": ids[0], "last_id": ids[-1], "payloads": payloads}
    return Query("insert_jobs", {**values, **_common_values(request, nonce, notification)}, direct=True)


def payload_blocks(payloads: Sequence[str], longest: int) -> list[str] | None:
    """The payloads as lines, in one block for each statement; None if one of them has several lines.

    *longest* is the length of the longest one.
    """
    size = max(1, min(MAX_ROWS, MAX_CHARACTERS // (longest + 1)))
    blocks = ["\n".join(payloads[start : start + size]) for start in range(0, len(payloads), size)]
    return blocks if sum(block.count("\n") for block in blocks) + len(blocks) == len(payloads) else None


def job_columns(
    requests: list[NewJob], ids: list[JobId], now: datetime, *, parent: JobId | None, nonce: int | None
) -> dict[str, list[Any]]:
    """The requests. *parent* is the running job that enqueues them, *nonce* that of the call."""
    return {
        "id": ids,
        **columns_of(requests, "kind", "kind_version", "payload", "label", "tags", "actor", "plan"),
        **columns_of(requests, *KEPT_COLUMNS),
        "key": [request.unique.key if request.unique else None for request in requests],
        "parent_id": [parent or request.parent_id for request in requests],
        "nonce": [nonce] * len(requests),
        "created_at": [now] * len(requests),
        "after_when": [request.after.when if request.after else None for request in requests],
        "after_failed": [request.after.if_not if request.after else None for request in requests],
    }


def live_columns(requests: list[NewJob], ids: list[JobId], now: datetime) -> dict[str, list[Any]]:
    """Their first states."""
    dues = [due_at(request, now) for request in requests]
    return {
        "id": ids,
        "state": [_first_state(request, due, now) for request, due in zip(requests, dues, strict=True)],
        **columns_of(requests, "queue", "kind", "kind_version", "priority", "no_prefetch"),
        "due_at": dues,
    }


def _first_state(request: NewJob, due: datetime, now: datetime) -> State:
    if request.hold:
        return State.HELD
    if request.after is not None:
        return State.WAITING
    return State.SCHEDULED if due > now else State.READY

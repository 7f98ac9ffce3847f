"""Events: the history of a job, written beside each change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from holdfast.domain.jobs.history import EventName
from holdfast.domain.jobs.job import JobId
from holdfast.store.engine.operation import Operation, Rows, query


def record(name: EventName, details: Mapping[JobId, object], *, actor: str) -> Operation[None]:
    """Append one event of the same name per job, with its detail (None for none)."""
    yield from record_all([(job_id, name, detail) for job_id, detail in details.items()], actor=actor)


def record_all(events: Sequence[tuple[JobId, EventName, object]], *, actor: str) -> Operation[None]:
    """Append events: job, name, detail."""
    if not events:
        return
    ids, names, details = zip(*events, strict=True)
    encoded = [None if detail is None else msgspec.json.encode(detail).decode() for detail in details]
    yield query("insert_events", actor=actor, events=Rows(job_id=ids, name=names, detail=encoded))

"""The events of jobs: operations that append to their history."""

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
    yield query(
        "insert_events",
        actor=actor,
        events=Rows(
            job_id=[job_id for job_id, _, _ in events],
            name=[name for _, name, _ in events],
            detail=[None if detail is None else msgspec.json.encode(detail).decode() for _, _, detail in events],
        ),
    )

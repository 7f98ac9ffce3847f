"""Trace contexts of jobs."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.domain.jobs.job import JobId
from holdfast.store.engine.operation import Noun, query


class Traces(Noun):
    """The trace contexts that jobs were enqueued with."""

    def of(self, job_id: JobId) -> str | None:
        """The W3C trace context of a job."""
        rows: Sequence[tuple[str]] = self._backend.fetch(query("trace_of", id=job_id))
        return rows[0][0] if rows else None

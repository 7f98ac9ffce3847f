"""Views of one job with its history, with secrets masked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, structs

from holdfast.admin.views.jobs import JSON_FIELDS, decoded_job, masked_job
from holdfast.admin.views.payload_secrets import job_secrets
from holdfast.domain.access.masking import mask_cut, mask_text
from holdfast.domain.jobs.dependencies import DependencyEdge
from holdfast.domain.jobs.history import Attempt, Event
from holdfast.domain.jobs.job import Job, JobId
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.why import WhyReason
from holdfast.store import Store
from holdfast.store.fleet.dashboard import JobRecord

T = TypeVar("T", Attempt, Event)

_VIEW_FIELDS = [(field.name, Any if field.name in JSON_FIELDS else field.type) for field in structs.fields(Job)]
#: *claimed*: a worker holds the job, and has not recorded its start.
JobView = msgspec.defstruct(
    "JobView",
    [*_VIEW_FIELDS, ("claimed", bool)],
    frozen=True,
    namespace={"__doc__": "A job: its request, its present state and its outcome."},
)


class Reasons(Struct, frozen=True):
    """Why a job is not running, the nearest reason first."""

    reasons: list[WhyReason]


class JobDetail(Struct, frozen=True):
    """One job: its state and the reasons for it, its attempts, its history."""

    job: JobView  # type: ignore[valid-type]
    attempts: list[Attempt]
    events: list[Event]
    why: list[WhyReason]


def job_record(store: Store, job_id: int) -> JobRecord:
    """One job with its attempts, its newest events, its dependencies, and why it does not run."""
    record = store.dashboard.job_record(JobId(job_id))
    values = job_secrets(store, record.job)
    return structs.replace(
        record,
        job=masked_job(record.job, store, now=record.now),
        attempts=[mask_field(each, "error", values) for each in record.attempts],
        events=[mask_field(each, "detail", values) for each in record.events],
        edges=_masked_edges(store, record.edges),
        why=[structs.replace(each, text=mask_text(each.text, values)) for each in record.why],
    )


def job_edges(store: Store, job_id: int) -> tuple[Job, list[DependencyEdge]]:
    """One job, and its dependencies and dependents."""
    job = masked_job(store.views.get(JobId(job_id)), store)
    return job, _masked_edges(store, store.dashboard.edges(job.id))


def _masked_edges(store: Store, edges: Sequence[DependencyEdge]) -> list[DependencyEdge]:
    """Dependencies, with secrets of the far jobs masked in their labels."""
    ids = tuple({edge.far for edge in edges if edge.label is not None})
    jobs = store.views.page(Selector(ids=ids), limit=len(ids)).jobs if ids else []
    labels = {job.id: masked_job(job, store).label for job in jobs}
    return [structs.replace(edge, label=labels.get(edge.far)) for edge in edges]


def mask_field(row: T, field: str, values: list[str]) -> T:
    text = getattr(row, field)
    return row if text is None else structs.replace(row, **{field: mask_cut(text, values)})


def job_detail(record: JobRecord) -> JobDetail:
    """The answer about one job, from its masked record."""
    return JobDetail(decoded_job(record.job), record.attempts, record.events, record.why)

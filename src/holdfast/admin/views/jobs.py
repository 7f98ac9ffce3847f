"""Views of jobs, with secrets masked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct, structs

from holdfast.admin.views.masking import Masks, values_of
from holdfast.domain.access.masking import mask_cut, mask_json, mask_text
from holdfast.domain.commands.command import masked_payload
from holdfast.domain.jobs.history import Attempt, Event
from holdfast.domain.jobs.job import Job
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.why import WhyReason
from holdfast.store import Store
from holdfast.store.fleet.dashboard import JobRecord

#: Fields that hold JSON in the store, and are decoded in a view.
JSON_FIELDS = ("payload", "result", "checkpoint", "tags", "retry")

JobView = msgspec.defstruct(
    "JobView",
    [(field.name, Any if field.name in JSON_FIELDS else field.type) for field in msgspec.structs.fields(Job)],
    frozen=True,
)


class JobReport(Struct, frozen=True):
    """One job: where it stands and why, its attempts, its hirecord."""

    job: JobView  # type: ignore[valid-type]
    attempts: list[Attempt]
    events: list[Event]
    why: list[str]


class Reasons(Struct, frozen=True):
    """Why a job is not running, the nearest reason first."""

    reasons: list[WhyReason]


class JobDetail(Struct, frozen=True):
    """One job with its hirecord."""

    job: dict[str, Any]
    attempts: list[Attempt]
    events: list[Event]
    why: list[WhyReason]


def job_view(job: Job, masks: Masks | None = None, *, brief: bool = False) -> dict[str, Any]:
    """A job as the fields of :data:`JobView`; *brief* leaves out the payload."""
    declared = () if masks is None else masks.of(job.kind)
    values = values_of(job.kind, job.payload, declared)
    data: dict[str, Any] = msgspec.to_builtins(job)
    for name in JSON_FIELDS:
        data[name] = mask_json(data[name], declared, values)
    data["payload"] = None if brief else mask_json(masked_payload(job.kind, job.payload), declared)
    for name in ("error", "note", "progress_message"):
        data[name] = None if data[name] is None else mask_cut(data[name], values)
    for name in ("label", "key"):
        data[name] = None if data[name] is None else mask_text(data[name])
    return data


def list_views(jobs: Sequence[Job], masks: Masks, store: Store) -> list[dict[str, Any]]:
    """The rows of a list, without payloads.

    Masking needs the payload: notes and progress messages may contain a secret of it. A list has the payloads of
    failed jobs only, so that those of jobs with a note or message are read again.
    """
    ids = tuple(job.id for job in jobs if job.note or job.progress_message)
    complete = store.views.page(Selector(ids=ids), limit=len(ids)).jobs if ids else []
    payloads = {job.id: job.payload for job in complete}
    return [
        job_view(structs.replace(job, payload=payloads.get(job.id, job.payload)), masks, brief=True) for job in jobs
    ]


def job_detail(record: JobRecord, masks: Masks | None = None) -> JobDetail:
    job = record.job
    values = values_of(job.kind, job.payload, () if masks is None else masks.of(job.kind))
    return JobDetail(
        job=job_view(job, masks),
        attempts=[masked_attempt(each, values) for each in record.attempts],
        events=[masked_event(each, values) for each in record.events],
        why=[WhyReason(each.because, mask_text(each.text, values)) for each in record.why],
    )


def masked_attempt(attempt: Attempt, values: list[str]) -> Attempt:
    return attempt if attempt.error is None else structs.replace(attempt, error=mask_cut(attempt.error, values))


def masked_event(event: Event, values: list[str]) -> Event:
    return event if event.detail is None else structs.replace(event, detail=mask_cut(event.detail, values))

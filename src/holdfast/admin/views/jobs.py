"""Jobs as programs and people see them."""

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

#: What is JSON in the store is JSON in an answer too.
JSON = ("payload", "result", "checkpoint", "tags", "retry")

JobView = msgspec.defstruct(
    "JobView",
    [(field.name, Any if field.name in JSON else field.type) for field in msgspec.structs.fields(Job)],
    frozen=True,
)


class JobListView(Struct, frozen=True):
    """One job: where it stands and why, its attempts, its history."""

    job: JobView  # type: ignore[valid-type]
    attempts: list[Attempt]
    events: list[Event]
    why: list[str]


class Reasons(Struct, frozen=True):
    """Why a job is not running, the nearest reason first."""

    reasons: list[WhyReason]


class JobDetail(Struct, frozen=True):
    """One job with all that is known of it, its secrets blotted out."""

    job: dict[str, Any]
    attempts: list[Attempt]
    events: list[Event]
    why: list[WhyReason]


def job_view(job: Job, masks: Masks | None = None, *, brief: bool = False) -> dict[str, Any]:
    """A job as :data:`JobFacts` describes it, without its secrets; *brief*: without its payload too."""
    declared = () if masks is None else masks.of(job.kind)
    values = values_of(job.kind, job.payload, declared)
    data: dict[str, Any] = msgspec.to_builtins(job)
    for name in JSON:
        data[name] = mask_json(data[name], declared, values)
    data["payload"] = None if brief else mask_json(masked_payload(job.kind, job.payload), declared)
    for name in ("error", "note", "progress_message"):
        data[name] = None if data[name] is None else mask_cut(data[name], values)
    for name in ("label", "key"):
        data[name] = None if data[name] is None else mask_text(data[name])
    return data


def list_views(jobs: Sequence[Job], masks: Masks, store: Store) -> list[dict[str, Any]]:
    """Jobs of a list, without their payloads.

    A list has payloads only of those that failed. Those of others that say something are read once more: what a handler
    says may hold a secret of its payload.
    """
    telling = tuple(job.id for job in jobs if job.note or job.progress_message)
    whole = store.views.page(Selector(ids=telling), limit=len(telling)).jobs if telling else []
    payloads = {job.id: job.payload for job in whole}
    return [
        job_view(structs.replace(job, payload=payloads.get(job.id, job.payload)), masks, brief=True) for job in jobs
    ]


def job_detail(story: JobRecord, masks: Masks | None = None) -> JobDetail:
    """All there is to say about a job, without its secrets."""
    job = story.job
    values = values_of(job.kind, job.payload, () if masks is None else masks.of(job.kind))
    return JobDetail(
        job=job_view(job, masks),
        attempts=[masked_attempt(each, values) for each in story.attempts],
        events=[masked_event(each, values) for each in story.events],
        why=[WhyReason(each.because, mask_text(each.text, values)) for each in story.why],
    )


def masked_attempt(attempt: Attempt, values: list[str]) -> Attempt:
    return attempt if attempt.error is None else structs.replace(attempt, error=mask_cut(attempt.error, values))


def masked_event(event: Event, values: list[str]) -> Event:
    return event if event.detail is None else structs.replace(event, detail=mask_cut(event.detail, values))

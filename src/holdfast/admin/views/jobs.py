"""Views of jobs, with secrets masked. Their history is in ``job_detail.py``: a list needs none, and loads faster."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import structs

from holdfast.admin.views.payload_secrets import declared_secrets, mask_payload, values_of
from holdfast.domain.access.masking import mask_cut, mask_json
from holdfast.domain.jobs.job import INTERNAL_PREFIX, Job, JobId, State
from holdfast.domain.jobs.selector import Count, Selector
from holdfast.store import Store
from holdfast.store.jobs.queries import COUNT_CAP, LEFT_OUT, JobPage

#: Fields that hold JSON in the store, and are decoded in a view.
JSON_FIELDS = ("payload", "result", "checkpoint", "tags", "retry", "refusals")
#: Fields of text that may contain a secret of the payload.
TEXT_FIELDS = ("error", "note", "progress_message", "label", "key")
MIN_PAGE, MAX_PAGE = 50, 500  # jobs; shorter pages would be many if most jobs are left out


def list_jobs(store: Store, selector: Selector, *, internal: bool = True, most: int = MAX_PAGE) -> Iterator[Job]:
    """The jobs that match, newest first, read page by page. An id that does not exist is refused at once.

    Without *internal*, Holdfast's own jobs are left out. Callers that read *most* jobs or fewer get short pages.
    """
    store.views.refuse_missing(selector)
    matches = store.views.all(selector, limit=min(max(most, MIN_PAGE), MAX_PAGE))
    return (masked_job(job, store) for job in matches if internal or not job.kind.startswith(INTERNAL_PREFIX))


def newest_ids(store: Store, selector: Selector) -> tuple[JobId, ...]:
    """The jobs that match. Of those with one kind and key only the newest, which replaces the failures before it.

    Jobs that the selector names by id all count.
    """
    store.views.refuse_missing(selector)
    newest: dict[object, JobId] = {}
    for job in store.views.all(selector):
        name = job.id if selector.ids is not None or job.key is None else (job.kind, job.key)
        newest[name] = max(job.id, newest.get(name, job.id))
    return tuple(newest.values())


def job_page(store: Store, selector: Selector, *, before: int | None = None, limit: int = 50) -> JobPage:
    """Jobs that match, newest first, below an id: without results, and with the beginnings of long errors."""
    page = store.views.page(selector, before=None if before is None else JobId(before), limit=limit, brief=True)
    # Payloads that the list leaves out are read to find their secrets.
    ids = tuple(job.id for job in page.jobs if job.payload == LEFT_OUT)
    payloads = {job.id: job.payload for job in store.views.page(Selector(ids=ids), limit=len(ids)).jobs} if ids else {}
    jobs = (structs.replace(job, payload=payloads.get(job.id, job.payload)) for job in page.jobs)
    return JobPage([masked_job(job, store) for job in jobs], page.next)


def count_jobs(store: Store, selector: Selector, *, cap: int = COUNT_CAP) -> Count:
    """The number of jobs that match, up to *cap*."""
    return store.views.count(selector, cap=cap)


def masked_job(job: Job, store: Store, *, now: datetime | None = None) -> Job:
    """A job without secrets: none in its payload, and none of the payload's in its texts.

    The note of a running job names its problem: an expired lease, or a run past its timeout.
    """
    declared = declared_secrets(store, job.kind)
    if job.state is State.RUNNING:
        from holdfast.domain.jobs.why import describe_problem

        problem = describe_problem(job, store.views.kind_timeout(job.kind), now or datetime.now(UTC))
        job = structs.replace(job, note=problem or job.note)
    values = values_of(job.kind, job.payload, declared)
    texts: dict[str, str | None] = {name: getattr(job, name) for name in TEXT_FIELDS}
    masked = {name: mask_cut(text, values) for name, text in texts.items() if text is not None}
    documents: dict[str, str | None] = {name: getattr(job, name) for name in JSON_FIELDS}
    del documents["payload"]
    for name, text in documents.items():
        if text is not None:
            masked[name] = msgspec.json.encode(mask_json(text, declared, values)).decode()
    return structs.replace(job, payload=mask_payload(job.kind, job.payload, declared, values), **masked)


def decoded_job(job: Job, *, brief: bool = False) -> dict[str, Any]:
    """A masked job as the fields of ``JobView``; *brief* leaves out the payload."""
    data: dict[str, Any] = {**msgspec.to_builtins(job), "attempts": job.tries, "claimed": job.claimed}
    for name in JSON_FIELDS:
        data[name] = None if data[name] is None else msgspec.json.decode(data[name])
    return {**data, "payload": None} if brief else data

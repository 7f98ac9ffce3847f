"""New jobs that people enqueue by the name of a kind, without its application."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from holdfast.admin.actions.actions import CancelledJob
from holdfast.admin.views.jobs import list_jobs
from holdfast.domain.commands.command import COMMAND, Command, command_payload
from holdfast.domain.jobs.enqueue_options import EnqueueOptions, complete
from holdfast.domain.jobs.job import INTERNAL_PREFIX, State
from holdfast.domain.jobs.json_values import MAX_PAYLOAD, payload_json
from holdfast.domain.jobs.kind_options import KindOptions, check_payload, new_job_of
from holdfast.domain.jobs.new_job import Actor, Enqueued, NewJob
from holdfast.domain.jobs.selector import Selector
from holdfast.errors import InvalidInput, InvalidPayload, PayloadTooLarge, PrivilegeMissing
from holdfast.store import Store


def build_job(
    store: Store, kind: str, payload: Mapping[str, Any], options: EnqueueOptions, *, actor: str = Actor.CLIENT
) -> NewJob:
    """Build a job and check it as far as the published kind allows."""
    if kind.startswith(INTERNAL_PREFIX):
        raise InvalidInput(f"{kind!r} is not a kind that people enqueue", hint="Start a batch instead.")
    size = len(payload_json(payload, label="the payload"))
    if size > MAX_PAYLOAD:
        raise PayloadTooLarge(f"the payload takes {size:,} bytes; at most {MAX_PAYLOAD:,} are allowed", kind=kind)
    if kind == COMMAND:
        return _command_job(payload, options, actor)
    published = store.kinds.get(kind)
    check_payload(published, payload)
    return new_job_of(published, payload, options, actor=actor)


def cancelled_at_once(store: Store, requests: Sequence[NewJob], jobs: Sequence[Enqueued]) -> list[CancelledJob]:
    """The first of the new jobs that will not run because a dependency has failed already."""
    pairs = zip(requests, jobs, strict=True)
    ids = tuple(job.id for request, job in pairs if job.created and request.after is not None)
    selector = Selector(ids=ids, states=(State.CANCELLED,))
    cancelled = list_jobs(store, selector) if ids else iter(())
    try:
        return sorted(CancelledJob(job.id, job.state, job.error or job.note or "") for job in islice(cancelled, 100))
    except PrivilegeMissing:  # the jobs are enqueued, and a producer lists none
        return []


def _command_job(payload: Mapping[str, Any], options: EnqueueOptions, actor: str) -> NewJob:
    try:
        command = msgspec.convert(command_payload(payload), Command)
    except msgspec.ValidationError as error:
        hint = 'It is like {"argv": ["make", "all"], "cwd": "/srv"}.'
        raise InvalidPayload(f"this is not a valid command: {error}", hint=hint) from None
    once = KindOptions(max_attempts=1, timeout=None)
    return complete(options, once, own_key=None, kind=COMMAND, payload=command.dumps(), actor=actor)

"""New jobs that people enqueue by the name of a kind, without its application."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from holdfast.domain.commands.command import COMMAND, Command
from holdfast.domain.fleet.queue import DEFAULT_QUEUE
from holdfast.domain.jobs.dependencies import After
from holdfast.domain.jobs.job import JobId
from holdfast.domain.jobs.json_values import MAX_PAYLOAD, payload_json
from holdfast.domain.jobs.kind_options import check_payload, new_job_of
from holdfast.domain.jobs.new_job import NewJob, Unique
from holdfast.domain.names import checked_name
from holdfast.domain.quantities import as_duration, checked_timestamp
from holdfast.errors import InvalidInput, InvalidPayload, PayloadTooLarge
from holdfast.store import Store


def build_job(
    store: Store,
    kind: str,
    payload: Mapping[str, Any],
    *,
    key: str | None = None,
    delay: str | float | timedelta | None = None,
    run_at: datetime | None = None,
    after: Sequence[int] = (),
    **others: Any,
) -> NewJob:
    """Build a job and check it as far as the published kind allows."""
    if kind.startswith("holdfast."):
        raise InvalidInput(f"{kind!r} is no kind for people", hint="Start a batch instead.")
    size = len(payload_json(payload, label="the payload"))
    if size > MAX_PAYLOAD:
        raise PayloadTooLarge(f"the payload takes {size:,} bytes; at most {MAX_PAYLOAD:,} are allowed", kind=kind)
    options: dict[str, Any] = {
        **others,
        "delay": None if delay is None else as_duration(delay),
        "run_at": None if run_at is None else checked_timestamp(run_at),
        "after": After(ids=tuple(JobId(job_id) for job_id in after)) if after else None,
    }
    checked_key = None if key is None else checked_name(key, label="the key")
    if kind == COMMAND:
        return _command_job(payload, checked_key, options)
    published = store.kinds.get(kind)
    check_payload(published, payload)
    return new_job_of(published, payload, key=checked_key, **options)


def _command_job(payload: Mapping[str, Any], key: str | None, options: dict[str, Any]) -> NewJob:
    try:
        command = msgspec.convert(dict(payload), Command)
    except msgspec.ValidationError as error:
        hint = 'It is like {"argv": ["make", "all"], "cwd": "/srv"}.'
        raise InvalidPayload(f"this is no command: {error}", hint=hint) from None
    used = {"queue": DEFAULT_QUEUE, **{name: value for name, value in options.items() if value is not None}}
    return NewJob(
        kind=COMMAND, payload=command.dumps(), unique=None if key is None else Unique(key), max_attempts=1, **used
    )

"""Jobs that people enqueue from afar, by the name of a kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from holdfast.domain.commands.command import COMMAND, Command
from holdfast.domain.durations import as_duration
from holdfast.domain.fleet.queue import DEFAULT_QUEUE
from holdfast.domain.jobs.dependencies import After
from holdfast.domain.jobs.job import JobId
from holdfast.domain.jobs.json_values import MAX_PAYLOAD, payload_json
from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.jobs.published_kind import check_payload, new_job_of
from holdfast.domain.jobs.unique_key import Unique
from holdfast.domain.names import checked_name
from holdfast.domain.schedules.rule import checked_timestamp
from holdfast.errors import InvalidInput, InvalidPayload, PayloadTooLarge
from holdfast.store import Store


def make_request(
    store: Store,
    kind: str,
    payload: Mapping[str, Any],
    *,
    key: str | None,
    delay: str | float | timedelta | None,
    run_at: datetime | None,
    after: Sequence[int],
    **options: Any,
) -> NewJob:
    """What an enqueue asks of the store, checked as far as it can be without the application.

    Raises:
        UnknownKind: Nobody has registered the kind.
        InvalidPayload: A parameter is unknown, or missing; or it is no command.
        PayloadTooLarge: It takes more than 256 KiB.
    """
    if kind.startswith("holdfast."):
        raise InvalidInput(f"{kind!r} is no kind for people", hint="Start a batch instead.")
    size = len(payload_json(payload, label="the payload"))
    if size > MAX_PAYLOAD:
        raise PayloadTooLarge(f"the payload takes {size:,} bytes; at most {MAX_PAYLOAD:,} are allowed", kind=kind)
    told: dict[str, Any] = {
        **options,
        "delay": None if delay is None else as_duration(delay),
        "run_at": None if run_at is None else checked_timestamp(run_at),
        "after": After(ids=tuple(JobId(each) for each in after)) if after else None,
    }
    named = None if key is None else checked_name(key, label="the key")
    if kind == COMMAND:
        return _program(payload, named, told)
    published = store.kinds.get(kind)
    check_payload(published, payload)
    return new_job_of(published, payload, key=named, **told)


def _program(payload: Mapping[str, Any], key: str | None, told: dict[str, Any]) -> NewJob:
    """A program: what ``holdfast add`` makes, from its words."""
    try:
        command = msgspec.convert(dict(payload), Command)
    except msgspec.ValidationError as error:
        hint = 'It is like {"argv": ["make", "all"], "cwd": "/srv"}.'
        raise InvalidPayload(f"this is no command: {error}", hint=hint) from None
    given = {name: value for name, value in told.items() if value is not None}
    given.setdefault("queue", DEFAULT_QUEUE)
    return NewJob(
        kind=COMMAND,
        payload=command.dumps(),
        unique=None if key is None else Unique(key),
        max_attempts=1,
        **given,
    )

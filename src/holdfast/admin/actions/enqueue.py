"""New jobs that people enqueue by the name of a kind, without its application."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.domain.commands.command import COMMAND, Command
from holdfast.domain.jobs.enqueue_options import EnqueueOptions, complete
from holdfast.domain.jobs.json_values import MAX_PAYLOAD, payload_json
from holdfast.domain.jobs.kind_options import KindOptions, check_payload, new_job_of
from holdfast.domain.jobs.new_job import Actor, NewJob
from holdfast.domain.names import checked_name
from holdfast.errors import InvalidInput, InvalidPayload, PayloadTooLarge
from holdfast.store import Store


def build_job(
    store: Store, kind: str, payload: Mapping[str, Any], options: EnqueueOptions, *, actor: str = Actor.CLIENT
) -> NewJob:
    """Build a job and check it as far as the published kind allows."""
    if kind.startswith("holdfast."):
        raise InvalidInput(f"{kind!r} is no kind for people", hint="Start a batch instead.")
    size = len(payload_json(payload, label="the payload"))
    if size > MAX_PAYLOAD:
        raise PayloadTooLarge(f"the payload takes {size:,} bytes; at most {MAX_PAYLOAD:,} are allowed", kind=kind)
    if options.key is not None:
        checked_name(options.key, label="the key")
    if kind == COMMAND:
        return _command_job(payload, options, actor)
    published = store.kinds.get(kind)
    check_payload(published, payload)
    return new_job_of(published, payload, options, actor=actor)


def _command_job(payload: Mapping[str, Any], options: EnqueueOptions, actor: str) -> NewJob:
    try:
        command = msgspec.convert(dict(payload), Command)
    except msgspec.ValidationError as error:
        hint = 'It is like {"argv": ["make", "all"], "cwd": "/srv"}.'
        raise InvalidPayload(f"this is no command: {error}", hint=hint) from None
    once = KindOptions(max_attempts=1, timeout=None)
    return complete(options, once, own_key=None, kind=COMMAND, payload=command.dumps(), actor=actor)

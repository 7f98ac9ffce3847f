"""Jobs of a kind that is known from the store alone: its application may be elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from holdfast.domain.jobs.kind import PublishedKind, load_options, payload_json
from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.jobs.unique_key import KeyScope, Unique
from holdfast.errors import InvalidPayload


def request_of(
    kind: PublishedKind,
    payload: Mapping[str, Any],
    *,
    queue: str | None = None,
    priority: int | None = None,
    key: str | None = None,
    **others: Any,
) -> NewJob:
    """What an enqueue of such a job asks of the store; None leaves it to the kind."""
    known = load_options(kind.options, version=kind.version)
    own = _key(payload, known.unique) if key is None else key
    scope = known.unique_scope if known.unique else KeyScope.LIVE
    return NewJob(
        kind=kind.name,
        payload=payload_json(payload, what=f"the payload of {kind.name!r}").decode(),
        queue=known.queue if queue is None else queue,
        priority=known.priority if priority is None else priority,
        unique=None if own is None else Unique(own, scope, known.unique_period),
        max_attempts=known.max_attempts,
        max_crashes=known.max_crashes,
        on_lost=known.on_lost,
        retry=known.retry.dumps(),
        **others,
    )


def checked_payload(kind: PublishedKind, payload: Mapping[str, Any], *, given: str | None = None) -> None:
    """Compare the names with those that the handler takes; the worker checks their types. *given* comes later.

    Raises:
        InvalidPayload: A parameter is unknown, or missing.
    """
    known, has_dependents = _parameters(kind.payload_schema)
    for name in sorted(set(payload) - known):
        raise InvalidPayload(f"{kind.name!r} has no parameter {name!r}", hint=f"It takes: {', '.join(sorted(known))}.")
    for name in sorted(has_dependents - set(payload) - {given}):
        raise InvalidPayload(f"{kind.name!r} needs the parameter {name!r}")


@lru_cache(maxsize=1000)
def plan_parameter(options: str) -> str | None:
    """The parameter of a kind, known by its options, that is given the plan."""
    name: str | None = msgspec.json.decode(options).get("plan")
    return name


@lru_cache(maxsize=1000)
def _parameters(schema: str) -> tuple[frozenset[str], frozenset[str]]:
    """All parameters of a handler, and those that it needs."""
    decoded = msgspec.json.decode(schema)
    shape = decoded.get("$defs", {}).get("Payload", decoded)
    return frozenset(shape.get("properties", {})), frozenset(shape.get("required", ()))


def _key(payload: Mapping[str, Any], fields: tuple[str, ...]) -> str | None:
    """The unique key that the kind forms of its payload."""
    if not fields:
        return None
    for name in fields:
        if name not in payload:
            raise InvalidPayload(f"the unique key needs the parameter {name!r}", hint="Name it, or give a key.")
    return msgspec.json.encode([payload[name] for name in fields], order="sorted").decode()

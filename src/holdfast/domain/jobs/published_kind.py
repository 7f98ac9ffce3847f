"""Kinds as the store publishes them, for processes that do not have the application."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache
from typing import Any

import msgspec

from holdfast.domain.jobs.json_values import payload_json
from holdfast.domain.jobs.kind_options import KindOptions
from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.jobs.retry import DEFAULT_CURVE, Curve
from holdfast.domain.jobs.unique_key import KeyScope, Unique, key_json
from holdfast.errors import InvalidPayload


class PublishedKind(msgspec.Struct, frozen=True):
    """A kind as every process sees it in the store. *options* and *payload_schema* are JSON."""

    name: str
    options: str
    payload_schema: str
    version: str | None = None


def dump_options(options: KindOptions, *, plan: str | None = None) -> str:
    """The options as JSON, with the keys that ``holdfast.enqueue`` reads in SQL; *plan* names a parameter."""
    period = options.unique_period
    return msgspec.json.encode(
        {
            "queue": options.queue,
            "priority": options.priority,
            "max_attempts": options.max_attempts,
            "max_crashes": options.max_crashes,
            "retry": None if options.retry == DEFAULT_CURVE else options.retry,
            "on_lost": options.on_lost,
            "timeout_seconds": None if options.timeout is None else options.timeout.total_seconds(),
            "lease_seconds": options.lease.total_seconds(),
            "unique": options.unique,
            "unique_scope": options.unique_scope,
            "unique_seconds": None if period is None else period.total_seconds(),
            "executor": options.executor,
            "memory": options.memory,
            "secrets": options.secrets,
            "plan": plan,
        }
    ).decode()


@lru_cache(maxsize=1000)
def load_options(text: str, *, version: str | None = None) -> KindOptions:
    """The options that :func:`dump_options` wrote."""
    raw = msgspec.json.decode(text)
    seconds, timeout, lease = raw.pop("unique_seconds"), raw.pop("timeout_seconds"), raw.pop("lease_seconds")
    retry = raw.pop("retry")
    return msgspec.convert(
        {
            **raw,
            "retry": DEFAULT_CURVE if retry is None else msgspec.convert(retry, Curve),
            "timeout": None if timeout is None else timedelta(seconds=timeout),
            "lease": timedelta(seconds=lease),
            "unique_period": None if seconds is None else timedelta(seconds=seconds),
            "version": version,
        },
        KindOptions,
    )


def new_job_of(
    kind: PublishedKind,
    payload: Mapping[str, Any],
    *,
    queue: str | None = None,
    priority: int | None = None,
    key: str | None = None,
    **others: Any,
) -> NewJob:
    """A new job of the kind; None means the default of the kind."""
    known = load_options(kind.options, version=kind.version)
    own = _key(payload, known.unique) if key is None else key
    scope = known.unique_scope if known.unique else KeyScope.LIVE
    return NewJob(
        kind=kind.name,
        payload=payload_json(payload, label=f"the payload of {kind.name!r}").decode(),
        queue=known.queue if queue is None else queue,
        priority=known.priority if priority is None else priority,
        unique=None if own is None else Unique(own, scope, known.unique_period),
        max_attempts=known.max_attempts,
        max_crashes=known.max_crashes,
        on_lost=known.on_lost,
        retry=known.retry.dumps(),
        **others,
    )


def check_payload(kind: PublishedKind, payload: Mapping[str, Any], *, later: str | None = None) -> None:
    """Refuse unknown and missing parameters; the worker checks types. The parameter *later* may be missing."""
    known, required = _parameters(kind.payload_schema)
    for name in sorted(set(payload) - known):
        raise InvalidPayload(f"{kind.name!r} has no parameter {name!r}", hint=f"It takes: {', '.join(sorted(known))}.")
    for name in sorted(required - set(payload) - {later}):
        raise InvalidPayload(f"{kind.name!r} needs the parameter {name!r}")


@lru_cache(maxsize=1000)
def plan_parameter(options: str) -> str | None:
    """The parameter that receives the plan, from the published options of a kind."""
    name: str | None = msgspec.json.decode(options).get("plan")
    return name


@lru_cache(maxsize=1000)
def _parameters(schema: str) -> tuple[frozenset[str], frozenset[str]]:
    """All parameters of a handler, and the required ones."""
    decoded = msgspec.json.decode(schema)
    payload = decoded.get("$defs", {}).get("Payload", decoded)
    return frozenset(payload.get("properties", {})), frozenset(payload.get("required", ()))


def _key(payload: Mapping[str, Any], fields: tuple[str, ...]) -> str | None:
    """The unique key of a payload; None if the kind has none."""
    if not fields:
        return None
    for name in fields:
        if name not in payload:
            raise InvalidPayload(f"the unique key needs the parameter {name!r}", hint="Name it, or give a key.")
    return key_json([payload[name] for name in fields])

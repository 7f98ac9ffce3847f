"""The options of a kind: declared by its application, published in the store for all other processes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any

import msgspec
from msgspec.structs import force_setattr

from holdfast.domain.batches.unit_function import PublishedUnit
from holdfast.domain.fleet.queue import DEFAULT_QUEUE, checked_queue
from holdfast.domain.jobs.enqueue_options import EnqueueOptions, complete
from holdfast.domain.jobs.job import OnLost
from holdfast.domain.jobs.json_values import payload_json
from holdfast.domain.jobs.new_job import Actor, KeyScope, NewJob, key_json
from holdfast.domain.jobs.payload_schema import find_mismatch
from holdfast.domain.jobs.retry_curve import DEFAULT_CURVE, Curve
from holdfast.domain.names import checked_name
from holdfast.domain.quantities import checked_number
from holdfast.errors import InvalidInput, InvalidKind, InvalidPayload

MIN_LEASE = timedelta(seconds=1)


class ExecutorName(StrEnum):
    """Where a handler runs."""

    THREAD = "thread"
    ASYNC = "async"
    PROCESS = "process"
    #: External commands; only for the built-in kind.
    COMMAND = "command"


class KindOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a kind, with their defaults."""

    queue: str = DEFAULT_QUEUE
    priority: int = 0
    max_attempts: int | None = 3
    max_crashes: int | None = 3
    retry: Curve = DEFAULT_CURVE
    on_lost: OnLost = OnLost.RETRY
    timeout: timedelta | None = timedelta(hours=1)
    lease: timedelta = timedelta(seconds=60)
    unique: tuple[str, ...] = ()
    unique_scope: KeyScope = KeyScope.LIVE
    unique_period: timedelta | None = None
    #: Of the payload. Raise it when the payload changes.
    version: int = 1
    #: Earlier names of the kind, whose jobs its handler runs too.
    aliases: tuple[str, ...] = ()
    #: None: threads for functions, the event loop for coroutines.
    executor: ExecutorName | None = None
    #: In bytes; a child process that exceeds it is killed.
    memory: int | None = None
    #: Payload fields that are masked in every view.
    secrets: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "queue", checked_queue(self.queue))
        force_setattr(self, "priority", checked_number(self.priority, label="a priority"))
        if not isinstance(self.version, int) or not 1 <= self.version < 2**31:
            hint = "It is the version of the payload; Holdfast(version=...) names the code."
            raise InvalidKind(f"the version of a kind is a whole number from 1, not {self.version!r}", hint=hint)
        force_setattr(self, "aliases", tuple(checked_name(alias, label="an alias") for alias in self.aliases))
        for name in ("max_attempts", "max_crashes"):
            value = getattr(self, name)
            if value is not None and checked_number(value, label=name) < 1:
                raise InvalidKind(f"{name} is at least 1, or None for no limit, not {value}")
        if self.lease < MIN_LEASE:
            raise InvalidKind(f"a lease takes at least {MIN_LEASE.total_seconds():.0f} s, not {self.lease}")
        if self.memory is not None and self.executor is not ExecutorName.PROCESS:
            raise InvalidKind("only a process can have a memory cap", hint='Add executor="process".')
        if self.timeout is not None and self.timeout <= timedelta(0):
            raise InvalidKind("a timeout must be greater than zero, or None for no limit")
        if (self.unique_scope is KeyScope.PERIOD) != (self.unique_period is not None):
            raise InvalidKind("unique_period needs unique_scope='period'")


class PublishedKind(msgspec.Struct, frozen=True):
    """A kind as every process sees it in the store. *options* and *payload_schema* are JSON."""

    name: str
    options: str
    payload_schema: str
    version: int = 1


def dump_options(options: KindOptions, *, plan: str | None = None, unit: PublishedUnit | None = None) -> str:
    """The options as JSON, with the keys that ``holdfast.enqueue`` reads in SQL.

    *plan* names a parameter; *unit* is a function for the units of batches.
    """
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
            **({} if unit is None else {"unit": unit}),
        }
    ).decode()


@lru_cache(maxsize=1000)
def load_options(text: str, *, version: int = 1) -> KindOptions:
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
    options: EnqueueOptions | None = None,
    *,
    kind_version: int | None = None,
    actor: str = Actor.CLIENT,
    **named: Any,
) -> NewJob:
    """A new job of a published kind. *kind_version* is that of the payload; *named* options do without a struct."""
    if is_unit_function(kind.options):
        raise InvalidInput(f"{kind.name!r} is a function for units of batches", hint="Start a batch instead.")
    options = EnqueueOptions(**named) if options is None else options
    known = load_options(kind.options, version=kind.version)
    own_key = None if options.key is not None else _key(payload, known.unique)
    encoded = payload_json(payload, label=f"the payload of {kind.name!r}").decode()
    return complete(
        options, known, own_key=own_key, kind=kind.name, kind_version=kind_version, payload=encoded, actor=actor
    )


def unknown_parameter(kind: str, name: str, known: Collection[str]) -> InvalidPayload:
    hint = f"It takes: {', '.join(sorted(known))}." if known else "It takes no parameters."
    return InvalidPayload(f"{kind!r} has no parameter {name!r}", hint=hint)


def check_payload(kind: PublishedKind, payload: Mapping[str, Any], *, later: str | None = None) -> None:
    """Refuse unknown and missing parameters, and values of other types. The parameter *later* may be missing."""
    known, required = _parameters(kind.payload_schema)
    for name in sorted(set(payload) - known):
        raise unknown_parameter(kind.name, name, known)
    for name in sorted(required - set(payload) - {later}):
        raise InvalidPayload(f"{kind.name!r} needs the parameter {name!r}")
    decoded = _decoded_schema(kind.payload_schema)
    for name, value in msgspec.json.decode(payload_json(payload, label=f"the payload of {kind.name!r}")).items():
        mismatch = find_mismatch(value, _payload_part(decoded)["properties"][name], decoded.get("$defs", {}), name)
        if mismatch is not None:
            raise InvalidPayload(f"the payload of {kind.name!r} does not fit: {mismatch}", kind=kind.name)


@lru_cache(maxsize=1000)
def is_unit_function(options: str) -> bool:
    """Whether a published kind is a function for the units of batches, which has no jobs."""
    return "unit" in msgspec.json.decode(options)


@lru_cache(maxsize=1000)
def plan_parameter(options: str) -> str | None:
    """The parameter that receives the plan, from the published options of a kind."""
    name: str | None = msgspec.json.decode(options).get("plan")
    return name


@lru_cache(maxsize=1000)
def _decoded_schema(schema: str) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(schema)
    return decoded


def _payload_part(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a schema that describes the parameters."""
    part: Mapping[str, Any] = schema.get("$defs", {}).get("Payload", schema)
    return part


@lru_cache(maxsize=1000)
def _parameters(schema: str) -> tuple[frozenset[str], frozenset[str]]:
    """All parameters of a handler, and the required ones."""
    payload = _payload_part(_decoded_schema(schema))
    return frozenset(payload.get("properties", {})), frozenset(payload.get("required", ()))


def _key(payload: Mapping[str, Any], fields: tuple[str, ...]) -> str | None:
    if not fields:
        return None
    for name in fields:
        if name not in payload:
            raise InvalidPayload(f"the unique key needs the parameter {name!r}", hint="Name it, or give a key.")
    return key_json([payload[name] for name in fields])

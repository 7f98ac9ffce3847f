"""Kinds: the registered functions that run jobs, and the payloads they accept."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any, get_args, get_type_hints

import msgspec

from holdfast.domain.fleet.queue import DEFAULT_QUEUE
from holdfast.domain.jobs.context import Context
from holdfast.domain.jobs.job import OnLost
from holdfast.domain.jobs.retry import DEFAULT_CURVE, Curve
from holdfast.domain.jobs.unique_key import KeyScope, key_from
from holdfast.domain.schedules.plan import Plan
from holdfast.domain.text import checked_name, checked_number, nearest
from holdfast.errors import InvalidInput, InvalidKind, InvalidPayload, InvalidText, PayloadTooLarge

MAX_PAYLOAD = 256 * 1024
#: Lists and objects within each other: what is deeper cannot be shown, nor walked through safely.
MAX_DEPTH = 100
MIN_LEASE = timedelta(seconds=1)

_ESCAPED_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


class ExecutorName(StrEnum):
    """Where a handler runs."""

    THREAD = "thread"
    ASYNC = "async"
    PROCESS = "process"
    #: Programs; for the built-in kind alone.
    COMMAND = "command"


class KindOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a kind: the defaults of its jobs."""

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
    version: str | None = None
    #: None: threads for functions, the loop for coroutines.
    executor: ExecutorName | None = None
    #: A process child that takes more bytes is killed.
    memory: int | None = None
    #: Fields of the payload that nobody is shown.
    secrets: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        checked_name(self.queue, what="the queue")
        for name in ("max_attempts", "max_crashes"):
            value = getattr(self, name)
            if value is not None and checked_number(value, what=name) < 1:
                raise InvalidKind(f"{name} is at least 1, or None for no limit, not {value}")
        if self.lease < MIN_LEASE:
            raise InvalidKind(f"a lease takes at least {MIN_LEASE.total_seconds():.0f} s, not {self.lease}")
        if self.memory is not None and self.executor is not ExecutorName.PROCESS:
            raise InvalidKind("only a process can have a memory cap", hint='Add executor="process".')
        if self.timeout is not None and self.timeout <= timedelta(0):
            raise InvalidKind("a timeout is longer than nothing, or None for no limit")
        if (self.unique_scope is KeyScope.PERIOD) != (self.unique_period is not None):
            raise InvalidKind("unique_period belongs to unique_scope='period', and to no other")


class PublishedKind(msgspec.Struct, frozen=True):
    """A kind as every process sees it in the store."""

    name: str
    options: str
    payload_schema: str
    version: str | None = None


class Kind:
    """A named handler with a typed payload."""

    def __init__(self, name: str, function: Callable[..., Any], options: KindOptions) -> None:
        self.name = checked_name(name, what="the kind")
        self.function = function
        self.options = options
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise InvalidKind(f"kind {name!r}: a generator cannot be a handler", hint="Return a value, or a list.")
        self.is_async = inspect.iscoroutinefunction(function)
        self.executor = options.executor or (ExecutorName.ASYNC if self.is_async else ExecutorName.THREAD)
        if (self.executor is ExecutorName.THREAD and self.is_async) or (
            self.executor is ExecutorName.ASYNC and not self.is_async
        ):
            raise InvalidKind(
                f"kind {name!r}: executor={str(self.executor)!r} does not fit its handler",
                hint="Coroutines run on the loop (async), plain functions in threads; both can run in a process.",
            )
        self.signature = inspect.signature(function)
        self._context, self.payload_type = _payload_type(name, function, self.signature)
        #: The parameter that is given the plan, if a schedule fires it.
        self.plan = _plan_parameter(self.payload_type)
        unknown = set(options.unique) - set(self.payload_type.__struct_fields__)
        if unknown:
            raise InvalidKind(f"kind {name!r}: unique names {min(unknown)!r}, which is no parameter of its handler")
        self._decoder = msgspec.json.Decoder(self.payload_type)
        self.payload_schema = _schema(name, self.payload_type)

    def encode(self, payload: Mapping[str, Any], *, limit: int = MAX_PAYLOAD) -> tuple[str, str | None]:
        """The payload as JSON, checked against the handler's annotations, and the key that it forms.

        Raises:
            InvalidPayload: It does not fit, and the message names the field; or it is nested too deeply.
            InvalidText: It holds a NUL or half of a character.
            PayloadTooLarge: It takes more than *limit* bytes.
        """
        raw = payload_json(payload, what=f"the payload of {self.name!r}")
        if len(raw) > limit:
            raise PayloadTooLarge(
                f"the payload of {self.name!r} takes {len(raw):,} bytes; at most {limit:,} are allowed",
                kind=self.name,
                size=len(raw),
                limit=limit,
            )
        arguments = self._decode(raw)
        key = key_from(arguments, self.options.unique) if self.options.unique else None
        return raw.decode(), key

    def decode(self, payload: str) -> dict[str, Any]:
        """The handler's arguments, or InvalidPayload."""
        decoded = self._decode(payload)
        return {name: getattr(decoded, name) for name in self.payload_type.__struct_fields__}

    def arguments(self, payload: str, context: Callable[[], Context]) -> dict[str, Any]:
        """What the handler is called with: the payload, decoded, and the context if it asks for it."""
        arguments = self.decode(payload)
        if self._context is not None:
            arguments[self._context] = context()
        return arguments

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The payload for a call written like a call of the handler itself."""
        if not args:
            return dict(kwargs)
        names = [name for name in self.signature.parameters if name != self._context]
        if len(args) > len(names):
            raise InvalidPayload(f"{self.name!r} takes at most {len(names)} arguments, got {len(args)}")
        by_position = dict(zip(names, args, strict=False))
        twice = sorted(by_position.keys() & kwargs.keys())
        if twice:
            raise InvalidPayload(f"{self.name!r} got two values for {twice[0]!r}")
        return {**by_position, **kwargs}

    def published(self) -> PublishedKind:
        return PublishedKind(
            name=self.name,
            options=dump_options(self.options, plan=self.plan),
            payload_schema=self.payload_schema,
            version=self.options.version,
        )

    def _decode(self, raw: bytes | str) -> msgspec.Struct:
        try:
            return self._decoder.decode(raw)
        except msgspec.ValidationError as error:
            raise InvalidPayload(f"the payload of {self.name!r} does not fit: {error}", kind=self.name) from None
        except msgspec.DecodeError as error:
            raise InvalidPayload(f"the payload of {self.name!r} is not JSON: {error}", kind=self.name) from None


def dump_options(options: KindOptions, *, plan: str | None = None) -> str:
    """The options as JSON, in the words that ``holdfast.enqueue`` reads in SQL; *plan*: who is given the plan."""
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


def to_json(value: Any, *, what: str) -> bytes:
    """Encode *value* as JSON that every store can keep."""
    try:
        raw = msgspec.json.encode(value)
    except UnicodeEncodeError:
        raise InvalidText(f"{what} holds half of a character (a lone surrogate)") from None
    except (TypeError, OverflowError, ValueError, RecursionError) as error:
        hint = "Use what JSON knows, dataclasses, instants, UUIDs, decimals and enums."
        raise InvalidPayload(f"{what} cannot be written as JSON: {error}", hint=hint) from None
    if b"\\u0000" in raw and _ESCAPED_NUL.search(raw):
        raise InvalidText(f"{what} holds a NUL character")
    return raw


def payload_json(payload: Mapping[str, Any], *, what: str) -> bytes:
    """A payload as JSON.

    Raises:
        InvalidPayload: It cannot be written, or is nested more than 100 levels deep.
        InvalidText: It holds a NUL or half of a character.
    """
    raw = to_json(payload, what=what)
    # Few payloads have so many brackets at all.
    if raw.count(b"{") + raw.count(b"[") > MAX_DEPTH and _is_deep(raw):
        hint = "Make it flatter, or keep it in a file and name the file."
        raise InvalidPayload(f"{what} is nested more than {MAX_DEPTH} levels deep", hint=hint)
    return raw


def _is_deep(raw: bytes) -> bool:
    try:
        level = [msgspec.json.decode(raw)]
    except RecursionError:
        return True
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for value in level
            if isinstance(value, dict | list)
            for inner in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return False
    return any(isinstance(value, dict | list) for value in level)


def suggest(name: str, known: Sequence[str]) -> str:
    """A hint that names the nearest known kind."""
    near = nearest(name, known)
    if near is not None:
        return f"Did you mean {near!r}?"
    return f"Known kinds: {', '.join(sorted(known)[:10])}." if known else "No kind is registered in this store yet."


def _payload_type(
    name: str, function: Callable[..., Any], signature: inspect.Signature
) -> tuple[str | None, type[msgspec.Struct]]:
    """The context parameter's name, if any, and a struct of all the others."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except (NameError, TypeError, SyntaxError) as error:
        raise InvalidKind(f"kind {name!r}: an annotation cannot be resolved: {error}") from None
    context: str | None = None
    fields: list[Any] = []
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise InvalidKind(f"kind {name!r}: parameter {parameter} cannot be filled from a payload by its name")
        annotation = hints.get(parameter.name, Any)
        if annotation is Context:
            context = parameter.name
        elif parameter.default is parameter.empty:
            fields.append((parameter.name, annotation))
        else:
            fields.append((parameter.name, annotation, _default(parameter.default)))
    struct = msgspec.defstruct("Payload", fields, kw_only=True, forbid_unknown_fields=True)
    return context, struct


def _plan_parameter(payload_type: type[msgspec.Struct]) -> str | None:
    fields = msgspec.structs.fields(payload_type)
    return next((field.name for field in fields if Plan in (field.type, *get_args(field.type))), None)


def _default(value: Any) -> Any:
    """msgspec wants a factory for mutable defaults; a fresh copy per job is what people mean."""
    if isinstance(value, (list, dict, set, bytearray)):
        import copy

        return msgspec.field(default_factory=lambda: copy.deepcopy(value))
    return value


def _schema(name: str, payload_type: type[msgspec.Struct]) -> str:
    try:
        return msgspec.json.encode(msgspec.json.schema(payload_type)).decode()
    except (TypeError, InvalidInput) as error:
        raise InvalidKind(f"kind {name!r}: its payload cannot be typed: {error}") from None

"""Kinds: the registered functions that run jobs, and the payloads they accept."""

from __future__ import annotations

import inspect
import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any, Protocol, get_args, get_type_hints

import msgspec

from holdfast.domain.jobs.context import Context
from holdfast.domain.jobs.json_values import MAX_PAYLOAD, payload_json, payload_lines
from holdfast.domain.jobs.kind_options import ExecutorName, KindOptions, PublishedKind, dump_options, unknown_parameter
from holdfast.domain.jobs.new_job import NewJob, key_json
from holdfast.domain.jobs.upgrade import Upgrade, checked_upgrades, function_digest, upgraded
from holdfast.domain.json_schema import schema
from holdfast.domain.names import checked_name, nearest_name
from holdfast.domain.schedules.plan import Plan
from holdfast.errors import InvalidInput, InvalidKind, InvalidPayload, PayloadTooLarge

#: The message of msgspec for a field that the payload itself, not an object in it, does not have.
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.*)`")


class Kind:
    """A named handler with a typed payload."""

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        options: KindOptions,
        upgrades: Mapping[int, Upgrade] | None = None,
    ) -> None:
        self.name = checked_name(name, label="the kind")
        self.function = function
        self.options = options
        self._upgrades = checked_upgrades(name, options.version, upgrades or {})
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise InvalidKind(f"kind {name!r}: a generator cannot be a handler", hint="Return a value, or a list.")
        self.is_async = inspect.iscoroutinefunction(function)
        self.executor = options.executor or (ExecutorName.ASYNC if self.is_async else ExecutorName.THREAD)
        if self.executor is (ExecutorName.THREAD if self.is_async else ExecutorName.ASYNC):
            raise InvalidKind(
                f"kind {name!r}: executor={str(self.executor)!r} does not fit its handler",
                hint="Coroutines run on the loop (async), plain functions in threads; both can run in a process.",
            )
        self.signature = inspect.signature(function)
        self._context, self.payload_type = _payload_type(name, function, self.signature)
        #: The parameter that receives the plan of a schedule, if any.
        fields = msgspec.structs.fields(self.payload_type)
        self.plan = next((field.name for field in fields if Plan in (field.type, *get_args(field.type))), None)
        unknown = set(options.unique) - set(self.payload_type.__struct_fields__)
        if unknown:
            raise InvalidKind(f"kind {name!r}: unique names {min(unknown)!r}, which is not a parameter of its handler")
        #: Where its handler lives; None for the kinds of Holdfast itself.
        self.origin: str | None = None
        #: The function for the units of batches that a kind of shards runs.
        self.unit: PublishedKind | None = None
        self._decoder = msgspec.json.Decoder(self.payload_type)
        self.payload_schema = _schema(name, self.payload_type)

    def encode(self, payload: Mapping[str, Any], *, limit: int = MAX_PAYLOAD) -> tuple[str, str | None]:
        """Check the payload against the handler's annotations; return it as JSON, and its unique key."""
        raw = payload_json(payload, label=f"the payload of {self.name!r}")
        if len(raw) > limit:
            raise PayloadTooLarge(
                f"the payload of {self.name!r} takes {len(raw):,} bytes; at most {limit:,} are allowed",
                kind=self.name,
                size=len(raw),
                limit=limit,
            )
        arguments = self._decode(raw)
        unique = self.options.unique
        return raw.decode(), key_json([getattr(arguments, name) for name in unique]) if unique else None

    def encode_many(self, payloads: Sequence[Mapping[str, Any]], *, limit: int = MAX_PAYLOAD) -> list[str]:
        """Check many payloads as :meth:`encode` does, in one go; return them as JSON."""
        lines = payload_lines(payloads)
        if lines is not None:
            texts = lines.decode().split("\n")
            del texts[-1]
            with suppress(msgspec.DecodeError):
                self._decoder.decode_lines(lines)
                # A character takes up to four bytes.
                if max(map(len, texts), default=0) <= limit // 4:
                    return texts
        return [self.encode(payload, limit=limit)[0] for payload in payloads]

    def decode(self, payload: str, *, version: int | None = None) -> dict[str, Any]:
        """The handler's arguments, without the context.

        *version* is that of the code that wrote the payload; an older one is upgraded first.

        Raises:
            InvalidPayload: The payload does not fit, or its version is newer than this code.
        """
        if version is not None and version > self.options.version:
            text = (
                f"the payload of {self.name!r} has version {version}, and this code reads up to {self.options.version}"
            )
            raise InvalidPayload(text, kind=self.name)
        upgrades = [each for number, each in self._upgrades.items() if version is not None and number >= version]
        decoded = self._decode(upgraded(self.name, payload, upgrades) if upgrades else payload)
        return msgspec.structs.asdict(decoded)

    def arguments(self, payload: str, context: Callable[[], Context], *, version: int | None = None) -> dict[str, Any]:
        """The handler's arguments, with the context if it has a parameter for it."""
        arguments = self.decode(payload, version=version)
        if self._context is not None:
            arguments[self._context] = context()
        return arguments

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The payload of a call that is written like a call of the handler itself."""
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

    @property
    def names(self) -> tuple[str, ...]:
        """Its name and its aliases."""
        return (self.name, *self.options.aliases)

    def published(self, name: str | None = None) -> PublishedKind:
        """The kind as other processes see it, under its name or under an alias."""
        return PublishedKind(
            name=name or self.name,
            options=dump_options(self.options, plan=self.plan),
            payload_schema=self.payload_schema,
            version=self.options.version,
        )

    @property
    def digest(self) -> str:
        """Names the payloads that this code reads: by version, schema and upgrade functions."""
        upgrades = [(number, function_digest(each)) for number, each in self._upgrades.items()]
        parts = [self.name, self.options.version, self.options.aliases, self.payload_schema, upgrades]
        return sha256(msgspec.json.encode(parts)).hexdigest()

    def _decode(self, raw: bytes | str) -> msgspec.Struct:
        try:
            return self._decoder.decode(raw)
        except msgspec.ValidationError as error:
            if (unknown := _UNKNOWN_FIELD.fullmatch(str(error))) is not None:
                raise unknown_parameter(self.name, unknown[1], self.payload_type.__struct_fields__) from None
            raise InvalidPayload(f"the payload of {self.name!r} does not fit: {error}", kind=self.name) from None
        except msgspec.DecodeError as error:
            raise InvalidPayload(f"the payload of {self.name!r} is not JSON: {error}", kind=self.name) from None


def suggest_kind(name: str, known: Sequence[str]) -> str:
    """A hint that names the nearest known kind."""
    near = nearest_name(name, known)
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
    return context, msgspec.defstruct("Payload", fields, kw_only=True, forbid_unknown_fields=True)


def _default(value: Any) -> Any:
    """Wrap a mutable default in a factory, as msgspec requires: each job gets a fresh copy."""
    if isinstance(value, (list, dict, set, bytearray)):
        import copy

        return msgspec.field(default_factory=lambda: copy.deepcopy(value))
    return value


def _schema(name: str, payload_type: type[msgspec.Struct]) -> str:
    try:
        return msgspec.json.encode(schema(payload_type)).decode()
    except (TypeError, InvalidInput) as error:
        raise InvalidKind(f"kind {name!r}: its payload cannot be typed: {error}") from None


class Application(Protocol):
    """The part of an application through which a child process finds its handlers."""

    def find_kind(self, name: str) -> Kind | None: ...

    def request(self, kind: str, payload: Mapping[str, Any], options: dict[str, Any]) -> NewJob: ...


#: Weak references: an unused application can be collected.
APPLICATIONS: weakref.WeakSet[Application] = weakref.WeakSet()

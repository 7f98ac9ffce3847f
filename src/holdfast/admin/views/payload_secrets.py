"""Secrets in payloads: the secret fields that applications declare for their kinds, and their values."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import msgspec

from holdfast.domain.access.masking import is_secret, mask_json, mask_value, secret_values
from holdfast.domain.jobs.job import COMMAND, PING, PING_SECRETS, Job
from holdfast.store import Store

if TYPE_CHECKING:
    from holdfast.domain.jobs.kind_options import PublishedKind


class _Enqueues(msgspec.Struct):
    """The kind in the definition of a schedule. The rest, and its rules, are slower to load."""

    kind: str


def values_of(kind: str, payload: str, declared: Collection[str] = ()) -> list[str]:
    """The secret values in a payload, longest first."""
    try:
        decoded = msgspec.json.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        return []
    if kind == COMMAND:
        from holdfast.domain.commands.command import secret_variables  # most lists have no commands

        if isinstance(decoded, dict):
            decoded.pop("origins", None)  # where values come from: the names of options and files
        return secret_values({"payload": decoded, "secrets": secret_variables(payload)}, declared)
    return secret_values(decoded, declared)


def mask_payload(kind: str, payload: str, declared: Collection[str], values: Collection[str]) -> str:
    """A payload as JSON, without secrets. Origins of a command's values stay: they name options and files."""
    if kind != COMMAND:
        return msgspec.json.encode(mask_json(payload, declared, values)).decode()
    from holdfast.domain.commands.command import masked_payload

    masked = mask_json(masked_payload(kind, payload), declared, values)
    if isinstance(masked, dict) and isinstance(masked.get("origins"), dict):
        origins = msgspec.json.decode(payload)["origins"]
        masked["origins"] = {name: mask_value(origin, (), values) for name, origin in origins.items()}
    return msgspec.json.encode(masked).decode()


def schema_of(kind: PublishedKind, declared: Collection[str]) -> str:
    """The JSON Schema of the parameters of a kind, without the defaults of secret ones."""
    schema = msgspec.json.decode(kind.payload_schema)
    for shape in (schema, *schema.get("$defs", {}).values()):
        for name, field in shape.get("properties", {}).items():
            if is_secret(name, declared):
                field.pop("default", None)
    return msgspec.json.encode(schema).decode()


def declared_secrets(store: Store, kind: str) -> Collection[str]:
    """The secret fields that the application of a kind declares."""
    return PING_SECRETS if kind == PING else store.views.declared_secrets().get(kind, ())


def job_secrets(store: Store, job: Job) -> list[str]:
    """The secret values in the payload of a job; its logs and errors may contain them."""
    return values_of(job.kind, job.payload, declared_secrets(store, job.kind))


def definition_fields(store: Store, definition: str) -> Collection[str]:
    """The secret fields of the kind that a schedule enqueues; none if its definition is invalid."""
    try:
        return declared_secrets(store, msgspec.json.decode(definition, type=_Enqueues).kind)
    except msgspec.DecodeError:
        return ()


def definition_secrets(store: Store, definition: str) -> list[str]:
    """The secret values of a schedule's payload; its notes and errors may contain them."""
    return values_of("", definition, definition_fields(store, definition))

"""Masking: the secret fields that applications declare for their kinds, and the secret values of a payload."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection

import msgspec

from holdfast.domain.access.masking import is_secret, mask_cut, mask_json, mask_value, secret_values
from holdfast.domain.commands.command import COMMAND, masked_payload, secret_variables
from holdfast.domain.jobs.job import Job
from holdfast.domain.jobs.kind_options import PublishedKind, load_options
from holdfast.domain.schedules.definition import PING, PING_SECRETS, Schedule
from holdfast.errors import HoldfastError
from holdfast.store import Store

#: Declarations are read again after this time.
CACHE_S = 10.0


def values_of(kind: str, payload: str, declared: Collection[str] = ()) -> list[str]:
    """The secret values in a payload, longest first."""
    try:
        decoded = msgspec.json.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        return []
    if kind == COMMAND:
        if isinstance(decoded, dict):
            decoded.pop("origins", None)  # where values come from: the names of options and files
        return secret_values({"payload": decoded, "secrets": secret_variables(payload)}, declared)
    return secret_values(decoded, declared)


def mask_payload(kind: str, payload: str, declared: Collection[str], values: Collection[str]) -> str:
    """A payload as JSON, without secrets. Origins of a command's values stay: they name options and files."""
    masked = mask_json(masked_payload(kind, payload), declared, values)
    if kind == COMMAND and isinstance(masked, dict) and isinstance(masked.get("origins"), dict):
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


class Masks:
    """The declared secrets of all kinds, cached for :data:`CACHE_S` seconds."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._declared: dict[str, tuple[str, ...]] = {}
        self._read_at = float("-inf")
        self._lock = threading.Lock()

    def of(self, kind: str) -> Collection[str]:
        """The secret fields that the application of a kind declares."""
        return PING_SECRETS if kind == PING else self._known().get(kind, ())

    def kinds(self) -> list[str]:
        return sorted(self._known())

    def _known(self) -> dict[str, tuple[str, ...]]:
        with self._lock:
            if time.monotonic() - self._read_at > CACHE_S:
                self._declared = {kind.name: load_options(kind.options).secrets for kind in self._store.kinds.all()}
                self._read_at = time.monotonic()
            return self._declared

    def of_schedule(self, schedule: Schedule) -> Collection[str]:
        """The secret fields of the kind that a schedule enqueues; none if its definition is invalid."""
        try:
            return self.of(schedule.defined.kind)
        except (msgspec.DecodeError, HoldfastError):
            return ()

    def values(self, job: Job) -> list[str]:
        """The secret values in the payload of a job; its logs and errors may contain them."""
        return values_of(job.kind, job.payload, self.of(job.kind))

    def text(self, job: Job, text: str | None) -> str | None:
        """A text of a job with its secrets masked."""
        return None if text is None else mask_cut(text, self.values(job))

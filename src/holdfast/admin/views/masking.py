"""Which fields of a kind's payload are secret, as its application has declared them."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection

import msgspec

from holdfast.domain.access.masking import is_secret, mask_cut, secret_values
from holdfast.domain.commands.command import COMMAND, secret_variables
from holdfast.domain.jobs.job import Job
from holdfast.domain.jobs.published_kind import PublishedKind, load_options
from holdfast.domain.schedules.definition import PING, PING_SECRETS, Schedule
from holdfast.errors import HoldfastError
from holdfast.store import Store

#: What was declared is read again after so many seconds.
FRESH = 10.0


def values_of(kind: str, payload: str, declared: Collection[str] = ()) -> list[str]:
    """The secrets in a payload of a kind, the longest first."""
    try:
        decoded = msgspec.json.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        return []
    if kind == COMMAND:
        return secret_values({"payload": decoded, "secrets": secret_variables(payload)}, declared)
    return secret_values(decoded, declared)


def schema_of(kind: PublishedKind, declared: Collection[str]) -> str:
    """The JSON Schema of a kind's parameters, without the defaults of those that are secret."""
    schema = msgspec.json.decode(kind.payload_schema)
    for shape in (schema, *schema.get("$defs", {}).values()):
        for name, field in shape.get("properties", {}).items():
            if is_secret(name, declared):
                field.pop("default", None)
    return msgspec.json.encode(schema).decode()


class Masks:
    """Knows the declared secrets of all kinds; reads them in one statement, seldom."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._declared: dict[str, tuple[str, ...]] = {}
        self._read_at = float("-inf")
        self._lock = threading.Lock()

    def of(self, kind: str) -> Collection[str]:
        """The fields that the application of a kind has declared as secret."""
        return PING_SECRETS if kind == PING else self._known().get(kind, ())

    def kinds(self) -> list[str]:
        """The kinds that applications have registered, by name."""
        return sorted(self._known())

    def _known(self) -> dict[str, tuple[str, ...]]:
        with self._lock:
            if time.monotonic() - self._read_at > FRESH:
                found = self._store.kinds.all()
                self._declared = {each.name: load_options(each.options).secrets for each in found}
                self._read_at = time.monotonic()
            return self._declared

    def of_schedule(self, schedule: Schedule) -> Collection[str]:
        """The same of the kind that a schedule enqueues; one that cannot be read declares nothing."""
        try:
            return self.of(schedule.defined.kind)
        except (msgspec.DecodeError, HoldfastError):
            return ()

    def values(self, job: Job) -> list[str]:
        """The secrets in a job's payload, to be blotted out of its logs and errors."""
        return values_of(job.kind, job.payload, self.of(job.kind))

    def text(self, job: Job, text: str | None) -> str | None:
        """What a job says, without its secrets."""
        return None if text is None else mask_cut(text, self.values(job))

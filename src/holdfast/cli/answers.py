"""What commands print for programs, as types: the envelope around all answers, and the schema of each."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct

from holdfast.cli.shared import Items
from holdfast.domain.history import Attempt, Event
from holdfast.domain.job import Job
from holdfast.domain.why import Reason

SCHEMA_VERSION = 1
#: What is JSON in the store is JSON in an answer too.
_JSON = ("payload", "result", "checkpoint", "tags", "retry")


class Failure(Struct, frozen=True, kw_only=True):
    """What went wrong, why, and what to do next."""

    code: str
    message: str
    hint: str = ""
    retryable: bool = False
    #: Seconds to wait before the same command may succeed.
    retry_after_s: float | None = None
    #: The command to run next.
    next: str | None = None
    context: dict[str, str] = {}


class Meta(Struct, frozen=True):
    duration_ms: int


class Envelope(Struct, frozen=True, kw_only=True):
    """Every command prints one of these with ``-o json``."""

    status: Literal["success", "partial_failure", "error"]
    schema_version: int = SCHEMA_VERSION
    data: Any = None
    error: Failure | None = None
    meta: Meta


class LastLine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the last line of ``-o ndjson`` holds under ``_meta``; *lines* counts the lines before it."""

    status: Literal["success", "partial_failure", "error"]
    lines: int
    error: Failure | None = None
    summary: Any = None


JobFacts = msgspec.defstruct(
    "JobFacts",
    [(field.name, Any if field.name in _JSON else field.type) for field in msgspec.structs.fields(Job)],
    frozen=True,
)


class Shown(Struct, frozen=True):
    """One job: where it stands and why, its attempts, its history."""

    job: JobFacts  # type: ignore[valid-type]
    attempts: list[Attempt]
    events: list[Event]
    why: list[str]


class Reasons(Struct, frozen=True):
    """Why a job is not running, the nearest reason first."""

    reasons: list[Reason]


JOBS = Items("jobs", JobFacts)


def job_facts(job: Job) -> dict[str, Any]:
    """A job as :data:`JobFacts` describes it."""
    data: dict[str, Any] = msgspec.to_builtins(job)
    for name in _JSON:
        if data.get(name) is not None:
            data[name] = msgspec.json.decode(data[name])
    return data


def schema(title: str, answer: Any) -> dict[str, Any]:
    """The JSON Schema of a command's document; ``$defs/line`` is that of its lines in NDJSON."""
    kinds = [answer.type if isinstance(answer, Items) else answer, Envelope, LastLine]
    (item, envelope, last), parts = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    shape = parts.pop(envelope["$ref"].rpartition("/")[2])
    data = item
    if isinstance(answer, Items):
        listed = {answer.name: {"type": "array", "items": item}}
        data = {"type": "object", "required": [answer.name], "properties": listed}
    shape["properties"]["schema_version"] = {"const": SCHEMA_VERSION}
    shape["properties"]["data"] = {"anyOf": [data, {"type": "null"}]}
    shape["required"] = sorted(shape["properties"])
    end = {"type": "object", "required": ["_meta"], "properties": {"_meta": last}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **shape,
        "title": title,
        "$defs": {**parts, "line": {"anyOf": [item, end]}},
    }

"""What commands print for programs, as types, and the schema of each."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from holdfast.cli.shared import Items
from holdfast.domain.command import shown_payload
from holdfast.domain.history import Attempt, Event
from holdfast.domain.job import Job
from holdfast.domain.why import Reason
from holdfast.envelope import SCHEMA_VERSION, Envelope, LastLine

#: What is JSON in the store is JSON in an answer too.
_JSON = ("payload", "result", "checkpoint", "tags", "retry")


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
    data["payload"] = shown_payload(job.kind, job.payload)
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

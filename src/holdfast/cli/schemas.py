"""What commands print for programs, as types, and the schema of each."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.admin.views.jobs import JobReport, JobView, Reasons
from holdfast.cli.command import Items
from holdfast.output.envelope import SCHEMA_VERSION, Envelope, LastLine

__all__ = ["JOBS", "JobReport", "Reasons", "schema"]

JOBS = Items("jobs", JobView)


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

"""JSON Schemas of the documents that commands print."""

from __future__ import annotations

from typing import Any

from holdfast.admin.views.job_detail import JobView
from holdfast.admin.views.overview import ErrorGroup
from holdfast.cli.command import Items
from holdfast.domain.json_schema import schema_components
from holdfast.output.envelope import SCHEMA_VERSION, Envelope, NdjsonEnd

#: ``ls`` and ``errors`` name these answers as strings, so that they start without importing the views.
JOBS, ERRORS = Items("jobs", JobView), Items("clusters", ErrorGroup)


def schema(title: str, answer: Any) -> dict[str, Any]:
    """The JSON Schema of a command's document; ``$defs/line`` describes its lines in NDJSON."""
    types = [answer.type if isinstance(answer, Items) else answer, Envelope, NdjsonEnd]
    (item, envelope, last), definitions = schema_components(types, ref_template="#/$defs/{name}")
    document = definitions.pop(envelope["$ref"].rpartition("/")[2])
    data = item
    if isinstance(answer, Items):
        listed = {answer.name: {"type": "array", "items": item}}
        data = {"type": "object", "required": [answer.name], "properties": listed}
    document["properties"]["schema_version"] = {"const": SCHEMA_VERSION}
    document["properties"]["data"] = {"anyOf": [data, {"type": "null"}]}
    document["required"] = sorted(document["properties"])
    end = {"type": "object", "required": ["_meta"], "properties": {"_meta": last}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **document,
        "title": title,
        "$defs": {**definitions, "line": {"anyOf": [item, end]}},
    }

"""The generator of docs/reference, which is no package."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import jsonschema

HERE = Path(__file__).parents[2] / "docs" / "reference"

_spec = importlib.util.spec_from_file_location("generate", HERE / "generate.py")
assert _spec is not None
assert _spec.loader is not None
generate = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(generate)


def checker(path, part=None):
    """Compares with the schema of a command, or a part of it; what it does not name is an error here."""
    schema = json.loads((HERE / "schemas" / f"{'-'.join(path)}.json").read_text())
    for shape in (schema, *schema["$defs"].values()):
        if "properties" in shape and "additionalProperties" not in shape:
            shape["additionalProperties"] = False
    if part is not None:
        schema = {"$defs": schema["$defs"], "$ref": f"#/$defs/{part}"}
    return jsonschema.Draft202012Validator(schema)

"""Checks of payloads against the published JSON Schema of their kind, for processes without the application."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

#: The types of JSON Schema, and the Python types that JSON values of them have.
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (dict,),
    "null": (type(None),),
}
#: Formats of strings that handlers also accept as numbers.
_NUMERIC_FORMATS = ("decimal",)


def find_mismatch(value: Any, schema: Mapping[str, Any], definitions: Mapping[str, Any], path: str) -> str | None:
    """Return how *value* differs from *schema*, with the *path* to the part that does; None: it fits.

    Checks types, enumerations, parameters and the elements of lists. Other keywords are left to the worker.
    """
    schema = _resolved(schema, definitions)
    options = schema.get("anyOf") or schema.get("oneOf")
    if options is not None:
        mismatches = [find_mismatch(value, option, definitions, path) for option in options]
        return None if None in mismatches else mismatches[0] if len(mismatches) == 1 else _wrong(path, value, options)
    if "enum" in schema and value not in schema["enum"]:
        return f"{path} is not one of {', '.join(map(repr, schema['enum'][:10]))}"
    if not _has_type(value, schema):
        return _wrong(path, value, [schema])
    if isinstance(value, dict):
        return _find_in_object(value, schema, definitions, path)
    if isinstance(value, list | tuple):
        return _find_in_array(value, schema, definitions, path)
    return None


def _resolved(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    while "$ref" in schema:
        schema = definitions.get(schema["$ref"].rpartition("/")[2], {})
    return schema


def _has_type(value: Any, schema: Mapping[str, Any]) -> bool:
    names = schema.get("type")
    if names is None:
        return True
    names = [names] if isinstance(names, str) else names
    return any(
        _is(value, name) or (schema.get("format") in _NUMERIC_FORMATS and _is(value, "number")) for name in names
    )


def _is(value: Any, name: str) -> bool:
    return isinstance(value, _TYPES.get(name, object)) and (name == "boolean" or not isinstance(value, bool))


def _find_in_object(
    value: Mapping[str, Any], schema: Mapping[str, Any], definitions: Mapping[str, Any], path: str
) -> str | None:
    for name in schema.get("required", ()):
        if name not in value:
            return f"{path} lacks {name!r}"
    known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name, item in value.items():
        expected = known.get(name, others)
        if expected is False:
            return f"{path} has no {name!r}"
        if isinstance(expected, dict) and (mismatch := find_mismatch(item, expected, definitions, f"{path}.{name}")):
            return mismatch
    return None


def _find_in_array(
    value: Sequence[Any], schema: Mapping[str, Any], definitions: Mapping[str, Any], path: str
) -> str | None:
    first, others = schema.get("prefixItems", []), schema.get("items", True)
    if len(value) > len(first) and others is False:
        return f"{path} has {len(first)} elements, not {len(value)}"
    for index, item in enumerate(value):
        expected = first[index] if index < len(first) else others
        if isinstance(expected, dict) and (mismatch := find_mismatch(item, expected, definitions, f"{path}[{index}]")):
            return mismatch
    return None


def _wrong(path: str, value: Any, options: Sequence[Mapping[str, Any]]) -> str:
    """Describe the difference by types alone: a value may be a secret."""
    expected = dict.fromkeys(str(option.get("type", "object")) for option in options)
    actual = next(name for name in _TYPES if _is(value, name))
    return f"{path} is of type {' or '.join(expected)}, not {actual}"

"""JSON Schemas of types, the same on every version of Python."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import msgspec


def schema(kind: Any) -> dict[str, Any]:
    """The JSON Schema of one type."""
    cleaned: dict[str, Any] = _cleaned(msgspec.json.schema(kind))
    return cleaned


def schema_components(types: Iterable[Any], ref_template: str) -> tuple[tuple[dict[str, Any], ...], dict[str, Any]]:
    """The schemas of several types, and of the types that they refer to."""
    schemas, components = msgspec.json.schema_components(types, ref_template=ref_template)
    return tuple(map(_cleaned, schemas)), _cleaned(components)


def _cleaned(value: Any) -> Any:
    """Descriptions come from docstrings. Only since 3.13 are these stored without their indentation."""
    match value:
        case dict():
            return {
                key: inspect.cleandoc(inner) if key == "description" and isinstance(inner, str) else _cleaned(inner)
                for key, inner in value.items()
            }
        case list() | tuple():
            return [_cleaned(inner) for inner in value]
        case _:
            return value

"""JSON Schemas of types, the same on every version of Python."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec.inspect import DateTimeType, DictType, ListType, Metadata, StructType, Type, UnionType, VarTupleType


def schema(kind: Any) -> dict[str, Any]:
    """The JSON Schema of one type."""
    cleaned: dict[str, Any] = _cleaned(msgspec.json.schema(kind))
    return cleaned


def schema_components(types: Iterable[Any], ref_template: str) -> tuple[tuple[dict[str, Any], ...], dict[str, Any]]:
    """The schemas of several types, and of the types that they refer to."""
    types = list(types)
    schemas, components = msgspec.json.schema_components(types, ref_template=ref_template)
    for struct in _structs(msgspec.inspect.multi_type_info(types)):
        properties = components.get(struct.cls.__name__, {}).get("properties", {})
        for field in struct.fields:
            _add_format(field.type, properties.get(field.encode_name, {}))
    return tuple(map(_cleaned, schemas)), _cleaned(components)


def _structs(nodes: Iterable[Type]) -> Iterator[StructType]:
    """All structs that these types contain, each once."""
    seen: set[Any] = set()
    left = list(nodes)
    while left:
        node = left.pop()
        if isinstance(node, StructType):
            if node.cls in seen:
                continue
            seen.add(node.cls)
            yield node
            left.extend(field.type for field in node.fields)
        else:
            left.extend(_parts(node))


def _parts(node: Type) -> list[Type]:
    match node:
        case UnionType():
            return list(node.types)
        case DictType():
            return [node.value_type]
        case ListType() | VarTupleType():
            return [node.item_type]
        case Metadata():
            return [node.type]
        case _:
            return []


def _add_format(node: Type, schema: dict[str, Any]) -> None:
    """Mark the strings that are timestamps: msgspec does so for types that demand a time zone only."""
    match node:
        case DateTimeType():
            schema.setdefault("format", "date-time")
        case Metadata():
            _add_format(node.type, schema)
        case ListType() | VarTupleType():
            _add_format(node.item_type, schema.get("items", {}))
        case DictType():
            _add_format(node.value_type, schema.get("additionalProperties", {}))
        case UnionType():
            times = [part for part in node.types if isinstance(part, DateTimeType)]
            texts = [choice for choice in schema.get("anyOf", ()) if choice.get("type") == "string"]
            if times and len(texts) == 1:
                _add_format(times[0], texts[0])
        case _:
            pass


def _cleaned(value: Any) -> Any:
    """Clean what differs between versions of Python, and what generators of clients do not understand.

    Descriptions come from docstrings. Only since 3.13 are these stored without their indentation. A pair of two equal
    types is an array of two: generators refuse ``"items": false``, and an array without ``items``.
    """
    match value:
        case {"prefixItems": [first, *others], "items": False, **rest} if all(each == first for each in others):
            return _cleaned({**rest, "items": first})
        case {"type": "array"} if not value.keys() & {"items", "prefixItems"}:
            return _cleaned({**value, "items": {}})
        case dict():
            return {
                key: inspect.cleandoc(inner) if key == "description" and isinstance(inner, str) else _cleaned(inner)
                for key, inner in value.items()
            }
        case list() | tuple():
            return [_cleaned(inner) for inner in value]
        case _:
            return value

"""Unit functions as every process sees them: published by the workers that run them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.domain.json_schema import schema


class PublishedUnit(Struct, frozen=True, kw_only=True):
    """A unit function. Processes without its application check keys and arguments with it, and start batches.

    *key* is the name of its first parameter. The schema of the kind describes the key and the arguments.
    """

    key: str
    defaults: dict[str, Any] = {}
    operational: tuple[str, ...] = ()
    version: str | None = None
    code: str | None = None
    #: Where the function lives.
    origin: str | None = None
    max_failures: int = 5
    in_doubt_if_lost: bool = False
    rate: float | None = None
    conflicts: tuple[str, ...] = ()

    def identity_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments that are part of the identity of a batch: a default counts like the same value given."""
        return {name: value for name, value in {**self.defaults, **arguments}.items() if name not in self.operational}


def function_kind(function: str) -> str:
    """The kind under which a unit function is published. It has no jobs."""
    return f"unit:{function}"


def load_unit(options: str) -> PublishedUnit:
    """The unit function in its published options."""
    return msgspec.convert(msgspec.json.decode(options)["unit"], PublishedUnit)


def parameters_schema(parameters: Mapping[str, tuple[Any, bool]]) -> str:
    """The JSON Schema of parameters, by name: their types, and whether they are required. Unknown types fit all."""
    fields: list[Any] = []
    for name, (hint, required) in parameters.items():
        known = hint if _is_known(hint) else Any
        fields.append((name, known) if required else (name, known, None))
    return msgspec.json.encode(schema(msgspec.defstruct("Payload", fields, kw_only=True))).decode()


def _is_known(hint: Any) -> bool:
    try:
        schema(msgspec.defstruct("Payload", [("value", hint)]))
    except Exception:  # noqa: BLE001 - the user's own types
        return False
    return True

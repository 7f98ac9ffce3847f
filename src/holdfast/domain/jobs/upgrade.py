"""Upgrades: functions that turn the payload of one version of a kind into that of the next."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import Any

import msgspec

from holdfast.domain.jobs.json_values import payload_json
from holdfast.errors import InvalidKind, InvalidPayload

#: Takes the payload of a version and returns that of the next one. It may change the dict that it gets.
Upgrade = Callable[[dict[str, Any]], dict[str, Any]]


def checked_upgrades(kind: str, version: int, upgrades: Mapping[int, Upgrade]) -> dict[int, Upgrade]:
    """The upgrades in the order of their versions. A payload fits the next version as it is where there is none."""
    for number, function in upgrades.items():
        if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number < version:
            raise InvalidKind(
                f"kind {kind!r}: upgrade names version {number!r}, and its version is {version}",
                hint="upgrade={1: function} turns payloads of version 1 into those of version 2.",
            )
        if not callable(function) or inspect.iscoroutinefunction(function):
            raise InvalidKind(f"kind {kind!r}: the upgrade of version {number} is not a plain function")
    return dict(sorted(upgrades.items()))


def upgraded(kind: str, payload: str, upgrades: Sequence[Upgrade]) -> bytes:
    """The payload as JSON, after *upgrades* in their order. Exceptions of the functions propagate."""
    try:
        value = msgspec.json.decode(payload, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise InvalidPayload(f"the payload of {kind!r} is not a JSON object: {error}", kind=kind) from None
    for upgrade in upgrades:
        result: object = upgrade(value)
        if not isinstance(result, dict):
            name = getattr(upgrade, "__qualname__", repr(upgrade))
            raise InvalidPayload(f"{name} returned a {type(result).__name__}, not a payload", kind=kind)
        value = result
    return payload_json(value, label=f"the upgraded payload of {kind!r}")


def function_digest(function: Upgrade) -> str:
    """A text that changes with the code of a function. It need not change with code that the function calls."""
    name = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', type(function).__qualname__)}"
    code = getattr(function, "__code__", None)
    if code is None:
        return name
    return f"{name} {_code_digest(code)}"


def _code_digest(code: CodeType) -> str:
    """A text of compiled code, with the comprehensions and functions inside it."""
    values = [value for value in code.co_consts if isinstance(value, (str, int, float, bytes, bool, type(None)))]
    inner = [_code_digest(value) for value in code.co_consts if isinstance(value, CodeType)]
    return f"{code.co_code.hex()} {code.co_names!r} {values!r} {inner!r}"

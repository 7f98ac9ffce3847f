"""JSON values of jobs: payloads, results and other values within the limits of the stores."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.domain.names import clean_text
from holdfast.errors import InvalidPayload, InvalidText

#: In bytes.
MAX_PAYLOAD = 256 * 1024
MAX_RESULT = 256 * 1024
#: Levels of nested lists and objects: deeper values cannot be shown or walked through safely.
MAX_DEPTH = 100

_ESCAPED_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


def to_json(value: Any, *, label: str) -> bytes:
    """Encode *value* as JSON that every store can keep; *label* names it in errors."""
    try:
        raw = msgspec.json.encode(value)
    except UnicodeEncodeError:
        raise InvalidText(f"{label} holds half of a character (a lone surrogate)") from None
    except (TypeError, OverflowError, ValueError, RecursionError) as error:
        hint = "Use JSON types, dataclasses, datetimes, UUIDs, decimals and enums."
        raise InvalidPayload(f"{label} cannot be written as JSON: {error}", hint=hint) from None
    if b"null" in raw:  # the encoder writes NaN and infinity as null
        check_finite(value, label=label)
    if b"\\u0000" in raw and _ESCAPED_NUL.search(raw):
        raise InvalidText(f"{label} holds a NUL character")
    return raw


def check_finite(value: Any, *, label: str) -> None:
    """Refuse NaN and infinity, with the path of the first one."""
    for path, number in _not_finite(msgspec.to_builtins(value, str_keys=True), ""):
        hint = "JSON has neither NaN nor infinity. Use None or a text."
        raise InvalidPayload(f"{label} cannot be stored: {path.lstrip('.') or 'it'} is {number}", hint=hint)


def _not_finite(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """The paths of all numbers in *value* that JSON cannot express, and their names."""
    if isinstance(value, float):
        if not math.isfinite(value):
            yield path, "NaN" if math.isnan(value) else "infinity" if value > 0 else "-infinity"
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _not_finite(inner, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _not_finite(inner, f"{path}[{index}]")


def payload_json(payload: Mapping[str, Any], *, label: str) -> bytes:
    """Encode a payload as JSON of at most 100 levels."""
    raw = to_json(payload, label=label)
    # Counting brackets is cheap, and few payloads have 100 of them.
    if raw.count(b"{") + raw.count(b"[") > MAX_DEPTH and _is_deep(raw):
        hint = "Make it flatter, or keep it in a file and name the file."
        raise InvalidPayload(f"{label} is nested more than {MAX_DEPTH} levels deep", hint=hint)
    return raw


def payload_lines(payloads: Sequence[Mapping[str, Any]]) -> bytes | None:
    """Encode payloads as lines of JSON, all at once; None if :func:`payload_json` has to check each one."""
    try:
        lines = msgspec.json.Encoder().encode_lines(payloads)
    except (UnicodeEncodeError, TypeError, OverflowError, ValueError, RecursionError):
        return None
    if lines.count(b"\n") != len(payloads) or b"null" in lines or b"\\u0000" in lines:
        return None
    # A level takes two characters.
    long = (line for line in lines.splitlines() if len(line) > 2 * MAX_DEPTH)
    return None if any(line.count(b"{") + line.count(b"[") > MAX_DEPTH for line in long) else lines


def _is_deep(raw: bytes) -> bool:
    try:
        level = [msgspec.json.decode(raw)]
    except RecursionError:
        return True
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for value in level
            if isinstance(value, dict | list)
            for inner in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return False
    return any(isinstance(value, dict | list) for value in level)


def is_json(text: str, *, limit: int) -> bool:
    """Whether every store can keep *text* as JSON, in at most *limit* bytes."""
    try:
        raw = text.encode()
        msgspec.json.decode(raw, type=msgspec.Raw)
    except (UnicodeEncodeError, msgspec.DecodeError):
        return False
    return len(raw) <= limit and b"\0" not in raw


def storable_result(text: str | None) -> tuple[str | None, str | None]:
    """The result as it can be stored, or the reason why it is dropped. A bad result never fails the run."""
    if text is None or is_json(text, limit=MAX_RESULT):
        return text, None
    cleaned = clean_text(text)
    size = len(cleaned.encode())
    if size > MAX_RESULT:
        return None, f"the result takes {size:,} bytes; at most {MAX_RESULT:,} are kept"
    return (cleaned, None) if is_json(cleaned, limit=MAX_RESULT) else (None, "the result is not JSON")

"""Results: whatever they are, they never turn a success into another run."""

from __future__ import annotations

import json

import msgspec

from holdfast.domain.text import clean_text

MAX_RESULT = 256 * 1024


def kept_result(text: str | None) -> str | None:
    """The result as it can be kept: mended where its text is odd, replaced by the reason where it cannot be."""
    if text is None or is_json(text, limit=MAX_RESULT):
        return text
    mended = clean_text(text)
    size = len(mended.encode())
    if size > MAX_RESULT:
        return dropped(f"the result takes {size:,} bytes; at most {MAX_RESULT:,} are kept")
    return mended if is_json(mended, limit=MAX_RESULT) else dropped("the result is not JSON")


def dropped(reason: str) -> str:
    """What stands in the place of a result that could not be kept."""
    return json.dumps({"dropped": reason})


def is_json(text: str, *, limit: int) -> bool:
    """Whether every store can keep *text* as JSON, in at most *limit* bytes."""
    try:
        raw = text.encode()
        msgspec.json.decode(raw, type=msgspec.Raw)
    except (UnicodeEncodeError, msgspec.DecodeError):
        return False
    return len(raw) <= limit and b"\0" not in raw

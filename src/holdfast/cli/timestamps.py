"""Moments as they stand on a line."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from holdfast.domain.jobs.filter import parse_timestamp
from holdfast.domain.schedules.rule import checked_timestamp
from holdfast.errors import InvalidInput


def timestamp_of(text: str, *, ages: bool = True) -> datetime:
    """A moment as it stands on a line: RFC 3339, now, or an age."""
    now = datetime.now(UTC)
    try:
        if text == "now":
            return now
        if not ages and re.fullmatch(r"[\d.]+[a-z]*", text):
            raise InvalidInput(f"{text!r} is no moment")  # noqa: TRY301 - the same answer for all
        return checked_timestamp(parse_timestamp(text, now=now))
    except InvalidInput:
        also = ", or an age: 6h" if ages else ", or now"
        raise InvalidInput(f"{text[:100]!r} is no moment", hint=f"Write it as 2030-01-01T06:00:00Z{also}.") from None

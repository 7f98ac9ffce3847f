"""Durations as people write and read them."""

from __future__ import annotations

import re
from datetime import timedelta

from holdfast.errors import InvalidInput

_NUMBER_AND_UNIT = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
MAX_DURATION = timedelta(days=36_525)

#: A timedelta, a number of seconds, or text such as "90s" or "1h30m".
Duration = timedelta | float | str


def parse_duration(text: str) -> timedelta:
    """Read ``90``, ``1.5h``, ``1h30m`` or ``500ms``; a bare number is seconds."""
    compact = text.strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", compact):
        return _checked_duration(timedelta(seconds=min(float(compact), 1e12)))
    if not compact or _NUMBER_AND_UNIT.sub("", compact):
        raise InvalidInput(f"not a duration: {text!r}", hint="Write it like 90, 1.5h, 1h30m or 500ms.")
    seconds = sum(float(n) * _SECONDS[unit] for n, unit in _NUMBER_AND_UNIT.findall(compact))
    return _checked_duration(timedelta(seconds=min(seconds, 1e12)))


def as_duration(value: Duration) -> timedelta:
    """Convert to a timedelta; negative durations are refused."""
    if isinstance(value, str):
        return parse_duration(value)
    try:
        duration = value if isinstance(value, timedelta) else timedelta(seconds=value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput(f"not a duration: {value!r}") from None
    return _checked_duration(duration)


def _checked_duration(duration: timedelta) -> timedelta:
    if not timedelta(0) <= duration <= MAX_DURATION:
        raise InvalidInput(f"a duration is between nothing and {MAX_DURATION.days} days, not {duration}")
    return duration


def format_duration(duration: timedelta) -> str:
    """Write a duration for people: ``45 s``, ``3 min``, ``2 h 5 min``, ``4 d``."""
    seconds = round(duration.total_seconds())
    if seconds < 120:
        return f"{seconds} s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if minutes < 120:
        return f"{minutes} min"
    if hours < 48:
        return f"{hours} h {minutes % 60} min" if minutes % 60 else f"{hours} h"
    return f"{days} d"


def format_short_duration(seconds: float) -> str:
    """Write a duration in its largest unit: ``45s``, ``3m``, ``2h``, ``4d``."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"

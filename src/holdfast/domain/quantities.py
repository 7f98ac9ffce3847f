"""Quantities as people write them: durations, timestamps, sizes, rates, integers within the range of the stores."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta

from holdfast.errors import InvalidInput

_NUMBER_AND_UNIT = r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)"
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_UTC_TIME = r"\b((?:19|2\d)\d\d-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{1,6})?)(?: UTC|Z)\b"
MAX_DURATION = timedelta(days=36_525)
#: Timestamps lie within these years, in UTC, so that calculations around them never overflow. The schema checks it too.
FIRST_YEAR, LAST_YEAR = 1900, 8999

#: A timedelta, a number of seconds, or text such as "90s" or "1h30m".
Duration = timedelta | float | str


def count_of(count: int, one: str, many: str) -> str:
    """A number with the words after it: ``1 job waits``, ``1,200 jobs wait``."""
    return f"1 {one}" if count == 1 else f"{count:,} {many}"


def parse_duration(text: str) -> timedelta:
    """Read ``90``, ``1.5h``, ``1h30m`` or ``500ms``; a bare number is seconds."""
    compact = text.strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", compact):
        compact += "s"
    if not compact or re.sub(_NUMBER_AND_UNIT, "", compact):
        raise InvalidInput(f"not a duration: {text!r}", hint="Write it like 90, 1.5h, 1h30m or 500ms.")
    seconds = sum(float(n) * _SECONDS[unit] for n, unit in re.findall(_NUMBER_AND_UNIT, compact))
    return checked_delay(timedelta(seconds=min(seconds, 1e12)), label="a duration")


def as_duration(value: Duration) -> timedelta:
    """Convert to a timedelta; negative durations are refused."""
    if isinstance(value, str):
        return parse_duration(value)
    try:
        duration = value if isinstance(value, timedelta) else timedelta(seconds=value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput(f"not a duration: {value!r}") from None
    return checked_delay(duration, label="a duration")


def checked_timestamp(timestamp: datetime, *, label: str = "the timestamp") -> datetime:
    """Return *timestamp* in UTC if every store can keep it; *label* names it in the error."""
    if not isinstance(timestamp, datetime) or timestamp.tzinfo is None:
        hint = "Use an aware datetime: datetime(2030, 1, 1, tzinfo=UTC)."
        raise InvalidInput(f"{label} needs a time zone, unlike {timestamp!r}", hint=hint)
    if FIRST_YEAR - 1 <= timestamp.year <= LAST_YEAR + 1:  # beyond, the conversion may overflow
        converted = timestamp.astimezone(UTC)
        if FIRST_YEAR <= converted.year <= LAST_YEAR:
            return converted if type(converted) is datetime else _plain_timestamp(converted)
    hint = f"Use the years {FIRST_YEAR} to {LAST_YEAR}."
    raise InvalidInput(f"{label} is too far away, in the year {timestamp.year}", hint=hint)


def _plain_timestamp(utc: datetime) -> datetime:
    """A timestamp of a subclass (pandas, freezegun) as a ``datetime``, which encoders and drivers know."""
    day, minute = date(utc.year, utc.month, utc.day), time(utc.hour, utc.minute, utc.second, utc.microsecond)
    return datetime.combine(day, minute, UTC)


def checked_delay(delay: timedelta, *, label: str) -> timedelta:
    """Return *delay* if it is between 0 and 36,525 days; *label* names it in the error."""
    if not isinstance(delay, timedelta) or not timedelta(0) <= delay <= MAX_DURATION:
        raise InvalidInput(f"{label} is between 0 and {MAX_DURATION.days} days, not {delay}")
    return delay if type(delay) is timedelta else timedelta(delay.days, delay.seconds, delay.microseconds)


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


def plain_number(number: int) -> int:
    """Return *number* as an ``int``: a value of a subclass (an enum, a truth value) is copied."""
    return number if type(number) is int else int.__int__(number)


def checked_number(number: int, *, label: str) -> int:
    """Return *number* as a plain ``int`` if it is an integer of 32 bits."""
    if not isinstance(number, int) or not -(2**31) <= number < 2**31:
        raise InvalidInput(f"{label} is a whole number of 32 bits, not {number!r}")
    return plain_number(number)


def checked_count(count: int) -> int:
    """Return *count*, a number of progress, as a plain ``int`` if it is an integer of 64 bits."""
    if isinstance(count, bool) or not isinstance(count, int) or not -(2**63) <= count < 2**63:
        raise InvalidInput(f"progress is counted in whole numbers, not {count!r}")
    return plain_number(count)


def as_bytes(size: int | str) -> int:
    """A size in bytes; ``"512M"`` and the like count in powers of 1024."""
    if isinstance(size, str):
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", size.strip(), re.IGNORECASE)
        if not match:
            raise InvalidInput(f"{size!r} is not a valid size", hint='Write a number of bytes, or "512M", "8G".')
        size = int(float(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " "))
    if size <= 0:
        raise InvalidInput(f"a size must be greater than zero, not {size}")
    return size


def format_size(size: float) -> str:
    """Write bytes for people, in powers of 1024: ``512 MiB``, ``1.5 GiB``."""
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << shift:
            return f"{size / (1 << shift):.3g} {unit}" if size < 1000 << shift else f"{size / (1 << shift):,.0f} {unit}"
    return f"{size:.0f} bytes"


def format_rate(per_second: float) -> str:
    """Write a rate for people: ``1,234/s``, ``0.5/s``."""
    return f"{per_second:,.0f}/s" if per_second >= 100 else f"{per_second:.3g}/s"


def host_limit(limit: str, total: int) -> int:
    """The bytes that commands may use of *total*: a share such as ``80%``, or a size such as ``48G``."""
    if limit.endswith("%"):
        share = limit.removesuffix("%").strip()
        if not share.isdecimal() or not 1 <= int(share) <= 100:
            raise InvalidInput(f"{limit!r} is not a valid share of a host", hint="Write 80%, or a size such as 48G.")
        return total * int(share) // 100
    return min(total, as_bytes(limit))


def split_times(text: str) -> Iterator[str | datetime]:
    """The UTC times in a sentence, and the texts between them: edges show times by the clock of the reader."""
    end = 0
    for match in re.finditer(_UTC_TIME, text):
        with suppress(ValueError):  # 2030-02-31 is text
            time = datetime.fromisoformat(f"{match[1]}+00:00")
            yield text[end : match.start()]
            yield time
            end = match.end()
    yield text[end:]


def stamp(timestamp: datetime | None) -> str:
    """A timestamp to the second, by the clock of the user (``TZ``) and with its zone: ``2030-01-02 13:45:10 CET``."""
    if timestamp is None:
        return ""
    local = timestamp.astimezone()
    return f"{local.replace(tzinfo=None).isoformat(' ', 'seconds')} {local.tzname()}"


def local_times(text: str) -> str:
    """A sentence of a view, in which times are UTC, with its times by the clock of the user."""
    return "".join(piece if isinstance(piece, str) else stamp(piece) for piece in split_times(text))

"""Time zones, and the instants at which their clocks change."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from holdfast.domain.schedules.cron import HORIZON_YEARS
from holdfast.errors import UnknownZone

SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)


@lru_cache(maxsize=1024)
def zone_of(name: str) -> ZoneInfo:
    """Return the time zone with this IANA name."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise UnknownZone(f"there is no time zone {name[:100]!r}", zone=name) from None


def next_change(zone: ZoneInfo, instant: datetime) -> datetime:
    """Return the first clock change after *instant*, or an instant beyond the horizon if there is none."""
    for year in range(instant.year, instant.year + HORIZON_YEARS):
        changes = clock_changes(zone, year)
        index = bisect_right(changes, instant)
        if index < len(changes):
            return changes[index]
    return datetime(instant.year + HORIZON_YEARS, 1, 1, tzinfo=UTC)


def last_change(zone: ZoneInfo, instant: datetime) -> datetime:
    """Return the last clock change before *instant*, or an instant beyond the horizon if there is none."""
    for year in range(instant.year, instant.year - HORIZON_YEARS, -1):
        changes = clock_changes(zone, year)
        index = bisect_left(changes, instant)
        if index:
            return changes[index - 1]
    return datetime(instant.year - HORIZON_YEARS, 1, 1, tzinfo=UTC)


@lru_cache(maxsize=8192)
def clock_changes(zone: ZoneInfo, year: int) -> list[datetime]:
    """Return the instants of a year at which the clocks change, to the second."""
    changes = []
    low = datetime(year, 1, 1, tzinfo=UTC) - SECOND
    end = datetime(year + 1, 1, 1, tzinfo=UTC) - SECOND
    before = utc_offset(low.astimezone(zone))
    while low < end:
        high = min(low + DAY, end)
        after = utc_offset(high.astimezone(zone))
        if after != before:
            changes.append(_change_between(zone, low, high))
        low, before = high, after
    return changes


def steady_span(zone: ZoneInfo, instant: datetime) -> tuple[datetime, datetime, timedelta]:
    """Return a span around *instant* without clock changes, and its offset. It begins a day after the last change."""
    begin, end = last_change(zone, instant + SECOND) + DAY, next_change(zone, instant)
    return begin, end, utc_offset(instant.astimezone(zone))


def utc_offset(local: datetime) -> timedelta:
    """Return the UTC offset of an aware timestamp."""
    offset = local.utcoffset()
    assert offset is not None
    return offset


def _change_between(zone: ZoneInfo, low: datetime, high: datetime) -> datetime:
    """Return the first instant after *low* that has the offset of *high*."""
    after = utc_offset(high.astimezone(zone))
    while high - low > SECOND:
        middle = (low + (high - low) / 2).replace(microsecond=0)
        if utc_offset(middle.astimezone(zone)) == after:
            high = middle
        else:
            low = middle
    return high

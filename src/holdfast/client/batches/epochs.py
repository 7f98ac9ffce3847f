"""Epochs: a range cut into spans, each of which is one unit.

::

    @app.unit()
    def replay(span: tuple[date, date]) -> None: ...

    app.run(replay, epochs(date(2015, 1, 1), date(2024, 12, 31), by="year"), jobs=4)

Spans run side by side, so state in memory starts anew with each span. A span that was interrupted runs again from
its start.
"""

from __future__ import annotations

from datetime import date, timedelta
from typing import overload

from holdfast.errors import InvalidInput

DAY = timedelta(days=1)


@overload
def epochs(first: int, last: int, by: int) -> list[tuple[int, int]]: ...
@overload
def epochs(first: date, last: date, by: int | str) -> list[tuple[date, date]]: ...
def epochs(first: int | date, last: int | date, by: int | str) -> list[tuple[int, int]] | list[tuple[date, date]]:
    """Cut a range, both ends included, into spans.

    *by* is the number of keys or days in a span, or for dates ``"year"`` or ``"month"``.

    Raises:
        InvalidInput: The range is empty, or *by* does not fit it.
    """
    if isinstance(first, date) and isinstance(last, date):
        _check(first <= last, f"{first} to {last} is no range")
        return _days(first, last, by)
    _check(isinstance(first, int) and isinstance(last, int), f"{first!r} to {last!r} is no range of numbers or dates")
    assert isinstance(first, int)
    assert isinstance(last, int)
    _check(first <= last, f"{first} to {last} is no range")
    size = _size(by, "a range of numbers is cut into epochs of so many keys")
    return [(low, min(low + size - 1, last)) for low in range(first, last + 1, size)]


def _days(first: date, last: date, by: int | str) -> list[tuple[date, date]]:
    spans = []
    while first <= last:
        end = min(_border(first, by), last)
        spans.append((first, end))
        first = end + DAY
    return spans


def _border(day: date, by: int | str) -> date:
    """The last day of the epoch that begins on *day*."""
    if by == "year":
        return date(day.year, 12, 31)
    if by == "month":
        return (day.replace(day=28) + timedelta(days=4)).replace(day=1) - DAY
    return day + (_size(by, "a range of dates is cut by 'year', by 'month', or into so many days") - 1) * DAY


def _size(by: int | str, expected: str) -> int:
    size = int(by) if isinstance(by, str) and by.isdecimal() else by
    _check(isinstance(size, int) and size > 0, f"{expected}, not {by!r}")
    assert isinstance(size, int)
    return size


def _check(holds: bool, message: str) -> None:  # noqa: FBT001
    if not holds:
        raise InvalidInput(message)

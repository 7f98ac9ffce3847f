"""Keys of a run: parsed from text, cut into epochs, selected from its input."""

from __future__ import annotations

import re
import sys
from bisect import bisect_left
from calendar import monthrange
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, timedelta
from functools import partial
from typing import Any, overload

from holdfast.client.batches.function import UnitFunction
from holdfast.client.batches.options import Selection, UnitOptions
from holdfast.client.input_file import InputFile
from holdfast.domain.batches.unit import UnitKey, is_key_from, unit_key
from holdfast.domain.quantities import count_of
from holdfast.errors import HoldfastError, InputFailed, InvalidInput
from holdfast.errors.frames import short_error, user_place
from holdfast.store import Store
from holdfast.store.batches.state import BatchRun
from holdfast.worker.batches.source import Bitmap, FirstKey, InputKeys

#: From this many finished units on, reading their keys once is quicker than looking up each key.
BITMAP_MIN_UNITS = 5000
#: A bitmap has one bit for each key of its range.
BITMAP_MAX_KEYS = 100_000_000
#: A key of at most 1,000 bytes that is a whole number.
WHOLE_NUMBER = r"-?[0-9]{1,999}"
#: With more failed units than this, none is searched in the input.
MAX_FAILED_KEYS = 100_000


def selected_keys(function: UnitFunction[..., Any], keys: Iterable[Any], selection: Selection) -> set[UnitKey] | None:
    """The keys that *selection* names as the only ones; None means all. Iterators cannot be checked before the run."""
    only = None if selection.only is None else [key_of(function, value, keys) for value in selection.only]
    if only and isinstance(keys, range | Sequence):
        known = set[UnitKey]() if isinstance(keys, range) else {unit_key(key) for key in keys}
        for key in only:
            if not (_is_in(key, keys) if isinstance(keys, range) else key in known):
                raise InvalidInput(f"{key} is not among the keys")
    return None if only is None else set(only)


def input_failed(error: Exception, read: int = 0) -> InputFailed:
    """The error of an input of which *read* keys were read before it failed."""
    after = f" after {read:,}" if read else ""
    text = error.message if isinstance(error, HoldfastError) else short_error(error)
    place = None if isinstance(error, HoldfastError) else user_place(error)
    hint = error.hint if isinstance(error, HoldfastError) else ""
    parts = [hint, "" if place is None else f"See {place}.", InputFailed.hint]
    failed = InputFailed(f"the keys could not be read{after}: {text}", hint=" ".join(filter(None, parts)), read=read)
    failed.__cause__ = error
    return failed


def listed_keys(options: UnitOptions) -> Iterable[Any]:
    """The keys that ``keys=`` of a unit function lists."""
    if options.keys is None:
        raise InvalidInput(f"{options.name} does not list its keys", hint="Give app.unit its keys=.")
    try:
        return checked_keys(options.keys())
    except HoldfastError:
        raise
    except Exception as error:
        raise input_failed(error) from error


def read_input(keys: Iterable[Any]) -> Iterator[Any]:
    """The same keys, read before the run begins; an error of the user's code becomes :class:`InputFailed`."""
    read = 0
    try:
        for read, key in enumerate(keys, start=1):  # noqa: B007 - the error says how many were read
            yield key
    except HoldfastError:
        raise
    except Exception as error:
        raise input_failed(error, read) from error


def checked_keys(keys: Any) -> Iterable[Any]:
    """The same keys, if they can be looped over."""
    if not hasattr(type(keys), "__iter__") and not hasattr(type(keys), "__getitem__"):
        hint = "keys= returns the keys, or yields them; app.run takes a list, a range or an iterator."
        raise InvalidInput(f"the keys are {keys!r:.60}, which cannot be looped over", hint=hint)
    return checked_range(keys) if isinstance(keys, range) else keys


def input_error(source: InputKeys) -> InputFailed | None:
    """The error that ended the input of a run, if one did; an invalid first key is raised, because nothing ran."""
    if isinstance(source.error, HoldfastError) and not source.keys_read:
        raise source.error
    return None if source.error is None else input_failed(source.error, source.keys_read)


def first_key(function: UnitFunction[..., Any], keys: Iterable[Any], selection: Selection) -> FirstKey | None:
    """Recognises the key at which a run begins: ``resume_from`` or, if the input lacks it, the first greater one.

    An input that can be read only once is not searched: the run begins at the first key that is not less.
    """
    if selection.resume_from is None:
        return None
    first = key_of(function, selection.resume_from, keys)
    is_from = partial(is_key_from, first=first)
    if isinstance(keys, range) and keys.step > 0:
        if (number := whole_number(first)) is not None and (place := bisect_left(keys, number)) < len(keys):
            return unit_key(keys[place]).__eq__
    elif isinstance(keys, Iterator) or (isinstance(keys, KeyFile) and keys.reads_once):
        return is_from
    elif first in map(unit_key, read_input(keys)):
        return first.__eq__
    elif any(map(is_from, map(unit_key, read_input(keys)))):
        return is_from
    raise InvalidInput(f"no key is {first} or greater")


def finished_keys(store: Store, opened: BatchRun, keys: Iterable[Any]) -> Bitmap | None:
    """The keys of a range that earlier runs finished, when a bitmap is quicker than lookups."""
    if opened.created or not isinstance(keys, range) or len(keys) > BITMAP_MAX_KEYS:
        return None
    if store.batches.counters(opened.batch.id).over < BITMAP_MIN_UNITS:
        return None
    return Bitmap(keys, store.batches.finished_keys(opened.batch.id))


class FailedKeys:
    """The failed units of earlier runs, and which of them an input no longer has once it was read."""

    def __init__(self, store: Store, opened: BatchRun) -> None:
        self._store = store
        self._opened = opened
        self._unmet = set[UnitKey]()
        if not opened.created and store.batches.counters(opened.batch.id).failed <= MAX_FAILED_KEYS:
            self._unmet.update(error.key for error in store.ledger.all_errors(opened.batch.id))

    def met_in(self, keys: Iterable[Any]) -> Iterable[Any]:
        """The same keys; each that is read counts as met."""
        if isinstance(keys, range):
            self._unmet = {key for key in self._unmet if not _is_in(key, keys)}
            return keys
        return self._noted(keys) if self._unmet else keys

    def skip_gone(self, *, accepted: bool) -> str | None:
        """Skip the units that were not met, after all keys were read. Without consent, return a warning instead."""
        if accepted:
            self._store.batches.skip_gone(self._opened, sorted(self._unmet))
        if accepted or not self._unmet:
            return None
        many = count_of(len(self._unmet), "failed unit is", "failed units are")
        return f"{many} not in this input; to give up what is not there, add --accept-drift"

    def _noted(self, keys: Iterable[Any]) -> Iterator[Any]:
        for key in keys:
            self._unmet.discard(unit_key(key))
            yield key


def _is_in(key: UnitKey, keys: range) -> bool:
    return (number := whole_number(key)) is not None and number in keys


def key_of(function: UnitFunction[..., Any], value: Any, keys: Iterable[Any]) -> UnitKey:
    """The key of a value; text from a command line becomes an integer where the keys are integers."""
    takes_number = function.key_type is int or isinstance(keys, range)
    number = whole_number(value) if takes_number and isinstance(value, str) else None
    return unit_key(value if number is None else number)


def parse_key(function: UnitFunction[..., Any], text: str) -> int | str:
    """A key from a command line or a file, as the function takes it."""
    if function.key_type is int:
        if (number := whole_number(text)) is None:
            raise InvalidInput(f"{text!r} is not a key of {function.options.name}", hint="Its keys are whole numbers.")
        return number
    return text


def whole_number(text: str) -> int | None:
    """The whole number that a text is, of any size that a key can have."""
    return int(text) if re.fullmatch(WHOLE_NUMBER, text) else None


def parse_range(text: str) -> Sequence[int] | Sequence[date]:
    """A range with both ends included: integers as ``LO-HI``, or days as ``2024-01-01..2024-12-31``."""
    if ".." in text:
        first, _, last = text.partition("..")
        try:
            return [low for low, _ in epochs(date.fromisoformat(first), date.fromisoformat(last), 1)]
        except ValueError:
            raise InvalidInput(f"{text!r} is not a valid range of days", hint="Write 2024-01-01..2024-12-31.") from None
    match = re.fullmatch(f"({WHOLE_NUMBER})-({WHOLE_NUMBER})", text)
    if match is None:
        hint = "Write LO-HI, for example 1-100, both ends included."
        raise InvalidInput(f"{text!r} is not a valid range", hint=hint)
    if int(match[1]) > int(match[2]):
        raise InvalidInput(f"{text!r} runs backwards", hint=f"Write {match[2]}-{match[1]}.")
    return checked_range(range(int(match[1]), int(match[2]) + 1))


def checked_range(keys: range) -> range:
    """The same range, if its keys can be counted."""
    try:
        len(keys)
    except OverflowError:
        raise InvalidInput(f"{keys[0]} to {keys[-1]} are more than {sys.maxsize:,} units") from None
    return keys


class KeyFile:
    """Keys from a file with one key per line; ``-`` is stdin. Each iteration reads a file again, line by line."""

    def __init__(self, function: UnitFunction[..., Any], file: str) -> None:
        self._function = function
        self._name = file
        self._file = InputFile(file)
        self.reads_once = self._file.reads_once

    def __iter__(self) -> Iterator[int | str]:
        for number, line in self._file.lines():
            if text := line.strip():
                try:
                    yield parse_key(self._function, text)
                except InvalidInput as error:
                    raise InvalidInput(f"{self._name}, line {number}: {error.message}", hint=error.hint) from None


DAY = timedelta(days=1)


@overload
def epochs(first: int, last: int, by: int) -> list[tuple[int, int]]: ...
@overload
def epochs(first: date, last: date, by: int | str) -> list[tuple[date, date]]: ...
def epochs(first: int | date, last: int | date, by: int | str) -> list[tuple[int, int]] | list[tuple[date, date]]:
    """Cut a range, both ends included, into spans.

    *by* is the number of keys or days in a span, or for dates ``"year"`` or ``"month"``. Each span is one unit:
    ``app.run(replay, epochs(date(2015, 1, 1), date(2024, 12, 31), by="year"), jobs=4)``. Spans run side by side, so
    state in memory starts anew with each span. A span that was interrupted runs again from its start.

    Raises:
        InvalidInput: The range is empty, or *by* does not fit it.
    """
    if isinstance(first, date) and isinstance(last, date):
        if first > last:
            raise InvalidInput(f"{first} to {last} is not a valid range")
        return _days(first, last, by)
    if not isinstance(first, int) or not isinstance(last, int):
        raise InvalidInput(f"{first!r} to {last!r} is not a valid range of numbers or dates")
    if first > last:
        raise InvalidInput(f"{first} to {last} is not a valid range")
    size = _size(by, "the epochs of a range of numbers are a number of keys")
    return [(low, min(low + size - 1, last)) for low in range(first, last + 1, size)]


def _days(first: date, last: date, by: int | str) -> list[tuple[date, date]]:
    spans = [(first, min(_border(first, by), last))]
    while (end := spans[-1][1]) < last:
        spans.append((end + DAY, min(_border(end + DAY, by), last)))
    return spans


def _border(day: date, by: int | str) -> date:
    """The last day of the epoch that begins on *day*."""
    if by == "year":
        return date(day.year, 12, 31)
    if by == "month":
        return day.replace(day=monthrange(day.year, day.month)[1])
    size = _size(by, "the epochs of a range of dates are 'year', 'month' or a number of days")
    return day + min(size - 1, (date.max - day).days) * DAY


def _size(by: int | str, expected: str) -> int:
    size = int(by) if isinstance(by, str) and by.isdecimal() else by
    if not isinstance(size, int) or size <= 0:
        raise InvalidInput(f"{expected}, not {by!r}")
    return size

"""Selectors: the jobs of an action or a list, also written as ``state=dead kind=mail-* since=1h error=timeout``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from holdfast.domain.jobs.job import JobId, State
from holdfast.domain.names import checked_text
from holdfast.domain.quantities import as_duration
from holdfast.errors import InvalidInput

#: Names in the grammar, and the fields of the selector. Lists take several values: ``queue=a,b``.
LISTS = {
    "id": "ids",
    "key": "keys",
    "label": "labels",
    "tag": "tags",
    "queue": "queues",
    "kind": "kinds",
    "state": "states",
}
SINGLE = ("error", "since", "until")
#: A character, or an escaped one.
_CHARACTER = r"(?s)\\[\\,]|."


class Selector(Struct, frozen=True, kw_only=True):
    """Jobs that meet every condition; a list of values means any of them.

    Labels, queues and kinds match whole, or by ``*``. A label also matches those below it: ``sw`` is the label of a
    sweep, whose jobs have labels such as ``sw/year=2020``. None means no condition: a selector without conditions
    selects everything, and one with an empty list selects nothing.
    """

    ids: tuple[JobId, ...] | None = None
    keys: tuple[str, ...] | None = None
    labels: tuple[str, ...] | None = None
    tags: tuple[str, ...] | None = None
    queues: tuple[str, ...] | None = None
    kinds: tuple[str, ...] | None = None
    states: tuple[State, ...] | None = None
    error: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    #: Whether the two are times of the finish, not of the enqueue; None: if all *states* are finished ones.
    by_finish: bool | None = None
    #: Whether of jobs with one kind and unique key only the newest matches: it replaces the failures before it.
    newest: bool | None = None

    def __post_init__(self) -> None:
        """Refuse wrong types: a string in place of a list would be read character by character."""
        for name in ("keys", "labels", "tags", "queues", "kinds"):
            force_setattr(self, name, _texts(name, getattr(self, name)))
        force_setattr(self, "states", _states(self.states))
        force_setattr(self, "ids", _ids(self.ids))
        if self.error is not None:
            checked_text(self.error, label="the error")
        for name in ("since", "until"):
            timestamp = getattr(self, name)
            if timestamp is not None and (not isinstance(timestamp, datetime) or timestamp.tzinfo is None):
                raise InvalidInput(f"{name} is a time with a zone, not {timestamp!r}")

    @property
    def empty(self) -> bool:
        """Whether it cannot match any job."""
        return any(getattr(self, name) == () for name in LISTS.values())

    @property
    def searches_text(self) -> bool:
        """Whether it searches for a part of a text that views mask."""
        return self.error is not None or any("*" in label for label in self.labels or ())

    @property
    def selects_by_finish(self) -> bool:
        """Whether *since* and *until* are times of the finish."""
        finished = bool(self.states) and all(state.finished for state in self.states or ())
        return finished if self.by_finish is None else self.by_finish

    def only(self, *states: State) -> Selector:
        """The same selector, narrowed to *states*; *since* and *until* keep their meaning."""
        narrowed = tuple(state for state in states if self.states is None or state in self.states)
        timed = self.since is not None or self.until is not None
        return replace(self, states=narrowed, by_finish=self.selects_by_finish if timed else None)


class Count(Struct, frozen=True):
    """A number of jobs; *capped*: there may be more."""

    count: int
    capped: bool


class SavedFilter(Struct, frozen=True):
    """A filter that a person saved under a name."""

    name: str
    filter: str
    actor: str
    created_at: datetime


def _texts(name: str, values: Iterable[str] | None) -> tuple[str, ...] | None:
    if values is None:
        return None
    if isinstance(values, str):
        raise InvalidInput(f"{name} is a list, not one text", hint=f"Write {name}=({values!r},).")
    return tuple(checked_text(value, label=f"one of the {name}") for value in values)


def _states(values: Iterable[State] | None) -> tuple[State, ...] | None:
    if values is None:
        return None
    try:
        return tuple(State(value) for value in ([values] if isinstance(values, str) else values))
    except ValueError as error:
        text = str(error).replace("a valid State", "a state of a job")
        raise InvalidInput(text, hint=f"The states are: {', '.join(State)}.") from None


def _ids(values: Iterable[JobId] | None) -> tuple[JobId, ...] | None:
    if values is None:
        return None
    ids = tuple(values)
    if not all(isinstance(value, int) and 0 <= value < 2**63 for value in ids):
        raise InvalidInput(f"ids are whole numbers, not {ids!r}")
    return ids


class Glob(str):
    """A pattern in which only ``*`` is special."""

    __slots__ = ()

    @property
    def exact(self) -> bool:
        return "*" not in self

    def as_like(self) -> str:
        """The pattern for LIKE, with ``\\`` as its escape character."""
        text = str(self)
        for special in ("\\", "%", "_"):
            text = text.replace(special, "\\" + special)
        return text.replace("*", "%")

    def as_glob(self) -> str:
        """The pattern for SQLite's GLOB, which is case-sensitive; its LIKE is not."""
        return re.sub(r"[?\[]", r"[\g<0>]", str(self))


def parse_filter(text: str, *, now: datetime | None = None) -> Selector:
    """Parse conditions of the form ``name=value``, all of which must hold.

    Values with spaces are quoted; commas separate the values of a list. Within quotes ``\\,`` is a literal comma,
    and ``\\\\`` a backslash. ``since`` and ``until`` are timestamps (RFC 3339) or ages (``1h``).
    """
    try:
        conditions = shlex.split(text)
    except ValueError as error:
        raise InvalidInput(f"the filter {text!r} cannot be read: {error}", hint="Close the quotes.") from None
    values: dict[str, list[str]] = {}
    for condition in conditions:
        name, equals, value = condition.partition("=")
        if not equals or name not in (*LISTS, *SINGLE):
            hint = f"Conditions: {', '.join((*LISTS, *SINGLE))}."
            raise InvalidInput(f"the filter has an unknown condition {condition!r}", hint=hint)
        if name in values:
            raise InvalidInput(f"the filter has {name!r} twice", hint=f"Write {name}=one,other.")
        values[name] = _split(value) if name in LISTS else [value]
    return make_selector(values, now=now)


def format_filter(selector: Selector) -> str:
    """The inverse of :func:`parse_filter`; an empty string means everything."""
    conditions = []
    for word, name in LISTS.items():
        values = getattr(selector, name)
        if values is not None:
            conditions.append(f"{word}={format_values(*values)}")
    for word in SINGLE:
        value = getattr(selector, word)
        if value is not None:
            conditions.append(f"{word}={shlex.quote(value.isoformat() if isinstance(value, datetime) else value)}")
    return " ".join(conditions)


def format_values(*values: object) -> str:
    """The values of a list, escaped and quoted."""
    return shlex.quote(",".join(re.sub(r"[\\,]", r"\\\g<0>", str(value)) for value in values))


def _split(text: str) -> list[str]:
    """The inverse of :func:`format_values`."""
    values = [""]
    for character in re.findall(_CHARACTER, text):
        if character == ",":
            values.append("")
        else:
            values[-1] += character[-1]
    return values


def make_selector(values: dict[str, list[str]], *, now: datetime | None = None) -> Selector:
    """A selector from names of the grammar and their values."""
    conditions: dict[str, Any] = {LISTS[name]: tuple(each) for name, each in values.items() if name in LISTS}
    if "ids" in conditions:
        conditions["ids"] = tuple(_number(value) for value in conditions["ids"])
    if "error" in values:
        conditions["error"] = values["error"][0]
    for name in ("since", "until"):
        if name in values:
            conditions[name] = parse_timestamp(values[name][0], now=now or datetime.now(UTC))
    return Selector(**conditions)


def parse_timestamp(text: str, *, now: datetime, ahead: bool = False) -> datetime:
    """Parse a timestamp with a zone (RFC 3339), or an age before *now*; with *ahead*, a delay after it."""
    try:
        timestamp = datetime.fromisoformat(text)
    except ValueError:
        if re.match(r"\d{4}-", text):
            hint = "Write it with its offset, such as 2030-01-01T06:00:00+01:00, or Z for UTC."
            raise InvalidInput(f"{text[:100]!r} is not a valid time", hint=hint) from None
        return now + as_duration(text) if ahead else now - as_duration(text)
    if timestamp.tzinfo is None:
        raise InvalidInput(f"{text!r} has no time zone", hint=f"Write {timestamp.isoformat()}Z for UTC.")
    return timestamp


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        hint = "An id is a number; find jobs by label or key with holdfast ls."
        raise InvalidInput(f"{text!r} is not the id of a job", hint=hint)
    return int(text)

"""Selectors: the jobs of an action or a list."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from holdfast.domain.jobs.job import JobId, State
from holdfast.domain.names import checked_text
from holdfast.errors import InvalidInput

_LISTS = ("ids", "keys", "labels", "tags", "queues", "kinds", "states")


class Selector(Struct, frozen=True, kw_only=True):
    """Jobs that meet every condition; a list of values means any of them.

    Labels, queues and kinds match whole, or by ``*``. None is no condition: a selector without
    conditions selects everything, and one with an empty list selects nothing.
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
                raise InvalidInput(f"{name} is a moment with a time zone, not {timestamp!r}")

    @property
    def empty(self) -> bool:
        """Whether it cannot match any job."""
        return any(getattr(self, name) == () for name in _LISTS)

    def only(self, *states: State) -> Selector:
        """The same selector, narrowed to *states*."""
        narrowed = tuple(state for state in states if self.states is None or state in self.states)
        return replace(self, states=narrowed)


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
        raise InvalidInput(str(error), hint=f"The states are: {', '.join(State)}.") from None


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

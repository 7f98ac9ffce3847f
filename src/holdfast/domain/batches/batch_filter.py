"""Filters of batches: the choices of a list, and of an action on many."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from holdfast.domain.batches.batch import BatchState
from holdfast.domain.jobs.selector import Glob, parse_timestamp
from holdfast.domain.names import checked_text
from holdfast.errors import InvalidInput


class BatchFilter(Struct, frozen=True, kw_only=True):
    """Batches that meet every condition. ``*`` in *function*, *name* and *owner* stands for anything.

    *name* is the name of a batch, or the source of its keys if it has none. *owner* is the person who began it.
    *since* and *until* are times of its begin; *older_than* is the latest time of its finish.
    """

    states: tuple[BatchState, ...] | None = None
    function: Glob | None = None
    name: Glob | None = None
    owner: Glob | None = None
    since: datetime | None = None
    until: datetime | None = None
    older_than: datetime | None = None

    @property
    def values(self) -> dict[str, Any]:
        """The conditions that are set, by name."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: list(value) if name == "states" else value for name, value in fields.items() if value is not None}

    @property
    def searches_text(self) -> bool:
        """Whether it searches for a part of a text that views mask."""
        return self.name is not None and not self.name.exact

    @property
    def where(self) -> tuple[str, ...]:
        """The names of the conditions, as the SQL files have them."""
        return tuple(f"batch_has_{name}" for name in self.values)


#: All batches.
ALL_BATCHES = BatchFilter()


def batch_filter(*, states: Sequence[str] = (), **conditions: str | None) -> BatchFilter:
    """A filter from texts. Times are timestamps (RFC 3339) or ages (``2d``); empty texts are ignored."""
    now = datetime.now(UTC)
    values: dict[str, Any] = {}
    for name, text in conditions.items():
        if text:
            is_time = name in ("since", "until", "older_than")
            values[name] = parse_timestamp(text, now=now) if is_time else Glob(checked_text(text, label=name))
    try:
        chosen = tuple(BatchState(state) for state in states)
    except ValueError as error:
        text = str(error).replace("a valid BatchState", "a state of a batch")
        raise InvalidInput(text, hint=f"The states are: {', '.join(BatchState)}.") from None
    return BatchFilter(states=chosen or None, **values)

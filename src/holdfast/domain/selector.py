"""Which jobs a verb or a list is about."""

from __future__ import annotations

import re
from datetime import datetime

from msgspec import Struct

from holdfast.domain.job import JobId, State


class Selector(Struct, frozen=True, kw_only=True):
    """Jobs that meet every condition given; a list of values means any of them.

    A label, queue or kind matches whole, or by ``*``. An empty selector selects everything.
    """

    ids: tuple[JobId, ...] = ()
    keys: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    states: tuple[State, ...] = ()
    error: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def only(self, *states: State) -> Selector | None:
        """The same selector, narrowed to *states*; None when nothing is left."""
        wanted = tuple(s for s in states if not self.states or s in self.states)
        if not wanted:
            return None
        return Selector(
            ids=self.ids,
            keys=self.keys,
            labels=self.labels,
            queues=self.queues,
            kinds=self.kinds,
            states=wanted,
            error=self.error,
            since=self.since,
            until=self.until,
        )


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
        """The pattern for SQLite's GLOB: unlike its LIKE, it tells upper from lower case."""
        return re.sub(r"[?\[]", r"[\g<0>]", str(self))

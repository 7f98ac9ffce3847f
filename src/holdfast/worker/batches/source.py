"""Where a run takes its units from: the keys of its input, or the ledger."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import count, islice
from typing import Any, Protocol

from holdfast.domain.batches.batch import UnitKey, unit_key
from holdfast.store.batches.in_flight import UnitInFlight
from holdfast.store.batches.ledger import Flushed
from holdfast.worker import clock
from holdfast.worker.batches.bitmap import Bitmap
from holdfast.worker.batches.threads import GROUP

#: Keys that are looked at in one go while all of them are over already.
SKIP_AHEAD = 1000
#: A shard takes more units at a time while it is done with them in less, fewer when it takes more, in seconds.
BRIEF, LONG = 0.25, 1.0


class Source(Protocol):
    """What a driver asks for next."""

    #: No key comes twice, and none has a row yet.
    fresh: bool

    @property
    def over(self) -> bool:
        """Whether no more units will come."""
        ...

    def window(self, jobs: int) -> int:
        """How many units may be in hand at a time."""
        ...

    def candidates(self, room: int) -> Sequence[UnitInFlight] | None:
        """The next keys to look at; None: what waits in the ledger."""
        ...

    def looked(self, flushed: Flushed, *, in_hand: int) -> None:
        """What came of it."""
        ...


class Keys:
    """The keys of a foreground run's input, in their order: all, from *resume_from* on, or *only* some.

    *over* are keys of which it is known that they need not be looked at.
    """

    def __init__(
        self,
        keys: Iterable[Any],
        *,
        resume_from: UnitKey | None = None,
        only: Collection[UnitKey] | None = None,
        over: Bitmap | None = None,
        first: bool = False,
    ) -> None:
        #: A range in the first run of a generation.
        self.fresh = isinstance(keys, range) and first
        #: How many keys were met.
        self.met = 0
        self._keys = over.rest() if over is not None and resume_from is None else numbered(keys, resume_from)
        if only is not None:
            self._keys = (found for found in self._keys if found[0] in only)
        self._partial = resume_from is not None or only is not None
        self._next: list[UnitInFlight] = []
        self._exhausted = False
        #: The last keys were all over: more of them are looked at in one go.
        self._skipping = False

    @property
    def over(self) -> bool:
        return self._exhausted and not self._next

    @property
    def complete(self) -> bool:
        """Whether every key of the input was met."""
        return self.over and not self._partial

    def window(self, jobs: int) -> int:
        return max(GROUP, 2 * jobs)

    def candidates(self, room: int) -> Sequence[UnitInFlight]:
        """As many as there is room for, or more while all of them are over."""
        requested = SKIP_AHEAD if self._skipping else room
        if len(self._next) < requested and not self._exhausted:
            self._read(requested - len(self._next))
        return self._next[:requested]

    def looked(self, flushed: Flushed, *, in_hand: int) -> None:  # noqa: ARG002 - see the protocol
        self._next = self._next[flushed.examined :]
        self._skipping = not flushed.taken and flushed.examined > 0

    def rest(self) -> Iterator[list[UnitInFlight]]:
        """All keys that were never looked at."""
        while self._next or not self._exhausted:
            yield self._next
            self._next = []
            self._read(SKIP_AHEAD)

    def _read(self, count: int) -> None:
        more = list(islice(self._keys, count))
        self._exhausted = len(more) < count
        self.met += len(more)
        self._next += more


class Pending:
    """The pending units of the ledger: a shard takes few at a time, so that others find some too.

    All *shards* together have no more ends unwritten than one run in the foreground, or one each when they are many.
    """

    fresh = False

    def __init__(self, shards: int) -> None:
        self.over = False
        self._most = max(1, GROUP // shards)
        self._size = 1
        self._took = clock.now()

    def window(self, jobs: int) -> int:
        return jobs * self._size

    def candidates(self, room: int) -> None:  # noqa: ARG002 - see the protocol
        return None

    def looked(self, flushed: Flushed, *, in_hand: int) -> None:
        """A suspect may wait until nothing else is in hand: only then is it sure that there is no more."""
        self.over = not flushed.taken and not in_hand
        if flushed.taken:
            took, self._took = clock.now() - self._took, clock.now()
            if took < BRIEF:
                self._size = min(self._most, self._size * 2)
            elif took > LONG:
                self._size = max(1, self._size // 2)


def numbered(keys: Iterable[Any], resume_from: UnitKey | None = None) -> Iterator[UnitInFlight]:
    """Keys with their places in the input, from *resume_from* on."""
    if isinstance(keys, range) and resume_from is None:
        yield from zip(map(UnitKey, map(str, keys)), count())
        return
    waiting = resume_from is not None
    for place, value in enumerate(keys):
        key = unit_key(value)
        waiting = waiting and key != resume_from
        if not waiting:
            yield key, place

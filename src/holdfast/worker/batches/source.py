"""Sources of units: the keys of an input, or the pending units of the ledger."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Protocol

from holdfast.domain.batches.batch import RunPlan
from holdfast.domain.batches.checkpoint import CheckpointInterval
from holdfast.domain.batches.new_units import NewUnits
from holdfast.domain.batches.unit import TakenUnit, UnitKey, UnitRow, row_of, unit_key
from holdfast.store.batches.ledger import Flushed
from holdfast.store.batches.state import FIRST_PLACE, Place, UnitInFlight
from holdfast.store.batches.unit_choice import NextUnits
from holdfast.worker.batches.group_size import GroupSize

FULL_BYTE = 0xFF
#: Whether a run begins at a key.
FirstKey = Callable[[UnitKey], bool]


class Bitmap:
    """A set of keys of one range, with one bit for each key of the range."""

    def __init__(self, keys: range, members: Iterable[UnitKey]) -> None:
        self._keys = keys
        self._bits = bits = bytearray(len(keys) // 8 + 1)
        place_of = keys.index
        for key in members:
            try:
                place = place_of(int(key))
            except ValueError:  # not an integer, or outside this range
                continue
            bits[place >> 3] |= 1 << (place & 7)

    def remaining(self) -> Iterator[UnitInFlight]:
        """The keys of the range that are not in the set, with their places; full bytes are skipped whole."""
        keys, size = self._keys, len(self._keys)
        for byte, bits in enumerate(self._bits):
            if bits == FULL_BYTE:
                continue
            for place in range(8 * byte, min(8 * byte + 8, size)):
                if not bits & (1 << (place & 7)):
                    yield UnitKey(str(keys[place])), place


#: Keys that one flush considers while all of them are finished already.
SKIP_AHEAD_KEYS = 1000


class Source(Protocol):
    """The place where a run gets its next units."""

    #: Whether every key comes once, and none has a row in the ledger yet.
    fresh: bool
    #: Whether every key has a row in the ledger.
    planned: bool
    #: Whether the last request got nothing, although more may come when the units in flight are finished.
    dry: bool
    size: GroupSize

    @property
    def exhausted(self) -> bool:
        """Whether no more units will come."""
        ...

    def window(self, plan: RunPlan) -> int:
        """The number of units that may be in flight at a time."""
        ...

    def request(self, room: int) -> NextUnits:
        """The request for at most *room* next units."""
        ...

    def advance(self, flushed: Flushed, *, in_hand: int) -> None:
        """Move on, after a flush has answered the request."""
        ...

    def put_back(self, units: list[UnitInFlight]) -> None:
        """Note that the last units that were taken were returned: no thread has begun them."""
        ...


class InputKeys:
    """The keys of the input of a local run, in their order: all, from *resume_from* on, or *only* some.

    From *resume_from* on, finished units run again. *finished* holds keys that can be skipped without a lookup. In a
    *resumed* batch, units that an earlier run began
    come after all others: while the input is read they are only marked, then they are read from the ledger.
    """

    planned = False

    def __init__(
        self,
        keys: Iterable[Any],
        checkpoint: CheckpointInterval,
        *,
        resume_from: FirstKey | None = None,
        only: Collection[UnitKey] | None = None,
        finished: Bitmap | None = None,
        first: bool = False,
        resumed: bool = False,
    ) -> None:
        # The first run of a generation has no rows, and a range has no duplicates.
        self.fresh = isinstance(keys, range) and first
        self.dry = False
        self.size = GroupSize(checkpoint)
        #: The number of keys that were read.
        self.keys_read = 0
        bitmap = finished if resume_from is None else None
        self._keys = numbered(keys, resume_from) if bitmap is None else bitmap.remaining()
        if only is not None:
            self._keys = ((key, place) for key, place in self._keys if key in only)
        self._partial = resume_from is not None or only is not None
        #: The keys, if they are a range that is read from its start.
        self._range = keys if isinstance(keys, range) and bitmap is None and not self._partial else None
        self._next: Sequence[UnitInFlight] = []
        #: The error of the input. The keys before it run, and none comes after them.
        self.error: Exception | None = None
        self._all_read = False
        self._resumed = resumed = resumed and resume_from is None
        self._again = resume_from is not None
        #: The place in the ledger up to which units that an earlier run began were taken; None at its end.
        self._after: Place | None = FIRST_PLACE if resumed else None
        #: Whether the last candidates were all finished.
        self._skipping = False

    @property
    def exhausted(self) -> bool:
        return self._input_read and self._after is None

    @property
    def _input_read(self) -> bool:
        return self._all_read and not self._next

    @property
    def complete(self) -> bool:
        """Whether every key of the input was considered."""
        return self.exhausted and not self._partial and self.error is None

    def window(self, plan: RunPlan) -> int:
        return max(self.size.units, 2 * plan.jobs)

    def request(self, room: int) -> NextUnits:
        """The next keys, more than there is room for while all of them are finished; then units that were begun."""
        self.size.finish()
        size = SKIP_AHEAD_KEYS if self._skipping else room
        if len(self._next) < size and not self._all_read:
            self._read(size - len(self._next))
        if self._input_read and self._after is not None:
            self.size.stop_growing()  # these units cannot be put back
            return NextUnits(after=self._after, limit=min(room, self.size.steady))
        candidates = self._next if len(self._next) <= size else self._next[:size]
        return NextUnits(candidates=candidates, limit=room, defer=self._resumed, again=self._again)

    def advance(self, flushed: Flushed, *, in_hand: int) -> None:  # noqa: ARG002 - see the protocol
        self.dry = not flushed.taken and not flushed.examined
        if flushed.taken:
            self.size.begin(len(flushed.taken))
        if flushed.stop is not None:
            return
        if self._input_read and self._after is not None:
            self._after = flushed.choice.last
            return
        self._next = self._next[flushed.examined :]
        self._skipping = not flushed.taken and flushed.examined > 0

    def put_back(self, units: list[UnitInFlight]) -> None:
        self._next = [*units, *self._next]

    def remaining(self) -> Iterator[Sequence[UnitInFlight]]:
        """The keys that no flush has considered."""
        while not self._input_read:
            yield self._next
            self._next = []
            self._read(SKIP_AHEAD_KEYS)

    def _read(self, count: int) -> None:
        more: Sequence[UnitInFlight]
        if self._range is None:
            more = self._read_ahead(count)
        else:
            more = NewUnits.of(self._range[self.keys_read : self.keys_read + count], self.keys_read)
        self._all_read = len(more) < count
        self.keys_read += len(more)
        self._next = [*self._next, *more] if self._next else more

    def _read_ahead(self, count: int) -> list[UnitInFlight]:
        """The next keys of an iterator, up to its end or to its error."""
        more: list[UnitInFlight] = []
        try:
            more.extend(islice(self._keys, count))
        except Exception as error:  # noqa: BLE001 - the user's own iterator
            self.error = error
        return more


class PendingUnits:
    """The pending units of the ledger. A shard takes few at a time, so that other shards get some too.

    All *shards* together have no more unwritten outcomes than one local run, or one each when there are many. Short
    units are written in larger groups, here as there.
    """

    fresh, planned = False, True

    def __init__(self, shards: int, checkpoint: CheckpointInterval) -> None:
        self.exhausted = False
        self.dry = False
        self.size = GroupSize(checkpoint, shards=shards)

    def window(self, plan: RunPlan) -> int:
        return plan.jobs * self.size.units

    def request(self, room: int) -> NextUnits:
        self.size.finish()
        return NextUnits(limit=room)

    def advance(self, flushed: Flushed, *, in_hand: int) -> None:
        # A poison suspect may wait until no unit is in flight: only then is the ledger known to have no more units.
        self.dry = not flushed.taken
        self.exhausted = not flushed.taken and not in_hand
        if flushed.taken:
            self.size.begin(len(flushed.taken))

    def put_back(self, units: list[UnitInFlight]) -> None:
        """Do nothing: they are pending in the ledger."""


def pop_last(waiting: deque[TakenUnit], count: int) -> list[UnitInFlight]:
    """Remove the last units of a queue, in their order; other threads may take its first ones meanwhile."""
    rows: list[UnitRow] = []
    with suppress(IndexError):
        while len(rows) < count:
            rows.append(row_of(waiting.pop()))
    return [(row.key, row.position) for row in reversed(rows)]


def numbered(keys: Iterable[Any], resume_from: FirstKey | None = None) -> Iterator[UnitInFlight]:
    """The keys of an input with their places, from *resume_from* on."""
    skipping = resume_from is not None
    for place, value in enumerate(keys):
        key = unit_key(value)
        skipping = skipping and resume_from is not None and not resume_from(key)
        if not skipping:
            yield key, place

"""The size of a group: the number of units that a run takes, and writes, at a time."""

from __future__ import annotations

from holdfast.domain.batches.checkpoint import SHORT_GROUP_S, CheckpointInterval
from holdfast.worker import clock

#: A group that takes longer than this has slow units: it is not larger than the interval says.
SLOW_GROUP_S = 2 * SHORT_GROUP_S
#: A shard doubles its first, small groups when one takes less time, and halves its groups when one takes more.
QUICK_GROUP_S, LONG_GROUP_S = 0.25, 1.0


class GroupSize:
    """Finds the size by the time that the last group has run.

    Units that are not short come in groups of the interval, divided by the number of *shards*. Each shard begins with
    a single unit: others shall get some too. While units are short, groups grow up to the maximum of the interval.
    """

    def __init__(self, interval: CheckpointInterval, *, shards: int | None = None) -> None:
        #: The size for units that are not short, and the largest size.
        self.steady = max(1, interval.units // (shards or 1))
        self._largest = max(1, interval.max_units // (shards or 1))
        self._smallest = self.steady if shards is None else 1
        self.units = self._smallest
        self._interval = interval
        #: When the ledger was written, by the worker's clock.
        self.flushed_at = clock.now()
        self._group, self._taken_at, self._ran_s = 0, clock.now(), 0.0

    @property
    def max_unwritten(self) -> int:
        """The number of outcomes that may wait, if they do not wait for long."""
        return max(self._interval.units, self.units)

    def is_full(self, unwritten: int) -> bool:
        """Whether this number of outcomes must be written now: more may wait only for a short time."""
        if unwritten < self._interval.units:
            return False
        return unwritten >= self.max_unwritten or clock.now() - self.flushed_at >= SHORT_GROUP_S

    def surplus(self, waiting: int, *, in_hand: int) -> int:
        """The number of *waiting* units to put back: those of a large group are not short. The growth ends."""
        if self.units <= self.steady or clock.now() - self._taken_at <= SLOW_GROUP_S:
            return 0
        self.shrink()
        return max(0, min(waiting, in_hand - self.steady))

    def shrink(self) -> None:
        """Return to the size for units that are not short."""
        self.units = min(self.units, self.steady)

    def stop_growing(self) -> None:
        """Keep the size for units that are not short from now on."""
        self._largest = self.steady
        self.shrink()

    def finish(self) -> None:
        """Note that the next units are requested: the group has run until now."""
        self._ran_s = clock.now() - self._taken_at

    def begin(self, taken: int) -> None:
        """Begin a group of this number of units, and adapt the size to the last one."""
        if self._ran_s > SLOW_GROUP_S:
            self.shrink()
        if self._ran_s > LONG_GROUP_S:
            self.units = max(self._smallest, self.units // 2)
        elif 2 * self._group >= self.units:  # a small group says little about a large one
            if self._ran_s < SHORT_GROUP_S:
                self.units = min(2 * self.units, self._largest)
            elif self._ran_s < QUICK_GROUP_S:
                self.units = max(self.units, min(2 * self.units, self.steady))
        self._group, self._taken_at = taken, clock.now()

"""Claims that read every lane from its start: when the next one is due, and what the last one has shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from holdfast.worker import clock
from holdfast.worker.backoff import Backoff

#: A busy worker reads its lanes from their start this often: jobs may have come before the known positions. Its
#: interval is at least this many times as long as the claim, up to a limit: the slots may wait for it.
FULL_INTERVAL_S, FULL_FACTOR, MAX_FULL_INTERVAL_S = 1.0, 30, 10.0
#: A full claim that takes longer than QUICK_S is followed by a pause of this many times the excess.
PAUSE_FACTOR = 40
#: After two full claims in a row that took longer than this, the worker does not risk a third one: it may be aborted.
SLOW_READ_S = 0.5
#: Other claims begin this far before the last claimed job, now and then: some jobs are committed or released late.
STEP_BACK = timedelta(seconds=2)
#: Full claims that take longer than this read index entries of jobs that are gone: two in a row read them twice.
QUICK_CLAIM_S = 0.01
#: A claim of new jobs searches each lane twice: only a worker with at most this many lanes makes one.
FEW_LANES = 20

#: Names of queues and of kinds.
Lanes = tuple[list[str], list[str]]


class FullClaims:
    """What a worker knows of its full claims."""

    def __init__(self) -> None:
        self.backoff = Backoff(PAUSE_FACTOR)
        #: When a busy worker makes the next one, and how long the last one took.
        self._due_at, self._cost = float("-inf"), 0.0
        #: The number of those in a row that took very long, and when to begin behind the positions next.
        self._slow_reads, self._step_back_at = 0, float("-inf")
        #: The lanes of which the last one took all jobs, and until when that counts.
        self._emptied: Lanes = ([], [])
        self._emptied_until = float("-inf")
        #: Whether the last claim was of new jobs alone.
        self.only_new = False

    @contextmanager
    def measured(self) -> Iterator[float]:
        """Measure one, and plan the next; the value is when it was sent."""
        sent_at = clock.now()
        try:
            with self.backoff.measured():
                yield sent_at
        finally:
            now = clock.now()
            self._cost = now - sent_at
            self._slow_reads = self._slow_reads + 1 if self._cost > SLOW_READ_S else 0
            self._due_at = now + min(max(FULL_INTERVAL_S, FULL_FACTOR * self._cost), MAX_FULL_INTERVAL_S)

    @property
    def is_due(self) -> bool:
        """Whether a busy worker should make one."""
        return clock.now() >= self._due_at

    @property
    def is_quick(self) -> bool:
        """Whether the last one read few entries of jobs that are gone."""
        return self._cost <= QUICK_CLAIM_S

    @property
    def is_slow(self) -> bool:
        """Whether to read a lane from its start takes very long."""
        return self._slow_reads >= 2

    def step_back(self) -> timedelta:
        """How far before its positions the next claim begins, in place of full claims that take very long."""
        if not self.is_slow or clock.now() < self._step_back_at:
            return timedelta()
        self._step_back_at = clock.now() + FULL_INTERVAL_S
        return STEP_BACK

    def left(self, lanes: Lanes | None) -> None:
        """The last claim has emptied *lanes*; None: it may have left jobs there."""
        self._emptied, self.only_new = lanes or ([], []), False
        self._emptied_until = clock.now() + FULL_INTERVAL_S

    def new_since(self, lanes: Lanes, latest: datetime | None) -> datetime | None:
        """The due time from which on new jobs are in emptied lanes; None: other jobs may be there too.

        *latest*: that of the jobs that were claimed. Some may be committed late: the next full claim finds the rest.
        """
        if latest is None or lanes != self._emptied or len(lanes[0]) * len(lanes[1]) > FEW_LANES:
            return None
        return latest - STEP_BACK if clock.now() < self._emptied_until else None

    @property
    def due_in(self) -> float | None:
        """Seconds until one must follow a claim of new jobs alone; None: the last claim was another."""
        return self._emptied_until - clock.now() if self.only_new else None

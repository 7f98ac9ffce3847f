"""What a worker wants to claim, and the claims that may be made for it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from msgspec import Struct, structs

from holdfast.domain.jobs.job import JobId, Lease
from holdfast.domain.jobs.lane_position import EarlierJobs, LaneHead, LaneRoute


class ClaimRequest(Struct, frozen=True, kw_only=True):
    """What to claim, as :meth:`Claims.claim` explains it."""

    queues: Sequence[str]
    leases: dict[str, timedelta]
    short: Sequence[str]
    free: int
    ahead: int
    suspects: tuple[int, int]
    limits: bool
    autoscaled: Sequence[str]
    unfinished: Sequence[JobId]
    #: Whether the store can continue behind a position. SQLite has no entries of jobs that are gone to pass over.
    positions: bool

    @property
    def jobs(self) -> int:
        return self.free + self.ahead

    @property
    def least(self) -> int:
        """The fewest jobs of a claim while more are ready: ahead of slots, a job that needs one ends it."""
        return self.free or self.ahead

    @property
    def lanes(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return tuple(self.queues), tuple(self.leases)

    @property
    def is_simple(self) -> bool:
        """Whether every job of the lanes may be claimed: no limit, no autoscaler and no single job forbids it."""
        return not (self.limits or self.autoscaled or self.unfinished or 0 in self.suspects)

    def at_most(self, count: int) -> ClaimRequest:
        """The same request for this many jobs, those for free slots first."""
        free = min(self.free, count)
        return structs.replace(self, free=free, ahead=min(self.ahead, count - free))

    def without(self, count: int) -> ClaimRequest:
        """What is left to claim after *count* jobs."""
        free = max(0, self.free - count)
        return structs.replace(self, free=free, ahead=max(0, self.jobs - count - free))


class Full(Struct, frozen=True):
    """Read every lane from its start. *turn*: the longest wait for large claims of other workers."""

    request: ClaimRequest
    turn: timedelta | None = None


class Limited(Struct, frozen=True):
    """Read every lane from its start, under the locks of the queues that have a limit."""

    request: ClaimRequest
    turn: timedelta | None = None


class Few(Struct, frozen=True):
    """Read the start of every lane, for free slots alone. The answer says whether more jobs may be ready."""

    request: ClaimRequest


class Onward(Struct, frozen=True):
    """Continue behind positions.

    - *earlier*: the notifications whose jobs the route takes in.
    - *only_new*: only jobs that became ready since the last claim emptied its lanes.
    - *final*: no other claim follows in this round.
    - *steps_back*: it begins a little before every position.
    """

    request: ClaimRequest
    route: LaneRoute
    turn: timedelta | None = None
    earlier: tuple[EarlierJobs, ...] = ()
    only_new: bool = False
    final: bool = False
    steps_back: bool = False


class Search(Struct, frozen=True):
    """Find the first job of every lane, and claim nothing. *keeps*: known positions stay as they are."""

    request: ClaimRequest
    keeps: bool = False


class Check(Struct, frozen=True):
    """Find out whether a job waits where *route* has no position."""

    request: ClaimRequest
    route: LaneRoute


Claim = Full | Limited | Few | Onward | Search | Check


class Answer(Struct, frozen=True, kw_only=True):
    """The answer to a claim, and the seconds that it *took*."""

    took: float = 0.0
    leases: Sequence[Lease] = ()
    #: Of a claim of few jobs: more may be ready. Of a check: a job waits.
    more: bool = False
    heads: Sequence[LaneHead] = ()
    #: The turn of a large claim did not come: it claimed nothing.
    turn_missed: bool = False

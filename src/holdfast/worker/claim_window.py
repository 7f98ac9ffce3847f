"""Claims on their way: the store works on the next one while the worker reads the answer to the last one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta

from msgspec import Struct, structs

from holdfast.domain.jobs.job import JobId, Lease
from holdfast.worker import clock

#: A claim is sent before the answer to the last one only if that took no longer than this: so the turns of other
#: workers come soon.
QUICK_ANSWER_S = 0.15


class ClaimRequest(Struct, frozen=True, kw_only=True):
    """What to claim, as :meth:`Claims.claim` explains it."""

    leases: dict[str, timedelta]
    short: list[str]
    free: int
    ahead: int
    suspects: tuple[int, int]
    limits: bool
    autoscaled: Sequence[str]
    unfinished: Sequence[JobId]

    @property
    def jobs(self) -> int:
        return self.free + self.ahead

    @property
    def least(self) -> int:
        """The fewest jobs of a claim while more are ready: ahead of slots, a job that needs one ends it."""
        return self.free or self.ahead

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
        return structs.replace(self, free=free, ahead=self.jobs - count - free)


class ClaimAnswer(Struct, frozen=True):
    """The leases that a request got. *complete*: no other job of the lanes could be claimed for it."""

    request: ClaimRequest
    leases: list[Lease]
    sent_at: float
    #: With this number of leases, more jobs are ready.
    enough: int
    complete: bool = True

    @property
    def has_enough(self) -> bool:
        return len(self.leases) >= self.enough

    @property
    def is_full(self) -> bool:
        return len(self.leases) == self.request.jobs

    @property
    def is_quick(self) -> bool:
        return clock.now() - self.sent_at < QUICK_ANSWER_S


class ClaimWindow:
    """Claims that were sent and not answered yet, the oldest first."""

    def __init__(self) -> None:
        self._sent: deque[tuple[ClaimRequest, float, Callable[[], list[Lease]], int]] = deque()

    def __len__(self) -> int:
        return len(self._sent)

    @property
    def jobs(self) -> int:
        """The number of jobs that these claims may get."""
        return sum(request.jobs for request, *_ in self._sent)

    def add(self, request: ClaimRequest, sent_at: float, receive: Callable[[], list[Lease]], *, enough: int) -> None:
        self._sent.append((request, sent_at, receive, enough))

    def receive(self) -> ClaimAnswer:
        """Wait for the answer to the oldest claim."""
        request, sent_at, receive, enough = self._sent.popleft()
        return ClaimAnswer(request, receive(), sent_at, enough, complete=False)

"""Claims: leases on ready jobs, in one order over all lanes of a worker."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from operator import attrgetter
from typing import Any

from holdfast.domain.fleet.queue import ALL_QUEUES, PRIVATE_PREFIX
from holdfast.domain.jobs.job import JobId, Lease, WorkerId
from holdfast.domain.jobs.lane_position import LaneHead, LaneRoute, gaps
from holdfast.errors import JobLocked
from holdfast.store.engine.backend import Timeouts
from holdfast.store.engine.operation import ById, Query, query, reader
from holdfast.store.jobs.promotion import Promotion

_read_leases = reader(Lease, Lease.__struct_fields__, micros=False)


class Claims(Promotion):
    """Claims ready jobs for workers. Every job goes to exactly one holder."""

    def claim(
        self,
        worker: WorkerId,
        *,
        queues: Sequence[str],
        leases: Mapping[str, timedelta],
        free: int = 1,
        ahead: int = 0,
        short: Collection[str] = (),
        suspects: tuple[int, int] | None = None,
        limits: bool = True,
        autoscaled: Sequence[str] = (),
        unfinished: Sequence[JobId] = (),
        build: str = "",
        turn: timedelta | None = None,
    ) -> list[Lease]:
        """Take leases on ready jobs, in one order over all *queues* and kinds: priority, due time, id.

        *leases* holds the lease duration of each kind. The first *free* jobs are claimed for free slots,
        then up to *ahead* jobs to wait for a slot.

        - Every job goes to exactly one holder, with a token higher than any before. No start is recorded.
        - Only jobs of these queues and kinds are touched; a stopped store starts nothing, and a paused queue
          only jobs of the highest priority.
        - Ahead of slots, only jobs of *short* kinds are claimed, and none behind a better job that needs a slot:
          one with ``no_prefetch`` other than a command, of another kind, of a limited queue, or a poison suspect.
        - *suspects*: the room for poison suspects of level 2 and of level 3; by default there is room for all.
          Suspects without room hold up no other job, nor do *unfinished* jobs, which are left out.
        - Limits of queues are exact over all workers. Without *limits*, limited queues are left out.
        - Commands of *autoscaled* queues are left out.
        - *build* names the worker's code. A payload that it has refused never comes back to it.
        - *turn*: the longest wait for other claims on these queues that name one. None: wait for none. PostgreSQL only.

        Raises:
            JobLocked: The turn did not come.
        """
        values = _values(worker, queues, leases, short, suspects or (free, free))
        values |= {"free": free, "ahead": ahead, "autoscaled": list(autoscaled), "unfinished": list(unfinished)}
        values["build"] = build
        claimed: list[Lease] | None = None
        if limits:
            with suppress(JobLocked):  # another transaction holds a limited queue; the others do not wait for it
                lock = query("lock_limited_queues", queues=values["queues"])
                limited = Query("claim_limited", values, Lease, (), lock, direct=True)
                claimed = self._backend.run(limited, timeout=Timeouts.brief)
        if claimed is None:
            claim = Query("claim", values, Lease, (), _turn(queues, turn), direct=True)
            claimed = self._backend.run(claim, timeout=Timeouts.brief)
        return _in_order(claimed)

    def claim_few(
        self,
        worker: WorkerId,
        *,
        queues: Sequence[str],
        leases: Mapping[str, timedelta],
        free: int,
        suspects: tuple[int, int],
        autoscaled: Sequence[str] = (),
        unfinished: Sequence[JobId] = (),
        build: str = "",
    ) -> tuple[list[Lease], bool]:
        """Take leases as :meth:`claim` does, for *free* slots and without limited queues, in less time. On PostgreSQL.

        The second answer: whether more jobs may be ready. With a poison suspect among the best jobs, none is claimed.
        """
        values = _values(worker, queues, leases, (), suspects)
        values |= {"free": free, "autoscaled": list(autoscaled), "unfinished": list(unfinished), "build": build}
        rows = self._backend.run(Query("claim_few", values, direct=True), timeout=Timeouts.brief)
        best = rows[0][0]
        claimed = _read_leases([row[1:] for row in rows if row[1] is not None])
        return _in_order(claimed), best == free or len(claimed) < best

    def any_limited(self, queues: Sequence[str]) -> bool:
        """Whether one of these queues has a limit. A claim without limits is cheaper."""
        return bool(self._fetch("find_limited_queue", queues=list(queues)))

    def any_unfinished(self, queues: Sequence[str], kinds: Sequence[str], *, except_for: int = 0) -> bool:
        """Whether more than *except_for* jobs of these *queues* and *kinds* are ready or running.

        ``*`` is every queue but private ones. Other lanes and finished jobs cost nothing.
        """
        named = [queue for queue in queues if queue != ALL_QUEUES]
        values = {"queues": named, "kinds": list(kinds), "limit": except_for + 1, "private": PRIVATE_PREFIX}
        rows = self._fetch("count_unfinished", **values, every_queue=len(named) < len(queues))
        return bool(rows[0][0] > except_for)

    def claim_onward(
        self,
        worker: WorkerId,
        route: LaneRoute,
        *,
        leases: Mapping[str, timedelta],
        free: int,
        ahead: int,
        short: Collection[str],
        turn: timedelta | None = None,
    ) -> list[Lease]:
        """Take leases on the next jobs of known lanes, each from the position of its last claim on. PostgreSQL only.

        - As :meth:`claim`, for jobs behind the positions and in the spans of *route*, at its priorities. Only
          :meth:`claim` finds the others: those before a position, poison suspects, and those for one build alone.
        - No job is claimed while one of a higher priority is ready in a lane of *route*.
        - Limited and paused queues are left out.

        Raises:
            JobLocked: The turn did not come.
        """
        values: dict[str, Any] = {"worker": worker, "free": free, "ahead": ahead}
        values |= route.columns(short, free + ahead) | _durations(leases)
        claim = Query("claim_onward", values, Lease, (), _turn(values["queues"], turn), direct=True)
        return _in_order(self._backend.run(claim, timeout=Timeouts.brief))

    def lane_heads(self, queues: Sequence[str], kinds: Sequence[str]) -> list[LaneHead]:
        """The first ready job of each lane that has one. PostgreSQL only."""
        lanes = {"queues": list(queues), "kinds": list(kinds)}
        return self._backend.run(Query("list_lane_heads", lanes, LaneHead, direct=True), repeatable=True)

    def any_elsewhere(self, route: LaneRoute) -> bool:
        """Whether a ready job has a lane or a priority without a position in *route*. PostgreSQL only."""
        return bool(self._backend.run(Query("find_job_elsewhere", gaps(route.elsewhere)), repeatable=True))


def _values(
    worker: WorkerId,
    queues: Sequence[str],
    leases: Mapping[str, timedelta],
    short: Collection[str],
    suspects: tuple[int, int],
) -> dict[str, Any]:
    """The parameters that claims have in common."""
    prefetched = frozenset(short)
    shorts = [name in prefetched for name in leases]
    kinds = ById(id=list(leases), lease_duration=list(leases.values()), short=shorts)
    values = {"worker": worker, "queues": list(queues), "kinds": kinds, "few": suspects[0], "alone": suspects[1]}
    return values | {"lease_duration": _common(leases)}


def _durations(leases: Mapping[str, timedelta]) -> dict[str, Any]:
    """The parameters for the lease durations: one for all kinds, if they have the same."""
    common = _common(leases)
    durations = leases if common is None else {}
    return {"lease_duration": common, "kinds": ById(id=list(durations), lease_duration=list(durations.values()))}


def _turn(queues: Sequence[str], longest: timedelta | None) -> Query | None:
    """The statement that waits for a turn of the claims on *queues*."""
    if longest is None:
        return None
    return query("take_turn", queues=sorted(queues), milliseconds=int(longest.total_seconds() * 1000))


def _common(leases: Mapping[str, timedelta]) -> timedelta | None:
    """The lease duration of all kinds, if they have the same one."""
    durations = set(leases.values())
    return min(durations) if len(durations) == 1 else None


def _in_order(leases: list[Lease]) -> list[Lease]:
    leases.sort(key=attrgetter("due_at", "job_id"))
    leases.sort(key=attrgetter("priority"), reverse=True)  # it keeps the order of equal ones
    return leases

"""Refusals of payloads: operations that offer a job to builds of workers that have not refused it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from holdfast.domain.fleet.queue import WORKER_SILENCE, serves_queue
from holdfast.domain.jobs.history import EventName
from holdfast.domain.jobs.job import JobId, State
from holdfast.domain.jobs.new_job import Actor
from holdfast.store.engine.operation import Operation, query
from holdfast.store.jobs.events import record, record_all

NOTE = "no live worker can read its payload: those that could have stopped"


class LiveBuild(Struct, frozen=True):
    """The build of a live worker; *queues* and *kinds*, JSON lists, are those that the worker serves."""

    build: str
    queues: str
    kinds: str

    def serves(self, queue: str, kind: str) -> bool:
        """Whether the worker claims jobs of this kind from this queue."""
        return serves_queue(msgspec.json.decode(self.queues), queue) and kind in msgspec.json.decode(self.kinds)


class RefusedLane(Struct, frozen=True):
    """The place of refused jobs. Without a *reader* they are held, and wait for a build that can read them."""

    state: State
    reader: str
    queue: str
    kind: str


def list_builds() -> Operation[list[LiveBuild]]:
    """The builds of live workers, the newest first; a build comes once per worker."""
    rows: list[LiveBuild] = yield query("list_builds", LiveBuild, silence=WORKER_SILENCE)
    return rows


def offer(limit: int) -> Operation[int]:
    """Withdraw jobs from builds that are gone, and offer jobs without a reader to builds that are alive."""
    lanes: list[RefusedLane] = yield query("list_refused_lanes", RefusedLane)
    live = yield from list_builds()
    builds = {
        (lane.queue, lane.kind): [each.build for each in live if each.serves(lane.queue, lane.kind)] for lane in lanes
    }
    withdrawn: set[JobId] = set()
    for lane in lanes:
        if lane.state is State.READY and lane.reader and lane.reader not in builds[lane.queue, lane.kind]:
            place = {"reader": lane.reader, "queue": lane.queue, "kind": lane.kind}
            rows = yield query("withdraw_jobs", **place, note=NOTE, limit=limit)
            withdrawn |= {row[0] for row in rows}
    offered = yield from _offer_held(builds, limit)
    events = [(job_id, EventName.OFFERED, {"reader": build}) for job_id, build in sorted(offered.items())]
    yield from record_all(events, actor=Actor.MAINTENANCE)
    held = sorted(withdrawn - offered.keys())
    yield from record(EventName.HELD, dict.fromkeys(held, NOTE), actor=Actor.MAINTENANCE)
    return len(offered) + len(held)


def _offer_held(builds: Mapping[tuple[str, str], Sequence[str]], limit: int) -> Operation[dict[JobId, str]]:
    """Release held jobs to the first build of their queue and kind that has not refused them."""
    offered: dict[JobId, str] = {}
    for (queue, kind), names in builds.items():
        for build in dict.fromkeys(names):
            rows = yield query("offer_jobs", build=build, queue=queue, kind=kind, limit=limit)
            offered |= dict.fromkeys((row[0] for row in rows), build)
    return offered

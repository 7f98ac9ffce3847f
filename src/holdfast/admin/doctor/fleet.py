"""The checks of workers and queues: who is alive, and which ready jobs no worker serves."""

from __future__ import annotations

import shlex
import socket
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from holdfast.admin.views.fleet import QueueView, WorkerView
from holdfast.domain.commands.command import COMMAND
from holdfast.domain.fleet.queue import WORKER_SILENCE, serves_queue
from holdfast.domain.health_check import HealthCheck, ok, warn
from holdfast.domain.names import quote_argument
from holdfast.store.fleet.dashboard import LaneCount

#: A worker that has sent no heartbeat for longer may be dead: it sends one every ten seconds.
LATE_AFTER = WORKER_SILENCE / 2
RUN_COMMANDS = "Start a worker without --app, or with --run-commands on."
RUN_KIND = "Start a worker whose application has the kind; after a rename, give the new kind aliases=[...]."


def live_workers(workers: Sequence[WorkerView], now: datetime) -> list[WorkerView]:
    """The workers that are alive: seen lately, and not killed on this host since."""
    return [worker for worker in workers if not is_gone(worker) and now - worker.seen_at <= LATE_AFTER]


def is_gone(worker: WorkerView, *, processes: Path = Path("/proc")) -> bool:
    """Whether the process of a worker on this host does not exist any more."""
    here = worker.host == socket.gethostname() and processes.is_dir()
    return here and not (processes / str(worker.pid)).exists()


def check_workers(workers: Sequence[WorkerView], lanes: Sequence[LaneCount], now: datetime) -> Iterator[HealthCheck]:
    """Report workers that are late or killed, different versions, and ready jobs while none is alive."""
    alive = live_workers(workers, now)
    for worker in workers:
        age = f"{(now - worker.seen_at).total_seconds():,.0f} s ago"
        if is_gone(worker):
            text = f"{worker.id} (pid {worker.pid}) was killed: its last heartbeat came {age}"
            yield warn("workers", text, "Start it again; its jobs are taken over when their leases expire.")
        elif worker not in alive:
            text = f"{worker.id} on {worker.host} is late: its last heartbeat came {age}"
            yield warn("workers", text, "See its log; after a minute it counts as lost.")
    ready = sum(lane.ready for lane in lanes)
    if alive:
        yield ok("workers", f"{len(alive)} alive")
    elif ready:
        yield warn("workers", f"no worker is alive, and {ready:,} jobs are ready", "Start one: holdfast up.")
    else:
        yield ok("workers", "none is alive, and nothing waits for one")
    versions = sorted({worker.version or "none" for worker in alive})
    if len(versions) > 1:
        yield warn("versions", f"workers run different code: {', '.join(versions)}", "Restart the older ones.")


def check_lanes(lanes: Sequence[LaneCount], alive: Sequence[WorkerView]) -> Iterator[HealthCheck]:
    """Report ready jobs that no live worker serves, because of their queue or of their kind."""
    queues = {lane.queue for lane in lanes} - {
        lane.queue for lane in lanes for worker in alive if serves_queue(worker.queues, lane.queue)
    }
    for queue in sorted(queues):
        ready = sum(lane.ready for lane in lanes if lane.queue == queue)
        text = f"{ready:,} jobs wait in {queue!r}, which no worker serves"
        fix = f"Start one with --queue={shlex.quote(queue)}, or move them with holdfast set --to-queue."
        yield warn("queue", text, fix)
    for lane in lanes:
        kinds = {kind for worker in alive if serves_queue(worker.queues, lane.queue) for kind in worker.kinds}
        if lane.queue not in queues and lane.kind not in kinds:
            text = f"{lane.ready:,} jobs of kind {lane.kind!r} wait in {lane.queue!r}, and no worker there runs it"
            yield warn("kind", text, RUN_COMMANDS if lane.kind == COMMAND else RUN_KIND)


def check_queues(queues: Sequence[QueueView]) -> Iterator[HealthCheck]:
    """Report queues that are paused, and leases that no worker takes over."""
    for queue in queues:
        if queue.paused:
            note = f": {queue.note}" if queue.note else ""
            fix = f"holdfast queue resume {quote_argument(queue.name)}"
            yield warn("queue", f"{queue.name!r} is paused{note}", fix)
        if queue.expired:
            text = f"{queue.expired:,} leases of {queue.name!r} have expired, and no worker has taken them over"
            yield warn("leases", text, "Any worker of this store does it within seconds: start one.")

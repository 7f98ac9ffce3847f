"""The checks of workers and queues: who is alive, who may run out of files, and which ready jobs no worker serves."""

from __future__ import annotations

import os
import re
import shlex
import socket
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

from holdfast.admin.views.fleet import TERMINAL_CAP, QueueView, WaitingLane, WorkerView
from holdfast.domain.commands.command import COMMAND
from holdfast.domain.fleet.lost_workers import REPORTED_FOR, unreplaced
from holdfast.domain.fleet.queue import WORKER_SILENCE, serves_queue
from holdfast.domain.health_check import HealthCheck, ok, warn
from holdfast.domain.jobs.job import RunningJob
from holdfast.domain.names import quote_argument
from holdfast.domain.quantities import count_of
from holdfast.worker.shortage import needed_descriptors

#: A worker that has sent no heartbeat for longer may be dead: it sends one every ten seconds.
LATE_AFTER = WORKER_SILENCE / 2
#: Jobs of a lost worker that are named.
MAX_IDS = 10
#: Lost workers without jobs that are named.
MAX_LOST = 10
#: A worker that has used this share of its file descriptors is about to run out.
NEARLY_ALL = 0.8
RAISE_LIMIT = "Raise it (ulimit -n; LimitNOFILE= of a systemd unit), or run fewer slots."
RUN_COMMANDS = "Start a worker without --app, or with --run-commands on."
RUN_KIND = "Start a worker whose application has the kind. After a rename, add aliases=[...] to the new kind."


def live_workers(workers: Sequence[WorkerView], now: datetime) -> list[WorkerView]:
    """The workers that are alive: seen lately, and not killed on this host since."""
    return [worker for worker in workers if not is_gone(worker) and now - worker.seen_at <= LATE_AFTER]


def is_gone(worker: WorkerView, *, processes: Path = Path("/proc")) -> bool:
    """Whether the process of a worker on this host does not exist any more."""
    here = worker.host == socket.gethostname() and processes.is_dir()
    return here and not (processes / str(worker.pid)).exists()


def check_workers(
    workers: Sequence[WorkerView], lanes: Sequence[WaitingLane], running: Sequence[RunningJob], now: datetime
) -> Iterator[HealthCheck]:
    """Report workers that are late, killed or lost, different versions, and jobs while none is alive."""
    alive = live_workers(workers, now)
    lost = [worker for worker in workers if not worker.alive]
    yield from _check_lost(lost, alive, running, now)
    for worker in (worker for worker in workers if worker.alive):
        age = _age(worker, now)
        if is_gone(worker):
            text = f"{worker.id} (pid {worker.pid}) was killed; last heartbeat {age}"
            yield warn("workers", text, "Start it again; its jobs are taken over when their leases expire.")
        elif worker not in alive:
            text = f"{worker.id} on {worker.host} is late; last heartbeat {age}"
            yield warn("workers", text, "See its log; after a minute it counts as lost.")
    waiting = _together(lanes)
    ids = {worker.id for worker in lost}
    orphans = sum(job.worker in ids or job.lease_expires_at < now for job in running)
    if alive:
        yield ok("workers", f"{len(alive)} alive")
    elif lanes:
        yield warn("workers", f"no worker is alive, and {waiting.text}", "Start one: holdfast up.")
    elif orphans:
        many = count_of(orphans, "job has", "jobs have")
        yield warn("workers", f"no worker is alive, and {many} lost theirs", "Start one: holdfast up.")
    else:
        yield ok("workers", "none is alive, and no job waits for one")
    versions = sorted({worker.version or "none" for worker in alive})
    if len(versions) > 1:
        yield warn("versions", f"workers run different code: {', '.join(versions)}", "Restart the older ones.")


def _check_lost(
    lost: Sequence[WorkerView], alive: Sequence[WorkerView], running: Sequence[RunningJob], now: datetime
) -> Iterator[HealthCheck]:
    """Report lost workers that hold jobs, and those of the last hour that no later worker has replaced."""
    missing = unreplaced([worker for worker in lost if now - worker.seen_at < REPORTED_FOR], alive)
    for worker in lost:
        if jobs := [job for job in running if job.worker == worker.id]:
            yield _lost_holder(worker, jobs)
        elif worker in missing[:MAX_LOST]:
            text = f"{worker.id} (pid {worker.pid} on {worker.host}) is lost; last heartbeat {_age(worker, now)}"
            yield warn("workers", text, "See its log and its host, then start it again. It held no job.")
    if len(missing) > MAX_LOST:
        yield warn("workers", f"{len(missing) - MAX_LOST:,} more workers are lost", "See holdfast workers.")


def _age(worker: WorkerView, now: datetime) -> str:
    return f"{(now - worker.seen_at).total_seconds():,.0f} s ago"


def _lost_holder(worker: WorkerView, jobs: Sequence[RunningJob]) -> HealthCheck:
    ids = ", ".join(str(job_id) for job_id in sorted(job.id for job in jobs)[:MAX_IDS])
    more = f" and {len(jobs) - MAX_IDS:,} more" if len(jobs) > MAX_IDS else ""
    end = f"their last lease ends at {max(job.lease_expires_at for job in jobs):%Y-%m-%d %H:%M:%S} UTC"
    text = f"{worker.id} (pid {worker.pid} on {worker.host}) is lost, and holds jobs {ids}{more}; {end}"
    return warn("workers", text, "Another worker takes them over then, if one serves them: see holdfast why JOB.")


def check_descriptors(workers: Sequence[WorkerView], *, processes: Path = Path("/proc")) -> Iterator[HealthCheck]:
    """Report workers on this host whose limit is too low for their slots, or nearly used up."""
    for worker in workers:
        limit = _file_limit(processes / str(worker.pid)) if worker.host == socket.gethostname() else None
        if limit is None:
            continue
        used, needed = _open_files(processes / str(worker.pid)), needed_descriptors(worker.slots or 0)
        if used >= NEARLY_ALL * limit:
            yield warn("open files", f"worker {worker.id} has {used:,} of {limit:,} files open", RAISE_LIMIT)
        elif limit < needed:
            text = f"worker {worker.id} may open {limit:,} files, and {worker.slots:,} slots may need {needed:,}"
            yield warn("open files", text, RAISE_LIMIT)


def _file_limit(process: Path) -> int | None:
    """The soft limit of open files of a process; None if it is unknown or there is none."""
    try:
        match = re.search(r"^Max open files\s+(\d+)", (process / "limits").read_text(), re.MULTILINE)
    except OSError:
        return None
    return None if match is None else int(match[1])


def _open_files(process: Path) -> int:
    try:
        return len(os.listdir(process / "fd"))  # noqa: PTH208 - only their number counts
    except OSError:
        return 0


def _together(lanes: Iterable[WaitingLane]) -> WaitingLane:
    """All jobs of some lanes, counted as one."""
    lanes = list(lanes)
    ready, scheduled = sum(lane.ready for lane in lanes), sum(lane.scheduled for lane in lanes)
    return WaitingLane("", "", ready, scheduled, TERMINAL_CAP)


def check_lanes(lanes: Sequence[WaitingLane], alive: Sequence[WorkerView]) -> Iterator[HealthCheck]:
    """Report ready and scheduled jobs that no live worker serves, because of their queue or of their kind."""
    queues = {lane.queue for lane in lanes} - {
        lane.queue for lane in lanes for worker in alive if serves_queue(worker.queues, lane.queue)
    }
    for queue in sorted(queues):
        text = f"{_together(lane for lane in lanes if lane.queue == queue).text} in {queue!r}, which no worker serves"
        fix = f"Start one with --queue={shlex.quote(queue)}, or move them with holdfast set --to-queue."
        yield warn("queue", text, fix)
    for lane in lanes:
        if lane.queue not in queues and not any(map(lane.is_served_by, alive)):
            text = f"{lane.text} in {lane.queue!r}, and no worker there runs kind {lane.kind!r}"
            yield warn("kind", text, RUN_COMMANDS if lane.kind == COMMAND else RUN_KIND)


def check_queues(queues: Sequence[QueueView]) -> Iterator[HealthCheck]:
    """Report queues that are paused, and leases that no worker takes over."""
    for queue in queues:
        if queue.paused:
            note = f": {queue.note}" if queue.note else ""
            fix = f"holdfast queue resume {quote_argument(queue.name)}"
            yield warn("queue", f"{queue.name!r} is paused{note}", fix)
        if queue.expired:
            many = count_of(queue.expired, f"lease of {queue.name!r} has", f"leases of {queue.name!r} have")
            text = f"{many} expired, and no worker has taken over"
            fix = "Start a worker: it does so within seconds. After a restore, run holdfast emergency-stop first."
            yield warn("leases", text, fix)

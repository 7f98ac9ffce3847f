"""Why a job is not running, in words."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from holdfast.domain.durations import format_duration
from holdfast.domain.fleet.queue import Queue, Usage, free_slots
from holdfast.domain.jobs.dependencies import DependencyState, When
from holdfast.domain.jobs.job import EndReason, Job, State


class Because(StrEnum):
    """Why a job is not running."""

    FINISHED = "finished"
    RUNNING = "running"
    EXPIRED = "expired"
    HELD = "held"
    NOT_DUE = "not_due"
    DEPENDENCIES = "dependencies"
    QUEUE_PAUSED = "queue_paused"
    LIMIT_FULL = "limit_full"
    NO_WORKER = "no_worker"
    NOT_ADMITTED = "not_admitted"
    NEXT = "next"


class WhyReason(Struct, frozen=True):
    """One reason and a sentence about it."""

    because: Because
    text: str


class JobSituation(Struct, frozen=True, kw_only=True):
    """All that the answer depends on, read in one moment."""

    job: Job
    now: datetime
    queue: Queue | None = None
    usage: Usage | None = None
    dependencies: Sequence[DependencyState] = ()
    workers: int = 0
    ahead: int = 0
    #: What autoscalers say against it.
    refusals: Sequence[str] = ()


def explain(facts: JobSituation) -> list[WhyReason]:
    """Every reason why the job does not run now, the nearest first."""
    job = facts.job
    match job.state:
        case State.DONE | State.DEAD | State.CANCELLED:
            return [WhyReason(Because.FINISHED, _finished(job))]
        case State.RUNNING:
            return [_running(job, facts.now)]
        case State.HELD:
            note = f": {job.note}" if job.note else ""
            return [WhyReason(Because.HELD, f"it is held until a person lets it go{note}")]
        case State.WAITING:
            return [WhyReason(Because.DEPENDENCIES, _needs(job, facts.dependencies)), *_obstacles(facts)]
        case State.SCHEDULED:
            return [_not_due(job, facts.now), *_obstacles(facts)]
        case State.READY:
            return _obstacles(facts) or [WhyReason(Because.NEXT, _next(facts))]


def _finished(job: Job) -> str:
    because = f": {job.error.splitlines()[0]}" if job.error else ""
    offer = f" (holdfast restart {job.id} --memory SIZE gives it more)" if job.reason == EndReason.OOM else ""
    return f"it has ended, {job.state.value}{because}{offer}"


def _running(job: Job, now: datetime) -> WhyReason:
    if job.lease_expires_at is not None and job.lease_expires_at < now:
        silent = format_duration(now - job.lease_expires_at)
        return WhyReason(
            Because.EXPIRED, f"its worker {job.worker} fell silent {silent} past its lease; a sweep takes it over"
        )
    return WhyReason(Because.RUNNING, f"it is running on worker {job.worker}")


def _not_due(job: Job, now: datetime) -> WhyReason:
    wait = format_duration(max(job.due_at - now, timedelta(0)))
    why = f", after attempt {job.attempts} failed" if job.attempts else ""
    return WhyReason(Because.NOT_DUE, f"it is due in {wait}{why}")


def _needs(job: Job, dependencies: Sequence[DependencyState]) -> str:
    if all(need.state is None or need.state.finished for need in dependencies):
        return "its needs have ended; a sweep lets it go on"
    open_dependencies = [need for need in dependencies if need.state is not None and not need.state.finished]
    shown = ", ".join(f"{need.dependency_id} ({need.state.value})" for need in open_dependencies[:5] if need.state)
    more = f" and {len(open_dependencies) - 5} more" if len(open_dependencies) > 5 else ""
    requested = {When.DONE: "be done", When.FINISHED: "end", When.FAILED: "fail or end"}[
        When(job.after_when or When.DONE)
    ]
    return f"it waits for job {shown}{more} to {requested}"


def _obstacles(facts: JobSituation) -> list[WhyReason]:
    job, reasons = facts.job, []
    if facts.queue is not None and facts.queue.paused:
        note = f": {facts.queue.note}" if facts.queue.note else ""
        reasons.append(WhyReason(Because.QUEUE_PAUSED, f"queue {job.queue!r} is paused{note}"))
    if facts.usage is not None and facts.usage.limit is not None and free_slots(facts.usage) == 0:
        reasons.append(
            WhyReason(
                Because.LIMIT_FULL, f"queue {job.queue!r} already runs {facts.usage.running} of {facts.usage.limit}"
            )
        )
    if facts.workers == 0:
        reasons.append(WhyReason(Because.NO_WORKER, f"no live worker serves kind {job.kind!r} on queue {job.queue!r}"))
    if job.state is State.READY:
        reasons += [WhyReason(Because.NOT_ADMITTED, text) for text in facts.refusals]
    return reasons


def _next(facts: JobSituation) -> str:
    if facts.ahead:
        return f"{facts.ahead} jobs of its queue and kind come before it"
    return "nothing stands in its way: a worker takes it next"

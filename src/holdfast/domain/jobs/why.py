"""Why a job is not running."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from holdfast.domain.fleet.queue import Queue, Usage, free_slots
from holdfast.domain.fleet.stop_switch import StopSwitch
from holdfast.domain.jobs.dependencies import DependencyState, When
from holdfast.domain.jobs.job import EndReason, Job, State
from holdfast.domain.jobs.new_job import HIGHEST_PRIORITY
from holdfast.domain.jobs.refusal import describe_refusals, load_refusals
from holdfast.domain.quantities import format_duration


class Because(StrEnum):
    """Why a job is not running."""

    FINISHED = "finished"
    CLAIMED = "claimed"
    RUNNING = "running"
    EXPIRED = "expired"
    HELD = "held"
    NOT_DUE = "not_due"
    DEPENDENCIES = "dependencies"
    STORE_STOPPED = "store_stopped"
    QUEUE_PAUSED = "queue_paused"
    LIMIT_FULL = "limit_full"
    NO_WORKER = "no_worker"
    NOT_ADMITTED = "not_admitted"
    UNREADABLE = "unreadable"
    NEXT = "next"


class WhyReason(Struct, frozen=True):
    """One reason, and a sentence for people."""

    because: Because
    text: str


class JobSituation(Struct, frozen=True, kw_only=True):
    """The input of :func:`explain`, from one snapshot of the store."""

    job: Job
    now: datetime
    switch: StopSwitch | None = None
    queue: Queue | None = None
    usage: Usage | None = None
    dependencies: Sequence[DependencyState] = ()
    workers: int = 0
    ahead: int = 0
    #: Sentences of autoscalers that do not admit the job.
    refusals: Sequence[str] = ()


def explain(situation: JobSituation) -> list[WhyReason]:
    """Every reason why the job does not run now, the most direct first."""
    job = situation.job
    match job.state:
        case State.DONE | State.DEAD | State.CANCELLED:
            return [WhyReason(Because.FINISHED, _finished(job))]
        case State.RUNNING:
            return [_running(job, situation.now)]
        case State.HELD if job.unreadable:
            refusals = describe_refusals(load_refusals(job.refusals))
            text = f"it is held until a worker that can read it starts, or a person resumes it: {refusals}"
            return [WhyReason(Because.UNREADABLE, text)]
        case State.HELD:
            note = f": {job.note}" if job.note else ""
            return [WhyReason(Because.HELD, f"it is held until a person lets it go{note}"), *_stopped(situation)]
        case State.WAITING:
            return [WhyReason(Because.DEPENDENCIES, _waits_for(job, situation.dependencies)), *_obstacles(situation)]
        case State.SCHEDULED:
            return [_not_due(job, situation.now), *_obstacles(situation)]
        case State.READY:
            return _obstacles(situation) or [_next(situation.ahead)]


def _finished(job: Job) -> str:
    because = f": {job.error.splitlines()[0]}" if job.error else ""
    offer = f" (holdfast restart {job.id} --memory SIZE gives it more)" if job.reason == EndReason.OOM else ""
    return f"it has ended, {job.state.value}{because}{offer}"


def _running(job: Job, now: datetime) -> WhyReason:
    if job.lease_expires_at is not None and job.lease_expires_at < now:
        silent = format_duration(now - job.lease_expires_at)
        text = f"its worker {job.worker} fell silent {silent} past its lease; a sweep takes it over"
        return WhyReason(Because.EXPIRED, text)
    if job.claimed:
        return WhyReason(Because.CLAIMED, f"worker {job.worker} has claimed it; it has not started, or only just now")
    return WhyReason(Because.RUNNING, f"it is running on worker {job.worker}")


def _not_due(job: Job, now: datetime) -> WhyReason:
    wait = format_duration(max(job.due_at - now, timedelta(0)))
    why = f", after attempt {job.attempts} failed" if job.attempts else ""
    return WhyReason(Because.NOT_DUE, f"it is due in {wait}{why}")


def _waits_for(job: Job, dependencies: Sequence[DependencyState]) -> str:
    unfinished = [each for each in dependencies if each.state is not None and not each.state.finished]
    if not unfinished:
        return "its needs have ended; a sweep lets it go on"
    shown = ", ".join(f"{each.dependency_id} ({each.state.value})" for each in unfinished[:5] if each.state)
    more = f" and {len(unfinished) - 5} more" if len(unfinished) > 5 else ""
    conditions = {When.DONE: "be done", When.FINISHED: "end", When.FAILED: "fail or end"}
    return f"it waits for job {shown}{more} to {conditions[When(job.after_when or When.DONE)]}"


def _obstacles(situation: JobSituation) -> list[WhyReason]:
    job, reasons = situation.job, _stopped(situation)
    if job.reader:
        refusals = describe_refusals(load_refusals(job.refusals))
        text = f"it waits for a worker of build {job.reader}; other workers cannot read it: {refusals}"
        reasons.append(WhyReason(Because.UNREADABLE, text))
    if situation.queue is not None and situation.queue.paused and job.priority < HIGHEST_PRIORITY:
        note = f": {situation.queue.note}" if situation.queue.note else ""
        reasons.append(WhyReason(Because.QUEUE_PAUSED, f"queue {job.queue!r} is paused{note}"))
    if situation.usage is not None and situation.usage.limit is not None and free_slots(situation.usage) == 0:
        text = f"queue {job.queue!r} already runs {situation.usage.running} of {situation.usage.limit}"
        reasons.append(WhyReason(Because.LIMIT_FULL, text))
    if situation.workers == 0:
        reasons.append(WhyReason(Because.NO_WORKER, f"no live worker serves kind {job.kind!r} on queue {job.queue!r}"))
    if job.state is State.READY:
        reasons += [WhyReason(Because.NOT_ADMITTED, text) for text in situation.refusals]
    return reasons


def _stopped(situation: JobSituation) -> list[WhyReason]:
    switch = situation.switch
    return [] if switch is None else [WhyReason(Because.STORE_STOPPED, switch.text)]


def _next(ahead: int) -> WhyReason:
    text = f"{ahead} jobs of its queue and kind come before it"
    return WhyReason(Because.NEXT, text if ahead else "nothing stands in its way: a worker takes it next")

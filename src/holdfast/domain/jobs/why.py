"""Why a job is not running."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from holdfast.domain.commands.command import COMMAND
from holdfast.domain.fleet.queue import WORKER_LATE_AFTER, WORKER_SILENCE, Queue, Usage, free_slots
from holdfast.domain.fleet.stop_switch import StopSwitch
from holdfast.domain.jobs.dependencies import DependencyState, When
from holdfast.domain.jobs.job import HIGHEST_PRIORITY, MAX_LOSSES, EndReason, Job, State
from holdfast.domain.jobs.refusal import describe_refusals, load_refusals
from holdfast.domain.names import quote_argument
from holdfast.domain.quantities import format_duration

#: Jobs before a job are counted up to this number.
MAX_AHEAD = 1000
#: A run that goes on for longer after its timeout ignores the stop request, and its executor cannot kill it.
OVERDUE_AFTER = timedelta(seconds=10)


class Because(StrEnum):
    """Why a job is not running."""

    FINISHED = "finished"
    CLAIMED = "claimed"
    RUNNING = "running"
    OVERDUE = "overdue"
    LATE_WORKER = "late_worker"
    EXPIRED = "expired"
    HELD = "held"
    NOT_DUE = "not_due"
    DEPENDENCIES = "dependencies"
    STORE_STOPPED = "store_stopped"
    QUEUE_PAUSED = "queue_paused"
    LIMIT_FULL = "limit_full"
    NO_WORKER = "no_worker"
    QUIETED = "quieted"
    NOT_ADMITTED = "not_admitted"
    UNREADABLE = "unreadable"
    BUSY = "busy"
    SUSPECT = "suspect"
    IN_LINE = "in_line"
    NEXT = "next"


class WhyReason(Struct, frozen=True):
    """One reason, a sentence for people, and the command that helps, if there is one."""

    because: Because
    text: str
    command: str | None = None


class ServingWorker(Struct, frozen=True):
    """A live worker that serves the queue and the kind of a job. *quieted*: a request stops its claims."""

    slots: int | None
    busy: int
    quieted: bool


class JobSituation(Struct, frozen=True, kw_only=True):
    """The input of :func:`explain`, from one snapshot of the store."""

    job: Job
    now: datetime
    switch: StopSwitch | None = None
    queue: Queue | None = None
    usage: Usage | None = None
    dependencies: Sequence[DependencyState] = ()
    #: Without the holder of the job, if its heartbeat is late.
    workers: Sequence[ServingWorker] = ()
    #: The last heartbeat of the worker that holds the job.
    seen_at: datetime | None = None
    #: The longest run of its kind, in seconds.
    kind_timeout: float | None = None
    #: Ready jobs of the same queue and kind that are claimed earlier, counted up to one more than MAX_AHEAD.
    ahead: int = 0
    #: Sentences of autoscalers that do not admit the job.
    refusals: Sequence[str] = ()


def explain(situation: JobSituation) -> list[WhyReason]:
    """Every reason why the job does not run now, the most direct first."""
    job = situation.job
    match job.state:
        case State.DONE | State.DEAD | State.CANCELLED:
            return [_finished(job)]
        case State.RUNNING:
            return _running(situation)
        case State.HELD if job.unreadable:
            refusals = describe_refusals(load_refusals(job.refusals))
            text = (
                f"its payload fits the code of no live worker; it is held until one starts that can read"
                f" version {job.kind_version} of it: {refusals}"
            )
            return [WhyReason(Because.UNREADABLE, text, _serve(job))]
        case State.HELD:
            text = "it is held until a person resumes it" + _because(job.note)
            return [WhyReason(Because.HELD, text, f"holdfast resume {job.id}"), *_stopped(situation)]
        case State.WAITING:
            return [WhyReason(Because.DEPENDENCIES, _waits_for(job, situation.dependencies)), *_obstacles(situation)]
        case State.SCHEDULED:
            return [_not_due(job, situation.now), *_obstacles(situation)]
        case State.READY:
            obstacles = _obstacles(situation)
            return [*obstacles, *_in_line(situation)] or [WhyReason(Because.NEXT, "a worker claims it next")]


def _because(note: str | None) -> str:
    return f": {note}" if note else ""


def _finished(job: Job) -> WhyReason:
    text = f"it is finished: {job.state.value}" + _because(job.error.splitlines()[0] if job.error else None)
    if job.state is State.DONE:
        return WhyReason(Because.FINISHED, text)
    if job.reason == EndReason.OOM:
        return WhyReason(Because.FINISHED, text, f"holdfast restart {job.id} --memory SIZE")
    return WhyReason(Because.FINISHED, text, f"holdfast retry {job.id}")


def _running(situation: JobSituation) -> list[WhyReason]:
    job, unserved = situation.job, _unserved(situation)
    remaining = (job.lease_expires_at or situation.now) - situation.now
    if remaining < timedelta(0):
        text = f"the lease of worker {job.worker} expired {format_duration(-remaining)} ago"
        takes_over = "" if unserved else "; another worker takes it over"
        return [WhyReason(Because.EXPIRED, text + takes_over, "holdfast workers"), *unserved]
    silence = situation.now - (situation.seen_at or situation.now)
    if silence >= WORKER_LATE_AFTER:
        return [_late_holder(job, silence, remaining, served=not unserved), *unserved]
    if job.claimed:
        text = f"worker {job.worker} has claimed it and has not recorded its start yet"
        return [WhyReason(Because.CLAIMED, text + _request_of(job), "holdfast workers")]
    if overdue := describe_overdue(job, situation.kind_timeout, situation.now):
        return [WhyReason(Because.OVERDUE, f"worker {job.worker} runs it {overdue}", f"holdfast ask {job.worker} stop")]
    return [WhyReason(Because.RUNNING, f"worker {job.worker} is running it{_request_of(job)}")]


def _request_of(job: Job) -> str:
    return f"; {job.requested} requested: the worker receives it with its next heartbeat" if job.requested else ""


def describe_overdue(job: Job, kind_timeout: float | None, now: datetime) -> str | None:
    """How long a run has gone on after its timeout; None if it is in time, or may still stop."""
    limit = kind_timeout if job.timeout is None else job.timeout
    if not limit or job.state is not State.RUNNING or job.started_at is None:
        return None
    timeout = timedelta(seconds=limit)
    late = now - job.started_at - timeout
    text = f"{format_duration(late)} past its timeout of {format_duration(timeout)}; its thread cannot be stopped"
    return text if late > OVERDUE_AFTER else None


def describe_problem(job: Job, kind_timeout: float | None, now: datetime) -> str | None:
    """The problem of a running job in a list: its lease has expired, or it does not stop; None if there is none."""
    if job.lease_expires_at is not None and job.lease_expires_at < now:
        return f"lease expired {format_duration(now - job.lease_expires_at)} ago"
    overdue = describe_overdue(job, kind_timeout, now)
    return None if overdue is None else f"{overdue}: holdfast ask {job.worker} stop"


def _late_holder(job: Job, silence: timedelta, remaining: timedelta, *, served: bool) -> WhyReason:
    heartbeat = f"its last heartbeat was {format_duration(silence)} ago"
    end = f"{'another worker takes over' if served else 'its lease expires'} in {format_duration(remaining)}"
    if silence >= WORKER_SILENCE:
        state = f"it is lost: {heartbeat}; {end}"
    else:
        state = f"{heartbeat}; {'if it is lost, ' if served else ''}{end}"
    text = f"worker {job.worker} {'has claimed' if job.claimed else 'runs'} it, but {state}"
    return WhyReason(Because.LATE_WORKER, text, "holdfast workers")


def _not_due(job: Job, now: datetime) -> WhyReason:
    wait = format_duration(max(job.due_at - now, timedelta(0)))
    error = _because(job.error.splitlines()[0] if job.error else None)
    why = f", after attempt {job.attempts} failed{error}" if job.attempts else ""
    return WhyReason(Because.NOT_DUE, f"it is due in {wait}{why}", f"holdfast retry {job.id}" if why else None)


def _waits_for(job: Job, dependencies: Sequence[DependencyState]) -> str:
    unfinished = [each for each in dependencies if each.state is not None and not each.state.finished]
    if not unfinished:
        return "its dependencies have finished; a worker releases it within seconds"
    shown = ", ".join(f"{each.dependency_id} ({each.state.value})" for each in unfinished[:5] if each.state)
    more = f" and {len(unfinished) - 5} more" if len(unfinished) > 5 else ""
    conditions = {When.DONE: "be done", When.FINISHED: "finish", When.FAILED: "fail or finish"}
    return f"it waits for job {shown}{more} to {conditions[When(job.after_when or When.DONE)]}"


def _obstacles(situation: JobSituation) -> list[WhyReason]:
    """The reasons why the job would not run even if a slot were free."""
    job, reasons = situation.job, _stopped(situation)
    if job.reader:
        refusals = describe_refusals(load_refusals(job.refusals))
        text = f"it waits for a worker of build {job.reader}; other workers cannot read it: {refusals}"
        reasons.append(WhyReason(Because.UNREADABLE, text, "holdfast workers"))
    if situation.queue is not None and situation.queue.paused and job.priority < HIGHEST_PRIORITY:
        text = f"queue {job.queue!r} is paused" + _because(situation.queue.note)
        reasons.append(WhyReason(Because.QUEUE_PAUSED, text, f"holdfast queue resume {quote_argument(job.queue)}"))
    if situation.usage is not None and situation.usage.limit is not None and free_slots(situation.usage) == 0:
        text = f"queue {job.queue!r} is full: {situation.usage.running} of at most {situation.usage.limit} run"
        reasons.append(WhyReason(Because.LIMIT_FULL, text, f"holdfast queue set {quote_argument(job.queue)} --limit N"))
    reasons += _unserved(situation)
    if job.state is State.READY:
        reasons += [WhyReason(Because.NOT_ADMITTED, text, "holdfast autoscaler status") for text in situation.refusals]
    return reasons


def _unserved(situation: JobSituation) -> list[WhyReason]:
    """No live worker claims jobs of its queue and kind."""
    job = situation.job
    if not situation.workers:
        text = f"no live worker serves kind {job.kind!r} on queue {job.queue!r}"
        return [WhyReason(Because.NO_WORKER, text, _serve(job))]
    if all(worker.quieted for worker in situation.workers):
        many = len(situation.workers)
        those = "the worker that serves it was" if many == 1 else f"all {many} workers that serve it were"
        text = f"{those} requested to claim no more jobs"
        return [WhyReason(Because.QUIETED, text, "holdfast workers")]
    return []


def _serve(job: Job) -> str:
    """The command that starts a worker for the job."""
    option = "--run-commands on" if job.kind == COMMAND else "--app MODULE:APP"
    return f"holdfast worker {option} --queue {shlex.quote(job.queue)}"


def _in_line(situation: JobSituation) -> list[WhyReason]:
    """The place of a ready job: busy slots, the jobs before it, its level of suspicion."""
    job, reasons = situation.job, []
    able = [worker for worker in situation.workers if not worker.quieted]
    if able and all(worker.slots is not None and worker.busy >= worker.slots for worker in able):
        slots = sum(worker.slots or 0 for worker in able)
        in_use = "its only slot is in use" if slots == 1 else f"all {slots} slots are in use"
        many = "the worker that serves it is" if len(able) == 1 else f"all {len(able)} workers that serve it are"
        reasons.append(WhyReason(Because.BUSY, f"{many} busy: {in_use}", "holdfast top"))
    if job.losses > 1:
        where = "one at a time" if job.losses == MAX_LOSSES else "few at a time"
        text = f"{job.losses} workers were lost just after they had claimed it; such jobs run {where}"
        reasons.append(WhyReason(Because.SUSPECT, text, f"holdfast show {job.id}"))
    if situation.ahead:
        jobs = "1 job comes" if situation.ahead == 1 else f"{min(situation.ahead, MAX_AHEAD):,} jobs come"
        jobs = f"more than {jobs}" if situation.ahead > MAX_AHEAD else jobs
        command = f"holdfast ls --state ready --queue {quote_argument(job.queue)} --kind {quote_argument(job.kind)}"
        reasons.append(WhyReason(Because.IN_LINE, f"{jobs} before it in its queue and kind", command))
    return reasons


def _stopped(situation: JobSituation) -> list[WhyReason]:
    switch = situation.switch
    return [] if switch is None else [WhyReason(Because.STORE_STOPPED, switch.text, "holdfast resume --all")]

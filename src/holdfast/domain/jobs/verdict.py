"""Verdicts: the next state of a job after a run, with the delay of a retry."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, assert_never

import msgspec
from msgspec import Struct

from holdfast.domain.jobs.job import MAX_LOSSES, ControlRequest, EndReason, JobId, OnLost, State, Token, WorkerId
from holdfast.domain.jobs.refusal import PayloadRefusal, add_refusal, describe_refusals, load_refusals, next_reader
from holdfast.domain.jobs.retry_curve import DEFAULT_CURVE, Curve, delay_after
from holdfast.errors import InvalidInput

ZERO = timedelta(0)


class JobNumbers(Struct, frozen=True):
    """The columns that decide a verdict, read under the row's lock; the caller's copy may be stale."""

    job_id: JobId
    kind: str
    queue: str
    token: Token
    attempts: int
    max_attempts: int | None
    crashes: int
    losses: int
    no_prefetch: bool
    max_crashes: int | None
    on_lost: OnLost
    retry: str | None
    started: bool
    requested: ControlRequest | None
    has_dependents: bool
    worker: WorkerId | None
    claimed_at: datetime | None
    started_at: datetime | None
    refusals: str | None = None
    plan: str | None = None

    @property
    def attempt(self) -> int:
        """The number of the current attempt. A start that is not recorded yet is not in ``attempts``."""
        return self.attempts if self.started else self.attempts + 1


class Done(Struct, frozen=True, gc=False):
    """The handler returned. *result* is JSON; *dropped* says why a result cannot be stored.

    *overdue* is a mark: the handler returned after its timeout, and could not be stopped.
    """

    result: str | None = None
    dropped: str | None = None
    overdue: str | None = None


class Failed(Struct, frozen=True, kw_only=True):
    """The handler failed. *after* overrides the retry curve; *permanent* forbids a retry."""

    error: str
    reason: str = EndReason.HANDLER_ERROR
    permanent: bool = False
    after: timedelta | None = None
    exit_code: int | None = None


class Released(Struct, frozen=True, kw_only=True):
    """The run released the job; this costs no attempt.

    Without a *delay* the job keeps its place in the queue; with one, also of zero, it goes behind jobs that wait.
    *interrupted*: a shutdown, an eviction or an outage of the store stopped the run, so its effect is in doubt
    and ``on_lost`` decides. *error* is what the handler raised about an outage.
    """

    delay: timedelta | None = None
    interrupted: bool = False
    error: str | None = None


class Unreadable(Struct, frozen=True, kw_only=True):
    """The code of this worker cannot read the payload; this costs no attempt.

    *version* is that of the kind in this code, *build* names the code. Workers of other builds may read it.
    """

    error: str
    version: int = 1
    build: str = ""


class Stopped(Struct, frozen=True):
    """The handler stopped after a cancel request."""


class Lost(Struct, frozen=True):
    """The run was lost: its holder stopped renewing, or its process died.

    *begun*: the holder itself reports the loss, and knows that the run had started.
    """

    reason: str = EndReason.LEASE_LOST
    begun: bool = False
    error: str | None = None
    exit_code: int | None = None


Outcome = Done | Failed | Released | Unreadable | Stopped | Lost


class Verdict(Struct, frozen=True, kw_only=True):
    """The next state of a job. *delay* starts now, on the store's clock; None keeps the due time."""

    state: State
    attempts: int
    crashes: int
    reason: str
    delay: timedelta | None = None
    #: Losses of holders before a durable start, at most 3; the job is a poison suspect of this level.
    losses: int = 0
    #: Whether the run has begun, as far as it is known.
    begun: bool = True
    error: str | None = None
    result: str | None = None
    note: str | None = None
    exit_code: int | None = None
    #: The only build that may claim it next, and the builds that refused its payload; None keeps the present values.
    reader: str | None = None
    refusals: tuple[PayloadRefusal, ...] | None = None


def judge(job: JobNumbers, outcome: Outcome, *, chance: float, builds: Sequence[str] = ()) -> Verdict:
    """Decide the next state of a job after a run.

    Only a failure and the loss of a recorded start cost an attempt; a release refunds it. The verdict
    carries a delay, never a timestamp: the store adds its own clock. *chance*, from 0 to 1, picks the jitter.
    *builds* are those of the live workers that serve the job's queue and kind: an unreadable payload goes to the first
    of them that has not refused it.
    """
    match outcome:
        case Done(result):
            return _verdict(job, State.DONE, EndReason.DONE, result=result)
        case Stopped():
            return _verdict(job, State.CANCELLED, EndReason.CANCELLED)
        case Released():
            return _after_release(job, outcome)
        case Unreadable():
            return _after_refusal(job, outcome, builds)
        case Failed():
            return _after_failure(job, outcome, chance)
        case Lost():
            return _after_loss(job, outcome, chance)
        case _:
            assert_never(outcome)


def reason_of(outcome: Outcome) -> str:
    """The reason of an attempt with this outcome."""
    match outcome:
        case Done():
            return EndReason.DONE
        case Failed() | Lost():
            return outcome.reason
        case Released():
            return EndReason.RELEASED
        case Unreadable():
            return EndReason.UNREADABLE
        case Stopped():
            return EndReason.CANCELLED


def _after_failure(job: JobNumbers, failed: Failed, chance: float) -> Verdict:
    if job.requested is ControlRequest.CANCEL:
        return _verdict(job, State.CANCELLED, failed.reason, error=failed.error, exit_code=failed.exit_code)
    if failed.permanent or _spent(job.attempt, job.max_attempts):
        return _verdict(job, State.DEAD, failed.reason, error=failed.error, exit_code=failed.exit_code)
    delay = failed.after if failed.after is not None else _retry_delay(job, chance)
    state = _next_state(job, delay)
    return _verdict(job, state, failed.reason, error=failed.error, delay=delay, exit_code=failed.exit_code)


def _after_release(job: JobNumbers, released: Released) -> Verdict:
    paused = job.requested is ControlRequest.PAUSE  # a person resumes it, and so decides about its effect
    if released.interrupted and job.started and job.on_lost is not OnLost.RETRY and not paused:
        return _in_doubt(job, EndReason.RELEASED, "the run was interrupted, its effect is in doubt")
    refunded = job.attempt - 1
    if job.requested is ControlRequest.CANCEL:
        return _verdict(job, State.CANCELLED, EndReason.RELEASED, attempts=refunded)
    state, delay = _next_state(job, released.delay), released.delay
    return _verdict(job, state, EndReason.RELEASED, attempts=refunded, delay=delay, losses=job.losses)


def _after_refusal(job: JobNumbers, refused: Unreadable, builds: Sequence[str]) -> Verdict:
    refusal = PayloadRefusal(refused.build, refused.version, job.worker or "", refused.error)
    refusals = add_refusal(load_refusals(job.refusals), refusal)
    reader = next_reader(builds, refusals)
    details: dict[str, Any] = {"attempts": job.attempt - 1, "error": refused.error, "refusals": refusals}
    if job.requested is ControlRequest.CANCEL:
        return _verdict(job, State.CANCELLED, EndReason.UNREADABLE, **details)
    if job.requested is ControlRequest.PAUSE:  # a reader keeps it held until a person resumes it
        return _verdict(job, State.HELD, EndReason.UNREADABLE, reader=reader or refused.build, **details)
    if reader is not None:
        return _verdict(job, State.READY, EndReason.UNREADABLE, reader=reader, **details)
    note = f"no live worker can read its payload: {describe_refusals(refusals)}"
    return _verdict(job, State.HELD, EndReason.UNREADABLE, reader="", note=note, **details)


def _after_loss(job: JobNumbers, lost: Lost, chance: float) -> Verdict:
    if not job.started and not lost.begun:
        return _unrecorded_loss(job, lost)
    crashes = job.crashes + 1
    if job.on_lost is not OnLost.RETRY:
        return _in_doubt(job, lost.reason, "its holder was lost, its effect is in doubt", crashes=crashes)
    if job.requested is ControlRequest.CANCEL:
        return _verdict(job, State.CANCELLED, lost.reason, crashes=crashes)
    error = lost.error or f"the worker was lost during attempt {job.attempt}"
    if _spent(job.attempt, job.max_attempts) or _spent(crashes, job.max_crashes):
        return _verdict(job, State.DEAD, lost.reason, crashes=crashes, error=error, exit_code=lost.exit_code)
    delay = _retry_delay(job, chance)
    details: dict[str, Any] = {"error": error, "delay": delay, "exit_code": lost.exit_code, "losses": job.losses}
    return _verdict(job, _next_state(job, delay), lost.reason, crashes=crashes, **details)


def _unrecorded_loss(job: JobNumbers, lost: Lost) -> Verdict:
    """A loss without a recorded start costs no attempt. Unless the run certainly had not begun, it is a suspect now."""
    if job.requested is ControlRequest.CANCEL:
        return _verdict(job, State.CANCELLED, lost.reason, attempts=job.attempts)
    losses = job.losses if job.no_prefetch else min(job.losses + 1, MAX_LOSSES)
    return _verdict(job, _next_state(job, None), lost.reason, attempts=job.attempts, losses=losses, begun=False)


def _in_doubt(job: JobNumbers, reason: str, note: str, *, crashes: int | None = None) -> Verdict:
    if job.requested is ControlRequest.CANCEL:
        return _verdict(job, State.CANCELLED, reason, crashes=crashes, error=note)
    if job.on_lost is OnLost.HOLD:
        return _verdict(job, State.HELD, reason, crashes=crashes, note=note)
    return _verdict(job, State.DEAD, reason, crashes=crashes, error=note)


def _verdict(
    job: JobNumbers,
    state: State,
    reason: str,
    *,
    attempts: int | None = None,
    crashes: int | None = None,
    **details: Any,
) -> Verdict:
    return Verdict(
        state=state,
        reason=str(reason),
        attempts=job.attempt if attempts is None else attempts,
        crashes=job.crashes if crashes is None else crashes,
        **details,
    )


def _retry_delay(job: JobNumbers, chance: float) -> timedelta:
    return delay_after(_curve(job.retry), job.attempt, chance=chance)


def _curve(text: str | None) -> Curve:
    """The retry curve of a job. One that a user's SQL made unreadable must not hold up the jobs settled with it."""
    try:
        return Curve.loads(text) if text else DEFAULT_CURVE
    except (msgspec.DecodeError, InvalidInput):
        return DEFAULT_CURVE


def _next_state(job: JobNumbers, delay: timedelta | None) -> State:
    if job.requested is ControlRequest.PAUSE:
        return State.HELD
    return State.SCHEDULED if delay is not None and delay > ZERO else State.READY


def _spent(used: int, limit: int | None) -> bool:
    return limit is not None and used >= limit

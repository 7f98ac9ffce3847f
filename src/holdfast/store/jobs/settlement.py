"""Settlement of runs: operations that finish a run for its holder, or because the holder was lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from msgspec import Struct, structs

from holdfast.domain.batches.batch import DRIVER
from holdfast.domain.jobs.history import EventName
from holdfast.domain.jobs.job import ControlRequest, EndReason, JobId, Lease, OnLost, State, Token, WorkerId
from holdfast.domain.jobs.json_values import storable_result
from holdfast.domain.jobs.new_job import Actor
from holdfast.domain.jobs.verdict import Done, Failed, JobNumbers, Lost, Outcome, Released, Stopped, Verdict, judge
from holdfast.domain.names import clean_text
from holdfast.store.batches.state import return_units
from holdfast.store.engine.operation import ById, Operation, Query, Rows, query
from holdfast.store.jobs import dependencies
from holdfast.store.jobs.dependencies import FinishedJob
from holdfast.store.jobs.history import record_all

MAX_ERROR_LENGTH = 64 * 1024


class Settlement(Struct, frozen=True):
    """The outcome of one run. *ran* is its duration by the holder's monotonic clock."""

    lease: Lease
    outcome: Outcome
    ran: timedelta | None = None


class TakenOver(Struct, frozen=True):
    """An expired lease that was finished, and the new state of its job."""

    job_id: JobId
    token: Token
    state: State


def done_statement(done: list[Settlement]) -> Query:
    return query(
        "settle_done",
        FinishedJob,
        leases=ById(
            id=[s.lease.job_id for s in done],
            token=[s.lease.token for s in done],
            result=[storable_result(s.outcome.result) for s in done if isinstance(s.outcome, Done)],
            ran=[s.ran for s in done],
        ),
    )


def release(leases: list[Lease]) -> Operation[int]:
    rows = yield query("release_unstarted", leases=held_by(leases))
    released = {row[0] for row in rows}
    # The others have started or are lost, or a person has requested something of them: that is done here.
    rest: list[JobNumbers] = yield query(
        "lock_leases", JobNumbers, leases=held_by([lease for lease in leases if lease.job_id not in released])
    )
    unbegun = [job for job in rest if job.requested and not job.started]
    ends = [_End(job, judge(job, Released(), chance=0.5), None) for job in unbegun]
    yield from _write_ends(ends, raised=0, actor=Actor.WORKER)
    return len(released) + len(ends)


def settle_others(settlements: list[Settlement], chance: Callable[[], float]) -> Operation[set[JobId]]:
    by_id = {s.lease.job_id: s for s in settlements}
    rows: list[JobNumbers] = yield query("lock_leases", JobNumbers, leases=held_by([s.lease for s in settlements]))
    ends = [_End(job, judge(job, by_id[job.job_id].outcome, chance=chance()), by_id[job.job_id].ran) for job in rows]
    yield from _write_ends(ends, raised=0, actor=Actor.WORKER)
    missing = [s for s in settlements if s.lease.job_id not in {job.job_id for job in rows}]
    return (yield from truly_lost(missing))


def release_unknown(worker: WorkerId, *, queues: Sequence[str], known: Sequence[JobId]) -> Operation[int]:
    """Release the jobs that *worker* holds without knowing: the answer to a claim was lost.

    Returns their number. None of them has started, so the release costs no attempt. No claim of
    this worker may be in progress.
    """
    rows: list[JobNumbers] = yield query(
        "lock_unknown_leases", JobNumbers, worker=worker, queues=list(queues), known=list(known)
    )
    unbegun = [job for job in rows if not job.started and not job.requested]
    if unbegun:
        yield query(
            "release_unstarted", leases=ById(id=[job.job_id for job in unbegun], token=[job.token for job in unbegun])
        )
    ends = [_End(job, judge(job, Released(), chance=0.5), None) for job in rows if job.started or job.requested]
    yield from _write_ends(ends, raised=0, actor=Actor.WORKER)
    return len(rows)


def take_over(limit: int, chance: Callable[[], float]) -> Operation[list[TakenOver]]:
    rows: list[JobNumbers] = yield query("lock_expired_leases", JobNumbers, limit=limit)
    ends = [_End(job, judge(_without_retry(job), Lost(), chance=chance()), None) for job in rows]
    yield from _write_ends(ends, raised=1, actor=Actor.MAINTENANCE)
    return [TakenOver(end.job.job_id, Token(end.job.token + 1), end.verdict.state) for end in ends]


def seize(held: list[tuple[JobId, Token]]) -> Operation[None]:
    """Finish leases whose holders are known to be dead, before they expire; their jobs are finished."""
    locked = ById(id=[job_id for job_id, _ in held], token=[token for _, token in held])
    rows: list[JobNumbers] = yield query("lock_leases", JobNumbers, leases=locked)
    ends = [_End(job, judge(_without_retry(job), Lost(), chance=0.5), None) for job in rows]
    yield from _write_ends(ends, raised=1, actor=Actor.CLIENT)


def _without_retry(job: JobNumbers) -> JobNumbers:
    """A lost foreground run of a batch is finished: the next run has a job of its own."""
    return structs.replace(job, requested=ControlRequest.CANCEL, on_lost=OnLost.RETRY) if job.kind == DRIVER else job


class _End(Struct, frozen=True):
    """A run, locked, and the verdict on it."""

    job: JobNumbers
    verdict: Verdict
    ran: timedelta | None


def _write_ends(ends: list[_End], *, raised: int, actor: Actor) -> Operation[None]:
    """Write verdicts: the job's new state, its attempt, its event and its effect on dependents."""
    back = [end for end in ends if not end.verdict.state.finished]
    over = [end for end in ends if end.verdict.state.finished]
    if back:
        yield query("return_jobs", verdict=_put_back_columns(back, raised))
    if over:
        yield query("finish_jobs", verdict=_end_columns(over, raised))
    begun = [end for end in ends if not end.verdict.poison_suspect]
    if begun:
        yield query("insert_attempts", run=_attempt_columns(begun))
    yield from return_units(end.job.job_id for end in ends)
    yield from record_all([(end.job.job_id, _event_name(end.verdict), _event_detail(end)) for end in ends], actor=actor)
    yield from dependencies.after_end(end.job.job_id for end in over if end.job.has_dependents)


def _put_back_columns(ends: list[_End], raised: int) -> Rows:
    verdicts = [end.verdict for end in ends]
    return ById(
        id=[end.job.job_id for end in ends],
        token=[end.job.token for end in ends],
        state=[verdict.state for verdict in verdicts],
        attempts=[verdict.attempts for verdict in verdicts],
        crashes=[verdict.crashes for verdict in verdicts],
        raised=[raised] * len(ends),
        poison_suspect=[verdict.poison_suspect for verdict in verdicts],
        no_prefetch=[end.verdict.poison_suspect or end.job.on_lost is not OnLost.RETRY for end in ends],
        note=[verdict.note for verdict in verdicts],
        delay=[verdict.delay or None for verdict in verdicts],
    )


def _end_columns(ends: list[_End], raised: int) -> Rows:
    return ById(
        id=[end.job.job_id for end in ends],
        token=[end.job.token for end in ends],
        state=[end.verdict.state for end in ends],
        attempts=[end.verdict.attempts for end in ends],
        crashes=[end.verdict.crashes for end in ends],
        raised=[raised] * len(ends),
        reason=[end.verdict.reason for end in ends],
        error=[_clean(end.verdict.error) for end in ends],
        ran=[end.ran for end in ends],
    )


def _attempt_columns(ends: list[_End]) -> Rows:
    return Rows(
        job_id=[end.job.job_id for end in ends],
        token=[end.job.token for end in ends],
        number=[end.job.attempt for end in ends],
        worker=[end.job.worker for end in ends],
        started_at=[end.job.started_at or end.job.claimed_at for end in ends],
        ran=[end.ran for end in ends],
        reason=[end.verdict.reason for end in ends],
        exit_code=[end.verdict.exit_code for end in ends],
        error=[_clean(end.verdict.error) for end in ends],
    )


def truly_lost(settlements: Sequence[Settlement]) -> Operation[set[JobId]]:
    """The jobs among settlements that changed no row whose outcome was not recorded before either."""
    if not settlements:
        return set()
    held = ById(
        id=[s.lease.job_id for s in settlements],
        token=[s.lease.token for s in settlements],
        reason=[_reason(s.outcome) for s in settlements],
    )
    rows = yield query("list_settled", leases=held)
    return {s.lease.job_id for s in settlements} - {row[0] for row in rows}


def _reason(outcome: Outcome) -> str:
    match outcome:
        case Done():
            return EndReason.DONE
        case Failed() | Lost():
            return outcome.reason
        case Released():
            return EndReason.RELEASED
        case Stopped():
            return EndReason.CANCELLED


def _event_name(verdict: Verdict) -> EventName:
    match verdict.reason:
        case EndReason.LEASE_LOST:
            return EventName.TAKEN_OVER
        case EndReason.RELEASED:
            return EventName.RELEASED
        case EndReason.CANCELLED:
            return EventName.CANCELLED
        case _:
            return EventName.FAILED


def _event_detail(end: _End) -> dict[str, Any]:
    return {"state": end.verdict.state, "reason": end.verdict.reason, "token": end.job.token}


def held_by(leases: Sequence[Lease]) -> Rows:
    return ById(id=[lease.job_id for lease in leases], token=[lease.token for lease in leases])


def _clean(error: str | None) -> str | None:
    return None if error is None else clean_text(error, limit=MAX_ERROR_LENGTH)

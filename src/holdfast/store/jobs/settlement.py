"""Settlement of runs: operations that finish a run for its holder, or because the holder was lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from operator import attrgetter
from typing import Any

from msgspec import Struct, structs

from holdfast.domain.batches.batch import DRIVER
from holdfast.domain.jobs.history import EventName
from holdfast.domain.jobs.job import ControlRequest, EndReason, JobId, Lease, OnLost, State, Token, WorkerId
from holdfast.domain.jobs.json_values import storable_result
from holdfast.domain.jobs.new_job import Actor
from holdfast.domain.jobs.verdict import Done, Failed, JobNumbers, Lost, Outcome, Released, Stopped, Verdict, judge
from holdfast.domain.names import clean_text
from holdfast.store.batches.state import Holder, return_units
from holdfast.store.engine.operation import ById, Operation, Query, Rows, columns_of, query
from holdfast.store.jobs import dependencies
from holdfast.store.jobs.dependencies import FinishedJob
from holdfast.store.jobs.events import record_all

MAX_ERROR_LENGTH = 64 * 1024
#: The event of each end; other ends are failures.
_EVENTS: dict[str, EventName] = {
    EndReason.LEASE_LOST: EventName.TAKEN_OVER,
    EndReason.RELEASED: EventName.RELEASED,
    EndReason.CANCELLED: EventName.CANCELLED,
}
#: Has the attributes of a lease, ``job_id`` and ``token``.
HasLease = Lease | JobNumbers | Holder


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
    results = [storable_result(s.outcome.result) for s in done if isinstance(s.outcome, Done)]
    leases = held_by([s.lease for s in done], result=results, ran=[s.ran for s in done])
    return query("settle_done", FinishedJob, leases=leases)


def release(leases: list[Lease]) -> Operation[int]:
    leases = sorted(leases, key=attrgetter("token"))  # of two leases of one job, only the newer one can be valid
    rows = yield query("release_unstarted", leases=held_by(leases))
    released = {row[0] for row in rows}
    # The others have started, are lost, or have a pending request. Those with a request are settled here.
    others = held_by([lease for lease in leases if lease.job_id not in released])
    rest: list[JobNumbers] = yield query("lock_leases", JobNumbers, leases=others)
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

    Returns their number. A claim records no start, so the release costs nothing and leaves no trace.
    No answer to a claim of this worker may be under way.
    """
    rows: list[JobNumbers] = yield query(
        "lock_unknown_leases", JobNumbers, worker=worker, queues=list(queues), known=list(known)
    )
    unbegun = [job for job in rows if not job.started and not job.requested]
    if unbegun:
        yield query("release_unstarted", leases=held_by(unbegun))
    ends = [_End(job, judge(job, Released(), chance=0.5), None) for job in rows if job.started or job.requested]
    yield from _write_ends(ends, raised=0, actor=Actor.WORKER)
    return len(rows)


def take_over(limit: int, chance: Callable[[], float]) -> Operation[list[TakenOver]]:
    rows: list[JobNumbers] = yield query("lock_expired_leases", JobNumbers, limit=limit)
    ends = [_End(job, judge(_without_retry(job), Lost(), chance=chance()), None) for job in rows]
    yield from _write_ends(ends, raised=1, actor=Actor.MAINTENANCE)
    return [TakenOver(end.job.job_id, Token(end.job.token + 1), end.verdict.state) for end in ends]


def seize(holders: Sequence[HasLease]) -> Operation[None]:
    """Finish leases whose holders are known to be dead, before they expire; their jobs are finished."""
    rows: list[JobNumbers] = yield query("lock_leases", JobNumbers, leases=held_by(holders))
    ends = [_End(job, judge(_without_retry(job), Lost(), chance=0.5), None) for job in rows]
    yield from _write_ends(ends, raised=1, actor=Actor.CLIENT)


def _without_retry(job: JobNumbers) -> JobNumbers:
    """A lost foreground run of a batch is finished: the next run has a job of its own."""
    return structs.replace(job, requested=ControlRequest.CANCEL, on_lost=OnLost.RETRY) if job.kind == DRIVER else job


class _End(Struct, frozen=True):
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
    begun = [end for end in ends if end.verdict.begun]
    if begun:
        yield query("insert_attempts", run=_attempt_columns(begun))
    yield from return_units(end.job.job_id for end in ends)
    yield from record_all([_event(end) for end in ends], actor=actor)
    yield from dependencies.after_end(end.job.job_id for end in over if end.job.has_dependents)


#: Columns of every verdict and their attributes.
_VERDICT = {"id": "job.job_id", "token": "job.token"} | {n: f"verdict.{n}" for n in ("state", "attempts", "crashes")}


def _put_back_columns(ends: list[_End], raised: int) -> Rows:
    return ById(
        **columns_of(ends, **_VERDICT, losses="verdict.losses", note="verdict.note"),
        raised=[raised] * len(ends),
        delay=[end.verdict.delay or None for end in ends],
    )


def _end_columns(ends: list[_End], raised: int) -> Rows:
    errors = [_clean(end.verdict.error) for end in ends]
    verdicts = columns_of(ends, "ran", **_VERDICT, reason="verdict.reason")
    return ById(**verdicts, raised=[raised] * len(ends), error=errors)


def _attempt_columns(ends: list[_End]) -> Rows:
    return Rows(
        **columns_of(ends, job_id="job.job_id", token="job.token", number="job.attempt", worker="job.worker"),  # noqa: S106
        **columns_of(ends, "ran", reason="verdict.reason", exit_code="verdict.exit_code"),
        started_at=[end.job.started_at or end.job.claimed_at for end in ends],
        error=[_clean(end.verdict.error) for end in ends],
    )


def truly_lost(settlements: Sequence[Settlement]) -> Operation[set[JobId]]:
    """The jobs among settlements that changed no row whose outcome was not recorded before either."""
    if not settlements:
        return set()
    held = held_by([s.lease for s in settlements], reason=[_reason(s.outcome) for s in settlements])
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


def _event(end: _End) -> tuple[JobId, EventName, object]:
    name = _EVENTS.get(end.verdict.reason, EventName.FAILED)
    return end.job.job_id, name, {"state": end.verdict.state, "reason": end.verdict.reason, "token": end.job.token}


def held_by(holders: Sequence[HasLease], **columns: Sequence[Any]) -> Rows:
    """The leases of *holders* as a table, with more *columns*."""
    return ById(**columns_of(holders, "token", id="job_id"), **columns)


def _clean(error: str | None) -> str | None:
    return None if error is None else clean_text(error, limit=MAX_ERROR_LENGTH)

"""Settlement of runs: operations that finish a run for its holder, or because the holder was lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from operator import attrgetter
from typing import Any, TypeVar

from msgspec import Struct, field, structs

from holdfast.domain.batches.batch import DRIVER
from holdfast.domain.jobs.history import EventName
from holdfast.domain.jobs.job import (
    COMMAND,
    OVERDUE,
    ControlRequest,
    EndReason,
    JobId,
    Lease,
    OnLost,
    State,
    Token,
    WorkerId,
)
from holdfast.domain.jobs.json_values import storable_result
from holdfast.domain.jobs.new_job import Actor
from holdfast.domain.jobs.refusal import dump_refusals
from holdfast.domain.jobs.verdict import (
    Done,
    JobNumbers,
    Lost,
    Outcome,
    Released,
    Unreadable,
    Verdict,
    judge,
    reason_of,
)
from holdfast.domain.names import clean_text
from holdfast.store.batches.state import Holder, return_units
from holdfast.store.engine.operation import ById, Operation, Query, Rows, columns_of, query
from holdfast.store.jobs import dependencies
from holdfast.store.jobs.dependencies import FinishedJob
from holdfast.store.jobs.events import record_all
from holdfast.store.jobs.refusals import list_builds

X = TypeVar("X")

MAX_ERROR_LENGTH = 64 * 1024
#: An outcome that is younger than this is written as if the run had just finished.
AGE_IGNORED_S = 1.0
#: The beginning of the error of a done job whose result could not be stored.
RESULT_DROPPED = "the result was not stored"
#: The event of each end; other ends are failures.
_EVENTS: dict[str, EventName] = {
    EndReason.LEASE_LOST: EventName.TAKEN_OVER,
    EndReason.RELEASED: EventName.RELEASED,
    EndReason.UNREADABLE: EventName.UNREADABLE,
    EndReason.CANCELLED: EventName.CANCELLED,
}
#: Has the attributes of a lease, ``job_id``, ``token`` and ``worker``.
HasLease = Lease | JobNumbers | Holder
#: Identifies a lease.
LeaseKey = tuple[JobId, Token]
#: A condition on the rows of leases: leave out those that another transaction has locked.
UNLOCKED = ("unlocked_leases",)
#: A condition on the rows of leases: leave out jobs whose end has effects on others.
WITHOUT_EFFECTS = ("without_effects",)


class Settlement(Struct, frozen=True, gc=False):
    """The outcome of one run. *ran* is its duration, *finished* its end, both by the holder's monotonic clock."""

    lease: Lease
    outcome: Outcome
    ran: timedelta | None = None
    finished: float = field(default_factory=lambda: time.monotonic())  # noqa: PLW0108 - tests replace the clock

    @property
    def since(self) -> tuple[timedelta | None, timedelta]:
        """The time since the start of the run, and since its end, long ago after an outage."""
        seconds = time.monotonic() - self.finished
        age = timedelta(seconds=seconds if seconds > AGE_IGNORED_S else 0)
        return None if self.ran is None else self.ran + age, age


class SettleResult(Struct, frozen=True):
    """The settlements that changed nothing: their leases are *lost*, or another transaction has *locked* their jobs.

    *verdicts*: what becomes of jobs whose runs did not succeed.
    """

    lost: set[LeaseKey]
    locked: set[LeaseKey]
    verdicts: dict[LeaseKey, Verdict] = {}


class ReleaseResult(Struct, frozen=True):
    """The number of released leases, and the leases whose jobs another transaction has locked."""

    released: int
    locked: set[LeaseKey]


class TakenOver(Struct, frozen=True):
    """An expired lease that was finished, and the new state of its job. *job* is the job as it was lost."""

    job_id: JobId
    token: Token
    state: State
    job: JobNumbers


def lease_key(lease: Lease) -> LeaseKey:
    return lease.job_id, lease.token


def one_per_job(items: Sequence[X], lease_of: Callable[[X], Lease]) -> list[list[X]]:
    """Divide items that have leases into groups with each job once, in id order; the newest token comes first.

    A worker can get a job again whose old run still runs: both runs may finish at once. Each group is of one worker.
    """
    if not items:
        return []
    by_id = {lease_of(item).job_id: item for item in items}
    if len(by_id) == len(items) and len({lease_of(item).worker for item in items}) <= 1:  # nearly always
        return [[by_id[job_id] for job_id in sorted(by_id)]]
    groups: list[tuple[WorkerId, dict[JobId, X]]] = []
    for item in sorted(items, key=lambda each: (lease_of(each).job_id, -lease_of(each).token)):
        lease = lease_of(item)
        fitting = (group for worker, group in groups if worker == lease.worker and lease.job_id not in group)
        group = next(fitting, None)
        if group is None:
            groups.append((lease.worker, group := {}))
        group[lease.job_id] = item
    return [list(group.values()) for _, group in groups]


def settle_done(done: list[Settlement], where: tuple[str, ...]) -> Query:
    """Finish jobs whose runs succeeded; with :data:`WITHOUT_EFFECTS`, only those that need no more than this."""
    columns: dict[str, Sequence[Any]] = {"ran": [s.ran for s in done]}
    if time.monotonic() - min(s.finished for s in done) > AGE_IGNORED_S:
        columns["ran"], columns["age"] = zip(*(s.since for s in done), strict=True)
    outcomes = [s.outcome for s in done if isinstance(s.outcome, Done)]
    if any(each.result is not None or each.dropped for each in outcomes):
        results = [(None, each.dropped) if each.dropped else storable_result(each.result) for each in outcomes]
        columns["result"] = [text for text, _ in results]
        columns["error"] = [reason and f"{RESULT_DROPPED}: {_clean(reason)}" for _, reason in results]
    if any(each.overdue for each in outcomes):
        columns["error"] = list(map(_with_mark, columns.get("error", [None] * len(done)), outcomes))
    # A statement gets only the values that some lease has: most results are empty, and most outcomes new.
    known = {name: cells for name, cells in columns.items() if any(cell is not None for cell in cells)}
    leases = held_by([s.lease for s in done], **known)
    return Query("settle_done", leases, FinishedJob, where, direct=True)


def settle_with_effects(done: list[Settlement], where: tuple[str, ...]) -> Operation[tuple[SettleResult, int]]:
    """Finish jobs whose runs succeeded, and judge the jobs that wait for them: all of it, or nothing.

    Also returns the number of jobs that others may wait for.
    """
    finished: list[FinishedJob] = yield settle_done(done, where)
    known = {job.id for job in finished}
    needed = [job.id for job in finished if job.has_dependents]
    yield from dependencies.after_end(needed, where=_dependents_where(where))
    result = yield from unsettled([s for s in done if s.lease.job_id not in known])
    return result, len(needed)


def _dependents_where(where: tuple[str, ...]) -> tuple[str, ...]:
    """Wait for locked dependents as for locked leases: briefly, or not at all."""
    return dependencies.UNLOCKED if where else dependencies.BRIEFLY


def release(leases: list[Lease], where: tuple[str, ...]) -> Operation[ReleaseResult]:
    rows: list[JobNumbers] = yield Query("lock_leases", held_by(leases), JobNumbers, where)
    unbegun = [job for job in rows if not job.started]
    released = yield from _release_unstarted([job for job in unbegun if not job.requested])
    # A person has requested something of the others.
    ends = [_End(job, judge(job, Released(), chance=0.5), None) for job in unbegun if job.requested]
    yield from _write_ends(ends, raised=0, actor=Actor.WORKER, where=_dependents_where(where))
    known = {job.job_id for job in rows}
    missing = [Settlement(lease, Released()) for lease in leases if lease.job_id not in known]
    locked = (yield from unsettled(missing)).locked if where else set()
    return ReleaseResult(released + len(ends), locked)


def _release_unstarted(jobs: list[JobNumbers]) -> Operation[int]:
    return len((yield Query("release_unstarted", held_by(jobs)))) if jobs else 0


def settle_others(
    settlements: list[Settlement], chance: Callable[[], float], where: tuple[str, ...]
) -> Operation[SettleResult]:
    by_id = {s.lease.job_id: s for s in settlements}
    leases = held_by([s.lease for s in settlements])
    rows: list[JobNumbers] = yield Query("lock_leases", leases, JobNumbers, where)
    unread = any(isinstance(by_id[job.job_id].outcome, Unreadable) for job in rows)
    live = (yield from list_builds()) if unread else []
    ends = []
    for job in rows:
        settlement = by_id[job.job_id]
        builds = [each.build for each in live if each.serves(job.queue, job.kind)]
        ends.append(_End(job, judge(job, settlement.outcome, chance=chance(), builds=builds), *settlement.since))
    yield from _write_ends(ends, raised=0, actor=Actor.WORKER, where=_dependents_where(where))
    missing = by_id.keys() - {job.job_id for job in rows}
    result = yield from unsettled([by_id[job_id] for job_id in sorted(missing)])
    verdicts = {(end.job.job_id, end.job.token): end.verdict for end in ends}
    return structs.replace(result, verdicts=verdicts)


def release_unknown(worker: WorkerId, *, queues: Sequence[str], known: Sequence[JobId]) -> Operation[int]:
    """Release the jobs that *worker* holds without knowing: the answer to a claim was lost.

    A claim records no start, so the release costs nothing and leaves no trace. No answer to a claim of this
    worker may be under way.
    """
    rows: list[JobNumbers] = yield query(
        "lock_unknown_leases", JobNumbers, worker=worker, queues=list(queues), known=list(known)
    )
    yield from _release_unstarted([job for job in rows if not job.started and not job.requested])
    ends = [_End(job, judge(job, Released(), chance=0.5), None) for job in rows if job.started or job.requested]
    yield from _write_ends(ends, raised=0, actor=Actor.WORKER)
    return len(rows)


def take_over(
    limit: int, chance: Callable[[], float], where: tuple[str, ...], *, dead: WorkerId | None = None
) -> Operation[list[TakenOver]]:
    """Finish expired leases, or all leases of a worker that is *dead*."""
    lock, lost = Query("lock_expired_leases", {"limit": limit}, JobNumbers, where), Lost()
    if dead is not None:
        lock = Query("lock_leases_of_worker", {"limit": limit, "worker": dead}, JobNumbers, where)
        lost = Lost(error=f"the process of its worker {dead} has exited")
    rows: list[JobNumbers] = yield lock
    ends = [_End(job, judge(_without_retry(job), lost, chance=chance()), None) for job in rows]
    yield from _write_ends(ends, raised=1, actor=Actor.MAINTENANCE)
    return [TakenOver(end.job.job_id, Token(end.job.token + 1), end.verdict.state, end.job) for end in ends]


def seize(holders: Sequence[HasLease]) -> Operation[None]:
    """Finish leases whose holders are known to be dead, before they expire; their jobs are finished."""
    rows: list[JobNumbers] = []
    for holder in sorted(holders, key=attrgetter("job_id")):  # of several workers
        rows += yield Query("lock_leases", held_by([holder]), JobNumbers)
    ends = [_End(job, judge(_without_retry(job), Lost(), chance=0.5), None) for job in rows]
    yield from _write_ends(ends, raised=1, actor=Actor.CLIENT)


def _without_retry(job: JobNumbers) -> JobNumbers:
    """A lost foreground run of a batch is finished: the next run has a job of its own."""
    return structs.replace(job, requested=ControlRequest.CANCEL, on_lost=OnLost.RETRY) if job.kind == DRIVER else job


class _End(Struct, frozen=True):
    job: JobNumbers
    verdict: Verdict
    ran: timedelta | None
    age: timedelta = timedelta(0)


def _write_ends(
    ends: list[_End], *, raised: int, actor: Actor, where: tuple[str, ...] = dependencies.UNLOCKED
) -> Operation[None]:
    """Write verdicts: the job's new state, its attempt, its event and its effects on its queue and on dependents."""
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
    dead = [end.job.job_id for end in over if end.job.kind == COMMAND and end.verdict.state is State.DEAD]
    if dead:
        yield query("pause_queues_of_failed", ids=sorted(dead))
    yield from dependencies.after_end((end.job.job_id for end in over if end.job.has_dependents), where=where)


#: Columns of every verdict and their attributes.
_VERDICT = {"id": "job.job_id", "token": "job.token", "worker": "job.worker"} | {
    n: f"verdict.{n}" for n in ("state", "attempts", "crashes")
}


def _put_back_columns(ends: list[_End], raised: int) -> Rows:
    return ById(
        **columns_of(ends, **_VERDICT, losses="verdict.losses", note="verdict.note"),
        reader=[end.verdict.reader for end in ends],
        refusals=[dump_refusals(end.verdict.refusals) for end in ends],
        raised=[raised] * len(ends),
        delay=[end.verdict.delay for end in ends],
    )


def _end_columns(ends: list[_End], raised: int) -> Rows:
    errors = [_clean(end.verdict.error) for end in ends]
    verdicts = columns_of(ends, "ran", "age", **_VERDICT, reason="verdict.reason")
    return ById(**verdicts, raised=[raised] * len(ends), error=errors)


def _attempt_columns(ends: list[_End]) -> Rows:
    return Rows(
        **columns_of(ends, job_id="job.job_id", token="job.token", number="job.attempt", worker="job.worker"),  # noqa: S106
        **columns_of(ends, "ran", "age", reason="verdict.reason", exit_code="verdict.exit_code"),
        started_at=[end.job.started_at or end.job.claimed_at for end in ends],
        error=[_clean(end.verdict.error) for end in ends],
    )


def unsettled(settlements: Sequence[Settlement]) -> Operation[SettleResult]:
    """Find out why settlements changed no row. Those in neither set of the result were recorded before."""
    if not settlements:
        return SettleResult(set(), set())
    held = held_by([s.lease for s in settlements], reason=[reason_of(s.outcome) for s in settlements])
    results = dict((yield Query("list_unsettled", held)))
    keys = {s.lease.job_id: lease_key(s.lease) for s in settlements}
    lost = {key for job_id, key in keys.items() if job_id not in results}
    return SettleResult(lost, {key for job_id, key in keys.items() if results.get(job_id) == "locked"})


def _event(end: _End) -> tuple[JobId, EventName, object]:
    name = _EVENTS.get(end.verdict.reason, EventName.FAILED)
    detail = {"state": end.verdict.state, "reason": end.verdict.reason, "token": end.job.token}
    if end.verdict.refusals:
        detail |= {"refusal": end.verdict.refusals[-1], "reader": end.verdict.reader or None}
    return end.job.job_id, name, detail


def held_by(holders: Sequence[HasLease], **columns: Sequence[Any]) -> dict[str, Any]:
    """The parameters for the leases of one worker: a table of them, with more *columns*, and the worker."""
    return {"leases": ById(**columns_of(holders, "token", id="job_id"), **columns), "worker": holders[0].worker}


def _with_mark(text: str | None, outcome: Done) -> str | None:
    """The text beside a success: why its result was dropped, and that it is overdue."""
    mark = None if outcome.overdue is None else f"{OVERDUE}{outcome.overdue}"
    return "\n".join(part for part in (text, mark) if part) or None


def _clean(error: str | None) -> str | None:
    return None if error is None else clean_text(error, limit=MAX_ERROR_LENGTH)

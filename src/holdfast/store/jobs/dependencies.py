"""Dependencies between jobs: operations that record them, and that start or give up waiting jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from holdfast.domain.jobs.dependencies import After, DependencyState, DependencyStep, IfNot, When, next_step, reason_for
from holdfast.domain.jobs.history import EventName
from holdfast.domain.jobs.job import EndReason, JobId, State
from holdfast.domain.jobs.lane_position import EarlierJobs
from holdfast.domain.jobs.new_job import Actor
from holdfast.domain.jobs.selector import Glob
from holdfast.errors import DependencyNotFound
from holdfast.store.engine.operation import ById, MadeReady, Operation, Query, Rows, columns_of, query, timestamp
from holdfast.store.jobs.events import record

#: Conditions on the rows of waiting jobs: wait for locked ones, but briefly, or leave them out.
BRIEFLY, UNLOCKED = ("brief_lock_wait",), ("unlocked_waiting",)
#: Levels of a chain that one transaction cancels: a level takes about a millisecond, and a call has a time limit.
MAX_LEVELS = 1000


class WaitingJob(Struct, frozen=True):
    """A waiting job, locked, and its condition."""

    id: JobId
    after_when: When
    after_failed: IfNot


class Effects(Struct, frozen=True):
    """The number of jobs whose effects on others were *taken* up, and of the jobs that are *left* for the next time."""

    taken: int
    left: int


class RevivableJob(Struct, frozen=True):
    """A finished job, locked, with its unique key and its condition."""

    id: JobId
    kind: str
    key: str | None
    after_when: When | None
    after_failed: IfNot | None


class FinishedJob(Struct, frozen=True):
    """A job that has just finished, and whether other jobs may wait for it."""

    id: JobId
    has_dependents: bool


def write_dependencies(jobs: Sequence[tuple[After, JobId]]) -> Operation[list[JobId]]:
    """Record the dependencies of new jobs; returns the jobs that have any."""
    if not jobs:
        return []
    by_id = {dependency for after, _ in jobs if after.only_ids for dependency in after.ids}
    if by_id:  # one lookup for all of them
        yield from find_dependencies(After(ids=tuple(by_id)))
    resolved: dict[After, Sequence[JobId]] = {}
    for after, _ in jobs:
        if after not in resolved:
            resolved[after] = after.ids if after.only_ids else (yield from find_dependencies(after))
    pairs = [(job_id, dependency_id) for after, job_id in jobs for dependency_id in resolved[after]]
    table = Rows(job_id=[pair[0] for pair in pairs], dependency_id=[pair[1] for pair in pairs])
    yield query("insert_dependencies", dependencies=table)
    return sorted({job_id for job_id, _ in pairs})


def find_dependencies(after: After) -> Operation[list[JobId]]:
    """Find the jobs that *after* names, and lock them so that none finishes unnoticed."""
    requested: dict[JobId, str] = {job_id: f"job {job_id}" for job_id in after.ids}
    for kind, key in after.keys:
        rows = yield query("find_job_by_key", kind=kind, key=key)
        requested |= dict.fromkeys(_matches(rows, f"the key {key!r} of kind {kind!r}"), f"key {key!r}")
    for label in after.labels:
        glob = Glob(label)
        statement = "find_jobs_by_label" if glob.exact else "find_jobs_by_label_pattern"
        rows = yield query(statement, label=str(label) if glob.exact else glob)
        requested |= dict.fromkeys(_matches(rows, f"the label {label!r}"), f"label {label!r}")
    ids = sorted(requested)
    yield query("mark_dependencies", ids=ids)
    yield query("lock_finished_dependencies", ids=ids)
    states = yield query("list_job_states", ids=ids)
    missing = set(ids) - {row[0] for row in states}
    if missing:
        raise DependencyNotFound(f"{requested[min(missing)]}, which this job should start after, does not exist")
    return ids


def judge_waiting(ids: Sequence[JobId], *, insist: bool = False, where: tuple[str, ...] = ()) -> Operation[int]:
    """Start waiting jobs, hold them or cancel them, by the states of their dependencies.

    Other jobs may depend on a cancelled job: they are judged next, down the chain, up to a limit.
    *insist*: a person requested the run, so a failed dependency no longer stops it.
    *where* is :data:`BRIEFLY`, :data:`UNLOCKED`, or nothing for jobs of this transaction. Jobs that another
    transaction has locked, and the rest of a long chain, are recorded for :func:`complete_effects`. Returns their
    number.
    """
    locked: list[JobId] = []
    for _ in range(MAX_LEVELS):
        if not ids:
            break
        waiting: list[WaitingJob] = yield Query("lock_waiting_jobs", {"ids": ids}, WaitingJob, where)
        if where == UNLOCKED and len(waiting) < len(ids):
            rest = sorted(set(ids) - {job.id for job in waiting})
            locked += [row[0] for row in (yield query("list_still_waiting", ids=rest))]
        if not waiting:
            ids = []
            break
        states: list[DependencyState] = yield query(
            "list_dependency_states", DependencyState, ids=[job.id for job in waiting]
        )
        dependencies: dict[JobId, list[DependencyState]] = defaultdict(list)
        for state in states:
            dependencies[state.job_id].append(state)
        steps = {job.id: _step(job, dependencies[job.id], insist=insist) for job in waiting}
        stopped = [job for job in waiting if steps[job.id] in (DependencyStep.HOLD, DependencyStep.CANCEL)]
        notes = {job.id: reason_for(job.after_when, dependencies[job.id]) for job in stopped}
        yield from _wake([job_id for job_id, step in steps.items() if step is DependencyStep.START])
        yield from _hold({job_id: note for job_id, note in notes.items() if steps[job_id] is DependencyStep.HOLD})
        cancelled = yield from _cancel(
            {job_id: note for job_id, note in notes.items() if steps[job_id] is DependencyStep.CANCEL}
        )
        ids = yield from _dependents(cancelled)
    left = sorted({*locked, *ids})
    if left:
        yield query("insert_pending_effects", ids=left)
    return len(left)


def ready_at(queue: str, kind: str, priority: int, due_at: datetime | int) -> EarlierJobs:
    """The place of a job that became ready, by the columns of its row."""
    return EarlierJobs(queue, kind, priority, timestamp(due_at), timestamp(due_at))


def without_failed_dependencies(
    jobs: Sequence[RevivableJob], selected: Container[JobId]
) -> Operation[list[RevivableJob]]:
    """Leave out jobs whose dependencies have failed, unless these are *selected* to run again, too.

    A dependency that no longer exists finished long ago: from now on it does not count.
    """
    states: list[DependencyState] = yield query("list_dependency_states", DependencyState, ids=[job.id for job in jobs])
    gone = [each for each in states if each.state is None]
    if gone:
        yield query("delete_dependencies", dependencies=Rows(**columns_of(gone, "job_id", "dependency_id")))
    known: dict[JobId, list[DependencyState]] = defaultdict(list)
    for each in states:
        if each.state is not None:
            known[each.job_id].append(each)
    refused: set[JobId] = set()

    def may_run(job: RevivableJob) -> bool:
        seen = [
            State.WAITING if each.dependency_id in selected and each.dependency_id not in refused else each.state
            for each in known[job.id]
        ]
        if not seen or job.after_when is None or job.after_failed is None:
            return True
        return next_step(job.after_when, job.after_failed, seen) is not DependencyStep.CANCEL

    # A job that is left out may be the dependency of another.
    while more := {job.id for job in jobs if job.id not in refused and not may_run(job)}:
        refused |= more
    return [job for job in jobs if job.id not in refused]


def left_behind(ids: Sequence[JobId], limit: int) -> Operation[list[JobId]]:
    """The jobs that were cancelled because one of these failed, down the whole chain."""
    rows = yield query("list_left_behind", ids=list(ids), limit=limit)
    return sorted(row[0] for row in rows)


def after_end(finished: Iterable[JobId], *, where: tuple[str, ...] = UNLOCKED) -> Operation[None]:
    """Judge the jobs that wait for *finished*, in the transaction that finishes these."""
    dependents = yield from _dependents(list(finished))
    yield from judge_waiting(dependents, where=where)


def complete_effects(limit: int) -> Operation[Effects]:
    """Do what transactions have left of the effects of up to *limit* jobs on others."""
    rows = yield query("take_pending_effects", limit=limit)
    ids = sorted({row[0] for row in rows})
    dependents = yield from _dependents(ids)
    return Effects(len(rows), (yield from judge_waiting(sorted({*ids, *dependents}), where=UNLOCKED)))


def pass_on(ids: Sequence[JobId]) -> Operation[None]:
    """Take plans out of their lines: their dependents wait for the dependencies of the plan instead."""
    if not ids:
        return
    rows = yield query("inherit_dependencies", ids=list(ids))
    if rows:
        yield query("mark_dependencies", ids=sorted({row[0] for row in rows}))


def check_waiting(after: JobId, limit: int) -> Operation[JobId | None]:
    """Judge one page of waiting jobs; returns the start of the next page."""
    rows = yield query("list_waiting_jobs", after=after, limit=limit)
    ids = [row[0] for row in rows]
    yield from judge_waiting(ids, where=UNLOCKED)
    return ids[-1] if len(ids) == limit else None


def _step(job: WaitingJob, dependencies: list[DependencyState], *, insist: bool) -> DependencyStep:
    step = next_step(job.after_when, job.after_failed, [dependency.state for dependency in dependencies])
    return DependencyStep.START if insist and step in (DependencyStep.CANCEL, DependencyStep.HOLD) else step


def _wake(ids: list[JobId]) -> Operation[None]:
    if ids:
        rows = yield query("wake_waiting_jobs", ids=ids)
        yield MadeReady([ready_at(*place) for state, *place in rows if state == State.READY])
        yield from record(EventName.WOKEN, dict.fromkeys(ids), actor=Actor.DEPENDENCIES)


def _hold(notes: dict[JobId, str]) -> Operation[None]:
    if notes:
        yield query("hold_jobs", notes=ById(id=list(notes), note=list(notes.values())))
        yield from record(EventName.HELD, notes, actor=Actor.DEPENDENCIES)


def _cancel(notes: dict[JobId, str]) -> Operation[list[JobId]]:
    if not notes:
        return []
    finished: list[FinishedJob] = yield query(
        "cancel_idle_jobs", FinishedJob, idle=cancelled_columns(notes, EndReason.DEPENDENCY_FAILED)
    )
    yield from record(EventName.CANCELLED, notes, actor=Actor.DEPENDENCIES)
    return [job.id for job in finished if job.has_dependents]


def cancelled_columns(notes: Mapping[JobId, str], reason: EndReason) -> ById:
    """The jobs to cancel, each with its note."""
    return ById(id=list(notes), note=list(notes.values()), reason=[reason] * len(notes))


def _dependents(ids: list[JobId]) -> Operation[list[JobId]]:
    if not ids:
        return []
    rows = yield query("list_dependents", ids=ids)
    return [row[0] for row in rows]


def _matches(rows: list[tuple[JobId]], label: str) -> list[JobId]:
    if not rows:
        raise DependencyNotFound(f"{label}, which this job should start after, matches no job")
    return [row[0] for row in rows]

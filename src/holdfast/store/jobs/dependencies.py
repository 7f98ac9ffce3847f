"""Flows for dependencies: what waits, what starts, what can no longer start."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec import Struct

from holdfast.domain.jobs.dependencies import After, IfNot, NeedState, Step, When, next_step, reason_for
from holdfast.domain.jobs.history import EventName
from holdfast.domain.jobs.job import JobId
from holdfast.domain.jobs.new_job import Actor
from holdfast.domain.jobs.selector import Glob
from holdfast.errors import NeedNotFound
from holdfast.store.engine.operation import ById, Flow, ask
from holdfast.store.jobs.events import record


class Waiting(Struct, frozen=True):
    """A waiting job, under its lock, and its condition."""

    id: JobId
    after_when: When
    after_failed: IfNot


class Ended(Struct, frozen=True):
    """A job that has just ended, and whether others may wait for it."""

    id: JobId
    needed: bool


def find_needs(after: After) -> Flow[list[JobId]]:
    """The ids that *after* means now, locked so that none of them ends unseen.

    Raises:
        NeedNotFound: An id, key or label matches nothing.
    """
    wanted: dict[JobId, str] = {need: f"job {need}" for need in after.ids}
    for kind, key in after.keys:
        rows = yield ask("ids_by_key", kind=kind, key=key)
        wanted |= dict.fromkeys(_found(rows, f"the key {key!r} of kind {kind!r}"), f"key {key!r}")
    for label in after.labels:
        glob = Glob(label)
        rows = yield ask("ids_by_label" if glob.exact else "ids_by_pattern", label=str(label) if glob.exact else glob)
        wanted |= dict.fromkeys(_found(rows, f"the label {label!r}"), f"label {label!r}")
    ids = sorted(wanted)
    yield ask("mark_needed", ids=ids)
    states = yield ask("states_of", ids=ids)
    missing = set(ids) - {row[0] for row in states}
    if missing:
        raise NeedNotFound(f"{wanted[min(missing)]}, which this job should start after, does not exist")
    return ids


def judge_waiting(ids: Sequence[JobId], *, insist: bool = False) -> Flow[None]:
    """Let waiting jobs start, or give them up, as their needs stand now.

    A job that is given up may be needed itself: the news runs down the whole chain.
    *insist*: a person wants them to run, so that a failed need no longer stops them.
    """
    while ids:
        waiting: list[Waiting] = yield ask("lock_waiting", Waiting, ids=ids)
        if not waiting:
            return
        rows: list[NeedState] = yield ask("need_states", NeedState, ids=[job.id for job in waiting])
        needs = _by_job(rows)
        steps = {job.id: _step(job, needs[job.id], insist=insist) for job in waiting}
        yield from _wake([job_id for job_id, step in steps.items() if step is Step.START])
        yield from _hold(waiting, steps, needs)
        cancelled = yield from _cancel(waiting, steps, needs)
        ids = yield from _dependents(cancelled)


def after_end(ended: Iterable[JobId]) -> Flow[None]:
    """Tell the jobs that wait for *ended*."""
    dependents = yield from _dependents(list(ended))
    yield from judge_waiting(dependents)


def pass_on(ids: Sequence[JobId]) -> Flow[None]:
    """These plans leave their lines: who waits for one of them waits for what it waited for."""
    if not ids:
        return
    rows = yield ask("pass_on_needs", ids=list(ids))
    if rows:
        yield ask("mark_needed", ids=sorted({row[0] for row in rows}))


def sweep(after: JobId, limit: int) -> Flow[JobId | None]:
    """Judge one page of waiting jobs anew; answers where the next page begins."""
    rows = yield ask("waiting_page", after=after, limit=limit)
    ids = [row[0] for row in rows]
    yield from judge_waiting(ids)
    return ids[-1] if len(ids) == limit else None


def _step(job: Waiting, needs: list[NeedState], *, insist: bool) -> Step:
    step = next_step(job.after_when, job.after_failed, [need.state for need in needs])
    return Step.START if insist and step in (Step.CANCEL, Step.HOLD) else step


def _wake(ids: list[JobId]) -> Flow[None]:
    if ids:
        yield ask("wake", ids=ids)
        yield from record(EventName.WOKEN, dict.fromkeys(ids), actor=Actor.NEEDS)


def _hold(waiting: list[Waiting], steps: dict[JobId, Step], needs: dict[JobId, list[NeedState]]) -> Flow[None]:
    notes = _notes(Step.HOLD, waiting, steps, needs)
    if notes:
        yield ask("hold_with_note", held=ById(id=list(notes), note=list(notes.values())))
        yield from record(EventName.HELD, notes, actor=Actor.NEEDS)


def _cancel(waiting: list[Waiting], steps: dict[JobId, Step], needs: dict[JobId, list[NeedState]]) -> Flow[list[JobId]]:
    notes = _notes(Step.CANCEL, waiting, steps, needs)
    if not notes:
        return []
    ended: list[Ended] = yield ask("end_idle", Ended, idle=ById(id=list(notes), note=list(notes.values())))
    yield from record(EventName.CANCELLED, notes, actor=Actor.NEEDS)
    return [job.id for job in ended if job.needed]


def _notes(
    wanted: Step, waiting: list[Waiting], steps: dict[JobId, Step], needs: dict[JobId, list[NeedState]]
) -> dict[JobId, str]:
    return {job.id: reason_for(job.after_when, needs[job.id]) for job in waiting if steps[job.id] is wanted}


def _dependents(ids: list[JobId]) -> Flow[list[JobId]]:
    if not ids:
        return []
    rows = yield ask("dependents", ids=ids)
    return [row[0] for row in rows]


def _by_job(rows: Iterable[NeedState]) -> dict[JobId, list[NeedState]]:
    needs: dict[JobId, list[NeedState]] = defaultdict(list)
    for need in rows:
        needs[need.job_id].append(need)
    return needs


def _found(rows: list[tuple[JobId]], what: str) -> list[JobId]:
    if not rows:
        raise NeedNotFound(f"{what}, which this job should start after, matches no job")
    return [row[0] for row in rows]

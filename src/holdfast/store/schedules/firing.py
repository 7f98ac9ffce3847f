"""Flows that fire plans: jobs, rows of the ledger, and lines of plans that wait for each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, assert_never

from msgspec import Struct, structs

from holdfast.domain.jobs.dependencies import After, When
from holdfast.domain.jobs.job import JobId, State
from holdfast.domain.jobs.new_job import Actor, Enqueued, NewJob
from holdfast.domain.schedules.decision import Skipped, SkipReason
from holdfast.domain.schedules.definition import Schedule
from holdfast.domain.schedules.plan import Earlier, Origin, Overlap, Plan, PlanStatus, Turn, arrange, standing
from holdfast.store.engine.now import read_now
from holdfast.store.engine.operation import BulkInsert, Operation, Rows, query
from holdfast.store.jobs import dependencies
from holdfast.store.jobs.control import cancel_jobs
from holdfast.store.jobs.enqueue import draw_ids, enqueue_flow


class PlanToFire(Struct, frozen=True):
    """A plan, and the job that it becomes; *then* follows when that is done."""

    plan: Plan
    request: NewJob
    then: NewJob | None = None


class Advance(Struct, frozen=True):
    """What a planner has decided about a schedule, as it was under this token: plans, and where it goes on.

    After as many moments as its *runs* it is over.
    """

    name: str
    token: int
    cursor: datetime
    next_at: datetime | None
    overlap: Overlap
    fire: Sequence[PlanToFire] = ()
    skip: Sequence[Skipped] = ()
    runs: int | None = None


class Decided(Struct, frozen=True):
    """What came of it: which schedules moved, how many plans were fired, how many skipped by reason."""

    moved: list[str]
    fired: int
    skipped: dict[SkipReason, int]


class Fired(Struct, frozen=True):
    """A plan that was fired, and where its job stands; None: it was forgotten since."""

    schedule: str
    time: datetime
    scope: str
    origin: Origin
    job_id: JobId
    actor: str
    decided_at: datetime
    state: State | None


class _Locked(Struct, frozen=True):
    name: str
    token: int
    fired: int


class _Open(Struct, frozen=True):
    schedule: str
    scope: str
    job_id: JobId
    state: State | None
    attempts: int


class _Lane(Struct, frozen=True):
    """The plans of one schedule, which is locked. They *meet* earlier ones, or do not; later ones meet them, or not."""

    name: str
    overlap: Overlap
    fires: Sequence[PlanToFire]
    meets: bool
    met: bool


class _Placed(Struct, frozen=True):
    """A plan that is fired: whether it waits for the one before it, and for whom if it is the first of its line."""

    fire: PlanToFire
    waits: bool
    after: Sequence[JobId]
    first: bool
    met: bool


def advance(advances: Sequence[Advance], drawn: list[JobId] | None) -> Operation[Decided]:
    """Take what planners have decided, of the schedules that nobody has changed since."""
    rows: list[_Locked] = yield query("lock_schedules", _Locked, names=[each.name for each in advances])
    known = {row.name: row for row in rows}
    taken = [each for each in advances if each.name in known and known[each.name].token == each.token]
    if not taken:
        return Decided([], 0, {})
    lanes = [_due_lane(each) for each in taken if each.fire]
    fired, overlapped = yield from _fire(lanes, drawn, Origin.DUE, Actor.SCHEDULER)
    skips = {each.name: list(each.skip) for each in taken}
    for plan in overlapped:
        skips[plan.schedule].append(Skipped(plan.time, plan.time, 1, SkipReason.OVERLAP, plan.scope))
    counted = yield from write_skips(skips)
    moments: dict[str, set[datetime]] = defaultdict(set)
    for each in fired:
        moments[each.schedule].add(each.time)
    yield query("advance_schedules", advance=_columns_of(taken, known, {name: len(at) for name, at in moments.items()}))
    return Decided([each.name for each in taken], len(fired), counted)


def _columns_of(taken: Sequence[Advance], known: Mapping[str, _Locked], moments: Mapping[str, int]) -> Rows:
    totals = {each.name: known[each.name].fired + moments.get(each.name, 0) for each in taken}
    return Rows(
        name=[each.name for each in taken],
        cursor=[each.cursor for each in taken],
        next_at=[None if each.runs is not None and totals[each.name] >= each.runs else each.next_at for each in taken],
        fired=[totals[each.name] for each in taken],
    )


def fire_requested(
    schedule: Schedule, fires: Sequence[PlanToFire], drawn: list[JobId] | None, origin: Origin, actor: str
) -> Operation[list[Fired]]:
    """Fire plans of a schedule, which is locked, because a person wants it."""
    fired, _ = yield from _fire([_asked_lane(schedule, fires, origin)], drawn, origin, actor)
    return fired


def _due_lane(each: Advance) -> _Lane:
    alone = each.overlap is Overlap.ALLOW
    return _Lane(each.name, each.overlap, each.fire, meets=not alone, met=not alone)


def _asked_lane(schedule: Schedule, fires: Sequence[PlanToFire], origin: Origin) -> _Lane:
    """A trigger starts at once, and later plans meet it; a backfill is a line of its own, beside what is due."""
    allowed = schedule.defined.when.overlaps is Overlap.ALLOW
    match origin:
        case Origin.BACKFILL:
            return _Lane(schedule.name, Overlap.ALLOW if allowed else Overlap.QUEUE_ALL, fires, meets=False, met=False)
        case Origin.TRIGGER | Origin.DUE:
            return _Lane(schedule.name, Overlap.ALLOW, fires, meets=False, met=not allowed)
        case _:
            assert_never(origin)


def write_skips(skips: Mapping[str, Sequence[Skipped]]) -> Operation[dict[SkipReason, int]]:
    """Write down what was not fired, by schedule; answers how many plans by reason."""
    rows = [(name, skip) for name, found in skips.items() for skip in found]
    counted: dict[SkipReason, int] = defaultdict(int)
    for _, skip in rows:
        counted[skip.reason] += skip.count
    if rows:
        table = Rows(
            schedule=[name for name, _ in rows],
            last=[skip.last for _, skip in rows],
            first=[skip.first for _, skip in rows],
            scope=[skip.scope for _, skip in rows],
            reason=[skip.reason for _, skip in rows],
            count=[skip.count for _, skip in rows],
        )
        yield query("insert_skipped_plans", skip=table)
    return dict(counted)


def release(limit: int) -> Operation[int]:
    """Let plans go that wait for one that is out of the way; what that one waited for, they wait for."""
    rows = yield query("list_stuck_plans", limit=limit)
    if rows:
        yield from dependencies.pass_on([row[1] for row in rows])
        yield query(
            "delete_dependencies",
            dependencies=Rows(job_id=[row[0] for row in rows], dependency_id=[row[1] for row in rows]),
        )
        yield from dependencies.judge_waiting(sorted({row[0] for row in rows}))
    yield query("unqueue_plans")
    return len(rows)


def known_plans(plans: Sequence[Plan]) -> Operation[set[Plan]]:
    """Which of these have been fired."""
    if not plans:
        return set()
    asked = Rows(
        schedule=[plan.schedule for plan in plans],
        time=[plan.time for plan in plans],
        scope=[plan.scope for plan in plans],
    )
    rows: list[Plan] = yield query("list_known_plans", Plan, plan=asked)
    return set(rows)


# -- lines -----------------------------------------------------------------------------------


def _fire(
    lanes: Sequence[_Lane], drawn: list[JobId] | None, origin: Origin, actor: str
) -> Operation[tuple[list[Fired], list[Plan]]]:
    """Fire plans of schedules that are locked; answers them, and those that overlap has skipped."""
    known = yield from known_plans([fire.plan for lane in lanes for fire in lane.fires])
    earlier = yield from _earlier([lane.name for lane in lanes if lane.meets])
    placed: list[_Placed] = []
    skipped: list[Plan] = []
    for lane in lanes:
        for scope, fires in _by_scope(fire for fire in lane.fires if fire.plan not in known).items():
            arranged = arrange(lane.overlap, earlier[lane.name, scope], len(fires))
            if arranged.cancel:
                yield from cancel_jobs(list(arranged.cancel), actor)
            for place, (fire, turn) in enumerate(zip(fires, arranged.turns, strict=True)):
                if turn is Turn.SKIP:
                    skipped.append(fire.plan)
                else:
                    placed.append(_Placed(fire, turn is Turn.WAIT, arranged.after, place == 0, lane.met))
    ids = drawn if drawn is not None else (yield from draw_ids(len(placed)))
    fired = yield from _write(placed, ids[: len(placed)], origin, actor)
    return fired, skipped


def _write(placed: Sequence[_Placed], ids: list[JobId], origin: Origin, actor: str) -> Operation[list[Fired]]:
    """The jobs, and their rows in the ledger."""
    if not placed:
        return []
    waits_for: list[Sequence[JobId]] = []

    def arranged(answers: Sequence[Enqueued]) -> Sequence[NewJob]:
        waits_for[:] = _line_up(placed, answers)
        return [_request(each, after) for each, after in zip(placed, waits_for, strict=True)]

    requests = [each.fire.request for each in placed]
    answers = yield from enqueue_flow(requests, ids, arrange=arranged)
    now = yield from read_now()
    columns = _columns([each.fire.plan for each in placed], answers, origin, actor, now)
    # A job that was there before, since the kind has a unique key, is somebody else's: nobody waits for it.
    met = [each.met and answer.created for each, answer in zip(placed, answers, strict=True)]
    yield BulkInsert("plan", {**columns, "open": met, "queued": [bool(after) for after in waits_for]})
    then = [
        structs.replace(each.fire.then, after=After(ids=(answer.id,)))
        for each, answer in zip(placed, answers, strict=True)
        if each.fire.then is not None and answer.created
    ]
    if then:
        yield from enqueue_flow(then, None)
    return list(map(Fired, *columns.values(), [None] * len(placed)))


def _line_up(placed: Sequence[_Placed], answers: Sequence[Enqueued]) -> Iterator[Sequence[JobId]]:
    """Who waits for whom: for the last of its line that is a job of its own, not one that was there before."""
    before: Sequence[JobId] = ()
    for each, answer in zip(placed, answers, strict=True):
        if each.first:
            before = each.after
        yield before if each.waits and answer.created else ()
        if answer.created:
            before = (answer.id,)


def _columns(
    plans: Sequence[Plan], answers: Sequence[Enqueued], origin: Origin, actor: str, now: datetime
) -> dict[str, list[Any]]:
    return {
        "schedule": [plan.schedule for plan in plans],
        "time": [plan.time for plan in plans],
        "scope": [plan.scope for plan in plans],
        "origin": [origin] * len(plans),
        "job_id": [answer.id for answer in answers],
        "actor": [actor] * len(plans),
        "decided_at": [now] * len(plans),
    }


def _request(placed: _Placed, after: Sequence[JobId]) -> NewJob:
    request = placed.fire.request
    return structs.replace(request, after=After(ids=tuple(after), when=When.FINISHED)) if after else request


def _earlier(schedules: list[str]) -> Operation[dict[tuple[str, str], list[Earlier]]]:
    """The earlier plans of each schedule and scope that have not ended; those that have are closed."""
    found: dict[tuple[str, str], list[Earlier]] = defaultdict(list)
    if not schedules:
        return found
    rows: list[_Open] = yield query("list_open_plans", _Open, schedules=schedules)
    finished = []
    for row in rows:
        place = standing(row.state, row.attempts)
        if place is PlanStatus.FINISHED:
            finished.append(row.job_id)
        else:
            found[row.schedule, row.scope].append(Earlier(row.job_id, place))
    if finished:
        yield query("close_plans", schedules=schedules, ids=finished)
    return found


def _by_scope(fires: Iterator[PlanToFire]) -> dict[str, list[PlanToFire]]:
    found: dict[str, list[PlanToFire]] = defaultdict(list)
    for fire in fires:
        found[fire.plan.scope].append(fire)
    return found

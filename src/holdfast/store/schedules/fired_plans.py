"""Operations that fire plans: they enqueue jobs, write the ledger and line up plans that wait for each other."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, assert_never

from msgspec import Struct, structs

from holdfast.domain.jobs.dependencies import After, When
from holdfast.domain.jobs.job import JobId, State
from holdfast.domain.jobs.new_job import Actor, Enqueued, NewJob
from holdfast.domain.schedules.decision import Skipped, SkipReason
from holdfast.domain.schedules.plan import Arrangement, Origin, Overlap, Plan, PlanStatus, Turn, arrange, plan_status
from holdfast.store.engine.operation import BulkInsert, Operation, Rows, query, read_now
from holdfast.store.jobs import dependencies
from holdfast.store.jobs.control import cancel_jobs
from holdfast.store.jobs.enqueue import check_requests, draw_ids, enqueue_operation, insert_jobs
from holdfast.store.jobs.unique_keys import reserve_keys


class PlanToFire(Struct, frozen=True):
    """A plan and its job; the job *then* follows when that one is done."""

    plan: Plan
    request: NewJob
    then: NewJob | None = None


class Advance(Struct, frozen=True):
    """A planner's decision about a schedule, based on its state under *token*.

    Once *runs* plan times have fired, the schedule is over.
    """

    name: str
    token: int
    cursor: datetime
    next_at: datetime | None
    overlap: Overlap
    fire: Sequence[PlanToFire] = ()
    skip: Sequence[Skipped] = ()
    runs: int | None = None


class AdvanceResult(Struct, frozen=True):
    """The schedules that moved, the number of plans that fired, and the number of skipped plans by reason."""

    moved: list[str]
    fired: int
    skipped: dict[SkipReason, int]


class FiredPlan(Struct, frozen=True):
    """A fired plan and the state of its job; None: the job was deleted."""

    schedule: str
    time: datetime
    scope: str
    origin: Origin
    job_id: JobId
    actor: str
    decided_at: datetime
    state: State | None


class _OpenPlan(Struct, frozen=True):
    schedule: str
    scope: str
    job_id: JobId
    state: State | None
    attempts: int


class _PlacedPlan(Struct, frozen=True):
    """A plan that fires, and its turn in the arrangement of its scope. *oldest*: it is the first plan of its scope."""

    fire: PlanToFire
    turn: Turn
    arrangement: Arrangement
    oldest: bool


def advance(advances: Sequence[Advance], drawn: list[JobId] | None) -> Operation[AdvanceResult]:
    """Apply the decisions about those schedules that have not changed since. A stopped store applies none."""
    rows = yield query("lock_schedules", names=[each.name for each in advances])
    tokens, fired_before = ({row[0]: row[column] for row in rows} for column in (1, 2))
    current = [each for each in advances if tokens.get(each.name) == each.token]
    if not current:
        return AdvanceResult([], 0, {})
    fires = [fire for each in current for fire in each.fire]
    overlaps = {each.name: each.overlap for each in current}
    fired, overlapped = yield from fire_plans(fires, overlaps, drawn, Origin.DUE, Actor.SCHEDULER)
    skips = {each.name: list(each.skip) for each in current}
    for plan in overlapped:
        skips[plan.schedule].append(Skipped(plan.time, plan.time, 1, SkipReason.OVERLAP, plan.scope))
    skipped = yield from write_skips(skips)
    times = Counter(name for name, _ in {(each.schedule, each.time) for each in fired})
    totals = [fired_before[each.name] + times[each.name] for each in current]
    over = [each.runs is not None and total >= each.runs for each, total in zip(current, totals, strict=True)]
    next_at = [None if is_over else each.next_at for each, is_over in zip(current, over, strict=True)]
    columns = Rows(**_columns(current, "name", "cursor"), next_at=next_at, fired=totals)
    yield query("advance_schedules", advance=columns)
    return AdvanceResult([each.name for each in current], len(fired), skipped)


def write_skips(skips: Mapping[str, Sequence[Skipped]]) -> Operation[dict[SkipReason, int]]:
    """Write skipped plans, by schedule, to the ledger. Returns the number of plans by reason."""
    rows = [(name, skip) for name, spans in skips.items() for skip in spans]
    counts: dict[SkipReason, int] = defaultdict(int)
    for _, skip in rows:
        counts[skip.reason] += skip.count
    if rows:
        columns = _columns([skip for _, skip in rows], "last", "first", "scope", "reason", "count")
        yield query("insert_skipped_plans", skip=Rows(schedule=[name for name, _ in rows], **columns))
    return dict(counts)


def release(*, limit: int = 100) -> Operation[int]:
    """Release plans behind a job that waits for its retry or for a person; returns their number.

    They wait for the dependencies of that job instead.
    """
    rows = yield query("list_stuck_plans", limit=limit)
    if rows:
        waiting, blocking = [row[0] for row in rows], [row[1] for row in rows]
        yield from dependencies.pass_on(blocking)
        yield query("delete_dependencies", dependencies=Rows(job_id=waiting, dependency_id=blocking))
        yield from dependencies.judge_waiting(sorted(set(waiting)), where=dependencies.UNLOCKED)
    yield query("unqueue_plans")
    return len(rows)


def known_plans(plans: Sequence[Plan]) -> Operation[set[Plan]]:
    """Return those of *plans* that have been fired."""
    if not plans:
        return set()
    rows: list[Plan] = yield query("list_known_plans", Plan, plan=Rows(**_columns(plans, "schedule", "time", "scope")))
    return set(rows)


def _columns(items: Sequence[Struct], *names: str) -> dict[str, list[Any]]:
    return {name: [getattr(item, name) for item in items] for name in names}


def fire_plans(
    fires: Sequence[PlanToFire], overlaps: Mapping[str, Overlap], drawn: list[JobId] | None, origin: Origin, actor: str
) -> Operation[tuple[list[FiredPlan], list[Plan]]]:
    """Fire plans of locked schedules. Returns the fired plans, and the plans that overlap skipped.

    *overlaps* holds the overlap rule of each schedule. Plans that were fired before are left out.
    """
    known = yield from known_plans([fire.plan for fire in fires])
    by_scope: dict[tuple[str, str], list[PlanToFire]] = defaultdict(list)
    for fire in fires:
        if fire.plan not in known:
            by_scope[fire.plan.schedule, fire.plan.scope].append(fire)
    names = {fire.plan.schedule: None for fire in fires if origin is Origin.DUE}
    earlier = yield from _earlier_jobs([name for name in names if overlaps[name] is not Overlap.ALLOW])
    placed: list[_PlacedPlan] = []
    skipped: list[Plan] = []
    for (schedule, scope), scope_fires in by_scope.items():
        overlap = _overlap_by_origin(overlaps[schedule], origin)
        arrangement = arrange(overlap, earlier[schedule, scope], len(scope_fires))
        if arrangement.cancel:
            yield from cancel_jobs(list(arrangement.cancel), actor)
        for index, (fire, turn) in enumerate(zip(scope_fires, arrangement.turns, strict=True)):
            if turn is Turn.SKIP:
                skipped.append(fire.plan)
            else:
                placed.append(_PlacedPlan(fire, turn, arrangement, oldest=index == 0))
    if not placed:
        return [], skipped
    ids = drawn[: len(placed)] if drawn is not None else (yield from draw_ids(len(placed)))
    return (yield from _write_plans(placed, overlaps, ids, origin, actor)), skipped


def _overlap_by_origin(overlap: Overlap, origin: Origin) -> Overlap:
    """Adapt the overlap rule: a trigger starts at once, and backfilled plans run one after the other."""
    match origin:
        case Origin.DUE:
            return overlap
        case Origin.TRIGGER:
            return Overlap.ALLOW
        case Origin.BACKFILL:
            return Overlap.ALLOW if overlap is Overlap.ALLOW else Overlap.QUEUE_ALL
        case _:
            assert_never(origin)


def _write_plans(
    placed: Sequence[_PlacedPlan], overlaps: Mapping[str, Overlap], ids: list[JobId], origin: Origin, actor: str
) -> Operation[list[FiredPlan]]:
    requests = [each.fire.request for each in placed]
    check_requests(requests)
    now = yield from read_now()
    answers = yield from reserve_keys(requests, ids)
    waits_for = list(_line_up(placed, answers))
    requests = [
        structs.replace(request, after=After(ids=tuple(jobs), when=When.FINISHED)) if jobs else request
        for request, jobs in zip(requests, waits_for, strict=True)
    ]
    yield from insert_jobs(requests, answers, ids, now)
    plans = [each.fire.plan for each in placed]
    columns = {
        **_columns(plans, "schedule", "time", "scope"),
        "origin": [origin] * len(plans),
        "job_id": [answer.id for answer in answers],
        "actor": [actor] * len(plans),
        "decided_at": [now] * len(plans),
    }
    # Later due plans take an open plan into account. A job that existed before, by its unique key, blocks no plan.
    meets_later = origin is not Origin.BACKFILL
    opens = [
        meets_later and overlaps[plan.schedule] is not Overlap.ALLOW and answer.created
        for plan, answer in zip(plans, answers, strict=True)
    ]
    yield BulkInsert("plan", {**columns, "open": opens, "queued": [bool(jobs) for jobs in waits_for]})
    followers = [
        structs.replace(each.fire.then, after=After(ids=(answer.id,)))
        for each, answer in zip(placed, answers, strict=True)
        if each.fire.then is not None and answer.created
    ]
    if followers:
        yield from enqueue_operation(followers, None)
    return list(map(FiredPlan, *columns.values(), [None] * len(placed)))


def _line_up(placed: Sequence[_PlacedPlan], answers: Sequence[Enqueued]) -> Iterator[Sequence[JobId]]:
    """Yield the jobs that each plan waits for: the last new job of its line. Jobs that existed before do not count."""
    before: Sequence[JobId] = ()
    for each, answer in zip(placed, answers, strict=True):
        if each.oldest:
            before = each.arrangement.after
        yield before if each.turn is Turn.WAIT and answer.created else ()
        if answer.created:
            before = (answer.id,)


def _earlier_jobs(schedules: list[str]) -> Operation[dict[tuple[str, str], dict[PlanStatus, list[JobId]]]]:
    """Return the unfinished jobs of earlier plans, by schedule and scope. Closes plans that have finished."""
    earlier: dict[tuple[str, str], dict[PlanStatus, list[JobId]]] = defaultdict(lambda: defaultdict(list))
    if not schedules:
        return earlier
    rows: list[_OpenPlan] = yield query("list_open_plans", _OpenPlan, schedules=schedules)
    finished = []
    for row in rows:
        status = plan_status(row.state, row.attempts)
        if status is PlanStatus.FINISHED:
            finished.append(row.job_id)
        else:
            earlier[row.schedule, row.scope][status].append(row.job_id)
    if finished:
        yield query("close_plans", schedules=schedules, ids=finished)
    return earlier

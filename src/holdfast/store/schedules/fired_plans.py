"""Operations that fire plans: they enqueue jobs, write the ledger and line up plans that wait for each other."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import assert_never

from msgspec import Struct, structs

from holdfast.domain.jobs.dependencies import After, When
from holdfast.domain.jobs.job import JobId, State
from holdfast.domain.jobs.new_job import Actor, Enqueued, NewJob
from holdfast.domain.jobs.request_checks import check_requests
from holdfast.domain.schedules.decision import Skipped, SkipReason
from holdfast.domain.schedules.plan import (
    MAX_BACKLOG,
    NO_EARLIER_PLANS,
    Arrangement,
    Origin,
    Overlap,
    Plan,
    Turn,
    arrange,
)
from holdfast.store.engine.operation import BulkInsert, Operation, Rows, columns_of, query, read_now
from holdfast.store.jobs import dependencies
from holdfast.store.jobs.control import cancel_jobs
from holdfast.store.jobs.enqueue import draw_ids, enqueue_operation, insert_jobs
from holdfast.store.jobs.unique_keys import reserve_keys
from holdfast.store.schedules.earlier_plans import OverlapRule, Scope, earlier_plans

#: A user's transaction may keep a job or a key locked for minutes. Planners do not wait for it: others may be due.
LIMITED_WAITS = query("limit_lock_waits", longest="1s")


class PlanToFire(Struct, frozen=True, gc=False):
    """A plan and its job; the job *then* follows when that one is done."""

    plan: Plan
    request: NewJob
    then: NewJob | None = None


class Advance(Struct, frozen=True, gc=False):
    """A planner's decision about a schedule, based on its state under *token*.

    Once *runs* plan times have fired, the schedule is finished. *more*: other plans of the same time follow; *earlier*
    ones were fired before.
    """

    name: str
    token: int
    cursor: datetime
    next_at: datetime | None
    overlap: Overlap
    fire: Sequence[PlanToFire] = ()
    skip: Sequence[Skipped] = ()
    runs: int | None = None
    max_backlog: int = MAX_BACKLOG
    more: bool = False
    earlier: int = 0


class AdvanceResult(Struct, frozen=True):
    """The schedules that moved, the number of plans that fired, and the number of skipped plans by reason."""

    moved: list[str]
    fired: int
    skipped: dict[SkipReason, int]


class FiredPlan(Struct, frozen=True, gc=False):
    """A fired plan and the state of its job; None: the job was deleted."""

    schedule: str
    time: datetime
    scope: str
    origin: Origin
    job_id: JobId
    actor: str
    decided_at: datetime
    state: State | None


class _PlacedPlan(Struct, frozen=True, gc=False):
    """A plan that fires. *after*: the end of the line of its scope, if it is the first of the scope to fire."""

    fire: PlanToFire
    waits: bool
    after: Sequence[JobId] | None


def advance(advances: Sequence[Advance], *, check_ledger: bool = False) -> Operation[AdvanceResult]:
    """Apply the decisions about those schedules that have not changed since. A stopped store applies none.

    *check_ledger*: leave out plans that were fired before; otherwise they are an error.
    """
    yield LIMITED_WAITS
    rows = yield query("lock_schedules", names=[each.name for each in advances])
    tokens, fired_before = ({row[0]: row[column] for row in rows} for column in (1, 2))
    current = [each for each in advances if tokens.get(each.name) == each.token]
    if not current:
        return AdvanceResult([], 0, {})
    fires = [fire for each in current for fire in each.fire]
    rules = {each.name: OverlapRule(each.overlap, each.max_backlog) for each in current}
    if check_ledger:
        fires = yield from not_fired(fires)
    fired, overlapped = yield from fire_plans(fires, rules, Origin.DUE, Actor.SCHEDULER)
    overlapped |= {each.name: [*each.skip, *overlapped.get(each.name, ())] for each in current if each.skip}
    skipped = yield from write_skips(overlapped)
    times = Counter([name for name, _ in {(each.schedule, each.time) for each in fired}])
    totals = [
        fired_before[each.name] + (0 if each.more else times[each.name] or min(1, each.earlier)) for each in current
    ]
    next_at = [
        None if each.runs is not None and not each.more and total >= each.runs else each.next_at
        for each, total in zip(current, totals, strict=True)
    ]
    advanced = Rows(**columns_of(current, "name", "cursor"), next_at=next_at, fired=totals)
    yield query("advance_schedules", advance=advanced)
    return AdvanceResult([each.name for each in current], len(fired), skipped)


def write_skips(skips: Mapping[str, Sequence[Skipped]]) -> Operation[dict[SkipReason, int]]:
    """Write skipped plans, by schedule, to the ledger. Returns the number of plans by reason."""
    rows = [(name, skip) for name, spans in skips.items() for skip in spans]
    counts: dict[SkipReason, int] = defaultdict(int)
    for _, skip in rows:
        counts[skip.reason] += skip.count
    if rows:
        columns = columns_of([skip for _, skip in rows], "last", "first", "scope", "reason", "count")
        yield query("insert_skipped_plans", skip=Rows(schedule=[name for name, _ in rows], **columns))
    return dict(counts)


def release(*, limit: int = 100) -> Operation[int]:
    """Release plans behind a job that waits for its retry or for a person; returns their number.

    They wait for the dependencies of that job instead.
    """
    yield LIMITED_WAITS
    rows = yield query("list_stuck_plans", limit=limit)
    if rows:
        waiting, blocking = [row[0] for row in rows], [row[1] for row in rows]
        yield from dependencies.pass_on(blocking)
        yield query("delete_dependencies", dependencies=Rows(job_id=waiting, dependency_id=blocking))
        yield from dependencies.judge_waiting(sorted(set(waiting)), where=dependencies.UNLOCKED)
    return len(rows)


def known_plans(plans: Sequence[Plan]) -> Operation[set[Plan]]:
    """Return those of *plans* that have been fired."""
    if not plans:
        return set()
    columns = columns_of(plans, "schedule", "time", "scope")
    return set((yield query("list_known_plans", Plan, plan=Rows(**columns))))


def not_fired(fires: Sequence[PlanToFire]) -> Operation[list[PlanToFire]]:
    """Leave out plans that have been fired."""
    known = yield from known_plans([fire.plan for fire in fires])
    return [fire for fire in fires if fire.plan not in known]


def fire_plans(
    fires: Sequence[PlanToFire], rules: Mapping[str, OverlapRule], origin: Origin, actor: str
) -> Operation[tuple[list[FiredPlan], dict[str, list[Skipped]]]]:
    """Fire plans of locked schedules. Returns the fired plans, and the spans that overlap skipped, by schedule.

    *rules* holds the overlap rule of each schedule. None of the plans was fired before.
    """
    by_scope: dict[Scope, list[PlanToFire]] = defaultdict(list)
    for fire in fires:
        by_scope[fire.plan.schedule, fire.plan.scope].append(fire)
    meets = {name for name, rule in rules.items() if origin is Origin.DUE and rule.overlap is not Overlap.ALLOW}
    new = {scope: len(scope_fires) for scope, scope_fires in by_scope.items() if scope[0] in meets}
    earlier = yield from earlier_plans(new, rules)
    placed: list[_PlacedPlan] = []
    skipped: dict[str, list[Skipped]] = defaultdict(list)
    for (schedule, scope), scope_fires in by_scope.items():
        if len(scope_fires) == 1 and (schedule, scope) not in earlier:  # most plans
            placed.append(_PlacedPlan(scope_fires[0], False, ()))
            continue
        rule = _rule_by_origin(rules[schedule], origin, len(scope_fires))
        plans = earlier.get((schedule, scope), NO_EARLIER_PLANS)
        arrangement = arrange(rule.overlap, plans, len(scope_fires), max_backlog=rule.max_backlog)
        if arrangement.cancel:
            yield from cancel_jobs(list(arrangement.cancel), actor)
        placed += _place(scope_fires, arrangement)
        if Turn.SKIP in arrangement.turns:
            times = [fire.plan.time for fire in scope_fires]
            skipped[schedule] += _skipped_spans(times, arrangement.turns, rule.overlap, scope)
    if not placed:
        return [], skipped
    ids = yield from draw_ids(len(placed))
    return (yield from _write_plans(placed, rules, ids, origin, actor)), skipped


def _place(fires: Sequence[PlanToFire], arrangement: Arrangement) -> Iterator[_PlacedPlan]:
    """Yield the plans of a scope that fire."""
    after: Sequence[JobId] | None = arrangement.after
    for fire, turn in zip(fires, arrangement.turns, strict=True):
        if turn is not Turn.SKIP:
            yield _PlacedPlan(fire, turn is Turn.WAIT, after)
            after = None


def _skipped_spans(times: Sequence[datetime], turns: Sequence[Turn], overlap: Overlap, scope: str) -> Iterator[Skipped]:
    """Yield the skipped plans of a scope, as spans between those that fire."""
    reason = SkipReason.BACKLOG if overlap is Overlap.QUEUE_ALL else SkipReason.OVERLAP
    for turn, group in groupby(zip(turns, times, strict=True), key=itemgetter(0)):
        span = [time for _, time in group]
        if turn is Turn.SKIP:
            yield Skipped(span[0], span[-1], len(span), reason, scope)


def _rule_by_origin(rule: OverlapRule, origin: Origin, count: int) -> OverlapRule:
    """Adapt the overlap rule: a trigger starts at once, and backfilled plans run one after the other."""
    match origin:
        case Origin.DUE:
            return rule
        case Origin.TRIGGER:
            return OverlapRule(Overlap.ALLOW)
        case Origin.BACKFILL:
            return OverlapRule(Overlap.ALLOW if rule.overlap is Overlap.ALLOW else Overlap.QUEUE_ALL, count)
        case _:
            assert_never(origin)


def _write_plans(
    placed: Sequence[_PlacedPlan], rules: Mapping[str, OverlapRule], ids: Sequence[JobId], origin: Origin, actor: str
) -> Operation[list[FiredPlan]]:
    requests = [each.fire.request for each in placed]
    check_requests(requests)
    now = yield from read_now()
    answers = yield from reserve_keys(requests, ids)
    waits_for = list(_line_up(placed, answers))
    if any(waits_for):
        requests = [
            structs.replace(request, after=After(ids=tuple(jobs), when=When.FINISHED)) if jobs else request
            for request, jobs in zip(requests, waits_for, strict=True)
        ]
    yield from insert_jobs(requests, answers, ids, now)
    plans = [each.fire.plan for each in placed]
    columns = {
        **columns_of(plans, "schedule", "time", "scope"),
        "origin": [origin] * len(plans),
        "job_id": [answer.id for answer in answers],
        "actor": [actor] * len(plans),
        "decided_at": [now] * len(plans),
    }
    # Later due plans take an open plan into account. A job that existed before, by its unique key, blocks no plan.
    may_meet = origin is not Origin.BACKFILL
    meet_later = {name for name, rule in rules.items() if may_meet and rule.overlap is not Overlap.ALLOW}
    opens = [plan.schedule in meet_later and answer.created for plan, answer in zip(plans, answers, strict=True)]
    yield BulkInsert("plan", {**columns, "open": opens, "queued": [bool(jobs) for jobs in waits_for]})
    followers = [
        structs.replace(each.fire.then, after=After(ids=(answer.id,)))
        for each, answer in zip(placed, answers, strict=True)
        if each.fire.then is not None and answer.created
    ]
    if followers:
        yield from enqueue_operation(followers)
    return list(map(FiredPlan, *columns.values(), [None] * len(placed)))


def _line_up(placed: Sequence[_PlacedPlan], answers: Sequence[Enqueued]) -> Iterator[Sequence[JobId]]:
    """Yield the jobs that each plan waits for: the last new job of its line. Jobs that existed before do not count."""
    before: Sequence[JobId] = ()
    for each, answer in zip(placed, answers, strict=True):
        if each.after is not None:
            before = each.after
        yield before if each.waits and answer.created else ()
        if answer.created:
            before = (answer.id,)

"""The ledger of plans: what was fired, what was skipped and why. Each plan is decided once, by whoever comes first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct, structs

from holdfast.domain.definition import Schedule
from holdfast.domain.job import JobId, State
from holdfast.domain.needs import After, When
from holdfast.domain.plan import Arranged, Earlier, Origin, Overlap, Plan, Standing, Turn, arrange, standing
from holdfast.domain.request import Actor, NewJob
from holdfast.domain.schedule import Reason, Skipped
from holdfast.domain.text import checked_actor
from holdfast.errors import NoSuchSchedule
from holdfast.store.backend import Backend
from holdfast.store.control import cancel_jobs
from holdfast.store.flow import Fill, Flow, Rows, ask
from holdfast.store.jobs import SYSTEM, draw_ids, enqueue_flow
from holdfast.store.needs import judge_waiting
from holdfast.store.rows import moment

#: After every moment.
LAST = datetime(9999, 1, 1, tzinfo=UTC)


class Fire(Struct, frozen=True):
    """A plan, and the job that it becomes; *then* follows when that is done."""

    plan: Plan
    request: NewJob
    then: NewJob | None = None


class Step(Struct, frozen=True):
    """What a planner has decided about a schedule, as it was under this token: plans, and where it goes on.

    Of *skip*, those of no scope are about all of them.
    """

    name: str
    token: int
    cursor: datetime
    next_at: datetime | None
    overlap: Overlap
    fire: Sequence[Fire] = ()
    skip: Sequence[Skipped] = ()
    #: How many moments are fired: each may have many scopes.
    times: int = 0


class Decided(Struct, frozen=True):
    """What came of steps: which schedules moved, how many plans were fired, how many skipped by reason."""

    moved: list[str]
    fired: int
    skipped: dict[Reason, int]


class Fired(Struct, frozen=True):
    """A plan that was fired."""

    schedule: str
    time: datetime
    scope: str
    origin: Origin
    job_id: JobId
    actor: str
    decided_at: datetime


class FiredState(Struct, frozen=True):
    """A plan that was fired, and where its job stands; None: it was forgotten since."""

    schedule: str
    time: datetime
    scope: str
    origin: Origin
    job_id: JobId
    actor: str
    decided_at: datetime
    state: State | None


class SkippedPlans(Struct, frozen=True):
    """A stretch of plans that were not fired; without a scope, in none."""

    schedule: str
    first: datetime
    last: datetime
    scope: str
    reason: Reason
    count: int
    decided_at: datetime


class _Open(Struct, frozen=True):
    schedule: str
    scope: str
    job_id: JobId
    state: State | None
    attempts: int


class Plans:
    """Fires plans, each moment of a schedule once in each scope, and remembers."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def take(self, steps: Sequence[Step]) -> Decided:
        """Take the steps of several schedules in one transaction.

        - A schedule that was changed since, or that another planner holds, is left out.
        - A plan that was fired before is not fired again.
        - The jobs exist if and only if the cursor has moved.
        """
        drawn = self._backend.draw_ids(sum(len(step.fire) for step in steps))
        decided = self._backend.write(_take, steps, drawn)
        if decided.fired:
            self._backend.ring()
        return decided

    def fire(self, name: str, fires: Sequence[Fire], *, origin: Origin, actor: str) -> list[Fired]:
        """Fire plans because a person wants it; answers those that were not fired before.

        Raises:
            NoSuchSchedule: There is none of this name.
        """
        checked_actor(actor, system=SYSTEM)
        drawn = self._backend.draw_ids(len(fires))
        fired = self._backend.write(_fire_asked, name, fires, drawn, origin, actor)
        self._backend.ring()
        return fired

    def known(self, plans: Sequence[Plan]) -> set[Plan]:
        """Which of these have been fired."""
        return self._backend.read(_known, plans)

    def release(self, *, limit: int = 100) -> int:
        """Let plans go that wait for one that is out of the way: it waits for its retry, or for a person."""
        return self._backend.write(_release, limit)

    def find(self, plan: Plan) -> Fired | None:
        """The plan, if it was fired."""
        rows: list[Fired] = self._backend.look(ask("find_plan", Fired, **structs.asdict(plan)))
        return rows[0] if rows else None

    def find_skip(self, plan: Plan) -> SkippedPlans | None:
        """The stretch that the plan was skipped with, if it was."""
        rows: list[SkippedPlans] = self._backend.look(ask("find_skip", SkippedPlans, **structs.asdict(plan)))
        return rows[0] if rows else None

    def history(self, name: str, *, before: datetime | None = None, limit: int = 50) -> list[FiredState]:
        """The plans that were fired, the newest first."""
        until = {"before": before or LAST, "before_scope": ""}
        return self._backend.look(ask("plan_history", FiredState, schedule=name, limit=limit, **until))

    def skips(self, name: str, *, before: datetime | None = None, limit: int = 50) -> list[SkippedPlans]:
        """The stretches that were not fired, the newest first."""
        return self._backend.look(ask("skip_history", SkippedPlans, schedule=name, limit=limit, before=before or LAST))


class _Lane(Struct, frozen=True):
    """The plans of one schedule, which is locked, and how they get on: with earlier ones if they *meet* them.

    Those that are *open* are met by later ones.
    """

    name: str
    overlap: Overlap
    fires: Sequence[Fire]
    meets: bool
    open: bool


class _Placed(Struct, frozen=True):
    """A plan that is fired, its job's id, and the jobs that it waits for."""

    fire: Fire
    job_id: JobId
    after: Sequence[JobId]
    open: bool


def _take(steps: Sequence[Step], drawn: list[JobId] | None) -> Flow[Decided]:
    tokens = dict((yield ask("lock_turns", names=[step.name for step in steps])))
    taken = [step for step in steps if tokens.get(step.name) == step.token]
    if not taken:
        return Decided([], 0, {})
    lanes = [_due_lane(step) for step in taken if step.fire]
    fired, overlapped = yield from _fire(lanes, drawn, Origin.DUE, Actor.SCHEDULER)
    skips = {step.name: list(step.skip) for step in taken}
    for plan in overlapped:
        skips[plan.schedule].append(Skipped(plan.time, plan.time, 1, Reason.OVERLAP, plan.scope))
    counted = yield from write_skips(skips)
    yield ask("end_turns", turn=_ends(taken))
    return Decided([step.name for step in taken], len(fired), counted)


def _due_lane(step: Step) -> _Lane:
    alone = step.overlap is Overlap.ALLOW
    return _Lane(step.name, step.overlap, step.fire, meets=not alone, open=not alone)


def _asked_lane(schedule: Schedule, fires: Sequence[Fire], origin: Origin) -> _Lane:
    """What a person asks for starts at once, or one after the other, and skips nothing that is due."""
    allowed = schedule.defined.when.overlaps is Overlap.ALLOW
    if origin is Origin.BACKFILL:
        return _Lane(schedule.name, Overlap.ALLOW if allowed else Overlap.QUEUE_ALL, fires, meets=False, open=False)
    return _Lane(schedule.name, Overlap.ALLOW, fires, meets=False, open=not allowed)


def _ends(steps: Sequence[Step]) -> Rows:
    return Rows(
        name=[step.name for step in steps],
        cursor=[step.cursor for step in steps],
        next_at=[step.next_at for step in steps],
        times=[step.times for step in steps],
    )


def write_skips(skips: Mapping[str, Sequence[Skipped]]) -> Flow[dict[Reason, int]]:
    """Write down what was not fired, by schedule; answers how many plans by reason."""
    rows = [(name, skip) for name, found in skips.items() for skip in found]
    counted: dict[Reason, int] = defaultdict(int)
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
        yield ask("write_skips", skip=table)
    return dict(counted)


def _fire_asked(
    name: str, fires: Sequence[Fire], drawn: list[JobId] | None, origin: Origin, actor: str
) -> Flow[list[Fired]]:
    rows: list[Schedule] = yield ask("lock_schedule", Schedule, name=name)
    if not rows:
        raise NoSuchSchedule(f"there is no schedule {name[:100]!r}", name=name)
    fired, _ = yield from _fire([_asked_lane(rows[0], fires, origin)], drawn, origin, actor)
    return fired


# -- firing ----------------------------------------------------------------------------------


def _fire(
    lanes: Sequence[_Lane], drawn: list[JobId] | None, origin: Origin, actor: str
) -> Flow[tuple[list[Fired], list[Plan]]]:
    """Fire plans of schedules that are locked; answers them, and those that overlap has skipped."""
    known = yield from _known([fire.plan for lane in lanes for fire in lane.fires])
    earlier = yield from _earlier([lane.name for lane in lanes if lane.meets])
    ids = iter(drawn if drawn is not None else (yield from draw_ids(sum(len(lane.fires) for lane in lanes))))
    placed: list[_Placed] = []
    skipped: list[Plan] = []
    for lane in lanes:
        fires = [fire for fire in lane.fires if fire.plan not in known]
        for scope, own in _by_scope(fires).items():
            arranged = arrange(lane.overlap, earlier[lane.name, scope], len(own))
            if arranged.cancel:
                yield from cancel_jobs(list(arranged.cancel), actor)
            placed += _line_up(own, arranged, ids, open=lane.open)
            turns = zip(own, arranged.turns, strict=True)
            skipped += [fire.plan for fire, turn in turns if turn is Turn.SKIP]
    fired = yield from _write(placed, origin, actor)
    return fired, skipped


def _line_up(fires: Sequence[Fire], arranged: Arranged, ids: Iterator[JobId], *, open: bool) -> Iterator[_Placed]:  # noqa: A002
    """One behind the other: who waits, waits for the one before."""
    before = arranged.after
    for fire, turn in zip(fires, arranged.turns, strict=True):
        if turn is not Turn.SKIP:
            job_id = next(ids)
            yield _Placed(fire, job_id, before if turn is Turn.WAIT else (), open)
            before = (job_id,)


def _write(placed: Sequence[_Placed], origin: Origin, actor: str) -> Flow[list[Fired]]:
    """Their rows in the ledger, and their jobs."""
    if not placed:
        return []
    now = moment((yield ask("read_now"))[0][0])
    answers = yield from enqueue_flow([_request(each) for each in placed], [each.job_id for each in placed])
    # A kind with a unique key may have answered with a job that was there already.
    fired = [
        Fired(each.fire.plan.schedule, each.fire.plan.time, each.fire.plan.scope, origin, answer.id, actor, now)
        for each, answer in zip(placed, answers, strict=True)
    ]
    yield Fill("plan", _columns(fired, placed))
    then = [
        structs.replace(each.fire.then, after=After(ids=(plan.job_id,)))
        for each, plan in zip(placed, fired, strict=True)
        if each.fire.then is not None
    ]
    if then:
        yield from enqueue_flow(then, None)
    return fired


def _columns(fired: Sequence[Fired], placed: Sequence[_Placed]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {name: [getattr(plan, name) for plan in fired] for name in Fired.__struct_fields__}
    columns["open"] = [each.open for each in placed]
    columns["queued"] = [bool(each.after) for each in placed]
    return columns


def _request(placed: _Placed) -> NewJob:
    if not placed.after:
        return placed.fire.request
    return structs.replace(placed.fire.request, after=After(ids=tuple(placed.after), when=When.ENDED))


def _known(plans: Sequence[Plan]) -> Flow[set[Plan]]:
    """Which of these have been fired."""
    if not plans:
        return set()
    asked = Rows(
        schedule=[plan.schedule for plan in plans],
        time=[plan.time for plan in plans],
        scope=[plan.scope for plan in plans],
    )
    rows: list[Plan] = yield ask("known_plans", Plan, plan=asked)
    return set(rows)


def _earlier(schedules: list[str]) -> Flow[dict[tuple[str, str], list[Earlier]]]:
    """The earlier plans of each schedule and scope that have not ended; those that have are closed."""
    found: dict[tuple[str, str], list[Earlier]] = defaultdict(list)
    if not schedules:
        return found
    rows: list[_Open] = yield ask("open_plans", _Open, schedules=schedules)
    ended = []
    for row in rows:
        place = standing(row.state, row.attempts)
        if place is Standing.ENDED:
            ended.append(row.job_id)
        else:
            found[row.schedule, row.scope].append(Earlier(row.job_id, place))
    if ended:
        yield ask("close_plans", schedules=schedules, ids=ended)
    return found


def _by_scope(fires: Sequence[Fire]) -> dict[str, list[Fire]]:
    found: dict[str, list[Fire]] = defaultdict(list)
    for fire in fires:
        found[fire.plan.scope].append(fire)
    return found


def _release(limit: int) -> Flow[int]:
    rows = yield ask("stuck_plans", limit=limit)
    if rows:
        yield ask("forget_needs", need=Rows(job_id=[row[0] for row in rows], need_id=[row[1] for row in rows]))
        yield from judge_waiting(sorted({row[0] for row in rows}))
    yield ask("unqueue_plans")
    return len(rows)

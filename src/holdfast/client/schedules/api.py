"""Schedules at run time: make, change, pause, look at, and fire them by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Unpack

from msgspec import Struct

from holdfast.client.schedules.definition import ScheduleOptions, definition_of, redefined
from holdfast.domain.durations import format_duration
from holdfast.domain.jobs.job import JobId
from holdfast.domain.jobs.published_kind import check_payload, plan_parameter
from holdfast.domain.names import checked_name
from holdfast.domain.schedules.decision import SkipReason, backfilled
from holdfast.domain.schedules.definition import Condition, Definition, Schedule, checked_scopes, scopes_of
from holdfast.domain.schedules.description import upcoming
from holdfast.domain.schedules.plan import GLOBAL, Origin, Plan
from holdfast.domain.schedules.rule import MICROSECOND, Rule, checked_timestamp
from holdfast.errors import InvalidInput, InvalidPayload
from holdfast.store import Store
from holdfast.store.schedules.firing import Fired
from holdfast.store.schedules.plans import SkippedPlans
from holdfast.worker.schedules.planner import fire_of
from holdfast.worker.schedules.scopes import Provider, ask_now

#: A backfill is one transaction.
MOST = 10_000


class Backfilled(Struct, frozen=True):
    """What a backfill did, or would do: plans that are new, and how many had been fired before."""

    schedule: str
    plans: list[Plan]
    known: int
    jobs: list[JobId]


class Schedules:
    """The schedules of a store. *actor* is who does it, for those who look later."""

    def __init__(self, store: Callable[[], Store], providers: Mapping[str, Provider], *, actor: str) -> None:
        self._store = store
        self._providers = providers
        self._actor = actor

    def create(self, name: str, kind: str, expression: str, **options: Unpack[ScheduleOptions]) -> Schedule:
        """Make a schedule that enqueues jobs of *kind*. Without history, the newest plan that is due fires at once.

        Raises:
            DuplicateSchedule: There is one of this name.
            UnknownKind: No application has registered the kind.
            InvalidInput: The expression, an option or the payload makes no sense.
        """
        definition = definition_of(kind, expression, options)
        self._check(definition)
        return self._store().schedules.create(name, definition, actor=self._actor)

    def update(
        self,
        name: str,
        *,
        kind: str | None = None,
        expression: str | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule:
        """Change what is said, keep the rest. With another rule it goes on from now and replays nothing.

        Raises:
            NoSuchSchedule: There is none of this name.
            UnknownKind: No application has registered the kind.
            InvalidInput: The expression, an option or the payload makes no sense.
        """

        def change(known: Definition) -> Definition:
            return redefined(known, kind=kind, expression=expression, options=options)

        self._check(change(self.get(name).defined))
        return self._store().schedules.update(name, change, actor=self._actor)

    def pause(self, name: str, *, note: str | None = None) -> Schedule:
        """Plan nothing more until :meth:`resume`; what was fired goes on."""
        return self._store().schedules.pause(name, actor=self._actor, note=note)

    def resume(self, name: str) -> Schedule:
        """Let it go on from now; what was due meanwhile is skipped, and can be backfilled."""
        return self._store().schedules.resume(name, actor=self._actor)

    def remove(self, name: str) -> None:
        """Forget a schedule with its ledger; its jobs stay."""
        self._store().schedules.remove(name)

    def get(self, name: str) -> Schedule:
        """A schedule as it stands."""
        return self._store().schedules.get(name)

    def all(self) -> Iterator[Schedule]:
        """All schedules, by name."""
        return self._store().schedules.all()

    def now(self) -> datetime:
        """The store's own time: plans are due by it."""
        return self._store().schedules.now()

    def preview(self, name: str, count: int = 5) -> list[datetime]:
        """The next *count* plans, as far as there are any, were it not paused."""
        schedule = self.get(name)
        after = max(self.now(), schedule.cursor or datetime.min.replace(tzinfo=UTC))
        return upcoming(schedule.defined.when, after, count)

    def trigger(self, name: str, *, scopes: Sequence[str] | None = None) -> list[JobId]:
        """Fire it now, beside its plans, in all its scopes or these; also while it is paused. Answers the jobs.

        Its time is no plan's: the next plan that is due meets the job as it would any other.
        """
        definition = self.get(name).defined
        asked = self._scopes(definition, scopes)
        now, rule = self.now(), definition.when.rule()
        plans = [Plan(name, now, scope) for scope in asked]
        while rule.next_after(now - MICROSECOND) == now or self._store().plans.known(plans):
            now += MICROSECOND
            plans = [Plan(name, now, scope) for scope in asked]
        return [fired.job_id for fired in self._fire(name, definition, plans, Origin.TRIGGER)]

    def backfill(
        self,
        name: str,
        first: datetime,
        last: datetime,
        *,
        scopes: Sequence[str] | None = None,
        dry_run: bool = False,
    ) -> Backfilled:
        """Fire the plans of a stretch of the past, both ends included, that were not fired before.

        One runs after the other, unless the schedule's overlap is ``allow``.

        Raises:
            InvalidInput: It is not past, or more than 10,000 plans.
            UnknownKind: Nobody has registered what it enqueues.
        """
        definition = self.get(name).defined
        first, last = checked_timestamp(first), checked_timestamp(last)
        if last > self.now():
            raise InvalidInput("a backfill is of the past", hint="Plans that are still to come fire by themselves.")
        times = backfilled(definition.when, first, last, limit=MOST)
        plans = [Plan(name, time, scope) for scope in self._scopes(definition, scopes) for time in times]
        if len(plans) > MOST:
            raise InvalidInput(
                f"a backfill of {len(plans):,} plans", hint=f"At most {MOST:,} at a time: do it in parts."
            )
        if dry_run:
            self._store().kinds.get(definition.kind)
            known = self._store().plans.known(plans)
            return Backfilled(name, [plan for plan in plans if plan not in known], len(known), [])
        fired = self._fire(name, definition, plans, Origin.BACKFILL)
        new = [Plan(each.schedule, each.time, each.scope) for each in fired]
        return Backfilled(name, new, len(plans) - len(new), [each.job_id for each in fired])

    def history(self, name: str, *, limit: int = 50) -> list[Fired | SkippedPlans]:
        """What was fired and what was skipped, the newest first."""
        self.get(name)
        plans = self._store().plans
        fired, skipped = plans.history(name, limit=limit), plans.skips(name, limit=limit)
        found: list[tuple[datetime, Fired | SkippedPlans]] = [(each.time, each) for each in fired]
        found += [(each.last, each) for each in skipped]
        return [each for _, each in sorted(found, key=lambda pair: pair[0], reverse=True)][:limit]

    def why(self, name: str, time: datetime, *, scope: str = GLOBAL) -> str:
        """What became of a plan, or will, and why, in words."""
        schedule, plan = self.get(name), Plan(name, checked_timestamp(time), scope)
        fired = self._store().plans.find(plan)
        if fired is not None:
            by = f"by {fired.actor}{ORIGINS[fired.origin]}"
            return f"it was fired as job {fired.job_id}, at {_say(fired.decided_at)} {by}"
        skip = self._store().plans.find_skip(plan)
        if skip is not None:
            return f"it was not fired: {REASONS[skip.reason]}"
        self._scopes(schedule.defined, [scope])
        return _not_decided(schedule, plan, self.now())

    def _check(self, definition: Definition) -> None:
        """The kind must be known, and its handler must take what it will be given."""
        kind = self._store().kinds.get(definition.kind)
        plan = plan_parameter(kind.options)
        if plan in definition.payload:
            raise InvalidPayload(f"the parameter {plan!r} is given its plan", hint="Leave it out of the payload.")
        check_payload(kind, definition.payload, later=plan)

    def _scopes(self, definition: Definition, asked: Sequence[str] | None) -> Sequence[str]:
        """The scopes that were asked for, each once, if the schedule has them; or all that it has."""
        requested = None if asked is None else [checked_name(scope, label="a scope") for scope in dict.fromkeys(asked)]
        if definition.provider is None:
            known = list(scopes_of(definition))
        elif definition.provider in self._providers:
            known, _ = checked_scopes(ask_now(self._providers[definition.provider]))
        elif requested is None:
            hint = "Name a scope, or the application that has it: --app MODULE:APP."
            raise InvalidInput(f"its scopes come from {definition.provider!r}, which is not known here", hint=hint)
        else:
            return requested
        for scope in sorted(set(requested or ()) - set(known)):
            raise InvalidInput(f"it has no scope {scope!r}", hint=f"It has: {', '.join(known[:10])}.")
        return known if requested is None else requested

    def _fire(self, name: str, definition: Definition, plans: Sequence[Plan], origin: Origin) -> list[Fired]:
        kind = self._store().kinds.get(definition.kind)
        fires = [fire_of(plan, definition, kind, actor=self._actor, hasty=True) for plan in plans]
        return self._store().plans.fire(name, fires, origin=origin, actor=self._actor)


ORIGINS = {Origin.DUE: "", Origin.TRIGGER: ", triggered by hand", Origin.BACKFILL: ", backfilled"}
REASONS = {
    SkipReason.CATCH_UP: "a newer one was due when a planner looked",
    SkipReason.WINDOW: "it was older than the window of catch_up=every",
    SkipReason.LATE: "nobody planned when it was due, and catch_up is none",
    SkipReason.OVERLAP: "an earlier plan of its scope had not ended",
    SkipReason.PAUSED: "the schedule was paused",
    SkipReason.EDITED: "the schedule was changed, and its past is not replayed",
    SkipReason.SCOPE: "it had no scope, or one that cannot be a name",
}


def _not_decided(schedule: Schedule, plan: Plan, now: datetime) -> str:
    spec = schedule.defined.when
    rule: Rule = spec.rule()
    if rule.next_after(plan.time - MICROSECOND) != plan.time:
        before, after = rule.previous_before(plan.time), rule.next_after(plan.time)
        return f"{_say(plan.time)} is no plan of it: the nearest are {_say(before)} and {_say(after)}"
    if spec.start is not None and plan.time < spec.start:
        return f"the schedule starts later, at {_say(spec.start)}"
    if spec.end is not None and plan.time > spec.end:
        return f"the schedule ends before, at {_say(spec.end)}"
    if schedule.condition is Condition.PAUSED:
        return f"the schedule is paused{f': {schedule.note}' if schedule.note else ''}"
    if schedule.cursor is not None and plan.time <= schedule.cursor:
        return "it was decided before the ledger begins, or before the schedule was made"
    if schedule.condition is Condition.FAILING:
        return f"the schedule cannot be planned: {schedule.error}"
    if schedule.condition is Condition.OVER:
        return "the schedule is over"
    wait = plan.time + spec.delay - now
    if wait.total_seconds() > 0:
        return f"it is not due yet: in {format_duration(wait)}"
    return "it is due, and no planner has looked yet: is a worker or a scheduler running?"


def _say(timestamp: datetime) -> str:
    return timestamp.astimezone(UTC).isoformat().replace("+00:00", "Z")

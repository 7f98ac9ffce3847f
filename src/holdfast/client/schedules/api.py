"""The run-time API of schedules: create, change, pause, inspect and fire them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Unpack

from msgspec import Struct, structs

from holdfast.client.schedules.definition import ScheduleOptions, changed_definition, new_definition
from holdfast.domain.commands.command import COMMAND
from holdfast.domain.jobs.job import JobId, State
from holdfast.domain.jobs.kind_options import check_payload, plan_parameter
from holdfast.domain.names import checked_name
from holdfast.domain.quantities import checked_timestamp, format_duration
from holdfast.domain.schedules.decision import SkipReason, backfilled
from holdfast.domain.schedules.definition import (
    Condition,
    Definition,
    Schedule,
    checked_condition,
    checked_scopes,
    takes_time,
)
from holdfast.domain.schedules.description import next_plans
from holdfast.domain.schedules.firing_times import MICROSECOND
from holdfast.domain.schedules.plan import GLOBAL, Origin, Plan
from holdfast.domain.schedules.schedule_filter import ScheduleFilter
from holdfast.errors import InvalidInput, InvalidPayload
from holdfast.store import Store
from holdfast.store.schedules.fired_plans import FiredPlan
from holdfast.store.schedules.plans import SkippedPlans
from holdfast.worker.schedules.plan_jobs import PlanJobs
from holdfast.worker.schedules.scopes import Provider, read_scopes

#: The most plans of one backfill, which is one transaction.
MAX_BACKFILL = 10_000
#: The state of plans that were not fired, in a filter of the history.
SKIPPED = "skipped"
#: Scopes by the times of plans.
ScopesByTime = Mapping[datetime, Sequence[str]]


class Backfilled(Struct, frozen=True):
    """The plans that a backfill fired, or would fire, and the number of plans that were fired before."""

    schedule: str
    plans: list[Plan]
    known: int
    jobs: list[JobId]


class Schedules:
    """The schedules of a store. *actor* is recorded with every change."""

    def __init__(self, store: Callable[[], Store], providers: Mapping[str, Provider], *, actor: str) -> None:
        self._store = store
        self._providers = providers
        self._actor = actor

    def create(self, name: str, kind: str, expression: str, **options: Unpack[ScheduleOptions]) -> Schedule:
        """Create a schedule that enqueues jobs of *kind*. It starts from its creation, or from a *start* in the past.

        With a *start* in the past, *catch_up* decides which of the plans since then fire.

        Raises:
            DuplicateSchedule: The name is taken.
            UnknownKind: No application has registered the kind.
            InvalidInput: The expression, an option or the payload is invalid.
        """
        definition = new_definition(kind, expression, options)
        if kind == COMMAND:  # no application registers it, and the first worker may start later
            from holdfast.worker.commands.executor import command_kind

            self._store().kinds.publish([command_kind().published()])
        definition = structs.replace(definition, kind_version=self._store().kinds.get(kind).version)
        self._check(definition)
        return self._store().schedules.create(name, definition, actor=self._actor)

    def update(
        self, name: str, *, kind: str | None = None, expression: str | None = None, **options: Unpack[ScheduleOptions]
    ) -> Schedule:
        """Change some fields of a schedule. With a new rule it continues from now and replays nothing.

        Raises:
            NoSuchSchedule: There is none of this name.
            UnknownKind: No application has registered the kind.
            InvalidInput: The expression, an option or the payload is invalid.
        """

        def change(definition: Definition) -> Definition:
            changed = changed_definition(definition, kind=kind, expression=expression, options=options)
            return changed if version is None else structs.replace(changed, kind_version=version)

        defined = self.get(name).defined
        rewritten = kind is not None or "payload" in options
        version = self._store().kinds.get(kind or defined.kind).version if rewritten else None
        self._check(change(defined))
        return self._store().schedules.update(name, change, actor=self._actor)

    def pause(self, name: str, *, note: str | None = None) -> Schedule:
        """Stop planning a schedule until :meth:`resume`; its jobs continue."""
        return self._store().schedules.pause(name, actor=self._actor, note=note)

    def resume(self, name: str) -> Schedule:
        """Continue a paused schedule from now. Plans that were due meanwhile are skipped; you can backfill them.

        A plan that waits for its delay is not due yet, and is not skipped.
        """
        return self._store().schedules.resume(name, actor=self._actor)

    def delete(self, name: str) -> None:
        """Delete a schedule; its jobs and the record of its plans stay, so that none of them is repeated."""
        self._store().schedules.delete(name)

    def get(self, name: str) -> Schedule:
        """Return a schedule by its name."""
        return self._store().schedules.get(name)

    def all(
        self, *, condition: str | None = None, kind: str | None = None, text: str | None = None, after: str = ""
    ) -> Iterator[Schedule]:
        """Yield schedules by name: all, or those in a condition, of a kind, with a text in the name, after a name."""
        chosen = None if condition is None else checked_condition(condition)
        return self._store().schedules.all(ScheduleFilter(chosen, kind, text), after=after)

    def now(self) -> datetime:
        """Return the time of the store's clock, which decides when plans are due."""
        return self._store().schedules.now()

    def preview(self, name: str, count: int = 5) -> list[datetime]:
        """Return up to *count* next plans, also of a paused schedule, and no more than its runs allow."""
        return next_plans(self.get(name), self.now(), count)

    def trigger(self, name: str, *, scopes: Sequence[str] | None = None) -> list[JobId]:
        """Fire it now, in all its scopes or in these, also while it is paused. Returns the jobs.

        The time of a trigger is never that of a plan. For the next due plan, its job counts as that of an earlier plan.
        """
        definition = self.get(name).defined
        now, rule = self.now(), definition.rule()
        chosen = self._scopes(definition, scopes, now)
        plans = [Plan(name, now, scope) for scope in chosen]
        while rule.next_after(now - MICROSECOND) == now or self._store().plans.known(plans):
            now += MICROSECOND
            plans = [Plan(name, now, scope) for scope in chosen]
        return [fired.job_id for fired in self._fire(self._store(), name, definition, plans, Origin.TRIGGER)]

    def backfill(
        self,
        name: str,
        first: datetime,
        last: datetime,
        *,
        scopes: Sequence[str] | ScopesByTime | None = None,
        dry_run: bool = False,
    ) -> Backfilled:
        """Fire the plans of a span of the past, both ends included, that were not fired before.

        They run one after the other, unless the schedule's overlap is ``allow``.

        Raises:
            InvalidInput: The span is not past, or has more than 10,000 plans.
            UnknownKind: No application has registered the kind.
        """
        definition = self.get(name).defined
        first, last = checked_timestamp(first), checked_timestamp(last)
        if last > self.now():
            raise InvalidInput("a backfill ends in the past", hint="Plans that are still to come fire by themselves.")
        times = backfilled(definition, first, last, limit=MAX_BACKFILL)
        by_time = scopes if isinstance(scopes, Mapping) else self._scopes_by_time(definition, scopes, times)
        known = dict.fromkeys(scope for time in times for scope in by_time[time])
        plans = [Plan(name, time, scope) for scope in known for time in times if scope in by_time[time]]
        if len(plans) > MAX_BACKFILL:
            hint = f"At most {MAX_BACKFILL:,} at a time: do it in parts."
            raise InvalidInput(f"a backfill of {len(plans):,} plans", hint=hint)
        with self._store().dry_run() if dry_run else nullcontext(self._store()) as store:
            fired = self._fire(store, name, definition, plans, Origin.BACKFILL)
        new = [Plan(each.schedule, each.time, each.scope) for each in fired]
        return Backfilled(name, new, len(plans) - len(new), [] if dry_run else [each.job_id for each in fired])

    def history(
        self, name: str, *, limit: int = 50, scope: str | None = None, state: str | None = None
    ) -> list[FiredPlan | SkippedPlans]:
        """Return the fired and the skipped plans, newest first: all, or those of a *scope*.

        *state*: only plans whose jobs are in this state, or with ``skipped`` those that were not fired. A filter
        examines the newest 100,000 plans.
        """
        self.get(name)
        if state not in (None, SKIPPED, *State):
            raise InvalidInput(f"there is no state {state!r}", hint=f"States: {', '.join((*State, SKIPPED))}.")
        plans, history = self._store().plans, list[FiredPlan | SkippedPlans]()
        if state != SKIPPED:
            history += plans.history(name, limit=limit, scope=scope, state=state)
        if state in (None, SKIPPED):
            history += plans.skips(name, limit=limit, scope=scope)
        history.sort(key=lambda each: each.time if isinstance(each, FiredPlan) else each.last, reverse=True)
        return history[:limit]

    def why(self, name: str, time: datetime, *, scope: str = GLOBAL) -> str:
        """Explain whether a plan was fired, or will be, and why not."""
        schedule, plan = self.get(name), Plan(name, checked_timestamp(time), scope)
        fired = self._store().plans.find(plan)
        if fired is not None:
            by = f"by {fired.actor}{ORIGINS[fired.origin]}"
            return f"it was fired as job {fired.job_id}, at {_format(fired.decided_at)} {by}"
        skip = self._store().plans.find_skip(plan)
        if skip is not None:
            return f"it was not fired: {REASONS[skip.reason]}"
        if schedule.defined.provider is None:  # a provider may hang: do not call it for an explanation
            self._scopes(schedule.defined, [scope], plan.time)  # refuses a scope that the schedule does not have
        return _explain_undecided(schedule, plan, self.now())

    def _check(self, definition: Definition) -> None:
        """Refuse an unknown kind, or a payload that does not fit its handler. Older payloads are upgraded later."""
        kind = self._store().kinds.get(definition.kind)
        plan = plan_parameter(kind.options)
        if plan in definition.payload:
            raise InvalidPayload(f"the parameter {plan!r} is given its plan", hint="Leave it out of the payload.")
        if definition.kind_version == kind.version:
            check_payload(kind, definition.payload, later=plan)

    def scopes(self, name: str, names: Sequence[str] | None = None) -> Sequence[str]:
        """Return the scopes of a schedule for a plan of now, or those of *names*, if it has them."""
        return self._scopes(self.get(name).defined, names, self.now())

    def scopes_by_time(self, name: str, first: datetime, last: datetime, names: Sequence[str] | None) -> ScopesByTime:
        """Return the same for each plan of a span of the past."""
        definition = self.get(name).defined
        times = backfilled(definition, checked_timestamp(first), checked_timestamp(last), limit=MAX_BACKFILL)
        return self._scopes_by_time(definition, names, times)

    def _scopes_by_time(
        self, definition: Definition, names: Sequence[str] | None, times: Sequence[datetime]
    ) -> ScopesByTime:
        """Call a function that takes the time for each of them, and any other once."""
        function = None if definition.provider is None else self._providers.get(definition.provider)
        if function is not None and takes_time(function):
            return {time: self._scopes(definition, names, time) for time in times}
        return dict.fromkeys(times, self._scopes(definition, names, self.now()))

    def _scopes(self, definition: Definition, names: Sequence[str] | None, time: datetime) -> Sequence[str]:
        """Return the named scopes without duplicates, if the schedule has them at a time; None: all its scopes."""
        requested = None if names is None else [checked_name(scope, label="a scope") for scope in dict.fromkeys(names)]
        if definition.provider is None:
            known = list(definition.known_scopes)
        elif definition.provider in self._providers:
            known, _ = checked_scopes(read_scopes(self._providers[definition.provider], time))
        elif requested is None:
            hint = "Name a scope, or the application that has it: --app MODULE:APP."
            raise InvalidInput(f"its scopes come from {definition.provider!r}, which is not known here", hint=hint)
        else:
            return requested
        for scope in sorted(set(requested or ()) - set(known)):
            raise InvalidInput(f"it has no scope {scope!r}", hint=f"It has: {', '.join(known[:10])}.")
        return known if requested is None else requested

    def _fire(
        self, store: Store, name: str, definition: Definition, plans: Sequence[Plan], origin: Origin
    ) -> list[FiredPlan]:
        kind = store.kinds.get(definition.kind)
        fires = PlanJobs(definition, kind, actor=self._actor, at_once=True).fires(plans)
        return store.plans.fire(name, fires, origin=origin, actor=self._actor)


ORIGINS = {Origin.DUE: "", Origin.TRIGGER: ", triggered by hand", Origin.BACKFILL: ", backfilled"}
REASONS = {
    SkipReason.CATCH_UP: "a newer plan was due at the next tick of a planner",
    SkipReason.WINDOW: "it was older than the window of catch_up=every",
    SkipReason.LATE: "no scheduler ran when it was due, and catch_up is none",
    SkipReason.OVERLAP: "an earlier plan of its scope had not finished",
    SkipReason.BACKLOG: "max_backlog plans of its scope waited in line",
    SkipReason.PAUSED: "the schedule was paused",
    SkipReason.EDITED: "the schedule was changed, and earlier plans do not fire again",
    SkipReason.SCOPE: "it had no scope, or one with an invalid name",
}


def _explain_undecided(schedule: Schedule, plan: Plan, now: datetime) -> str:
    definition = schedule.defined
    rule = definition.rule()
    if rule.next_after(plan.time - MICROSECOND) != plan.time:
        before, after = rule.previous_before(plan.time), rule.next_after(plan.time)
        return f"{_format(plan.time)} is not one of its plans: the nearest are {_format(before)} and {_format(after)}"
    if definition.start is not None and plan.time < definition.start:
        return f"the schedule starts later, at {_format(definition.start)}"
    if definition.end is not None and plan.time > definition.end:
        return f"the schedule ends before, at {_format(definition.end)}"
    if schedule.condition is Condition.PAUSED:
        return f"the schedule is paused{f': {schedule.note}' if schedule.note else ''}"
    if plan.time <= schedule.cursor:
        return "it was due before the schedule was created, or before the first recorded plan"
    if schedule.condition is Condition.FAILING:
        return f"the schedule cannot be planned: {schedule.error}"
    if schedule.condition is Condition.OVER:
        return "the schedule has finished"
    wait = plan.time + definition.delay - now
    if wait.total_seconds() > 0:
        return f"it is not due yet: in {format_duration(wait)}"
    return "it is due, and no planner has decided yet: is a worker or a scheduler running?"


def _format(timestamp: datetime) -> str:
    return timestamp.astimezone(UTC).isoformat().replace("+00:00", "Z")

"""Actions on schedules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Unpack

from msgspec import structs

from holdfast.admin.actions.actions import Actions, TargetActions
from holdfast.admin.actions.changed import Changed, Unchanged, answer_for_one
from holdfast.admin.actions.table import Action, Target, find_action
from holdfast.client.schedules.api import Schedules, ScopesByTime
from holdfast.client.schedules.definition import ScheduleOptions
from holdfast.domain.jobs.job import JobId
from holdfast.domain.schedules.definition import Schedule
from holdfast.domain.schedules.plan import GLOBAL, Plan
from holdfast.errors import InvalidInput
from holdfast.store.access.audit import Changes, changes_of
from holdfast.store.schedules.fired_plans import FiredPlan


class ScheduleActions(TargetActions):
    """Changes schedules and records each change."""

    target = Target.SCHEDULE

    def __init__(self, actions: Actions) -> None:
        super().__init__(actions)
        self._api = Schedules(lambda: actions.store, actions.providers, actor=actions.actor)

    def create(self, name: str, kind: str, expression: str, **options: Unpack[ScheduleOptions]) -> Schedule:
        """Create a schedule."""
        audited = self._audited("add", name, note=f"{kind}: {expression}")
        return audited.create(name, kind, expression, **options)

    def update(
        self, name: str, *, kind: str | None = None, expression: str | None = None, **options: Unpack[ScheduleOptions]
    ) -> Schedule:
        """Change some fields of a schedule."""
        rule = {"kind": kind, "expression": expression}
        fields = sorted([*options, *(field for field, value in rule.items() if value is not None)])
        audited = self._audited("edit", name, note=", ".join(fields))
        return audited.update(name, kind=kind, expression=expression, **options)

    def perform(self, name: str, subject: str, *, dry_run: bool = False, **options: Any) -> Changed:
        """Perform an action of the table on a schedule. The scopes of a provider are read before the transaction."""
        if "scopes" in find_action(self.target, name).options:
            options["scopes"] = self._known_scopes(subject, **options)
        return super().perform(name, subject, dry_run=dry_run, **options)

    def _known_scopes(
        self,
        name: str,
        *,
        scopes: Sequence[str] | None = None,
        first: datetime | None = None,
        last: datetime | None = None,
    ) -> Sequence[str] | ScopesByTime | None:
        """The scopes for a trigger, or for each plan from *first* on; as they are named, if no provider is known."""
        if self._api.get(name).defined.provider not in self._actions.providers:
            return scopes or None
        if first is None:
            return self._api.scopes(name, scopes or None)
        return self._api.scopes_by_time(name, first, last or self._api.now(), scopes or None)

    def run(self, action: Action, name: str, **options: Any) -> Changed:
        """Change one schedule."""
        match action.name:
            case "trigger":
                return self._trigger(action, name, **options)
            case "backfill":
                return self._backfill(action, name, **options)
            case _:
                return self._change(action, name, **options)

    def _change(self, action: Action, name: str, *, note: str | None = None) -> Changed:
        before = self._api.get(name)
        audited = self._audited(
            action.name, name, note=note, changes=lambda after: after is None or after.token != before.token
        )
        after: Schedule | None = None
        match action.name:
            case "pause":
                after = audited.pause(name, note=note)
            case "resume":
                after = audited.resume(name)
            case "rm":
                audited.delete(name)
            case _:
                raise AssertionError(action.name)
        changed, dry_run = after is None or after.token != before.token, self._actions.is_dry_run
        return answer_for_one(action, name, before.condition, changed=changed, dry_run=dry_run)

    def _trigger(self, action: Action, name: str, *, scopes: Sequence[str] | None = None) -> Changed:
        jobs = self._audited(action.name, name, changes=_fired_jobs).trigger(name, scopes=scopes)
        condition, dry_run = self._api.get(name).condition, self._actions.is_dry_run
        answer = answer_for_one(action, name, condition, changed=bool(jobs), dry_run=dry_run)
        return structs.replace(answer, jobs=[] if dry_run else jobs)

    def _backfill(
        self,
        action: Action,
        name: str,
        *,
        first: datetime | None = None,
        last: datetime | None = None,
        scopes: Sequence[str] | ScopesByTime | None = None,
    ) -> Changed:
        if first is None:
            raise InvalidInput("a backfill needs a start", hint="Give its first plan, and its last unless it is now.")
        end = last or self._api.now()
        note = f"{_format_time(first)} to {_format_time(end)}"
        audited = self._audited(action.name, name, note=note, changes=_fired_jobs)
        done = audited.backfill(name, first, end, scopes=scopes)
        return Changed(
            action=action.name,
            target=action.target,
            matched=len(done.plans) + done.known,
            changed=len(done.plans),
            ids=[_describe_plan(plan) for plan in done.plans],
            unchanged=[Unchanged("fired before", done.known, [])] if done.known else [],
            dry_run=self._actions.is_dry_run,
            jobs=[] if self._actions.is_dry_run else done.jobs,
        )

    def _audited(
        self, action: str, name: str, *, note: str | None = None, changes: Callable[[Any], Changes] = changes_of
    ) -> Schedules:
        store = self._actions.audited(f"schedule {action}", f"schedule={name}", note=note, changes=changes)
        return Schedules(lambda: store, {}, actor=self._actions.actor)  # scopes are known by now


def _fired_jobs(plans: Sequence[FiredPlan]) -> list[JobId]:
    return [plan.job_id for plan in plans]


def _describe_plan(plan: Plan) -> str:
    time = _format_time(plan.time)
    return time if plan.scope == GLOBAL else f"{time} {plan.scope}"


def _format_time(time: datetime) -> str:
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")

"""Actions on schedules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Unpack

from holdfast.admin.actions.actions import Actions, BackfilledPlans, Triggered
from holdfast.client.schedules.api import Schedules
from holdfast.client.schedules.definition import ScheduleOptions
from holdfast.domain.access.roles import Role
from holdfast.domain.jobs.job import JobId
from holdfast.domain.schedules.definition import Schedule
from holdfast.errors import InvalidInput
from holdfast.store.access.audit import Changes, changes_of
from holdfast.store.schedules.fired_plans import FiredPlan

if TYPE_CHECKING:
    from holdfast.worker.schedules.scopes import Provider

#: The actions on schedules, and the role that each of them requires.
SCHEDULE_ACTIONS: Mapping[str, Role] = {
    **dict.fromkeys(("pause", "resume", "trigger", "backfill"), Role.OPERATOR),
    "rm": Role.ADMIN,
}


class ScheduleActions:
    """Changes schedules and records each change.

    ``api`` reads schedules; what it changes has no audit entry.
    """

    def __init__(self, actions: Actions, providers: Mapping[str, Provider]) -> None:
        self._actions = actions
        self._providers = providers
        self.api = Schedules(lambda: actions.store, providers, actor=actions.actor)

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

    def perform(self, action: str, name: str, *, note: str | None = None) -> None:
        """``pause``, ``resume`` or ``rm`` a schedule."""
        before = self.api.get(name).token
        audited = self._audited(action, name, note=note, changes=lambda after: after is None or after.token != before)
        match action:
            case "pause":
                audited.pause(name, note=note)
            case "resume":
                audited.resume(name)
            case "rm":
                audited.delete(name)
            case _:
                raise InvalidInput(f"a schedule cannot be told to {action[:40]!r}", hint="Verbs: pause, resume, rm.")

    def trigger(self, name: str, *, scopes: Sequence[str] | None = None) -> Triggered:
        """Fire a schedule now, in addition to its plans."""
        return Triggered(name, self._audited("trigger", name, changes=_fired_jobs).trigger(name, scopes=scopes))

    def backfill(
        self, name: str, first: datetime, last: datetime, *, scopes: Sequence[str] | None = None, dry_run: bool = False
    ) -> BackfilledPlans:
        """Fire the plans between *first* and *last* that were not fired before."""
        audited = self._audited(
            "backfill", name, note=f"{first.isoformat()} to {last.isoformat()}", changes=_fired_jobs
        )
        done = audited.backfill(name, first, last, scopes=scopes, dry_run=dry_run)
        times = [plan.time for plan in done.plans]
        begin, end = (min(times), max(times)) if times else (None, None)
        return BackfilledPlans(done.schedule, len(times), done.known, begin, end, done.jobs, dry_run)

    def _audited(
        self, action: str, name: str, *, note: str | None = None, changes: Callable[[Any], Changes] = changes_of
    ) -> Schedules:
        store = self._actions.audited(f"schedule {action}", f"schedule={name}", note=note, changes=changes)
        return Schedules(lambda: store, self._providers, actor=self._actions.actor)


def _fired_jobs(plans: Sequence[FiredPlan]) -> list[JobId]:
    return [plan.job_id for plan in plans]

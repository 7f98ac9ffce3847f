"""Actions on schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from holdfast.admin.actions.actions import Actions, BackfilledPlans, Triggered
from holdfast.client.schedules.api import Schedules
from holdfast.domain.access.roles import Role
from holdfast.errors import InvalidInput

if TYPE_CHECKING:
    from holdfast.worker.schedules.scopes import Provider

#: The actions on schedules, and the role that each of them requires.
SCHEDULE_ACTIONS: Mapping[str, Role] = {
    **dict.fromkeys(("pause", "resume", "trigger", "backfill"), Role.OPERATOR),
    "rm": Role.ADMIN,
}


class ScheduleActions:
    """Changes schedules and records each change.

    ``api`` reads and defines schedules. It writes no audit entry: its callers record their definitions.
    """

    def __init__(self, actions: Actions, providers: Mapping[str, Provider]) -> None:
        self._actions = actions
        self.api = Schedules(lambda: actions.store, providers, actor=actions.actor)

    def perform(self, action: str, name: str, *, note: str | None = None) -> None:
        """``pause``, ``resume`` or ``rm`` a schedule."""
        match action:
            case "pause":
                self.api.pause(name, note=note)
            case "resume":
                self.api.resume(name)
            case "rm":
                self.api.delete(name)
            case _:
                raise InvalidInput(f"a schedule cannot be told to {action[:40]!r}", hint="Verbs: pause, resume, rm.")
        self._actions.record(f"schedule {action}", f"schedule={name}", note=note)

    def trigger(self, name: str, *, scopes: Sequence[str] | None = None) -> Triggered:
        """Fire a schedule now, in addition to its plans."""
        jobs = self.api.trigger(name, scopes=scopes)
        self._actions.record("schedule trigger", f"schedule={name}", count=len(jobs))
        return Triggered(name, jobs)

    def backfill(
        self, name: str, first: datetime, last: datetime, *, scopes: Sequence[str] | None = None, dry_run: bool = False
    ) -> BackfilledPlans:
        """Fire the plans between *first* and *last* that were not fired before."""
        done = self.api.backfill(name, first, last, scopes=scopes, dry_run=dry_run)
        if not dry_run:
            span = f"{first.isoformat()} to {last.isoformat()}"
            self._actions.record("schedule backfill", f"schedule={name}", count=len(done.plans), note=span)
        times = [plan.time for plan in done.plans]
        begin, end = (min(times), max(times)) if times else (None, None)
        return BackfilledPlans(done.schedule, len(times), done.known, begin, end, done.jobs, dry_run)

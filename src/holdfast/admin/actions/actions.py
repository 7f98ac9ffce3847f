"""The actions service: every change that people make through the command line, the pages or the API."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from holdfast.admin.actions.audit import ActionContext
from holdfast.domain.access.roles import Via
from holdfast.store import Store

if TYPE_CHECKING:
    from holdfast.admin.actions.batches import BatchActions
    from holdfast.admin.actions.fleet import FleetActions
    from holdfast.admin.actions.jobs import JobActions
    from holdfast.admin.actions.schedules import ScheduleActions
    from holdfast.worker.schedules.scopes import Provider


class Actions:
    """The actions of one person, grouped by what they change: ``actions.jobs.perform("cancel", selector)``.

    Each action writes an audit entry. *providers* list the scopes of schedules; only a loaded application has them.
    """

    def __init__(self, store: Store, *, actor: str, via: Via, providers: Mapping[str, Provider] | None = None) -> None:
        self.store = store
        self._context = ActionContext(store=store, actor=actor, via=via)
        self._providers = providers or {}
        self.record = self._context.record

    def dry_run(self, enabled: bool = True) -> Actions:  # noqa: FBT001, FBT002 - callers pass a request's dry_run
        """The same actions on a store that rolls back: they answer and refuse as usual, and change nothing."""
        if not enabled:
            return self
        context = self._context
        return Actions(self.store.dry_run_store(), actor=context.actor, via=context.via, providers=self._providers)

    # A command uses one group, so that each is imported on first use.

    @cached_property
    def jobs(self) -> JobActions:
        from holdfast.admin.actions.jobs import JobActions

        return JobActions(self._context)

    @cached_property
    def batches(self) -> BatchActions:
        from holdfast.admin.actions.batches import BatchActions

        return BatchActions(self._context)

    @cached_property
    def schedules(self) -> ScheduleActions:
        from holdfast.admin.actions.schedules import ScheduleActions

        return ScheduleActions(self._context, self._providers)

    @cached_property
    def fleet(self) -> FleetActions:
        from holdfast.admin.actions.fleet import FleetActions

        return FleetActions(self._context)

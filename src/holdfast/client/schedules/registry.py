"""The registry of an application's schedules: the declarations and the scope functions of its code."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, assert_never

from holdfast.client.jobs.handler import Handler
from holdfast.client.schedules.definition import new_definition
from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.new_job import Actor
from holdfast.domain.names import checked_name
from holdfast.domain.quantities import checked_number
from holdfast.domain.schedules.definition import Declaration, DeclarationResult, checked_schedule_name
from holdfast.domain.schedules.plan import Plan
from holdfast.errors import InvalidInput, InvalidKind, InvalidPayload
from holdfast.store import Store

if TYPE_CHECKING:
    from holdfast.client.schedules.api import Schedules
    from holdfast.worker.schedules.scopes import Provider

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger("holdfast")


class ScheduleRegistry:
    """The schedules and scope functions that the code of an application declares."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._declarations: dict[str, Declaration] = {}
        self._is_stored = True
        self._providers: dict[str, Provider] = {}

    @property
    def providers(self) -> Mapping[str, Provider]:
        """The scope functions by name."""
        return self._providers

    @property
    def schedules(self) -> Schedules:
        """The schedules of the store, with those that code declares."""
        from holdfast.client.schedules.api import Schedules

        self.declare()
        return Schedules(self._store, self._providers, actor=Actor.CLIENT)

    def decorator(
        self, expression: str, name: str | None, version: int, options: Mapping[str, Any]
    ) -> Callable[[Handler[P, R]], Handler[P, R]]:
        """Return the decorator behind ``app.schedule``."""

        def register(handler: Handler[P, R]) -> Handler[P, R]:
            if not isinstance(handler, Handler):
                raise InvalidKind("a schedule fires a job", hint="Write @app.job() below @app.schedule(…).")
            schedule = checked_schedule_name(handler.kind.name if name is None else name)
            if schedule in self._declarations:
                raise InvalidKind(f"the schedule {schedule!r} is declared already", hint="Give one of the two a name=.")
            named = {**options, **self._named_scopes(schedule, options.get("scopes"))}
            definition = new_definition(handler.kind.name, expression, named)
            _check_payload(handler.kind, Plan(schedule, datetime.now(UTC)), definition.payload)
            self._declarations[schedule] = Declaration(schedule, definition, checked_number(version, label="a version"))
            self._is_stored = False
            return handler

        return register

    def _named_scopes(self, schedule: str, scopes: Sequence[str] | str | Provider | None) -> dict[str, Any]:
        """Replace a scope function by its name: that of its schedule."""
        if scopes is None:
            return {}
        if callable(scopes):
            self.add_provider(schedule, scopes)
            return {"scopes": schedule}
        if isinstance(scopes, str) and scopes not in self._providers:
            raise InvalidInput(f"no function for scopes is called {scopes!r}", hint="Declare it with @app.scopes().")
        return {"scopes": scopes}

    def add_provider(self, name: str, function: Provider) -> None:
        """Register a scope function."""
        if checked_name(name, label="the name") in self._providers:
            raise InvalidKind(f"two functions for scopes are called {name!r}", hint="Give one of them another name.")
        self._providers[name] = function

    def declare(self) -> dict[str, DeclarationResult]:
        """Store the declarations, unless this store has them already."""
        if self._is_stored:
            return {}
        results = self._store().schedules.declare(list(self._declarations.values()), actor=Actor.CLIENT)
        self._is_stored = True
        for name, result in results.items():
            match result:
                case DeclarationResult.OLDER:
                    log.warning("schedule %r stays as newer code has declared it", name)
                case DeclarationResult.TAKEN:
                    log.warning("schedule %r was made by a person, and stays as it is: rename one of the two", name)
                case DeclarationResult.MADE | DeclarationResult.SAME | DeclarationResult.CHANGED:
                    pass
                case _:
                    assert_never(result)
        return results

    def reset(self) -> None:
        """Store the declarations again: the application uses another store."""
        self._is_stored = not self._declarations


def _check_payload(kind: Kind, plan: Plan, payload: Mapping[str, Any]) -> None:
    """Refuse a payload that does not fit the handler's parameters."""
    if kind.plan in payload:
        raise InvalidPayload(f"the parameter {kind.plan!r} is given its plan", hint="Leave it out of the payload.")
    try:
        kind.encode(payload if kind.plan is None else {**payload, kind.plan: plan})
    except InvalidPayload as error:
        if kind.plan is None and "plan" in kind.signature.parameters:
            raise InvalidPayload(error.message, hint="Annotate it, so that it is given: plan: holdfast.Plan.") from None
        raise

"""The part of an application that is about schedules: what code declares, and what is done at run time."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack, assert_never

from holdfast.client.jobs.handler import Handler
from holdfast.client.schedules.definition import ScheduleOptions, definition_of
from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.new_job import Actor
from holdfast.domain.names import checked_name
from holdfast.domain.schedules.definition import checked_schedule
from holdfast.domain.schedules.plan import Plan
from holdfast.domain.sizes import checked_number
from holdfast.errors import InvalidInput, InvalidKind, InvalidPayload
from holdfast.store import Store
from holdfast.store.schedules.schedules import Declaration, Declared

if TYPE_CHECKING:
    from holdfast.client.schedules.api import Schedules
    from holdfast.worker.schedules.scopes import Provider

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger("holdfast")


class Scheduling(ABC):
    """Schedules of an application."""

    def __init__(self) -> None:
        super().__init__()
        self._declarations: dict[str, Declaration] = {}
        self._undeclared = False
        self._providers: dict[str, Provider] = {}

    @property
    @abstractmethod
    def store(self) -> Store:
        """Where the schedules are."""

    def schedule(
        self,
        expression: str,
        *,
        name: str | None = None,
        version: int = 1,
        **options: Unpack[ScheduleOptions],
    ) -> Callable[[Handler[P, R]], Handler[P, R]]:
        """Fire a job when *expression* says: ``*/5 * * * *``, ``@daily`` or ``every 90s``. Written above ``@app.job``.

        *name* defaults to that of the kind. *version* grows when the schedule is changed: a replica that runs older
        code never restores the old definition. The *options* are those of
        :class:`holdfast.client.schedules.definition.ScheduleOptions`. The handler gets its plan through a parameter
        of type :class:`holdfast.Plan`.

        Raises:
            InvalidExpression: The expression cannot be read.
            UnknownZone: There is no such time zone.
            NeverFires: It names no day of the calendar.
            InvalidInput: An option makes no sense, or the handler does not take the payload.
            InvalidKind: The name is taken, or there is no job below it.
        """

        def declare(handler: Handler[P, R]) -> Handler[P, R]:
            if not isinstance(handler, Handler):
                raise InvalidKind("a schedule fires a job", hint="Write @app.job() below @app.schedule(…).")
            known = checked_schedule(handler.kind.name if name is None else name)
            if known in self._declarations:
                raise InvalidKind(f"the schedule {known!r} is declared already", hint="Give one of the two a name=.")
            asked = self._named(known, options.get("scopes"))
            definition = definition_of(handler.kind.name, expression, {**options, **asked})
            _check(handler.kind, Plan(known, datetime.now(UTC)), definition.payload)
            self._declarations[known] = Declaration(known, definition, checked_number(version, label="a version"))
            self._undeclared = True
            return handler

        return declare

    def _named(self, schedule: str, scopes: Sequence[str] | str | Provider | None) -> dict[str, Any]:
        """Scopes as a definition has them: a function is known by the name of its schedule."""
        if scopes is None:
            return {}
        if callable(scopes):
            self._add_provider(schedule, scopes)
            return {"scopes": schedule}
        if isinstance(scopes, str) and scopes not in self._providers:
            raise InvalidInput(f"no function for scopes is called {scopes!r}", hint="Declare it with @app.scopes().")
        return {"scopes": scopes}

    def scopes(self, name: str | None = None) -> Callable[[Provider], Provider]:
        """Let schedules ask this function for their scopes, by its name."""

        def add(function: Provider) -> Provider:
            self._add_provider(checked_name(name or function.__name__, label="the name"), function)
            return function

        return add

    def _add_provider(self, name: str, function: Provider) -> None:
        if name in self._providers:
            raise InvalidKind(f"two functions for scopes are called {name!r}", hint="Give one of them another name.")
        self._providers[name] = function

    @property
    def providers(self) -> Mapping[str, Provider]:
        """The functions that are asked for scopes."""
        return self._providers

    @property
    def schedules(self) -> Schedules:
        """Make, change, pause, preview, trigger and backfill schedules; what code declares is made known before."""
        from holdfast.client.schedules.api import Schedules

        self.declare_schedules()
        return Schedules(lambda: self.store, self._providers, actor=Actor.CLIENT)

    def declare_schedules(self) -> dict[str, Declared]:
        """Make the schedules of the code known to the store: a worker does so when it begins."""
        if not self._undeclared:
            return {}
        found = self.store.schedules.declare(list(self._declarations.values()), actor=Actor.CLIENT)
        self._undeclared = False
        for name, became in found.items():
            match became:
                case Declared.OLDER:
                    log.warning("schedule %r stays as newer code has declared it", name)
                case Declared.TAKEN:
                    log.warning("schedule %r was made by a person, and stays as it is: rename one of the two", name)
                case Declared.MADE | Declared.SAME | Declared.CHANGED:
                    pass
                case _:
                    assert_never(became)
        return found


def _check(kind: Kind, plan: Plan, payload: Mapping[str, Any]) -> None:
    """The handler must take what it will be given."""
    if kind.plan in payload:
        raise InvalidPayload(f"the parameter {kind.plan!r} is given its plan", hint="Leave it out of the payload.")
    given = {} if kind.plan is None else {kind.plan: plan}
    try:
        kind.encode({**payload, **given})
    except InvalidPayload as error:
        if kind.plan is None and "plan" in kind.signature.parameters:
            raise InvalidPayload(error.message, hint="Annotate it, so that it is given: plan: holdfast.Plan.") from None
        raise

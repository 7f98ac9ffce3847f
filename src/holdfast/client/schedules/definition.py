"""Definitions of schedules in code, from the options that people write."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, TypedDict, TypeVar

from msgspec import structs

from holdfast.client.jobs.handler import Handler
from holdfast.client.jobs.kind_registry import KindRegistry
from holdfast.client.origin import origin_of
from holdfast.domain.commands.command import COMMAND, command_payload
from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.new_job import Actor
from holdfast.domain.names import checked_name, nearest_name
from holdfast.domain.quantities import Duration, as_duration, checked_number, checked_timestamp
from holdfast.domain.schedules.definition import (
    CatchUp,
    Declaration,
    DeclarationResult,
    Definition,
    checked_schedule_name,
    takes_time,
)
from holdfast.domain.schedules.plan import Overlap, Plan
from holdfast.errors import InvalidInput, InvalidKind, InvalidPayload
from holdfast.store import Store

if TYPE_CHECKING:
    from holdfast.client.schedules.api import Schedules
    from holdfast.worker.schedules.scopes import Provider
    from holdfast.worker.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger("holdfast")

#: The declarations without effect.
WARNINGS = {
    DeclarationResult.OLDER: "schedule %r is unchanged: newer code declared it",
    DeclarationResult.TAKEN: "schedule %r is unchanged: a person created it; rename one of the two",
    DeclarationResult.REFUSED: "schedule %r is unchanged: live workers of another application declare it; give one of "
    "the two a namespace: Holdfast(namespace=…)",
}
#: A running application takes over the schedule of another one after this time without its workers: a restart is
#: shorter.
QUIET_FOR = timedelta(minutes=10)


class ScheduleOptions(TypedDict, total=False):
    """The options of a schedule, besides its expression.

    *tz* is the IANA zone of a cron expression, *phase* moves an interval. *catch_up* decides which missed plans fire
    (due while no planner ran): ``latest`` (default), ``none``, or ``every`` one within *window*. *overlap* decides what
    happens to a plan while an earlier one of its scope runs: ``skip`` (default), ``queue_one``, ``queue_all`` (default
    with ``every``), ``cancel_running`` or ``allow``. With ``queue_all``, at most *max_backlog* plans of a scope wait in
    line (10,000), and further ones are skipped. *delay* lets data settle and *jitter* spreads the jobs; neither
    changes a plan's time. *start*, *end* and *runs* limit the plans. *scopes* is a list, a function that returns one,
    or the name of such a function: each plan fires once in each scope. A function with a parameter gets the time of the
    plan. *payload* holds the other parameters of the
    handler; *ping* is a URL to call after each success.
    """

    tz: str
    phase: Duration
    catch_up: str
    window: Duration
    overlap: str | None
    max_backlog: int
    delay: Duration
    jitter: Duration
    start: datetime | None
    end: datetime | None
    runs: int | None
    payload: Mapping[str, Any]
    queue: str | None
    priority: int | None
    scopes: Sequence[str] | str | Callable[..., Any] | None
    ping: str | None


def new_definition(kind: str, expression: str, options: Mapping[str, Any], *, kind_version: int = 1) -> Definition:
    """Build the definition of a new schedule, with a payload for *kind_version* of the kind."""
    return _with_timeout(
        Definition.from_expression(expression, kind=kind, kind_version=kind_version, **_fields(options))
    )


def changed_definition(
    definition: Definition, *, kind: str | None, expression: str | None, options: Mapping[str, Any]
) -> Definition:
    """Return the definition with some of its fields changed."""
    expression = definition.expression if expression is None else expression
    # A zone does not carry over to an interval, nor a phase to a cron expression.
    dropped = {"cron", "every", "tz" if expression.lower().startswith("every ") else "phase"}
    kept = {name: value for name, value in structs.asdict(definition).items() if name not in dropped}
    fields = {**kept, **_fields(options), "kind": kind or definition.kind}
    return _with_timeout(Definition.from_expression(expression, **fields))


def _with_timeout(definition: Definition) -> Definition:
    """The definition, with the timeout of a command as jobs keep it."""
    if definition.kind != COMMAND:
        return definition
    return structs.replace(definition, payload=command_payload(definition.payload))


def _fields(options: Mapping[str, Any]) -> dict[str, Any]:
    known = list(ScheduleOptions.__annotations__)
    for name in options.keys() - set(known):
        near = nearest_name(name, known)
        hint = f"Did you mean {near!r}?" if near else f"There are: {', '.join(known)}."
        raise InvalidInput(f"a schedule has no option {name!r}", hint=hint)
    fields = {name: _CONVERTERS[name](value) if name in _CONVERTERS else value for name, value in options.items()}
    if isinstance(fields.get("scopes"), str):
        fields |= {"scopes": (), "provider": fields["scopes"]}
    elif "scopes" in fields:
        fields["provider"] = None
    return fields


def _choice(choices: type[CatchUp | Overlap], option: str) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        try:
            return choices(text)
        except ValueError:
            raise InvalidInput(f"{option} is one of {', '.join(choices)}, not {text!r}") from None

    return convert


def _optional(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else convert(value)


def _number(option: str) -> Callable[[int], int]:
    def convert(value: int) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise InvalidInput(f"{option} is a number, not {value!r}")
        return value

    return convert


def _scopes(value: Sequence[str] | str | Callable[..., Any] | None) -> tuple[str, ...] | str:
    if callable(value):
        raise InvalidInput("scopes takes the name of a function here", hint="Declare it with @app.scopes().")
    if value is None or isinstance(value, str):
        return () if value is None else value
    if not isinstance(value, Sequence) or not value:
        raise InvalidInput(f"scopes are a list of at least one text, not {value!r}")
    return tuple(value)


def _payload(value: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidInput(f"a payload names the handler's parameters, not {value!r}")
    return dict(value)


_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("phase", "window", "delay", "jitter"), as_duration),
    **dict.fromkeys(("start", "end"), _optional(checked_timestamp)),
    "catch_up": _choice(CatchUp, "catch_up"),
    "overlap": _optional(_choice(Overlap, "overlap")),
    "runs": _optional(_number("runs")),
    "max_backlog": _number("max_backlog"),
    "payload": _payload,
    "scopes": _scopes,
}


class ScheduleRegistry:
    """The schedules and scope functions that the code of an application declares."""

    def __init__(self, registry: KindRegistry) -> None:
        self._registry = registry
        self._store = registry.store
        self._declarations: dict[str, Declaration] = {}
        #: The origins of the handlers of declared schedules, by schedule.
        self.origins: dict[str, str] = {}
        #: Schedules that another application declares, until its workers are gone.
        self._refused = set[str]()
        self._is_stored = True
        #: Workers and schedulers of this process: schedules that are declared later are stored at once.
        self.planners: weakref.WeakSet[Worker] = weakref.WeakSet()
        #: The scope functions by name.
        self.providers: dict[str, Provider] = {}
        #: Where the scope functions live, by name.
        self.scope_origins: dict[str, str] = {}

    @property
    def schedules(self) -> Schedules:
        """The schedules of the store, with those that code declares."""
        from holdfast.client.schedules.api import Schedules

        self.declare()
        return Schedules(self._store, self.providers, actor=Actor.CLIENT)

    def decorator(
        self, expression: str, name: str | None, version: int, options: Mapping[str, Any]
    ) -> Callable[[Handler[P, R]], Handler[P, R]]:
        """Return the decorator behind ``app.schedule``."""

        def register(handler: Handler[P, R]) -> Handler[P, R]:
            if not isinstance(handler, Handler):
                raise InvalidKind("a schedule fires a job", hint="Write @app.job() below @app.schedule(…).")
            schedule = checked_schedule_name(handler.kind.name if name is None else self._registry.prefixed(name))
            if schedule in self._declarations:
                raise InvalidKind(f"the schedule {schedule!r} is declared already", hint="Give one of the two a name=.")
            named = {**options, **self._named_scopes(schedule, options.get("scopes"))}
            kind = handler.kind
            definition = new_definition(kind.name, expression, named, kind_version=kind.options.version)
            _check_payload(handler.kind, Plan(schedule, datetime.now(UTC)), definition.payload)
            checked = checked_number(version, label="a version")
            self._declarations[schedule] = Declaration(schedule, definition, checked, self._registry.name)
            self.origins[schedule] = kind.origin or ""
            self._is_stored = False
            if self.planners:
                self.declare()
            return handler

        return register

    def _named_scopes(self, schedule: str, scopes: Sequence[str] | str | Provider | None) -> dict[str, Any]:
        """Replace a scope function by its name: that of its schedule."""
        if scopes is None:
            return {}
        if callable(scopes):
            self.add_provider(schedule, scopes)
            return {"scopes": schedule}
        if not isinstance(scopes, str):
            return {"scopes": scopes}
        for name in (self._registry.prefixed(scopes), scopes):
            if name in self.providers:
                return {"scopes": name}
        raise InvalidInput(f"no function for scopes is called {scopes!r}", hint="Declare it with @app.scopes().")

    def add_provider(self, name: str, function: Provider) -> None:
        """Register a scope function."""
        if checked_name(name, label="the name") in self.providers:
            raise InvalidKind(f"two functions for scopes are called {name!r}", hint="Give one of them another name.")
        takes_time(function)  # refuses a function that a planner could not call
        self.providers[name] = function
        self.scope_origins[name] = origin_of(function)

    def declare(self) -> dict[str, DeclarationResult]:
        """Store the declarations, unless this store has them already."""
        if self._is_stored:
            return {}
        results = self._store().schedules.declare(list(self._declarations.values()), actor=Actor.CLIENT)
        self._is_stored = True
        self._refused = {name for name, result in results.items() if result is DeclarationResult.REFUSED}
        for name, result in results.items():
            if result in WARNINGS:
                level = logging.ERROR if result is DeclarationResult.REFUSED else logging.WARNING
                log.log(level, WARNINGS[result], name)
        return results

    def declare_refused(self, store: Store) -> None:
        """Store refused declarations once the workers of the other application have been gone for ten minutes."""
        if not self._refused:
            return
        refused = [self._declarations[name] for name in sorted(self._refused)]
        results = store.schedules.declare(refused, actor=Actor.CLIENT, quiet_for=QUIET_FOR)
        for name, result in results.items():
            if result is not DeclarationResult.REFUSED:
                self._refused.discard(name)
                log.warning("schedule %r is declared now: the application that had declared it is gone", name)

    def reset(self) -> None:
        """Store the declarations again: the application uses another store."""
        self._is_stored = not self._declarations


def _check_payload(kind: Kind, plan: Plan, payload: Mapping[str, Any]) -> None:
    if kind.plan in payload:
        raise InvalidPayload(f"the parameter {kind.plan!r} is given its plan", hint="Leave it out of the payload.")
    try:
        kind.encode(payload if kind.plan is None else {**payload, kind.plan: plan})
    except InvalidPayload as error:
        if kind.plan is None and "plan" in kind.signature.parameters:
            raise InvalidPayload(error.message, hint="Annotate it, so that it is given: plan: holdfast.Plan.") from None
        raise

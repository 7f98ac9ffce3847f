"""Options of schedules as people write them, and the definitions that they make."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict

from msgspec import structs

from holdfast.domain.names import nearest_name
from holdfast.domain.quantities import Duration, as_duration
from holdfast.domain.schedules.definition import CatchUp, Definition
from holdfast.domain.schedules.overlap import Overlap
from holdfast.domain.schedules.rule import checked_timestamp
from holdfast.errors import InvalidInput


class ScheduleOptions(TypedDict, total=False):
    """The options of a schedule, besides its expression.

    *tz* is the IANA zone of a cron expression, *phase* moves an interval. *catch_up* decides which plans fire that were
    due while no planner ran: ``latest`` (default), ``none``, or ``every`` one within *window*. *overlap* decides what
    happens to a plan while an earlier one of its scope runs: ``skip`` (default), ``queue_one``, ``queue_all`` (default
    with ``every``), ``cancel_running`` or ``allow``. *delay* lets data settle and *jitter* spreads the jobs; neither
    changes a plan's time. *start*, *end* and *runs* limit the plans. *scopes* is a list, a function that returns one,
    or the name of such a function: each plan fires once in each scope. *payload* holds the other parameters of the
    handler; *ping* is a URL to call after each success.
    """

    tz: str
    phase: Duration
    catch_up: str
    window: Duration
    overlap: str | None
    delay: Duration
    jitter: Duration
    start: datetime | None
    end: datetime | None
    runs: int | None
    payload: Mapping[str, Any]
    queue: str | None
    priority: int | None
    scopes: Sequence[str] | str | Callable[[], Any] | None
    ping: str | None


def new_definition(kind: str, expression: str, options: Mapping[str, Any]) -> Definition:
    """Build the definition of a new schedule."""
    return Definition.from_expression(expression, kind=kind, **_fields(options))


def changed_definition(
    definition: Definition, *, kind: str | None, expression: str | None, options: Mapping[str, Any]
) -> Definition:
    """Return the definition with some of its fields changed."""
    expression = definition.expression if expression is None else expression
    # A zone does not carry over to an interval, nor a phase to a cron expression.
    dropped = {"cron", "every", "tz" if expression.lower().startswith("every ") else "phase"}
    kept = {name: value for name, value in structs.asdict(definition).items() if name not in dropped}
    return Definition.from_expression(expression, **{**kept, **_fields(options), "kind": kind or definition.kind})


def _fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """Convert options to the fields of a definition."""
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


def _runs(value: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidInput(f"runs is a number, not {value!r}")
    return value


def _scopes(value: Sequence[str] | str | Callable[[], Any] | None) -> tuple[str, ...] | str:
    if callable(value):
        raise InvalidInput("a function for scopes has a name here", hint="Declare it with @app.scopes().")
    if value is None:
        return ()
    if isinstance(value, str):
        return value
    if not isinstance(value, Sequence) or not value:
        raise InvalidInput(f"scopes are a list of at least one text, not {value!r}")
    return tuple(value)


def _payload(value: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidInput(f"a payload names the handler's parameters, not {value!r}")
    return dict(value)


_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "phase": as_duration,
    "catch_up": _choice(CatchUp, "catch_up"),
    "window": as_duration,
    "overlap": _optional(_choice(Overlap, "overlap")),
    "delay": as_duration,
    "jitter": as_duration,
    "start": _optional(checked_timestamp),
    "end": _optional(checked_timestamp),
    "runs": _optional(_runs),
    "payload": _payload,
    "scopes": _scopes,
}

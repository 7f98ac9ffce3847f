"""Definitions of schedules as people write them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict

from msgspec import structs

from holdfast.domain.durations import Duration, as_duration
from holdfast.domain.names import nearest_name
from holdfast.domain.schedules.decision import CatchUp, spec_of
from holdfast.domain.schedules.definition import Definition
from holdfast.domain.schedules.plan import Overlap
from holdfast.domain.schedules.rule import checked_timestamp
from holdfast.errors import InvalidInput


class ScheduleOptions(TypedDict, total=False):
    """What can be said about a schedule, besides its expression.

    *tz* is the IANA zone of a cron expression, *phase* moves an interval. *catch_up* is ``latest`` (default), ``every``
    or ``none``: which of the plans that were due while nobody planned are fired, ``every`` one of them within
    *window*. *overlap* is ``skip`` (default), ``queue_one``, ``queue_all`` (default with ``every``),
    ``cancel_running`` or ``allow``: what becomes of a plan while an earlier one of its scope runs. *delay* lets data
    settle, *jitter* spreads the jobs; neither changes a plan's time. From *start* to *end*, at most *runs* times.
    *scopes* is a list, a function that answers one, or the name of such a function: each plan fires once in each.
    *payload* are the other parameters of the handler; *ping* is a URL to call after each success.
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


def definition_of(kind: str, expression: str, options: Mapping[str, Any]) -> Definition:
    """The definition of a new schedule.

    Raises:
        InvalidExpression: The expression cannot be read.
        UnknownZone: There is no such time zone.
        NeverFires: It names no day of the calendar.
        InvalidInput: An option makes no sense.
    """
    when, job = _sorted_out(options)
    return Definition(kind=kind, when=spec_of(expression, **when), **job)


def redefined(
    definition: Definition, *, kind: str | None, expression: str | None, options: Mapping[str, Any]
) -> Definition:
    """The same definition with some of it said anew."""
    when, job = _sorted_out(options)
    if "scopes" in options:
        job = {"scopes": (), "provider": None, **job}
    spelt = definition.when.expression if expression is None else expression
    # What belongs to the other sort of rule does not go with it.
    gone = {"cron", "every", "tz" if spelt.lower().startswith("every ") else "phase"}
    kept = {name: value for name, value in structs.asdict(definition.when).items() if name not in gone}
    spec = spec_of(spelt, **{**kept, **when})
    return structs.replace(definition, kind=kind or definition.kind, when=spec, **job)


def _sorted_out(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is about the time, and what is about the job."""
    for name in options.keys() - _WHEN.keys() - _JOB.keys():
        near = nearest_name(name, [*_WHEN, *_JOB])
        hint = f"Did you mean {near!r}?" if near else f"There are: {', '.join([*_WHEN, *_JOB])}."
        raise InvalidInput(f"a schedule has no option {name!r}", hint=hint)
    when = {name: _WHEN[name](value) for name, value in options.items() if name in _WHEN}
    job: dict[str, Any] = {}
    for name, value in options.items():
        if name in _JOB:
            job |= _JOB[name](value)
    return when, job


def _word(words: type[CatchUp | Overlap], what: str) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            return words(text)
        except ValueError:
            known = ", ".join(words)
            raise InvalidInput(f"{what} is one of {known}, not {text!r}") from None

    return read


def _count(value: int | None) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise InvalidInput(f"runs is a number, not {value!r}")
    return value


def _scopes(value: Sequence[str] | str | Callable[[], Any] | None) -> dict[str, Any]:
    if callable(value):
        raise InvalidInput("a function for scopes has a name here", hint="Declare it with @app.scopes().")
    if isinstance(value, str):
        return {"provider": value}
    if value is None:
        return {"scopes": ()}
    if not isinstance(value, Sequence) or not value:
        raise InvalidInput(f"scopes are a list of at least one text, not {value!r}")
    return {"scopes": tuple(value)}


def _payload(value: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidInput(f"a payload names the handler's parameters, not {value!r}")
    return {"payload": dict(value)}


_WHEN: dict[str, Callable[[Any], Any]] = {
    "tz": lambda value: value,
    "phase": as_duration,
    "catch_up": _word(CatchUp, "catch_up"),
    "window": as_duration,
    "overlap": lambda value: None if value is None else _word(Overlap, "overlap")(value),
    "delay": as_duration,
    "jitter": as_duration,
    "start": lambda value: None if value is None else checked_timestamp(value),
    "end": lambda value: None if value is None else checked_timestamp(value),
    "runs": _count,
}
_JOB: dict[str, Callable[[Any], dict[str, Any]]] = {
    "payload": _payload,
    "queue": lambda value: {"queue": value},
    "priority": lambda value: {"priority": value},
    "scopes": _scopes,
    "ping": lambda value: {"ping": value},
}

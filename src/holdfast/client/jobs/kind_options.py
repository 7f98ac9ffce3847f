"""Conversions from decorator arguments to the options of a kind."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from holdfast.domain.jobs.job import OnLost
from holdfast.domain.jobs.kind_options import ExecutorName
from holdfast.domain.jobs.new_job import KeyScope
from holdfast.domain.jobs.verdict import DEFAULT_CURVE, Curve, steps
from holdfast.domain.quantities import Duration, as_duration
from holdfast.errors import InvalidKind


def curve(retry: Curve | Sequence[Duration] | None, default: Curve = DEFAULT_CURVE) -> Curve:
    """The delays between attempts; the last delay of a list repeats."""
    if retry is None:
        return default
    if isinstance(retry, str):
        raise InvalidKind("retry is a list of delays", hint=f"Write retry=[{retry!r}].")
    return retry if isinstance(retry, Curve) else steps([as_duration(delay) for delay in retry])


def on_lost(value: str) -> OnLost:
    """The policy for jobs whose worker was lost."""
    try:
        return OnLost(value)
    except ValueError:
        raise InvalidKind(f"on_lost is 'retry', 'dead' or 'hold', not {value!r}") from None


def executor(value: str | None) -> ExecutorName | None:
    """The executor of a handler; None leaves the choice to the kind."""
    if value is None:
        return None
    if value not in (ExecutorName.THREAD, ExecutorName.ASYNC, ExecutorName.PROCESS):
        raise InvalidKind(f"executor is 'thread', 'async' or 'process', not {value!r}")
    return ExecutorName(value)


def uniqueness(unique_for: Duration | None) -> tuple[KeyScope, timedelta | None]:
    """How long a unique key stays taken."""
    if unique_for is None:
        return KeyScope.LIVE, None
    if unique_for == "ever":
        return KeyScope.FOREVER, None
    return KeyScope.PERIOD, as_duration(unique_for)


def names(values: Sequence[str], *, option: str) -> tuple[str, ...]:
    """A list of names; a single string is refused, because iterating it yields its characters."""
    if isinstance(values, str):
        raise InvalidKind(f"{option} is a list of names", hint=f"Write {option}=[{values!r}].")
    return tuple(values)


def refuse_bare(name: object) -> None:
    """Refuse a decorator without parentheses: Python passes it the function as its name.

    Raises:
        InvalidKind: *name* is a function.
    """
    if callable(name):
        raise InvalidKind("@app.job needs parentheses", hint="Write @app.job() above the function.")

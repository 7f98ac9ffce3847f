"""What users write in a decorator, as values."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from holdfast.domain.durations import Duration, as_duration
from holdfast.domain.jobs.job import OnLost
from holdfast.domain.jobs.kind_options import ExecutorName
from holdfast.domain.jobs.retry import DEFAULT_CURVE, Curve, steps
from holdfast.domain.jobs.unique_key import KeyScope
from holdfast.errors import InvalidKind


def curve(retry: Curve | Sequence[Duration] | None) -> Curve:
    """The delays between tries: a curve, or a list whose last one repeats."""
    if retry is None:
        return DEFAULT_CURVE
    if isinstance(retry, str):
        raise InvalidKind("retry is a list of delays", hint=f"Write retry=[{retry!r}].")
    return retry if isinstance(retry, Curve) else steps([as_duration(delay) for delay in retry])


def on_lost(word: str) -> OnLost:
    """What becomes of a job whose worker was lost."""
    try:
        return OnLost(word)
    except ValueError:
        raise InvalidKind(f"on_lost is 'retry', 'dead' or 'hold', not {word!r}") from None


def executor(word: str | None) -> ExecutorName | None:
    """Where a handler runs; None: where its kind of function does."""
    try:
        found = None if word is None else ExecutorName(word)
    except ValueError:
        found = ExecutorName.COMMAND
    if found is ExecutorName.COMMAND:
        raise InvalidKind(f"executor is 'thread', 'async' or 'process', not {word!r}")
    return found


def uniqueness(unique_for: Duration | None) -> tuple[KeyScope, timedelta | None]:
    """How long a key is taken."""
    if unique_for is None:
        return KeyScope.LIVE, None
    if unique_for == "ever":
        return KeyScope.FOREVER, None
    return KeyScope.PERIOD, as_duration(unique_for)


def names(given: Sequence[str], *, what: str) -> tuple[str, ...]:
    """A list of names; one text alone would be read letter by letter."""
    if isinstance(given, str):
        raise InvalidKind(f"{what} is a list of names", hint=f"Write {what}=[{given!r}].")
    return tuple(given)


def refuse_bare(name: object) -> None:
    """A decorator without its parentheses is given the function itself.

    Raises:
        InvalidKind: That was so.
    """
    if callable(name):
        raise InvalidKind("@app.job needs parentheses", hint="Write @app.job() above the function.")

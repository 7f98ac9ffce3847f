"""Retry curves: how long a failed job waits before its next attempt."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from holdfast.domain.quantities import MAX_DURATION, Duration, as_duration
from holdfast.errors import InvalidInput


class Curve(msgspec.Struct, frozen=True, omit_defaults=True):
    """Delays in seconds: doubling from *base* to *cap*, or the *steps*, the last repeating.

    *jitter* is a share of the delay, added or subtracted at random: jobs that failed together
    are not retried together.
    """

    base: float = 60.0
    cap: float = 3600.0
    jitter: float = 0.2
    steps: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.base < 0 or self.cap < 0 or any(step < 0 for step in self.steps):
            raise InvalidInput("a retry delay cannot be negative")
        if not max(self.base, self.cap, *self.steps) <= MAX_DURATION.total_seconds():
            raise InvalidInput(f"a retry delay is at most {MAX_DURATION.days} days")
        if not 0 <= self.jitter <= 1:
            raise InvalidInput(f"jitter is a share from 0 to 1, not {self.jitter}")

    def dumps(self) -> str | None:
        """JSON for the job's row; None for the default curve."""
        return None if self == DEFAULT_CURVE else msgspec.json.encode(self).decode()

    @staticmethod
    def loads(text: str) -> Curve:
        return msgspec.json.decode(text, type=Curve)


DEFAULT_CURVE = Curve()


def steps(delays: Sequence[timedelta]) -> Curve:
    """A curve of exactly these delays; the last one repeats."""
    if not delays:
        raise InvalidInput("a list of retry delays needs at least one entry")
    return Curve(jitter=0.0, steps=tuple(delay.total_seconds() for delay in delays))


def retry_curve(retry: Curve | Sequence[Duration] | None, default: Curve = DEFAULT_CURVE) -> Curve:
    """A curve as people write it: itself, or a list of delays whose last one repeats."""
    if retry is None:
        return default
    if isinstance(retry, str | bytes):
        raise InvalidInput("retry is a list of delays", hint=f"Write retry=[{retry!r}].")
    return retry if isinstance(retry, Curve) else steps([as_duration(delay) for delay in retry])


def delay_after(curve: Curve, attempt: int, *, chance: float) -> timedelta:
    """The delay after failed attempt number *attempt*; below 1 counts as 1. *chance*, from 0 to 1, picks the jitter."""
    number = max(attempt, 1)
    if curve.steps:
        seconds = curve.steps[min(number, len(curve.steps)) - 1]
    else:
        # 64 doublings reach every cap; more would overflow a float.
        seconds = min(curve.base * 2.0 ** min(number - 1, 64), curve.cap)
    return timedelta(seconds=seconds * (1 + curve.jitter * (2 * chance - 1)))

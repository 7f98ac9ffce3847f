"""Definitions of schedules: their timing and the jobs that they fire."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any, Self
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from holdfast.domain.fleet.queue import checked_queue
from holdfast.domain.names import checked_name
from holdfast.domain.quantities import checked_number, checked_timestamp, parse_duration
from holdfast.domain.schedules.firing_times import MICROSECOND, Interval, Rule, SharedCalendar
from holdfast.domain.schedules.plan import GLOBAL, MAX_BACKLOG, Overlap
from holdfast.errors import InvalidExpression, InvalidInput, InvalidKind, NeverFires

#: The longest duration that each option accepts.
LONGEST = {"window": timedelta(days=366), "delay": timedelta(days=31), "jitter": timedelta(days=1)}
#: The largest backlog that a schedule may have.
LARGEST_BACKLOG = 1_000_000
#: Parameters that any call fits.
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class CatchUp(StrEnum):
    """Which missed plans fire, those due while no planner ran: none, the newest, or every one."""

    NONE = "none"
    LATEST = "latest"
    EVERY = "every"


class Timing(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When a schedule fires: a cron expression in a time zone, or an interval counted from the epoch.

    *max_backlog* limits the plans of a scope that wait in line with ``queue_all``. The schedule is over after *runs*
    plans.
    """

    cron: str | None = None
    tz: str = "UTC"
    every: timedelta | None = None
    phase: timedelta = timedelta(0)
    catch_up: CatchUp = CatchUp.LATEST
    window: timedelta = timedelta(hours=24)
    overlap: Overlap | None = None
    max_backlog: int = MAX_BACKLOG
    delay: timedelta = timedelta(0)
    jitter: timedelta = timedelta(0)
    start: datetime | None = None
    end: datetime | None = None
    runs: int | None = None

    def __post_init__(self) -> None:
        if (self.cron is None) == (self.every is None):
            raise InvalidExpression("a schedule is a cron expression or an interval", position=0)
        for name, longest in LONGEST.items():
            if not timedelta(0) <= getattr(self, name) <= longest:
                raise InvalidInput(f"a {name} takes at most {longest.days} days, not {getattr(self, name)}")
        for timestamp in filter(None, (self.start, self.end)):
            checked_timestamp(timestamp)
        if self.start is not None and self.end is not None and self.end <= self.start:
            raise InvalidInput("a schedule ends after it starts")
        if self.runs is not None and not 1 <= self.runs < 2**31:
            raise InvalidInput(f"a schedule runs at least once, not {self.runs} times")
        if not 1 <= self.max_backlog <= LARGEST_BACKLOG:
            raise InvalidInput(f"a backlog holds 1 to {LARGEST_BACKLOG:,} plans, not {self.max_backlog}")

    @classmethod
    def from_expression(cls, expression: str, **options: Any) -> Self:
        """Build it from an expression as people write it: ``*/5 * * * *``, ``@daily`` or ``every 90s``."""
        if not isinstance(expression, str) or not isinstance(options.get("tz", ""), str):
            raise InvalidExpression(f"an expression and its zone are texts, not {expression!r}", position=0)
        prefix, _, duration = expression.strip().partition(" ")
        every = _parse_interval(duration) if prefix.lower() == "every" else None
        if every is not None and options.get("tz", "UTC") != "UTC":
            raise InvalidInput("only a cron expression has a time zone", hint="An interval is counted in UTC.")
        if every is None and options.get("phase"):
            raise InvalidInput("only an interval has a phase", hint="Write the expression as: every 5m.")
        timing = cls(cron=expression.strip() if every is None else None, every=every, **options)
        rule, start, end = timing.rule(), timing.start, timing.end
        if start is not None and end is not None and rule.next_after(start - MICROSECOND) > end:
            message = f"{expression[:100]!r} has no plan between its start and its end"
            raise NeverFires(message, hint="Take a later end.")
        return timing

    @property
    def expression(self) -> str:
        """The rule as people write it."""
        return f"every {format_exact_duration(self.every)}" if self.every is not None else self.cron or ""

    @property
    def effective_overlap(self) -> Overlap:
        """The overlap option or its default: with ``every``, a plan that runs long makes no other plan skip."""
        if self.overlap is not None:
            return self.overlap
        return Overlap.QUEUE_ALL if self.catch_up is CatchUp.EVERY else Overlap.SKIP

    def rule(self) -> Rule:
        """Compile the rule."""
        return _calendar(self.cron or "", self.tz) if self.every is None else _interval(self.every, self.phase)


#: Compiled rules are cached: many schedules share one, and planners read each of them repeatedly.
_calendar, _interval = lru_cache(maxsize=10_000)(SharedCalendar), lru_cache(maxsize=10_000)(Interval)


def _parse_interval(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except InvalidInput as error:
        raise InvalidExpression(error.message, hint="Write it like: every 5m.", position=6) from None


def format_exact_duration(duration: timedelta) -> str:
    """Format a duration without loss, so that it can be parsed again: ``1h30m``."""
    left, text = int(duration.total_seconds()), ""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if left >= size:
            text += f"{left // size}{unit}"
            left %= size
    return text or "0s"


class Definition(Timing, frozen=True, kw_only=True, omit_defaults=True):
    """The timing of a schedule, and the jobs that it fires.

    *scopes* is a fixed list; *provider* names a function of the application that returns the scopes of each plan.
    *ping* is a URL that is called after a plan's job is done. *kind_version* is the version of the kind that the
    payload was written for.
    """

    kind: str
    kind_version: int = 1
    payload: dict[str, Any] = {}
    queue: str | None = None
    priority: int | None = None
    scopes: tuple[str, ...] = ()
    provider: str | None = None
    ping: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        checked_name(self.kind, label="the kind")
        if self.queue is not None:
            checked_queue(self.queue)
        if self.priority is not None:
            checked_number(self.priority, label="a priority")
        for scope in self.scopes:
            checked_name(scope, label="a scope")
        if len(set(self.scopes)) < len(self.scopes):
            raise InvalidInput("a scope is named twice")
        if self.provider is not None:
            checked_name(self.provider, label="the function for scopes")
        if self.scopes and self.provider is not None:
            raise InvalidInput("scopes are a list or come from a provider, not both")
        if self.ping is not None:
            _check_url(self.ping)

    @property
    def known_scopes(self) -> Sequence[str]:
        """The scopes of a definition without a provider."""
        return self.scopes or (GLOBAL,)

    def dumps(self) -> str:
        """Encode it as JSON; equal definitions have equal JSON."""
        return msgspec.json.encode(self, order="deterministic").decode()


#: Number of definitions that a planner keeps decoded.
MAX_CACHED = 20_000
#: The longest JSON of a definition that is kept: a longer one takes memory, and is decoded in 0.1 ms.
MAX_CACHED_CHARACTERS = 2_000


def load_definition(text: str) -> Definition:
    """Decode :meth:`Definition.dumps`. Short ones are cached: planners read the same definitions repeatedly."""
    return _decoded(text) if len(text) <= MAX_CACHED_CHARACTERS else _decode(text)


def _decode(text: str) -> Definition:
    return msgspec.json.decode(text, type=Definition)


_decoded = lru_cache(maxsize=MAX_CACHED)(_decode)


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        valid = False
    if not valid or parts.username is not None or not re.fullmatch(r"[!-~]+", url):
        raise InvalidInput(f"{url!r} is not a URL to ping", hint="Write it like https://checks.example.com/nightly.")


def checked_schedule_name(name: str) -> str:
    """Return *name* if it is a valid name and printable."""
    if not checked_name(name, label="the name").isprintable():
        raise InvalidInput(f"a schedule's name has only visible characters: {name[:100]!r}")
    return name


def takes_time(function: Callable[..., Any]) -> bool:
    """Whether a scope function takes the time of the plan: it has one parameter without a default.

    Raises:
        InvalidKind: It cannot be called with that time, nor without arguments.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a function of C
        return False
    needed = [each for each in parameters if each.default is each.empty and each.kind not in _VARIADIC]
    if len(needed) > 1 or any(each.kind is each.KEYWORD_ONLY for each in needed):
        names = ", ".join(each.name for each in needed)
        raise InvalidKind(
            f"a function for scopes has no parameter, or one for the time of the plan, not {names}",
            hint="Bind the others: functools.partial(function, …).",
        )
    return bool(needed)


def checked_scopes(scopes: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split scopes into valid ones, without duplicates, and the representations of invalid ones."""
    valid: dict[str, None] = {}
    invalid = []
    for scope in scopes:
        try:
            valid[checked_name(scope, label="a scope")] = None
        except InvalidInput:
            invalid.append(repr(scope)[:100])
    return list(valid), invalid


class Condition(StrEnum):
    """The condition of a schedule: it fires, a person has paused it, it cannot be planned, or it has finished."""

    ACTIVE = "active"
    PAUSED = "paused"
    FAILING = "failing"
    OVER = "over"


def checked_condition(text: str) -> Condition:
    """Return the condition of this name."""
    try:
        return Condition(text)
    except ValueError:
        raise InvalidInput(f"unknown condition {text[:40]!r}", hint=f"There are: {', '.join(Condition)}.") from None


class Schedule(Struct, frozen=True):
    """A schedule in the store. *definition* is JSON; every plan up to *cursor* is decided."""

    name: str
    definition: str
    declared: str | None
    version: int
    paused: bool
    note: str | None
    cursor: datetime
    next_at: datetime | None
    fired: int
    failures: int
    error: str | None
    token: int
    actor: str
    created_at: datetime
    changed_at: datetime
    #: The application that declared it last.
    application: str | None = None

    @property
    def defined(self) -> Definition:
        """The decoded definition."""
        try:
            return load_definition(self.definition)
        except msgspec.DecodeError as error:
            hint = "Newer code may have written it. Declare it again, or delete it."
            raise InvalidInput(f"the definition of {self.name!r} cannot be read: {error}", hint=hint) from None

    @property
    def condition(self) -> Condition:
        if self.paused:
            return Condition.PAUSED
        if self.failures:
            return Condition.FAILING
        return Condition.OVER if self.next_at is None else Condition.ACTIVE


class DeclarationResult(StrEnum):
    """The effect of a declaration on the store.

    OLDER: code of a higher version declared another definition. TAKEN: a person created a schedule with this name.
    REFUSED: another application declares it, and a worker of that application is alive.
    """

    MADE = "made"
    SAME = "same"
    CHANGED = "changed"
    OLDER = "older"
    TAKEN = "taken"
    REFUSED = "refused"


class Declaration(Struct, frozen=True):
    """A schedule as the code of an application defines it. Of its declarations, the highest version wins."""

    name: str
    definition: Definition
    version: int = 1
    application: str | None = None

    def compare(self, known: Schedule | None) -> DeclarationResult:
        """Return the effect that this declaration has on the schedule of its name.

        One of another application is refused: it can have an effect once the workers of that application are gone.
        """
        if known is None:
            return DeclarationResult.MADE
        if known.declared is None:
            return DeclarationResult.TAKEN
        if self.version == known.version and self.definition.dumps() == known.declared:
            return DeclarationResult.SAME
        if known.application not in (None, self.application):
            return DeclarationResult.REFUSED
        return DeclarationResult.OLDER if self.version < known.version else DeclarationResult.CHANGED

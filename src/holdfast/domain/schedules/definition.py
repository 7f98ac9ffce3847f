"""Schedules as they are defined, and as they stand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from holdfast.domain.names import checked_name
from holdfast.domain.schedules.decision import Skipped, SkipReason, Spec, next_after, passed_over
from holdfast.domain.schedules.plan import GLOBAL
from holdfast.domain.sizes import checked_number
from holdfast.errors import InvalidInput

#: After a failed try to plan a schedule rests so long, longer each time, and no longer than the last.
SETBACKS = tuple(timedelta(seconds=seconds) for seconds in (5, 15, 60, 300, 900))


class Definition(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a schedule fires, and when.

    *scopes* are fixed; a *provider* is a function of the application that is asked for them at each plan.
    *ping* is a URL that is called when a plan's job is done.
    """

    kind: str
    when: Spec
    payload: dict[str, Any] = {}
    queue: str | None = None
    priority: int | None = None
    scopes: tuple[str, ...] = ()
    provider: str | None = None
    ping: str | None = None

    def __post_init__(self) -> None:
        checked_name(self.kind, label="the kind")
        if self.queue is not None:
            checked_name(self.queue, label="the queue")
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
            checked_url(self.ping)

    def dumps(self) -> str:
        """The definition as it is kept; two that are equal are kept as the same text."""
        return msgspec.json.encode(self, order="deterministic").decode()


@lru_cache(maxsize=100_000)
def load_definition(text: str) -> Definition:
    """What :meth:`Definition.dumps` wrote; read once, since a planner meets it again and again."""
    return _decoder.decode(text)


_decoder = msgspec.json.Decoder(Definition)


def checked_url(url: str) -> str:
    """Return *url* if it is one of the web, without a password in it."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        fits = False
    if not fits or parts.username is not None or not re.fullmatch(r"[!-~]+", url):
        raise InvalidInput(f"{url!r} is no URL to ping", hint="Write it like https://checks.example.com/nightly.")
    return url


#: The kind of the jobs that ping, and what of them is secret: whoever knows an address can report that all is well.
PING, PING_SECRETS = "holdfast.ping", ("url",)


def may_ping(url: str, hosts: Sequence[str]) -> bool:
    """Whether the host of *url* is one of those that may be called."""
    return (urlsplit(url).hostname or "") in {host.lower() for host in hosts}


class Condition(StrEnum):
    """How a schedule is: it fires, a person has paused it, it cannot be planned, or it is over."""

    ACTIVE = "active"
    PAUSED = "paused"
    FAILING = "failing"
    OVER = "over"


class Schedule(Struct, frozen=True):
    """A schedule as it stands. *definition* is JSON; all plans up to *cursor* are decided."""

    name: str
    definition: str
    declared: str | None
    version: int
    paused: bool
    note: str | None
    cursor: datetime | None
    next_at: datetime | None
    fired: int
    failures: int
    error: str | None
    token: int
    actor: str
    created_at: datetime
    changed_at: datetime

    @property
    def defined(self) -> Definition:
        return load_definition(self.definition)

    @property
    def condition(self) -> Condition:
        if self.paused:
            return Condition.PAUSED
        if self.failures:
            return Condition.FAILING
        return Condition.OVER if self.next_at is None else Condition.ACTIVE


class Moved(Struct, frozen=True):
    """Where a schedule goes on after a person has changed it, and what it has passed over."""

    cursor: datetime | None
    next_at: datetime | None
    skipped: Sequence[Skipped] = ()


#: A change of any of these is another rule: its past is not replayed.
_TIMING = ("cron", "tz", "every", "phase", "start", "end", "catch_up", "window")


def edited(schedule: Schedule, definition: Definition, now: datetime) -> Moved:
    """Where a schedule goes on under another definition: with another rule, or if it was over, from now on."""
    old, new = schedule.defined.when, definition.when
    same = all(getattr(old, name) == getattr(new, name) for name in _TIMING)
    if same and schedule.condition is not Condition.OVER:
        return Moved(schedule.cursor, _next(new, schedule.cursor, schedule.fired, now))
    return _from_now(schedule, new, now, SkipReason.EDITED)


def resumed(schedule: Schedule, now: datetime) -> Moved | None:
    """Where a schedule goes on after a pause: what was due meanwhile is passed over. None: it need not be resumed.

    A cursor that is ahead of the clock comes back to it.
    """
    if not schedule.paused and (schedule.cursor is None or schedule.cursor <= now):
        return None
    return _from_now(schedule, schedule.defined.when, now, SkipReason.PAUSED)


def _from_now(schedule: Schedule, new: Spec, now: datetime, reason: SkipReason) -> Moved:
    skipped = passed_over(schedule.defined.when, schedule.cursor, now, reason)
    return Moved(now, _next(new, now, schedule.fired, now), skipped)


def _next(spec: Spec, cursor: datetime | None, fired: int, now: datetime) -> datetime | None:
    if spec.runs is not None and fired >= spec.runs:
        return None
    return now if cursor is None else next_after(spec, spec.rule(), cursor)


def setback(failures: int) -> timedelta:
    """How long a schedule rests that could not be planned for the nth time."""
    return SETBACKS[min(failures, len(SETBACKS)) - 1]


def checked_schedule(name: str) -> str:
    """Return *name* if it can be that of a schedule: as any name, and all of it can be seen."""
    if not checked_name(name, label="the name").isprintable():
        raise InvalidInput(f"a schedule's name can be seen, all of it: {name[:100]!r}")
    return name


def checked_scopes(scopes: Sequence[str]) -> tuple[list[str], list[str]]:
    """Scopes that can be used, each once, and those that cannot: a bad one never holds up the others."""
    good: dict[str, None] = {}
    bad = []
    for scope in scopes:
        try:
            good[checked_name(scope, label="a scope")] = None
        except InvalidInput:
            bad.append(repr(scope)[:100])
    return list(good), bad


def scopes_of(definition: Definition) -> Sequence[str]:
    """The scopes that are known without asking a provider."""
    return definition.scopes or (GLOBAL,)

"""Unique keys: at most one live job per key of a kind."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from holdfast.domain.jobs.job import JobId
from holdfast.errors import InvalidInput


class KeyScope(StrEnum):
    """How long a key stays taken. While its job is live it is taken in every scope."""

    LIVE = "live"
    PERIOD = "period"
    FOREVER = "forever"


class OnConflict(StrEnum):
    """What an enqueue does when its key is taken."""

    SKIP = "skip"
    REPLACE = "replace"
    RAISE = "raise"


class Unique(msgspec.Struct, frozen=True):
    """A key and how long it stays taken."""

    key: str
    scope: KeyScope = KeyScope.LIVE
    period: timedelta | None = None

    def __post_init__(self) -> None:
        if not self.key:
            raise InvalidInput("a unique key cannot be empty")
        if (self.scope is KeyScope.PERIOD) != (self.period is not None):
            raise InvalidInput("a period belongs to the scope 'period', and to no other")


class KeyHolder(msgspec.Struct, frozen=True):
    """The job that has a key now, as read under the lock of the key's row."""

    kind: str
    key: str
    job_id: JobId
    scope: KeyScope
    expires_at: datetime | None
    expired: bool


def is_free(holder: KeyHolder, *, live: bool) -> bool:
    """Whether a key may go to a new job, given whether its present job is *live*."""
    if live:
        return False
    match holder.scope:
        case KeyScope.LIVE:
            return True
        case KeyScope.PERIOD:
            return holder.expired
        case KeyScope.FOREVER:
            return False


def key_from(payload: msgspec.Struct, fields: Sequence[str]) -> str:
    """The key of a decoded payload: the values of *fields*."""
    return key_json([getattr(payload, name) for name in fields])


def key_json(values: Sequence[object]) -> str:
    """Values as canonical JSON: equal values give the same key everywhere."""
    return msgspec.json.encode(values, order="sorted").decode()

"""Plans: the times at which a schedule fires, each in one scope."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec
from msgspec import Struct

#: The scope of a schedule that names none.
GLOBAL = "global"


class Plan(Struct, frozen=True):
    """One time at which a schedule fires, in one scope. A handler parameter of this type receives its own plan.

    *time* is the time that the rule names, even if the job runs later.
    """

    schedule: str
    time: datetime
    scope: str = GLOBAL

    @property
    def key(self) -> str:
        """An idempotency key: the same for every attempt at this plan, and different for every other plan."""
        return hashlib.sha256(msgspec.json.encode([self.schedule, self.scope, self.time])).hexdigest()[:32]


def jittered(plan: Plan, jitter: timedelta) -> timedelta:
    """Return the share of *jitter* that delays a plan's job: the same on every replica and at every attempt."""
    return jitter * (int(plan.key[:16], 16) / 2**64)


class Origin(StrEnum):
    """Why a plan was fired: it was due, or a person requested it."""

    DUE = "due"
    TRIGGER = "trigger"
    BACKFILL = "backfill"

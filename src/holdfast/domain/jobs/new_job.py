"""New jobs: the request of an enqueue, its unique key, its answer."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from math import isfinite

import msgspec
from msgspec import Struct

from holdfast.domain.commands.command import COMMAND
from holdfast.domain.fleet.queue import DEFAULT_QUEUE
from holdfast.domain.jobs.dependencies import After
from holdfast.domain.jobs.job import JobId, OnLost
from holdfast.domain.names import MAX_KEY
from holdfast.domain.quantities import checked_delay
from holdfast.errors import InvalidInput

#: Larger payloads are not prefetched; the schema has this number too.
MAX_PREFETCH_BYTES = 32 * 1024


class KeyScope(StrEnum):
    """How long a key stays taken. While its job is live it is taken in every scope."""

    LIVE = "live"
    PERIOD = "period"
    FOREVER = "forever"


class OnConflict(StrEnum):
    """What an enqueue does when its key is taken."""

    #: Keep the existing job, and return its id.
    SKIP = "skip"
    #: Replace the payload of the existing job, unless it is running.
    REPLACE = "replace"
    RAISE = "raise"
    #: Like replace; if the existing job is running, a new job runs once more after it.
    RERUN = "rerun"


class EnqueueOutcome(StrEnum):
    """What an enqueue did."""

    #: A new job.
    CREATED = "created"
    #: Nothing: a job has the key.
    EXISTING = "existing"
    #: A job that was not running has the new payload.
    REPLACED = "replaced"
    #: A new job, which starts after the running one has finished.
    RERUN = "rerun"


class Unique(msgspec.Struct, frozen=True):
    """A key and how long it stays taken."""

    key: str
    scope: KeyScope = KeyScope.LIVE
    period: timedelta | None = None

    def __post_init__(self) -> None:
        if not self.key:
            raise InvalidInput("a unique key cannot be empty")
        if (self.scope is KeyScope.PERIOD) != (self.period is not None):
            raise InvalidInput("a period needs the scope 'period'")
        if self.period is not None:
            checked_delay(self.period, label="the period of a key")


class KeyHolder(msgspec.Struct, frozen=True):
    """The job that has a key now, as read under the lock of the key's row.

    *previous_id*: the job that had it before. It may still run: the present one starts after it.
    """

    kind: str
    key: str
    job_id: JobId
    scope: KeyScope
    expires_at: datetime | None
    expired: bool
    previous_id: JobId | None = None


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


def key_json(values: Sequence[object]) -> str:
    """Values as canonical JSON: equal values give the same key everywhere, also in SQL (``holdfast.canonical_json``).

    Numbers are equal if their values are: 5 and 5.0 give the same key. A long key ends in its digest.
    """
    text = _canonical(msgspec.to_builtins(values, order="sorted", str_keys=True))
    if len(text) <= MAX_KEY:
        return text
    import hashlib

    digest = hashlib.sha256(text.encode()).hexdigest()
    return text[: MAX_KEY - len(digest)] + digest


def _canonical(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{_canonical(key)}:{_canonical(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_canonical, value)) + "]"
    if isinstance(value, float) and isfinite(value):
        # Decimal digits without exponent, as SQL writes numbers.
        text = format(Decimal(repr(value)), "f")
        return (text.rstrip("0").rstrip(".") if "." in text else text) if value else "0"
    return msgspec.json.encode(value).decode()


class Actor(StrEnum):
    """The system's own actors. Every other actor is the name of a person."""

    CLIENT = "holdfast:client"
    SQL = "holdfast:sql"
    WORKER = "holdfast:worker"
    MAINTENANCE = "holdfast:maintenance"
    DEPENDENCIES = "holdfast:dependencies"
    SCHEDULER = "holdfast:scheduler"


#: The fields of a request that are columns of its row as they are, and that a replacement does not change.
KEPT_COLUMNS = ("max_attempts", "max_crashes", "on_lost", "retry", "timeout")


class NewJob(Struct, frozen=True, kw_only=True, gc=False):
    """A job to be enqueued. *delay* counts from now, *run_at* is absolute; both at once is an error."""

    kind: str
    #: The version of the kind that wrote the payload.
    kind_version: int = 1
    payload: str = "{}"
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    delay: timedelta | None = None
    run_at: datetime | None = None
    label: str | None = None
    tags: str | None = None
    unique: Unique | None = None
    on_conflict: OnConflict = OnConflict.SKIP
    after: After | None = None
    hold: bool = False
    max_attempts: int | None = 3
    max_crashes: int | None = 3
    on_lost: OnLost = OnLost.RETRY
    retry: str | None = None
    #: The longest run in seconds; 0: no limit; None: that of the kind, whenever it runs.
    timeout: float | None = None
    parent_id: JobId | None = None
    actor: str = Actor.CLIENT
    #: The W3C trace context of the caller.
    trace: str | None = None
    #: The plan that it carries out, as JSON.
    plan: str | None = None

    @property
    def plain(self) -> bool:
        """Whether it can be inserted without reading other rows: no key, no dependencies, no trace, no plan."""
        return self.unique is None and self.after is None and self.trace is None and self.plan is None

    @property
    def no_prefetch(self) -> bool:
        """Whether its start is recorded before it runs. Unless it is a command, it is claimed only for a free slot."""
        return self.on_lost is not OnLost.RETRY or self.kind == COMMAND or len(self.payload) > MAX_PREFETCH_BYTES


#: The outcomes that are a new job, found once: a call may create thousands.
_NEW = (EnqueueOutcome.CREATED, EnqueueOutcome.RERUN)


class Enqueued(Struct, frozen=True, gc=False):
    """The answer to an enqueue. *waits_for* is the running job that a rerun follows."""

    id: JobId
    outcome: EnqueueOutcome = EnqueueOutcome.CREATED
    waits_for: JobId | None = None

    @property
    def created(self) -> bool:
        """Whether the id is that of a new job."""
        return self.outcome in _NEW

    @property
    def replaced(self) -> bool:
        return self.outcome is EnqueueOutcome.REPLACED


def due_at(request: NewJob, now: datetime) -> datetime:
    """The earliest time for *request* to run, on the store's clock."""
    if request.run_at is not None:
        return request.run_at
    return now if request.delay is None else now + request.delay

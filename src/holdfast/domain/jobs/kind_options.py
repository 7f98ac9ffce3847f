"""The options of a kind: the defaults of its jobs."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum

import msgspec

from holdfast.domain.fleet.queue import DEFAULT_QUEUE
from holdfast.domain.jobs.job import OnLost
from holdfast.domain.jobs.retry import DEFAULT_CURVE, Curve
from holdfast.domain.jobs.unique_key import KeyScope
from holdfast.domain.names import checked_name
from holdfast.domain.sizes import checked_number
from holdfast.errors import InvalidKind

MIN_LEASE = timedelta(seconds=1)


class ExecutorName(StrEnum):
    """Where a handler runs."""

    THREAD = "thread"
    ASYNC = "async"
    PROCESS = "process"
    #: External commands; only for the built-in kind.
    COMMAND = "command"


class KindOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a kind, with their defaults."""

    queue: str = DEFAULT_QUEUE
    priority: int = 0
    max_attempts: int | None = 3
    max_crashes: int | None = 3
    retry: Curve = DEFAULT_CURVE
    on_lost: OnLost = OnLost.RETRY
    timeout: timedelta | None = timedelta(hours=1)
    lease: timedelta = timedelta(seconds=60)
    unique: tuple[str, ...] = ()
    unique_scope: KeyScope = KeyScope.LIVE
    unique_period: timedelta | None = None
    version: str | None = None
    #: None: threads for functions, the event loop for coroutines.
    executor: ExecutorName | None = None
    #: In bytes; a child process that exceeds it is killed.
    memory: int | None = None
    #: Payload fields that are masked in every view.
    secrets: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        checked_name(self.queue, label="the queue")
        for name in ("max_attempts", "max_crashes"):
            value = getattr(self, name)
            if value is not None and checked_number(value, label=name) < 1:
                raise InvalidKind(f"{name} is at least 1, or None for no limit, not {value}")
        if self.lease < MIN_LEASE:
            raise InvalidKind(f"a lease takes at least {MIN_LEASE.total_seconds():.0f} s, not {self.lease}")
        if self.memory is not None and self.executor is not ExecutorName.PROCESS:
            raise InvalidKind("only a process can have a memory cap", hint='Add executor="process".')
        if self.timeout is not None and self.timeout <= timedelta(0):
            raise InvalidKind("a timeout is longer than nothing, or None for no limit")
        if (self.unique_scope is KeyScope.PERIOD) != (self.unique_period is not None):
            raise InvalidKind("unique_period belongs to unique_scope='period', and to no other")

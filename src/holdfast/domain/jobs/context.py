"""The context of a run: the calls and the exceptions of its handler."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar

from holdfast.domain.quantities import Duration, as_duration


class Retry(Exception):
    """The run failed and is retried after *after*, or by the retry curve."""

    def __init__(self, why: str = "the handler requested another attempt", *, after: Duration | None = None) -> None:
        super().__init__(why)
        self.after = None if after is None else as_duration(after)


class Fail(Exception):
    """The run failed. *permanent*: another attempt would fail as well."""

    def __init__(self, why: str = "the handler gave up", *, permanent: bool = True) -> None:
        super().__init__(why)
        self.permanent = permanent


class Release(Exception):
    """The job returns to its queue; this costs no attempt."""

    def __init__(self, why: str = "released by its handler", *, delay: Duration = 0) -> None:
        super().__init__(why)
        self.delay = as_duration(delay)


class Snooze(Release):
    """The job runs again after *delay*; this costs no attempt."""

    def __init__(self, delay: Duration, why: str = "snoozed by its handler") -> None:
        super().__init__(why, delay=delay)


class Asleep(BaseException):
    """The handler sleeps and its slot is free. A BaseException, so that handlers do not catch it."""

    def __init__(self, delay: timedelta) -> None:
        super().__init__(f"asleep for {delay}")
        self.delay = delay


class Skip(Exception):
    """Skip a unit of a batch; the reason is stored."""


class Fatal(Exception):
    """Stop the whole batch: no other unit can succeed."""


class Cancelled(Exception):
    """The handler has stopped on request."""


class AlreadyFinished(Exception):
    """Another holder has finished the unit meanwhile: this holder's work must be discarded."""


T = TypeVar("T")


class Context(ABC):
    """Passed to every handler that has a parameter annotated with it.

    All writes are fenced: after the lease is lost they raise ``LeaseLost`` and write nothing. During an outage of the
    store they wait, until shortly before the lease expires.
    Coroutines use the methods whose names begin with ``a``.
    """

    #: The job's id.
    id: int
    #: The number of this attempt, from 1.
    attempt: int
    #: The fencing token; it grows with every claim.
    token: int
    worker: str
    #: The last value of :meth:`checkpoint` from an earlier attempt, or None.
    checkpointed: Any
    #: When the run times out; None without a limit.
    deadline: datetime | None
    #: Set when the handler should stop: cancelled, out of time, lease lost, shutdown.
    stopping: threading.Event
    #: A logger that names job, attempt, token and worker.
    log: logging.LoggerAdapter[logging.Logger]

    @abstractmethod
    def progress(self, done: int, total: int | None = None, message: str | None = None) -> None:
        """Report progress to views and waiters."""

    @abstractmethod
    def checkpoint(self, value: Any) -> None:
        """Store a JSON value (at most 64 KiB) for the next attempt."""

    @abstractmethod
    def enqueue(self, kind: str, payload: Mapping[str, Any] | None = None, /, **options: Any) -> Any:
        """Enqueue a child of this job."""

    @abstractmethod
    def heartbeat(self) -> None:
        """Renew the lease now."""

    @abstractmethod
    def step(self, name: str, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Call *function* once per job: a later attempt gets the stored result.

        The result is JSON (at most 256 KiB), and is decoded from JSON the first time too.
        A crash between the call and the store's write repeats the call.
        """

    @abstractmethod
    def sleep(self, duration: Duration) -> None:
        """Free the slot and run again later: the handler starts anew, its finished steps are not repeated.

        Sleeps are identified by their order.
        """

    def check(self) -> None:
        """Raise ``Cancelled`` when the handler should stop."""
        if self.stopping.is_set():
            raise Cancelled

    async def aprogress(self, done: int, total: int | None = None, message: str | None = None) -> None:
        await _in_thread(self.progress, done, total, message)

    async def acheckpoint(self, value: Any) -> None:
        await _in_thread(self.checkpoint, value)

    async def aenqueue(self, kind: str, payload: Mapping[str, Any] | None = None, /, **options: Any) -> Any:
        return await _in_thread(self.enqueue, kind, payload, **options)

    async def aheartbeat(self) -> None:
        await _in_thread(self.heartbeat)

    @abstractmethod
    async def astep(self, name: str, function: Callable[..., Awaitable[T]], /, *args: Any, **kwargs: Any) -> T:
        """:meth:`step` for a coroutine."""

    async def asleep(self, duration: Duration) -> None:
        await _in_thread(self.sleep, duration)


async def _in_thread(function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    import asyncio

    return await asyncio.to_thread(function, *args, **kwargs)

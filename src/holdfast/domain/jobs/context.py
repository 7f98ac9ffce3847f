"""What a handler may know about its own run, and say about it."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from holdfast.domain.jobs.handler_exceptions import Cancelled
from holdfast.domain.text import Duration

T = TypeVar("T")


class Context(ABC):
    """Given to every handler that has a parameter annotated with it.

    Everything that it writes is fenced: after the lease is lost, ``LeaseLost`` is raised and
    nothing is written. Coroutines use the twins whose names begin with ``a``.
    """

    #: The job's id.
    id: int
    #: The number of this attempt, from 1.
    attempt: int
    #: The fence: it grows with every claim.
    token: int
    #: The id of the worker.
    worker: str
    #: What the last attempt left with :meth:`checkpoint`, or None.
    checkpointed: Any
    #: When the run's time is up; None without a limit.
    deadline: datetime | None
    #: Set when the handler should stop: cancelled, out of time, lease lost, shutdown.
    stopping: threading.Event
    #: A logger that names job, attempt, token and worker.
    log: logging.LoggerAdapter[logging.Logger]

    @abstractmethod
    def progress(self, done: int, total: int | None = None, message: str | None = None) -> None:
        """Tell everyone how far the run is."""

    @abstractmethod
    def checkpoint(self, value: Any) -> None:
        """Keep a JSON value (at most 64 KiB) for the next attempt."""

    @abstractmethod
    def enqueue(self, kind: str, payload: Mapping[str, Any] | None = None, /, **options: Any) -> Any:
        """Enqueue a child of this job; refused once the lease is lost."""

    @abstractmethod
    def heartbeat(self) -> None:
        """Renew the lease now, or raise LeaseLost."""

    @abstractmethod
    def step(self, name: str, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Call *function* once per job: a later attempt gets the remembered result.

        The result is JSON (at most 256 KiB), and comes back as JSON gives it, the first time too.
        A crash between the call and its being remembered repeats the call.
        """

    @abstractmethod
    def sleep(self, duration: Duration) -> None:
        """Give the slot back and go on later: the handler begins again, its finished steps are not repeated.

        Sleeps are told apart by their order.
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

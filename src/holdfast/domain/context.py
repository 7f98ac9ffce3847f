"""What a handler may know about its own run, and say about it."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import timedelta
from typing import Any


class Context(ABC):
    """Given to every handler that has a parameter annotated with it.

    Everything that it writes is fenced: after the lease is lost, ``LeaseLost`` is raised and
    nothing is written.
    """

    #: The job's id.
    job_id: int
    #: The number of this attempt, from 1.
    attempt: int
    #: The fence: it grows with every claim.
    token: int
    #: The id of the worker.
    worker: str
    #: What the last attempt left with :meth:`checkpoint`, or None.
    checkpointed: Any
    #: Set when the handler should stop: cancelled, out of time, lease lost, shutdown.
    stopping: threading.Event
    #: A logger that names job, attempt, token and worker.
    log: logging.LoggerAdapter[logging.Logger]

    @property
    @abstractmethod
    def remaining(self) -> timedelta | None:
        """How much of the run's time is left; None without a limit."""

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

    def check(self) -> None:
        """Raise ``Cancelled`` when the handler should stop."""
        from holdfast.domain.raised import Cancelled

        if self.stopping.is_set():
            raise Cancelled

"""A reference to a job: wait for it, look at it, get its result."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from datetime import timedelta
from typing import Any

import msgspec

from holdfast.domain.job import Job, JobId, State
from holdfast.domain.text import as_duration
from holdfast.errors import JobCancelled, JobFailed, WaitTimeout
from holdfast.store.views import Views

#: A short job is noticed at once, a long one costs two looks a second.
FIRST_LOOK, LAST_LOOK = 0.005, 0.5


class JobRef:
    """One job, by id. *created* tells whether the enqueue that gave it made the job."""

    __slots__ = ("_views", "created", "id", "replaced")

    def __init__(
        self, job_id: JobId, *, views: Callable[[], Views], created: bool = True, replaced: bool = False
    ) -> None:
        self.id = job_id
        self.created = created
        self.replaced = replaced
        self._views = views

    def job(self) -> Job:
        """The job as it stands now."""
        return self._views().get(self.id)

    @property
    def state(self) -> State:
        """The state of the job now."""
        return self._views().state(self.id)

    def wait(self, timeout: timedelta | float | str | None = None) -> Job:
        """Wait until the job has ended, and return it.

        Raises:
            WaitTimeout: It had not ended in time.
        """
        deadline = None if timeout is None else time.monotonic() + as_duration(timeout).total_seconds()
        pause, views, bell = FIRST_LOOK, self._views(), threading.Event()
        while not views.state(self.id).ended:
            left = pause if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise WaitTimeout(f"job {self.id} has not ended in time", job_id=self.id)
            bell.wait(min(pause, left))
            pause = min(pause * 1.5, LAST_LOOK)
        return views.get(self.id)

    def result(self, timeout: timedelta | float | str | None = None, *, type: Any = Any) -> Any:  # noqa: A002 - msgspec's own word
        """Wait for the job and return what its handler returned, read as *type*.

        Raises:
            JobFailed: The job is dead.
            JobCancelled: It was cancelled.
            WaitTimeout: It had not ended in time.
        """
        job = self.wait(timeout)
        if job.state is State.DEAD:
            raise JobFailed(f"job {job.id} is dead after {job.attempts} attempts: {job.error}", job_id=job.id)
        if job.state is State.CANCELLED:
            raise JobCancelled(f"job {job.id} was cancelled: {job.error}", job_id=job.id)
        return None if job.result is None else msgspec.json.decode(job.result, type=type)

    async def aresult(self, timeout: timedelta | float | str | None = None, *, type: Any = Any) -> Any:  # noqa: A002, ASYNC109 - the twin of result()
        """:meth:`result` for async callers."""
        import asyncio

        return await asyncio.to_thread(lambda: self.result(timeout, type=type))

    def __await__(self) -> Generator[Any, None, Job]:
        """``await ref`` is :meth:`wait` for async callers."""
        import asyncio

        return asyncio.to_thread(self.wait).__await__()

    def __repr__(self) -> str:
        return f"JobRef({self.id})"

"""A reference to a job: wait for it, look at it, get its result."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from datetime import timedelta
from typing import Any

import msgspec

from holdfast.domain.durations import as_duration
from holdfast.domain.jobs.job import Job, JobId, State
from holdfast.errors import JobCancelled, JobFailed, WaitTimeout
from holdfast.store.jobs.queries import JobQueries

#: A short job is noticed at once, a long one costs two looks a second.
FIRST_LOOK, LAST_LOOK = 0.005, 0.5


class _Looks:
    """When to look next, and for how long at most."""

    def __init__(self, timeout: timedelta | float | str | None) -> None:
        self._deadline = None if timeout is None else time.monotonic() + as_duration(timeout).total_seconds()
        self._pause = FIRST_LOOK

    def pause(self, job_id: JobId) -> float:
        pause, self._pause = self._pause, min(self._pause * 1.5, LAST_LOOK)
        left = pause if self._deadline is None else self._deadline - time.monotonic()
        if left <= 0:
            raise WaitTimeout(f"job {job_id} has not ended in time", job_id=job_id)
        return min(pause, left)


class JobRef:
    """One job, by id. *created* tells whether the enqueue that gave it made the job."""

    __slots__ = ("_views", "created", "id", "replaced")

    def __init__(
        self, job_id: JobId, *, views: Callable[[], JobQueries], created: bool = True, replaced: bool = False
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
        looks, views, bell = _Looks(timeout), self._views(), threading.Event()
        while not views.state(self.id).finished:
            bell.wait(looks.pause(self.id))
        return views.get(self.id)

    def result(self, timeout: timedelta | float | str | None = None, *, type: Any = Any) -> Any:  # noqa: A002 - msgspec's own word
        """Wait for the job and return what its handler returned, read as *type*.

        Raises:
            JobFailed: The job is dead.
            JobCancelled: It was cancelled.
            WaitTimeout: It had not ended in time.
        """
        return _result(self.wait(timeout), type)

    async def aresult(self, timeout: timedelta | float | str | None = None, *, type: Any = Any) -> Any:  # noqa: A002, ASYNC109 - the twin of result()
        """:meth:`result` for async callers."""
        return _result(await self._await_end(timeout), type)

    def __await__(self) -> Generator[Any, None, Job]:
        """``await ref`` is :meth:`wait` for async callers."""
        return self._await_end(None).__await__()

    async def _await_end(self, timeout: timedelta | float | str | None) -> Job:  # noqa: ASYNC109
        """Each look is a short call in a thread; the waiting itself holds none, and can be cancelled."""
        import asyncio

        looks = _Looks(timeout)
        while not (await asyncio.to_thread(lambda: self.state)).finished:  # noqa: ASYNC110 - another process ends it
            await asyncio.sleep(looks.pause(self.id))
        return await asyncio.to_thread(self.job)

    def __repr__(self) -> str:
        return f"JobRef({self.id})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobRef) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)


def _result(job: Job, type: Any) -> Any:  # noqa: A002 - msgspec's own word
    if job.state is State.DEAD:
        raise JobFailed(f"job {job.id} is dead after {job.attempts} attempts: {job.error}", job_id=job.id)
    if job.state is State.CANCELLED:
        raise JobCancelled(f"job {job.id} was cancelled: {job.error}", job_id=job.id)
    return None if job.result is None else msgspec.json.decode(job.result, type=type)

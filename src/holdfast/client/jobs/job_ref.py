"""References to jobs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from typing import Any

import msgspec

from holdfast.domain.jobs.job import OVERDUE, Job, JobId, State
from holdfast.domain.jobs.new_job import EnqueueOutcome
from holdfast.domain.quantities import Duration, as_duration
from holdfast.errors import JobCancelled, JobFailed, ResultDropped, WaitTimeout
from holdfast.store.jobs.queries import JobQueries

#: The first and the longest pause between polls: short jobs are noticed at once, long ones cost two polls a second.
FIRST_POLL_S, MAX_POLL_S = 0.005, 0.5


class _Polls:
    """The pauses between polls, up to a deadline."""

    def __init__(self, timeout: Duration | None) -> None:
        self._deadline = None if timeout is None else time.monotonic() + as_duration(timeout).total_seconds()
        self._pause = FIRST_POLL_S

    def next_pause(self, job_id: JobId) -> float:
        pause, self._pause = self._pause, min(self._pause * 1.5, MAX_POLL_S)
        left = pause if self._deadline is None else self._deadline - time.monotonic()
        if left <= 0:
            raise WaitTimeout(f"job {job_id} did not finish in time", job_id=job_id)
        return min(pause, left)


class JobRef(msgspec.Struct, eq=False, gc=False):
    """A reference to one job.

    *outcome* says what the enqueue did: ``created`` a job, found an ``existing`` one with the same key, ``replaced``
    that one's payload, or made a job that will ``rerun`` after the running one.
    """

    id: JobId
    _views: Callable[[], JobQueries]
    outcome: EnqueueOutcome = EnqueueOutcome.CREATED

    @property
    def created(self) -> bool:
        """Whether the enqueue made a new job; false if the job existed before."""
        return self.outcome in (EnqueueOutcome.CREATED, EnqueueOutcome.RERUN)

    @property
    def replaced(self) -> bool:
        """Whether the enqueue replaced the payload of an existing job."""
        return self.outcome is EnqueueOutcome.REPLACED

    def job(self) -> Job:
        """Read the job from the store.

        Raises:
            NoSuchJob: It does not exist any more.
        """
        return self._views().get(self.id)

    @property
    def state(self) -> State:
        """The current state of the job."""
        return self._views().state(self.id)

    def wait(self, timeout: Duration | None = None) -> Job:
        """Wait until the job is finished, and return it.

        Raises:
            WaitTimeout: It did not finish within *timeout*.
        """
        polls, views, never_set = _Polls(timeout), self._views(), threading.Event()
        while not views.state(self.id).finished:
            never_set.wait(polls.next_pause(self.id))
        return views.get(self.id)

    def result(self, timeout: Duration | None = None, *, type: Any = Any) -> Any:  # noqa: A002 - msgspec's own name
        """Wait for the job and return its handler's return value, decoded as *type*.

        Raises:
            JobFailed: The job is dead.
            JobCancelled: The job was cancelled.
            ResultDropped: The job is done; its result could not be stored.
            WaitTimeout: It did not finish within *timeout*.
        """
        return _result(self.wait(timeout), type)

    async def aresult(self, timeout: Duration | None = None, *, type: Any = Any) -> Any:  # noqa: A002, ASYNC109 - the twin of result()
        """:meth:`result` for async callers."""
        return _result(await self._wait_async(timeout), type)

    def __await__(self) -> Generator[Any, None, Job]:
        """``await ref`` is :meth:`wait` for async callers."""
        return self._wait_async(None).__await__()

    async def _wait_async(self, timeout: Duration | None) -> Job:  # noqa: ASYNC109
        # Short calls on a thread poll; the pauses occupy no thread and can be cancelled.
        import asyncio

        polls = _Polls(timeout)
        while not (await asyncio.to_thread(lambda: self.state)).finished:  # noqa: ASYNC110 - another process sets it
            await asyncio.sleep(polls.next_pause(self.id))
        return await asyncio.to_thread(self.job)

    def __repr__(self) -> str:
        return f"JobRef({self.id})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobRef) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)


def _result(job: Job, type: Any) -> Any:  # noqa: A002 - msgspec's own name
    if job.state is State.DEAD:
        raise JobFailed(f"job {job.id} is dead after {job.attempts} attempts: {job.error}", job_id=job.id)
    if job.state is State.CANCELLED:
        raise JobCancelled(f"job {job.id} was cancelled" + (f": {job.error}" if job.error else ""), job_id=job.id)
    if job.error is not None and not job.error.startswith(OVERDUE):
        raise ResultDropped(f"job {job.id} is done, but {job.error}", job_id=job.id)
    return None if job.result is None else msgspec.json.decode(job.result, type=type)

"""Changes in the store that workers are notified of, and the text of a notification."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import msgspec
from msgspec import Struct

from holdfast.domain.fleet.queue import ALL_QUEUES
from holdfast.domain.jobs.job import HIGHEST_PRIORITY, LOWEST_PRIORITY
from holdfast.domain.jobs.lane_position import EarlierJobs, merged

#: The longest text of a notification in bytes; PostgreSQL allows 8,000.
MAX_TEXT_BYTES = 2000
_IN_QUEUE, _EARLIER = "jobs:", "earlier:"
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)


class Change(StrEnum):
    """A type of change. ``jobs:QUEUE`` is a change of one queue.

    ``earlier:[QUEUE, KIND, PRIORITY, OLDEST, NEWEST]`` are :class:`EarlierJobs`, with times in microseconds or null.
    """

    JOBS = "jobs"  # jobs may be ready, in any queue
    EARLIER = "earlier"  # some may come before jobs that have begun, at unknown places
    DELAYED = "delayed"  # a job is due at a later time
    SCHEDULES = "schedules"  # schedules were created or changed
    QUEUES = "queues"  # the settings of queues
    REQUESTS = "requests"  # a person requests something of running jobs or of workers


Changes = frozenset[str]


class Notification(Struct, frozen=True):
    """The *text* that a statement sends with its commit, if any, and what is left to do when that succeeds or fails."""

    text: str | None
    committed: Callable[[], None]
    failed: Callable[[], None] = lambda: None

    def __enter__(self) -> str | None:
        return self.text

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        (self.failed if error else self.committed)()


NO_CHANGES: Changes = frozenset()
EVERYTHING: Changes = frozenset(Change)
#: Jobs of any queue may be ready now or later.
JOBS: Changes = frozenset({Change.JOBS, Change.DELAYED})
SCHEDULES: Changes = frozenset({Change.SCHEDULES})
QUEUES: Changes = frozenset({Change.QUEUES})
REQUESTS: Changes = frozenset({Change.REQUESTS})


def jobs_in(queues: Iterable[str]) -> Changes:
    """Jobs may be ready in these queues. Without ``EARLIER`` they have the default priority and are due just now."""
    return frozenset(Change.JOBS if "\n" in queue else f"{_IN_QUEUE}{queue}" for queue in queues)


def jobs_at(earlier: Iterable[EarlierJobs]) -> Changes:
    """Jobs are ready at these places: workers may have claimed jobs that come after them."""
    places = merged(earlier)
    return jobs_in({jobs.queue for jobs in places}) | frozenset(map(_text, places))


def queues_of(changes: Changes) -> set[str]:
    """The queues in which jobs may be ready."""
    return {change.removeprefix(_IN_QUEUE) for change in changes if change.startswith(_IN_QUEUE)}


def earlier_jobs(changes: Changes) -> list[EarlierJobs]:
    """The places of ready jobs. An unreadable text counts as none."""
    places = []
    for change in changes:
        if change.startswith(_EARLIER):
            try:
                queue, kind, priority, *times = _DECODER.decode(change.removeprefix(_EARLIER))
                jobs = EarlierJobs(queue, kind, priority, *map(_time, times))
            except (msgspec.MsgspecError, OverflowError):
                continue
            if LOWEST_PRIORITY <= priority <= HIGHEST_PRIORITY:
                places.append(jobs)
    return places


_DECODER = msgspec.json.Decoder(tuple[str, str, int, int | None, int | None])


def _text(jobs: EarlierJobs) -> str:
    times = [None if each is None else (each - _EPOCH) // _MICROSECOND for each in (jobs.oldest, jobs.newest)]
    return _EARLIER + msgspec.json.encode([jobs.queue, jobs.kind, jobs.priority, *times]).decode()


def _time(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else _EPOCH + microseconds * _MICROSECOND


def may_be_ready(changes: Changes, queues: Collection[str]) -> bool:
    """Whether a worker of these *queues* may find a job to claim; ``*`` is every queue."""
    if ALL_QUEUES in queues:
        return any(change.startswith((Change.JOBS, Change.QUEUES)) for change in changes)
    return bool(changes & {Change.JOBS, Change.QUEUES}) or not changes.isdisjoint(jobs_in(queues))


def encode(changes: Changes) -> str:
    """The text of a notification, one change per line.

    Too many places become "somewhere earlier", and too many queues "any queue".
    """
    text = _joined(changes)
    if len(text.encode()) <= MAX_TEXT_BYTES:
        return text
    others = frozenset(change for change in changes if not change.startswith(_EARLIER))
    for shorter in (others | jobs_at(earlier_jobs(changes)), others | {Change.EARLIER}):
        if len((text := _joined(shorter)).encode()) <= MAX_TEXT_BYTES:
            return text
    return _joined(changes & EVERYTHING | {Change.JOBS})


def _joined(changes: Changes) -> str:
    return "\n".join(sorted(changes))


def decode(text: str) -> Changes:
    """The changes of a notification; an empty text means that anything may have changed."""
    return frozenset(text.split("\n")) if text else EVERYTHING

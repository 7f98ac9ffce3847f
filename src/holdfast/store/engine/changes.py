"""Changes in the store that workers are notified of, and the text of a notification."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from enum import StrEnum

from msgspec import Struct

from holdfast.domain.fleet.queue import ALL_QUEUES

#: The longest text of a notification in bytes; PostgreSQL allows 8,000.
MAX_TEXT_BYTES = 2000
_IN_QUEUE = "jobs:"


class Change(StrEnum):
    """A type of change. ``jobs:QUEUE`` is a change of one queue."""

    JOBS = "jobs"  # jobs may be ready, in any queue
    EARLIER = "earlier"  # some may have another priority, or be due earlier than jobs that have begun
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


def may_be_ready(changes: Changes, queues: Collection[str]) -> bool:
    """Whether a worker of these *queues* may find a job to claim; ``*`` is every queue."""
    if ALL_QUEUES in queues:
        return any(change.startswith((Change.JOBS, Change.QUEUES)) for change in changes)
    return bool(changes & {Change.JOBS, Change.QUEUES}) or not changes.isdisjoint(jobs_in(queues))


def encode(changes: Changes) -> str:
    """The text of a notification, one change per line. Too many queues become "any queue"."""
    text = "\n".join(sorted(changes))
    if len(text.encode()) <= MAX_TEXT_BYTES:
        return text
    return "\n".join(sorted(changes & EVERYTHING | {Change.JOBS}))


def decode(text: str) -> Changes:
    """The changes of a notification; an empty text means that anything may have changed."""
    return frozenset(text.split("\n")) if text else EVERYTHING

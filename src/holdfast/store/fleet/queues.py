"""Queues: their settings, and the number of jobs in them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from msgspec import Struct

from holdfast.domain.fleet.queue import Queue, checked_limit
from holdfast.domain.names import checked_name, clean_text
from holdfast.store.engine.operation import Noun, query

MAX_NOTE_LENGTH = 1000


class Depth(Struct, frozen=True):
    """The number of jobs in a queue; *expired* running jobs have lost their holder."""

    queue: str
    ready: int
    running: int
    expired: int


class Age(Struct, frozen=True):
    """The waiting time of the oldest ready job of a queue."""

    queue: str
    age: timedelta


class Queues(Noun):
    """The settings of queues. They apply from the next claim on, on every host."""

    def set_limits(self, name: str, *, limit: int | None = None, worker_limit: int | None = None) -> None:
        """Limit the running jobs of the queue, over all hosts and per worker; None changes nothing, 0 is no limit."""
        checked_name(name, label="the queue")
        values = {"run_limit": checked_limit(limit), "worker_limit": checked_limit(worker_limit)}
        self._backend.run(query("set_queue_limits", name=name, **values), repeatable=True)
        self._backend.notify()

    def pause(self, name: str, *, note: str | None = None) -> None:
        """Start no more jobs of this queue: no claim that begins after the return does.

        Running jobs continue.
        """
        checked_name(name, label="the queue")
        text = None if note is None else clean_text(note, limit=MAX_NOTE_LENGTH)
        self._backend.run(query("set_queue_paused", name=name, paused=True, note=text), repeatable=True)

    def resume(self, name: str) -> None:
        """Start jobs of the queue again."""
        checked_name(name, label="the queue")
        self._backend.run(query("set_queue_paused", name=name, paused=False, note=None), repeatable=True)
        self._backend.notify()

    def get(self, name: str) -> Queue:
        """The settings of a queue; an unknown queue has the default settings."""
        rows: list[Queue] = self._backend.fetch(query("get_queue", Queue, name=name))
        return rows[0] if rows else Queue(name)

    def depths(self, names: Sequence[str], *, cap: int = 10_000) -> list[Depth]:
        """The numbers of ready and running jobs of these queues, each counted up to *cap*."""
        return self._backend.fetch(query("count_queue_depths", Depth, queues=[*names], limit=cap))

    def oldest_ready(self, names: Sequence[str], kinds: Sequence[str]) -> dict[str, timedelta]:
        """The waiting time of the oldest ready job of these kinds, by queue; a queue without one is missing."""
        ages: list[Age] = self._backend.fetch(query("read_oldest_ready", Age, queues=[*names], kinds=[*kinds]))
        return {age.queue: age.age for age in ages}

    def with_ready_jobs(self) -> list[str]:
        """The names of queues that have ready jobs."""
        return [row[0] for row in self._backend.fetch(query("list_ready_queues"))]

    def list(self) -> list[Queue]:
        """All queues that have settings, by name."""
        return self._backend.fetch(query("list_queues", Queue))

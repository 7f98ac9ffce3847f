"""Queues, kinds and workers: what the processes tell each other."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.domain.fleet.queue import SILENCE, Queue, checked_limit
from holdfast.domain.jobs.job import WorkerId, WorkerRequest
from holdfast.domain.jobs.kind import KindOptions, PublishedKind, load_options, suggest
from holdfast.domain.text import checked_name, clean_text
from holdfast.errors import Conflict, NotFound, UnknownKind
from holdfast.store.engine.backend import Backend, Timeouts
from holdfast.store.engine.operation import Operation, query


class Depth(Struct, frozen=True):
    """How full a queue is; *lapsed* of its running jobs have lost their holder."""

    queue: str
    ready: int
    running: int
    expired: int


class Age(Struct, frozen=True):
    """How long the oldest ready job of a queue has waited."""

    queue: str
    age: timedelta


class Queues:
    """The settings of queues. They hold from the next claim on, on every host."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def set_limits(self, name: str, *, limit: int | None = None, worker_limit: int | None = None) -> None:
        """Limit how many jobs of the queue run, over all hosts and per worker; None leaves as is, 0 is no limit."""
        checked_name(name, what="the queue")
        values = {"run_limit": checked_limit(limit), "worker_limit": checked_limit(worker_limit)}
        self._backend.run(query("set_queue_limits", name=name, **values), repeatable=True)
        self._backend.notify()

    def pause(self, name: str, *, note: str | None = None) -> None:
        """Start nothing more of this queue: no claim that begins after this has returned does.

        What runs goes on.
        """
        checked_name(name, what="the queue")
        text = None if note is None else clean_text(note, limit=1000)
        self._backend.run(query("set_queue_paused", name=name, paused=True, note=text), repeatable=True)

    def resume(self, name: str) -> None:
        """Let the queue start jobs again."""
        checked_name(name, what="the queue")
        self._backend.run(query("set_queue_paused", name=name, paused=False, note=None), repeatable=True)
        self._backend.notify()

    def get(self, name: str) -> Queue:
        """The settings of a queue; one that was never set has none."""
        rows: list[Queue] = self._backend.look(query("get_queue", Queue, name=name))
        return rows[0] if rows else Queue(name)

    def depths(self, names: Sequence[str], *, cap: int = 10_000) -> list[Depth]:
        """How many jobs of these queues are ready and running, each counted up to *cap*."""
        return self._backend.look(query("count_queue_depths", Depth, queues=[*names], limit=cap))

    def oldest_ready(self, names: Sequence[str], kinds: Sequence[str]) -> dict[str, timedelta]:
        """How long the oldest ready job of these kinds has waited, by queue; a queue without one is missing."""
        ages: list[Age] = self._backend.look(query("read_oldest_ready", Age, queues=[*names], kinds=[*kinds]))
        return {found.queue: found.age for found in ages}

    def in_use(self) -> list[str]:
        """The names of queues that hold ready jobs."""
        return [row[0] for row in self._backend.look(query("list_ready_queues"))]

    def list(self) -> list[Queue]:
        """All queues that have settings, by name."""
        return self._backend.look(query("list_queues", Queue))


class Kinds:
    """The kinds that applications have published, so that every process knows their defaults."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def publish(self, kinds: list[PublishedKind]) -> None:
        """Make kinds known, or renew what is known of them; what is known already costs no write."""
        changed = self._backend.read(_changed, kinds)
        if changed:
            self._backend.write(_publish, changed)

    def publish_on(self, connection: Any, kinds: list[PublishedKind]) -> None:
        """The same in the caller's transaction."""
        self._backend.run_on(connection, _publish_changed(kinds))

    async def apublish_on(self, connection: Any, kinds: list[PublishedKind]) -> None:
        """The same on an async connection."""
        await self._backend.arun_on(connection, _publish_changed(kinds))

    def names(self) -> list[str]:
        return [row[0] for row in self._backend.look(query("list_kind_names"))]

    def all(self, *, limit: int = 10_000) -> list[PublishedKind]:
        """What is known of all kinds, by name."""
        return self._backend.look(query("list_kinds", PublishedKind, limit=limit))

    def get(self, name: str) -> PublishedKind:
        """What is known of a kind.

        Raises:
            UnknownKind: Nobody has published it; the hint names the nearest one.
        """
        rows: list[PublishedKind] = self._backend.look(query("get_kind", PublishedKind, name=name))
        if not rows:
            raise UnknownKind(
                f"no application has registered kind {name!r}", hint=suggest(name, self.names()), kind=name
            )
        return rows[0]

    def options(self, name: str) -> KindOptions:
        """The defaults for jobs of a kind."""
        kind = self.get(name)
        return load_options(kind.options, version=kind.version)


class WorkerRow(Struct, frozen=True):
    """A worker as the others see it. *queues* and *kinds* are JSON lists, *scaling* tells of its autoscaler."""

    id: WorkerId
    host: str
    pid: int
    version: str | None
    queues: str
    kinds: str
    started_at: datetime
    seen_at: datetime
    autoscaler: str | None
    slots: int | None = None
    requested: WorkerRequest | None = None


class WorkerHeartbeat(Struct, frozen=True):
    """The answer to a heartbeat."""

    requested: WorkerRequest | None


class Workers:
    """The workers that are alive."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def announce(
        self,
        worker: WorkerId,
        *,
        host: str,
        pid: int,
        queues: list[str],
        kinds: list[str],
        version: str | None = None,
        slots: int | None = None,
    ) -> None:
        """Make a new worker known.

        Raises:
            Conflict: The id was used before: each start needs a new one.
        """
        facts = {"host": host, "pid": pid, "queues": queues, "kinds": kinds, "version": version, "slots": slots}
        self._backend.write(_announce, worker, facts)

    def seen(self, worker: WorkerId) -> WorkerHeartbeat | None:
        """Note that a worker is alive, and answer what people want of it; None when nobody announced it."""
        rows = self._backend.run(query("record_heartbeat", id=worker), repeatable=True, timeout=Timeouts.brief)
        return WorkerHeartbeat(None if rows[0][0] is None else WorkerRequest(rows[0][0])) if rows else None

    def ask(self, worker: WorkerId, request: WorkerRequest | None) -> None:
        """Ask a worker to be quiet or to stop; None: to go on. It hears of it with its next heartbeat.

        Raises:
            NotFound: No such worker is alive.
        """
        if not self._backend.run(
            query("request_worker_control", id=worker, requested=request, silence=SILENCE), repeatable=True
        ):
            raise NotFound(f"no worker {worker[:100]!r} is alive", hint="holdfast workers lists them.")
        self._backend.notify()

    def dismiss(self, worker: WorkerId) -> None:
        """Note that a worker has ended."""
        self._backend.run(query("record_worker_stop", id=worker), repeatable=True)

    def list(self) -> list[WorkerRow]:
        """The workers that were seen lately, the oldest first."""
        return self._backend.look(query("list_workers", WorkerRow, silence=SILENCE))


def _publish(kinds: list[PublishedKind]) -> Operation[None]:
    for kind in sorted(kinds, key=lambda kind: kind.name):
        yield query("publish_kind", **msgspec.structs.asdict(kind))


def _changed(kinds: list[PublishedKind]) -> Operation[list[PublishedKind]]:
    changed = []
    for kind in kinds:
        rows = yield query("get_kind", PublishedKind, name=kind.name)
        if rows != [kind]:
            changed.append(kind)
    return changed


def _publish_changed(kinds: list[PublishedKind]) -> Operation[None]:
    yield from _publish((yield from _changed(kinds)))


def _announce(worker: WorkerId, facts: dict[str, object]) -> Operation[None]:
    rows = yield query("get_worker_host", id=worker)
    if rows:
        raise Conflict(f"worker id {worker!r} was used before", hint="Draw a new id for each start.")
    yield query("insert_worker", id=worker, **facts)

"""The registry of a fleet: its queues, the kinds that applications have published, its workers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.domain.access.masking import SecretField
from holdfast.domain.fleet.queue import WORKER_LATE_AFTER, WORKER_SILENCE, Queue, checked_limit, checked_queue
from holdfast.domain.fleet.served_names import ServedNames, load_names
from holdfast.domain.jobs.job import WorkerId, WorkerRequest
from holdfast.domain.jobs.kind_options import KindOptions, PublishedKind, load_options
from holdfast.domain.names import clean_text
from holdfast.errors import Conflict, NotFound, UnknownKind
from holdfast.store.engine.backend import Timeouts
from holdfast.store.engine.changes import QUEUES, REQUESTS
from holdfast.store.engine.operation import Noun, Operation, query, read, transaction

MAX_NOTE_LENGTH = 1000
#: A kind is published again after this time even if it is unchanged: retention sees that it is in use.
KIND_REFRESH = timedelta(days=1)
NO_NAMES = ServedNames()
#: Pages read the names of workers again after this time: they change with deploys.
NAMES_CACHE_S = 10.0


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
        """Limit the running jobs of a queue, in total and per worker. None keeps a limit, 0 removes it.

        A limit that is set already costs no write; nor does a pause of a paused queue with the same note.
        """
        checked_queue(name)
        values = {"run_limit": checked_limit(limit), "worker_limit": checked_limit(worker_limit)}
        self._backend.run(query("set_queue_limits", name=name, **values), repeatable=True)
        self._backend.notify(QUEUES)

    def pause(self, name: str, *, note: str | None = None) -> None:
        """Start no more jobs of this queue: no claim that begins after the return does.

        Running jobs continue.
        """
        checked_queue(name)
        text = None if note is None else clean_text(note, limit=MAX_NOTE_LENGTH)
        self._backend.run(query("pause_queue", name=name, note=text), repeatable=True)

    def resume(self, name: str) -> None:
        """Start jobs of the queue again."""
        checked_queue(name)
        self._backend.run(query("resume_queue", name=name), repeatable=True)
        self._backend.notify(QUEUES)

    @transaction()
    def delete(self, name: str) -> Operation[bool]:
        """Delete the settings of a queue that has no live jobs; False if it has none, or has such jobs."""
        return bool((yield query("delete_queue", name=name)))

    def get(self, name: str) -> Queue:
        """The settings of a queue; an unknown queue has the default settings."""
        rows: list[Queue] = self._fetch("get_queue", Queue, name=name)
        return rows[0] if rows else Queue(name)

    def depths(self, names: Sequence[str], *, cap: int = 10_000) -> list[Depth]:
        """The numbers of ready and running jobs of these queues, each counted up to *cap*."""
        return self._fetch("count_queue_depths", Depth, queues=[*names], limit=cap)

    def oldest_ready(self, names: Sequence[str], kinds: Sequence[str]) -> dict[str, timedelta]:
        """The waiting time of the oldest ready job of these kinds, by queue; a queue without one is missing."""
        ages: list[Age] = self._fetch("read_oldest_ready", Age, queues=[*names], kinds=[*kinds])
        return {age.queue: age.age for age in ages}

    def with_ready_jobs(self) -> list[str]:
        """The names of queues that have ready jobs."""
        return [row[0] for row in self._fetch("list_ready_queues")]

    def list(self) -> list[Queue]:
        """All queues that have settings, by name."""
        return self._fetch("list_queues", Queue)


class _Secrets(Struct, frozen=True):
    """The secret fields in the options of a kind."""

    secrets: tuple[str, ...] = ()


class Kinds(Noun):
    """Published kinds, by name."""

    def publish(self, kinds: list[PublishedKind]) -> None:
        """Publish kinds, or update them; an unchanged kind costs one write a day at most.

        A version never replaces a higher one. Of two definitions with the same version the later one stays. A field
        that one of them declares as secret stays secret. Users of a database who may only enqueue add kinds, and
        change none.
        """
        changed = self._changed(kinds)
        if changed:
            self._publish(changed)

    def publish_on(self, connection: Any, kinds: list[PublishedKind]) -> None:
        """Publish kinds in the caller's transaction."""
        if kinds:
            self._backend.run_on(connection, self._publish_changed(kinds))

    async def apublish_on(self, connection: Any, kinds: list[PublishedKind]) -> None:
        """Publish kinds in the caller's transaction on an async connection."""
        if kinds:
            await self._backend.arun_on(connection, self._publish_changed(kinds))

    @transaction()
    def _publish(self, kinds: list[PublishedKind]) -> Operation[None]:
        for kind in sorted(kinds, key=lambda kind: kind.name):
            yield query("publish_kind", **msgspec.structs.asdict(kind))

    @read
    def _changed(self, kinds: list[PublishedKind]) -> Operation[list[PublishedKind]]:
        changed = []
        for kind in kinds:
            rows = yield query("get_fresh_kind", PublishedKind, name=kind.name, age=KIND_REFRESH)
            if rows != [kind]:
                changed.append(kind)
        return changed

    def _publish_changed(self, kinds: list[PublishedKind]) -> Operation[None]:
        changed = yield from Kinds._changed.operation(self, kinds)
        yield from Kinds._publish.operation(self, changed)

    def names(self) -> list[str]:
        return [row[0] for row in self._fetch("list_kind_options")]

    def all(self, *, limit: int = 10_000) -> list[PublishedKind]:
        """All published kinds, by name."""
        return self._fetch("list_kinds", PublishedKind, limit=limit)

    def get(self, name: str) -> PublishedKind:
        """A published kind.

        Raises:
            UnknownKind: No application has published it; the hint names the most similar kind.
        """
        rows: list[PublishedKind] = self._fetch("get_kind", PublishedKind, name=name)
        if not rows:
            from holdfast.domain.jobs.kind import suggest_kind

            raise UnknownKind(
                f"no application has registered kind {name!r}", hint=suggest_kind(name, self.names()), kind=name
            )
        return rows[0]

    def options(self, name: str) -> KindOptions:
        """The defaults for jobs of a kind."""
        kind = self.get(name)
        return load_options(kind.options, version=kind.version)

    def secret_fields(self) -> list[SecretField]:
        """The fields that views mask because some code has declared them, by kind."""
        return self._fetch("list_secret_fields", SecretField)

    @transaction()
    def reveal(self, kind: str, field: str) -> Operation[None]:
        """Let views show a field of a kind again that was declared as secret, for old jobs too.

        Raises:
            Conflict: The kind as it is published declares it.
            NotFound: It is not masked.
        """
        rows: list[PublishedKind] = yield query("get_kind", PublishedKind, name=kind)
        if rows and field in declared_fields(rows[0]):
            hint = "Deploy code without it first: the next publication would hide it again."
            raise Conflict(f"kind {kind!r} declares {field!r} as secret", hint=hint)
        if not (yield query("delete_secret_field", kind=kind, name=field)):
            raise NotFound(f"kind {kind!r} has no secret field {field!r}", hint="holdfast db secrets lists them.")


def declared_fields(kind: PublishedKind) -> tuple[str, ...]:
    """The secret fields that the published definition of a kind declares."""
    return msgspec.json.decode(kind.options, type=_Secrets).secrets


class WorkerRow(Struct, frozen=True):
    """A worker. *queues* and *kinds* are JSON lists, *autoscaler* is the status of its autoscaler as JSON.

    *silent_for*: the time since its last heartbeat.
    """

    id: WorkerId
    host: str
    pid: int
    version: str | None
    queues: str
    kinds: str
    started_at: datetime
    seen_at: datetime
    autoscaler: str | None
    slots: int | None
    requested: WorkerRequest | None
    silent_for: timedelta


class WorkerProcess(Struct, frozen=True):
    """A worker, the identity of its process, and the time since its last heartbeat."""

    id: WorkerId
    process: str
    silent_for: timedelta


class WorkerHeartbeat(Struct, frozen=True):
    """The answer to a heartbeat."""

    requested: WorkerRequest | None


class Workers(Noun):
    """The workers that are alive."""

    _names_read_at = float("-inf")
    _names: Sequence[ServedNames] = ()

    @transaction()
    def announce(
        self,
        worker: WorkerId,
        *,
        host: str,
        pid: int,
        process: str | None = None,
        queues: list[str],
        kinds: list[str],
        build: str = "",
        names: ServedNames = NO_NAMES,
        version: str | None = None,
        slots: int | None = None,
    ) -> Operation[None]:
        """Register a new worker. *build* names its code: workers of one build read the same payloads.

        *names* says where the code behind its kinds and schedules lives. *process* identifies its process for others on
        its host, so that they can see whether it has exited.

        Raises:
            Conflict: The id was used before; each start has to draw a new one.
        """
        rows = yield query("get_worker_host", id=worker)
        if rows:
            raise Conflict(f"worker id {worker!r} was used before", hint="Draw a new id for each start.")
        values = {"host": host, "pid": pid, "process": process, "version": version, "slots": slots}
        yield query("insert_worker", id=worker, queues=queues, kinds=kinds, build=build, names=names.dumps(), **values)

    def count_serving(self, queue: str, kind: str) -> int:
        """The number of workers that serve a kind on a queue and are not late. A killed one is live for a minute."""
        ((count,),) = self._fetch("count_workers", queue=queue, kind=kind, silence=WORKER_LATE_AFTER)
        return int(count)

    def update_kinds(self, worker: WorkerId, *, kinds: list[str], build: str) -> None:
        """Change the kinds that a registered worker serves. *build* names its code with them."""
        self._backend.run(query("update_worker_kinds", id=worker, kinds=kinds, build=build), repeatable=True)

    def update_names(self, worker: WorkerId, names: ServedNames) -> None:
        """Change the names of a registered worker."""
        self._backend.run(query("update_worker_names", id=worker, names=names.dumps()))

    def names(self, *, apart_from: ServedNames | None = None) -> list[ServedNames]:
        """The names of workers that are not late, each once, but for those that equal *apart_from*."""
        known = "" if apart_from is None else apart_from.dumps()
        rows = self._fetch("list_worker_names", names=known, silence=WORKER_LATE_AFTER, stopped=False)
        return [load_names(text) for (text,) in rows]

    def recent_names(self) -> Sequence[ServedNames]:
        """:meth:`names`, as of some seconds ago."""
        if time.monotonic() - self._names_read_at > NAMES_CACHE_S:
            self._names, self._names_read_at = self.names(), time.monotonic()
        return self._names

    def heartbeat(self, worker: WorkerId) -> WorkerHeartbeat | None:
        """Record that a worker is alive, and return the request to it; None if it is not registered."""
        rows = self._backend.run(query("record_heartbeat", id=worker), repeatable=True, timeout=Timeouts.brief)
        return WorkerHeartbeat(None if rows[0][0] is None else WorkerRequest(rows[0][0])) if rows else None

    def on_host(self, host: str) -> list[WorkerProcess]:
        """The workers of a host that have not stopped, and whose processes are known."""
        return self._fetch("list_worker_processes", WorkerProcess, host=host)

    def delete_process(self, worker: WorkerId) -> None:
        """Do not list the process of a worker again: it has exited and holds no lease."""
        self._backend.run(query("delete_worker_process", id=worker), repeatable=True)

    def request(self, worker: WorkerId, request: WorkerRequest | None) -> None:
        """Request that a worker be quiet or stop; None withdraws the request. It is read with the next heartbeat.

        Raises:
            NotFound: The worker is unknown or not alive.
        """
        if not self._backend.run(
            query("request_worker_control", id=worker, requested=request, silence=WORKER_SILENCE), repeatable=True
        ):
            raise NotFound(f"no worker {worker[:100]!r} is alive", hint="holdfast workers lists them.")
        self._backend.notify(REQUESTS)

    def record_stop(self, worker: WorkerId) -> None:
        """Record that a worker has stopped."""
        self._backend.run(query("record_worker_stop", id=worker), repeatable=True)

    def list(self, *, silence: timedelta = WORKER_SILENCE) -> list[WorkerRow]:
        """The workers that have not stopped, oldest first; those without a heartbeat for *silence* are left out."""
        return self._fetch("list_workers", WorkerRow, silence=silence)

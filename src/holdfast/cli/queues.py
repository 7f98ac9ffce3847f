"""``queue`` and ``workers``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

import click
import msgspec
from msgspec import Struct

from holdfast.cli.answers import Items
from holdfast.cli.render import age, table
from holdfast.cli.session import Session
from holdfast.cli.shared import Group, command
from holdfast.domain.queue import DEFAULT_QUEUE, Queue
from holdfast.errors import InvalidInput
from holdfast.store.queues import Worker


class QueueFacts(Struct, frozen=True):
    """A queue: its settings, and how full it is."""

    name: str
    ready: int
    running: int
    limit: int | None
    worker_limit: int | None
    paused: bool
    note: str | None


class WorkerFacts(Struct, frozen=True):
    """A worker that is alive."""

    id: str
    host: str
    pid: int
    version: str | None
    queues: list[str]
    kinds: list[str]
    started_at: datetime
    seen_at: datetime


@click.group("queue", cls=Group)
def queue() -> None:
    """Look at queues, limit, pause and resume them. Changes hold from the next claim on, on every host."""


@command("ls", answers=Items("queues", QueueFacts))
def ls(session: Session) -> None:
    """List queues that have settings or jobs, and how full they are."""
    known = {found.name: found for found in session.store.queues.list()}
    names = sorted({*known, *session.store.queues.in_use(), DEFAULT_QUEUE})
    session.output.items("queues", [_facts(session, known.get(name) or Queue(name)) for name in names], _table)


@command("show", answers=QueueFacts)
@click.argument("name")
def show(session: Session, *, name: str) -> None:
    """Show one queue."""
    _tell(session, name)


@command("set", answers=QueueFacts, changes=True)
@click.argument("name")
@click.option("--limit", type=click.IntRange(0), help="Running jobs over all hosts; 0 takes both limits away.")
@click.option("--worker-limit", type=click.IntRange(1), help="Running jobs per worker.")
def change(session: Session, *, name: str, limit: int | None, worker_limit: int | None) -> None:
    """Limit how many jobs of a queue run at a time."""
    if limit is None and worker_limit is None:
        raise InvalidInput("nothing to change", hint="Give --limit or --worker-limit.")
    if limit == 0:
        session.store.queues.clear_limits(name)
    else:
        session.store.queues.set_limits(name, limit=limit, worker_limit=worker_limit)
    _tell(session, name)


@command("pause", answers=QueueFacts, changes=True)
@click.argument("name")
@click.option("--note", metavar="TEXT", help="Why, for those who look later.")
def pause(session: Session, *, name: str, note: str | None) -> None:
    """Start nothing more of a queue; what runs goes on."""
    session.store.queues.pause(name, note=note)
    _tell(session, name)


@command("resume", answers=QueueFacts, changes=True)
@click.argument("name")
def resume(session: Session, *, name: str) -> None:
    """Let a queue start jobs again."""
    session.store.queues.resume(name)
    _tell(session, name)


for _command in (ls, show, change, pause, resume):
    queue.add_command(_command)


@command("workers", answers=Items("workers", WorkerFacts))
def workers(session: Session) -> None:
    """List the workers that are alive."""
    session.output.items("workers", [worker_facts(found) for found in session.store.workers.list()], _worker_table)


def worker_facts(found: Worker) -> WorkerFacts:
    queues, kinds = msgspec.json.decode(found.queues), msgspec.json.decode(found.kinds)
    return WorkerFacts(
        found.id, found.host, found.pid, found.version, queues, kinds, found.started_at, found.seen_at
    )  # fmt: skip


def _facts(session: Session, found: Queue) -> QueueFacts:
    (depth,) = session.store.queues.depths([found.name])
    return QueueFacts(
        found.name, depth.ready, depth.running, found.limit, found.worker_limit, found.paused, found.note
    )  # fmt: skip


def _tell(session: Session, name: str) -> None:
    facts = _facts(session, session.store.queues.get(name))
    session.output.value(facts, lambda: _table([facts]))


def _table(queues: Iterable[QueueFacts]) -> Iterator[str]:
    heads = ("QUEUE", "READY", "RUNNING", "LIMIT", "PER WORKER", "STATE", "NOTE")
    return table(heads, (_row(facts) for facts in queues))


def _row(facts: QueueFacts) -> list[str]:
    limits = ["" if limit is None else str(limit) for limit in (facts.limit, facts.worker_limit)]
    state = "paused" if facts.paused else "open"
    return [facts.name, str(facts.ready), str(facts.running), *limits, state, facts.note or ""]


def _worker_table(workers: Iterable[WorkerFacts]) -> Iterator[str]:
    return table(("WORKER", "HOST", "PID", "VERSION", "SEEN", "QUEUES", "KINDS"), (_worker_row(w) for w in workers))


def _worker_row(facts: WorkerFacts) -> list[str]:
    lists = [",".join(facts.queues), ",".join(facts.kinds)]
    return [facts.id, facts.host, str(facts.pid), facts.version or "", age(facts.seen_at), *lists]

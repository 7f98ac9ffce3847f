"""``queue`` and ``workers``."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from holdfast.cli.render import age, stamp, table
from holdfast.cli.session import Session
from holdfast.cli.shared import Group, command
from holdfast.domain.queue import Queue
from holdfast.errors import InvalidInput


@click.group("queue", cls=Group)
def queue() -> None:
    """Look at queues, limit, pause and resume them. Changes hold from the next claim on, on every host."""


@command("ls")
def ls(session: Session) -> None:
    """List queues that have settings or jobs, and how full they are."""
    known = {found.name: found for found in session.store.queues.list()}
    names = sorted({*known, *session.store.queues.in_use(), "default"})
    facts = [_facts(session, known.get(name) or Queue(name)) for name in names]
    session.output.items("queues", facts, lambda rows: table(HEADS, (_row(row) for row in rows)))


@command("show")
@click.argument("name")
def show(session: Session, *, name: str) -> None:
    """Show one queue."""
    facts = _facts(session, session.store.queues.get(name))
    session.output.value(facts, lambda: table(HEADS, [_row(facts)]))


@command("set")
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


@command("pause")
@click.argument("name")
@click.option("--note", metavar="TEXT", help="Why, for those who look later.")
def pause(session: Session, *, name: str, note: str | None) -> None:
    """Start nothing more of a queue; what runs goes on."""
    session.store.queues.pause(name, note=note)
    _tell(session, name)


@command("resume")
@click.argument("name")
def resume(session: Session, *, name: str) -> None:
    """Let a queue start jobs again."""
    session.store.queues.resume(name)
    _tell(session, name)


for _command in (ls, show, change, pause, resume):
    queue.add_command(_command)

HEADS = ("QUEUE", "READY", "RUNNING", "LIMIT", "PER WORKER", "STATE", "NOTE")


def _facts(session: Session, found: Queue) -> dict[str, Any]:
    (depth,) = session.store.queues.depths([found.name])
    return {
        "name": found.name,
        "ready": depth.ready,
        "running": depth.running,
        "limit": found.limit,
        "worker_limit": found.worker_limit,
        "paused": found.paused,
        "note": found.note,
    }


def _row(facts: dict[str, Any]) -> list[str]:
    limits = ["" if facts[name] is None else str(facts[name]) for name in ("limit", "worker_limit")]
    state = "paused" if facts["paused"] else "open"
    return [facts["name"], str(facts["ready"]), str(facts["running"]), *limits, state, facts["note"] or ""]


def _tell(session: Session, name: str) -> None:
    facts = _facts(session, session.store.queues.get(name))
    session.output.value(facts, lambda: table(HEADS, [_row(facts)]))


@command("workers")
def workers(session: Session) -> None:
    """List the workers that are alive."""
    facts = [
        {
            "id": found.id,
            "host": found.host,
            "pid": found.pid,
            "version": found.version,
            "queues": msgspec.json.decode(found.queues),
            "kinds": msgspec.json.decode(found.kinds),
            "started_at": stamp(found.started_at),
            "seen_at": stamp(found.seen_at),
            "_seen": age(found.seen_at),
        }
        for found in session.store.workers.list()
    ]
    heads = ("WORKER", "HOST", "PID", "VERSION", "SEEN", "QUEUES", "KINDS")
    session.output.items(
        "workers",
        ({name: value for name, value in row.items() if name != "_seen"} for row in facts),
        lambda _: table(heads, (_worker_row(row) for row in facts)),
    )


def _worker_row(facts: dict[str, Any]) -> list[str]:
    lists = [",".join(facts["queues"]), ",".join(facts["kinds"])]
    return [facts["id"], facts["host"], str(facts["pid"]), facts["version"] or "", facts["_seen"], *lists]

"""``queue`` and ``workers``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import click
from msgspec import structs

from holdfast.admin.actions.results import WorkerRequestSent
from holdfast.cli.command import CommandGroup, Items, command
from holdfast.cli.fleet.autoscaler import decision_lines, lane_lines
from holdfast.cli.session import Session
from holdfast.cli.text import age, table
from holdfast.domain.fleet.autoscaler_state import RecordedDecision
from holdfast.domain.jobs.job import WorkerRequest
from holdfast.errors import NotFound
from holdfast.output.printer import Line
from holdfast.store.fleet.overview import QueueView, WorkerView, all_queues, worker_views


class QueueShown(QueueView, frozen=True):
    """A queue as in the list, and the last decisions of its autoscalers, the newest first."""

    decisions: list[RecordedDecision]


@click.group("queue", cls=CommandGroup)
def queue() -> None:
    """Look at queues, limit, pause and resume them. Changes hold from the next claim on, on every host."""


@command("ls", answers=Items("queues", QueueView))
def ls(session: Session) -> None:
    """List queues that have settings or jobs, and how full they are."""
    session.output.items("queues", all_queues(session.store), queue_table)


@command("show", answers=QueueShown)
@click.argument("name")
def show(session: Session, *, name: str) -> None:
    """Show one queue, one that has settings or jobs, and what its autoscaler has decided lately."""
    facts = next((found for found in all_queues(session.store) if found.name == name), None)
    if facts is None:
        raise NotFound(f"there is no queue {name[:100]!r}", hint="holdfast queue ls lists them.")
    shown = QueueShown(**structs.asdict(facts), decisions=session.store.autoscaler.decisions(name))
    session.output.value(shown, lambda: [*queue_table([facts]), *lane_lines(facts), *decision_lines(shown.decisions)])


@command("set", answers=QueueView, changes=True)
@click.argument("name")
@click.option("--limit", type=click.IntRange(0), help="Running jobs over all hosts; 0 takes the limit away.")
@click.option("--worker-limit", type=click.IntRange(0), help="Running jobs per worker; 0 takes the limit away.")
@click.option("--autoscaler", metavar="MIN-MAX", help="Programs per worker, as many as its host bears: 1-8; or off.")
def change(session: Session, *, name: str, limit: int | None, worker_limit: int | None, autoscaler: str | None) -> None:
    """Limit how many jobs of a queue run at a time.

    With --autoscaler each worker runs between MIN and MAX programs of the queue: it adds one by one while its host
    bears it, and a program begins only when what it will take fits. See holdfast autoscaler status.
    """
    _tell(session, session.actions.fleet.set_queue(name, limit=limit, worker_limit=worker_limit, autoscaler=autoscaler))


@command("pause", answers=QueueView, changes=True)
@click.argument("name")
@click.option("--note", metavar="TEXT", help="Why, for those who look later.")
def pause(session: Session, *, name: str, note: str | None) -> None:
    """Start nothing more of a queue; what runs goes on."""
    _tell(session, session.actions.fleet.set_queue(name, paused=True, note=note))


@command("resume", answers=QueueView, changes=True)
@click.argument("name")
def resume(session: Session, *, name: str) -> None:
    """Let a queue start jobs again."""
    _tell(session, session.actions.fleet.set_queue(name, paused=False))


for _command in (ls, show, change, pause, resume):
    queue.add_command(_command)


@command("workers", answers=Items("workers", WorkerView))
def workers(session: Session) -> None:
    """List the workers that are alive."""
    session.output.items("workers", [worker_views(found) for found in session.store.workers.list()], worker_table)


@command("ask", answers=WorkerRequestSent, changes=True)
@click.argument("worker")
@click.argument("request", type=click.Choice([*(str(request) for request in WorkerRequest), "go-on"]))
def ask(session: Session, *, worker: str, request: str) -> None:
    """Ask a worker, wherever it runs, to claim nothing more (quiet), to stop as after a signal, or to go on.

    It obeys with its next heartbeat, within ten seconds. What runs goes on; a worker that stops waits for it.

    \b
    Examples:
      holdfast ask host-1a2b3c quiet
      holdfast ask host-1a2b3c go-on
    """
    done = session.actions.fleet.send_request(worker, request)
    session.output.value(done, lambda: [f"{worker} is asked: {request}"])


def _tell(session: Session, facts: QueueView) -> None:
    session.output.value(facts, lambda: queue_table([facts]))


def queue_table(queues: Iterable[QueueView]) -> Iterator[Line]:
    heads = ("QUEUE", "READY", "RUNNING", "LIMIT", "PER WORKER", "AUTOSCALE", "STATE", "NOTE")
    return table(heads, (_row(facts) for facts in queues))


def _row(facts: QueueView) -> list[str]:
    limits = ["" if limit is None else str(limit) for limit in (facts.limit, facts.worker_limit)]
    state = "paused" if facts.paused else "open"
    scaled = facts.autoscaler or ""
    return [facts.name, str(facts.ready), str(facts.running), *limits, scaled, state, facts.note or ""]


def worker_table(workers: Iterable[WorkerView]) -> Iterator[Line]:
    return table(
        ("WORKER", "HOST", "PID", "VERSION", "SLOTS", "SEEN", "ASKED", "QUEUES", "KINDS"),
        (_worker_row(w) for w in workers),
    )


def _worker_row(facts: WorkerView) -> list[str]:
    lists = [",".join(facts.queues), ",".join(facts.kinds)]
    slots = "" if facts.slots is None else str(facts.slots)
    told = [facts.host, str(facts.pid), facts.version or "", slots, age(facts.seen_at), facts.requested or ""]
    return [facts.id, *told, *lists]

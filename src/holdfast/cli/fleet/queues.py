"""``queue`` with its sub-commands: limits, pauses and autoscaling of queues."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import click
from msgspec import structs

from holdfast.admin.views.fleet import TERMINAL_CAP, QueueView, decision_views, queue_view, queue_views, stop_view
from holdfast.cli.command import CommandGroup, Items, command
from holdfast.cli.session import CliSession
from holdfast.cli.text import age, table
from holdfast.domain.fleet.autoscaler import RecordedDecision
from holdfast.domain.fleet.stop_switch import StopSwitch
from holdfast.output.printer import Line


class QueueDetail(QueueView, frozen=True):
    """A queue with the last decisions of its autoscalers, newest first."""

    decisions: list[RecordedDecision]


@click.group("queue", cls=CommandGroup)
def queue() -> None:
    """Look at queues, limit, pause and resume them. Changes hold from the next claim on, on every host."""


@command("ls", group=queue, answers=Items("queues", QueueView))
def ls(session: CliSession) -> None:
    """List queues that have settings or jobs, and how full they are."""
    stopped = stop_view(session.store)
    session.output.items("queues", queue_views(session.store, cap=TERMINAL_CAP), lambda views: _table(views, stopped))


@command("show", group=queue, answers=QueueDetail)
@click.argument("name")
def show(session: CliSession, *, name: str) -> None:
    """Show one queue, one that has settings or jobs, and what its autoscaler has decided lately."""
    view = queue_view(session.store, name)
    detail = QueueDetail(**structs.asdict(view), decisions=decision_views(session.store, name))
    session.output.value(detail, lambda: _detail_lines(detail))


@command("set", group=queue, answers=QueueView, changes=True)
@click.argument("name")
@click.option("--limit", type=click.IntRange(0), help="Running jobs over all hosts; 0 takes the limit away.")
@click.option("--worker-limit", type=click.IntRange(0), help="Running jobs per worker; 0 takes the limit away.")
@click.option("--autoscaler", metavar="MIN-MAX", help="Programs per worker, as many as its host bears: 1-8; or off.")
def change(session: CliSession, *, name: str, **limits: Any) -> None:
    """Limit how many jobs of a queue run at a time.

    With --autoscaler each worker runs between MIN and MAX programs of the queue: it adds one by one while its host
    bears it, and a program begins only when what it will take fits. See holdfast autoscaler status.
    """
    _print(session, session.actions.fleet.set_queue(name, **limits))


@command("pause", group=queue, answers=QueueView, changes=True)
@click.argument("name")
@click.option("--note", metavar="TEXT", help="Why, for those who look later.")
@click.option("--create", is_flag=True, help="Pause a queue that has no jobs, settings or workers yet.")
def pause(session: CliSession, *, name: str, note: str | None, create: bool) -> None:
    """Start nothing more of a queue; what runs goes on. An unknown queue is refused, unless with --create."""
    _print(session, session.actions.fleet.set_queue(name, paused=True, note=note, create=create))


@command("resume", group=queue, answers=QueueView, changes=True)
@click.argument("name")
def resume(session: CliSession, *, name: str) -> None:
    """Let a queue start jobs again."""
    _print(session, session.actions.fleet.set_queue(name, paused=False))


@command("rm", group=queue, answers=QueueView, changes=True)
@click.argument("name")
def rm(session: CliSession, *, name: str) -> None:
    """Delete the settings of a queue that has no jobs: its limits, its pause, its autoscaler."""
    view = session.actions.fleet.delete_queue(name)
    session.output.value(view, lambda: [f"the settings of queue {name} are deleted"])


def _print(session: CliSession, view: QueueView) -> None:
    session.output.value(view, lambda: queue_table([view]))


def stop_lines(switch: StopSwitch | None) -> Iterator[Line]:
    """A line about a stopped store; none if it is not stopped."""
    if switch is not None:
        yield Line(f"{switch.text}; no job starts")


def _table(views: Iterable[QueueView], switch: StopSwitch | None) -> Iterator[Line]:
    yield from stop_lines(switch)
    yield from queue_table(views)


def queue_table(views: Iterable[QueueView]) -> Iterator[Line]:
    def row(view: QueueView) -> list[str]:
        limits = ["" if limit is None else str(limit) for limit in (view.limit, view.worker_limit)]
        state = "paused" if view.paused else "open"
        ready = f"{view.ready}{'+' if view.ready_capped else ''}"
        counts = [ready, *(str(count) for count in (view.running, view.scheduled, view.waiting, view.held))]
        return [view.name, *counts, *limits, view.autoscaler or "", state, view.note or ""]

    counts = ("READY", "RUNNING", "SCHEDULED", "WAITING", "HELD")
    return table(("QUEUE", *counts, "LIMIT", "PER WORKER", "AUTOSCALE", "STATE", "NOTE"), (row(view) for view in views))


def _detail_lines(detail: QueueDetail) -> Iterator[str | Line]:
    yield from queue_table([detail])
    for lane in detail.hosts:
        yield f"{lane.host}: {lane.running} of {lane.slots} slots, memory is {lane.strain}"
        yield from (f"  job {blocked.job_id}: {blocked.text}" for blocked in lane.blocked)
    if detail.decisions:
        heads = ("AGE", "HOST", "DECISION", "JOB", "SLOTS", "WHY")
        yield from table(heads, (_decision_row(decision) for decision in detail.decisions))


def _decision_row(decision: RecordedDecision) -> list[str]:
    numbers = ["" if number is None else str(number) for number in (decision.job_id, decision.slots)]
    return [age(decision.at), decision.host, decision.action.value, *numbers, decision.text]

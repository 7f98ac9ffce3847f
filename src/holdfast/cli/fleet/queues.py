"""``queue`` with its sub-commands: limits, pauses and autoscaling of queues."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import click
from msgspec import structs

from holdfast.admin.actions.changed import Changed
from holdfast.admin.actions.options import QueueActionOptions
from holdfast.admin.actions.table import Target, actions_on
from holdfast.admin.views.fleet import TERMINAL_CAP, QueueView, decision_views, queue_view, queue_views, stop_view
from holdfast.cli.action import action_command
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


def _perform(name: str, session: CliSession, *, queue: str, dry_run: bool, **options: Any) -> Changed:
    return session.actions.queues.perform(name, queue, dry_run=dry_run, **options)


for _action in actions_on(Target.QUEUE).values():
    _argument = click.argument("queue", metavar="NAME")
    action_command(_action, partial(_perform, _action.name), _argument, options=QueueActionOptions, group=queue)


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

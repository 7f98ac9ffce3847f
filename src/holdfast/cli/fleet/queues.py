"""``queue`` with its sub-commands: limits, pauses and autoscaling of queues."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain
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
from holdfast.cli.text import Column, Table, age, table, with_table
from holdfast.domain.fleet.autoscaler import RecordedDecision
from holdfast.domain.fleet.stop_switch import StopSwitch
from holdfast.domain.quantities import format_short_duration, local_times
from holdfast.output.printer import Line


class QueueDetail(QueueView, frozen=True):
    """A queue with the last decisions of its autoscalers, newest first."""

    decisions: list[RecordedDecision]


def _oldest(view: QueueView) -> str | None:
    """The longest wait of a ready job."""
    return None if view.oldest_s is None else format_short_duration(view.oldest_s)


QUEUES: Table[QueueView] = Table(
    (
        Column("QUEUE", lambda view: view.name),
        Column("READY", lambda view: f"{view.ready}{'+' if view.ready_capped else ''}", lambda view: view.ready),
        Column("RUNNING", lambda view: view.running),
        Column("SCHEDULED", lambda view: view.scheduled),
        Column("WAITING", lambda view: view.waiting),
        Column("HELD", lambda view: view.held),
        Column("LIMIT", lambda view: view.limit),
        Column("PER WORKER", lambda view: view.worker_limit),
        Column("AUTOSCALER", lambda view: view.autoscaler),
        Column("STATE", lambda view: "paused" if view.paused else "open"),
        Column("OLDEST", _oldest, lambda view: view.oldest_s, wide=True),
        Column(
            "DONE PER MINUTE",
            lambda view: "?" if view.done_per_minute is None else f"{view.done_per_minute:.3g}",
            lambda view: view.done_per_minute,
            wide=True,
        ),
        Column("DEAD LATELY", lambda view: "?" if view.dead_lately is None else view.dead_lately, wide=True),
        Column("KINDS", lambda view: ",".join(view.kinds), wide=True),
        Column("NOTE", lambda view: view.note),
    ),
    key="queue",
)


@click.group("queue", cls=CommandGroup)
def queue() -> None:
    """List, limit, pause and resume queues. A change applies at once, on every host; running jobs continue.

    Examples:
      holdfast queue set mail --limit 4      # at most 4 at the same time, over all hosts
      holdfast queue pause mail
    """


@command("ls", group=queue, answers=Items("queues", QueueView))
@with_table(QUEUES)
def ls(session: CliSession, *, table: Table[QueueView]) -> None:
    """List queues with their counts, limits and state.

    Examples:
      holdfast queue ls
    """
    notes = () if session.output.quiet else stop_lines(stop_view(session.store))
    listed = queue_views(session.store, cap=TERMINAL_CAP)
    session.output.items("queues", listed, lambda views: chain(notes, table.lines(views)))


@command("show", group=queue, answers=QueueDetail)
@click.argument("name")
def show(session: CliSession, *, name: str) -> None:
    """Show one queue, and the latest decisions of its autoscaler.

    Examples:
      holdfast queue show mail
    """
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
        yield Line(local_times(f"{switch.text}; no job starts"))


def _detail_lines(detail: QueueDetail) -> Iterator[str | Line]:
    yield from QUEUES.lines([detail])
    for lane in detail.hosts:
        yield f"{lane.host}: {lane.running} of {lane.slots} slots, memory is {lane.strain}"
        yield from (f"  job {blocked.job_id}: {blocked.text}" for blocked in lane.blocked)
    if detail.decisions:
        heads = ("AGE", "HOST", "DECISION", "JOB", "SLOTS", "WHY")
        yield from table(heads, (_decision_row(decision) for decision in detail.decisions))


def _decision_row(decision: RecordedDecision) -> list[str]:
    numbers = ["" if number is None else str(number) for number in (decision.job_id, decision.slots)]
    return [age(decision.at), decision.host, decision.action.value, *numbers, decision.text]

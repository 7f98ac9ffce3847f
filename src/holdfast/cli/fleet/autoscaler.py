"""``autoscaler``: how hosts bear their programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import click
from msgspec import Struct

from holdfast.cli.command import CommandGroup, Items, command
from holdfast.cli.session import Session
from holdfast.cli.text import age, table
from holdfast.domain.fleet.autoscaler_state import AutoscalerStatus, RecordedDecision, load_autoscaler_status
from holdfast.domain.text import say_size
from holdfast.output.printer import Line
from holdfast.store.fleet.overview import QueueView


class HostScaling(Struct, frozen=True):
    """A worker that scales queues: what its host has and bears, and how each queue stands."""

    worker: str
    host: str
    scaling: AutoscalerStatus


@click.group("autoscaler", cls=CommandGroup)
def autoscaler() -> None:
    """Look at how hosts bear their programs. holdfast queue set NAME --autoscaler 1-8 lets a queue be scaled."""


@command("status", answers=Items("hosts", HostScaling))
def status(session: Session) -> None:
    """Show each worker that scales queues: memory, load, slots, and who may not begin.

    \b
    Example:
      holdfast autoscaler status -o json
    """
    workers = session.store.workers.list()
    scaled = [(worker, load_autoscaler_status(worker.autoscaler)) for worker in workers]
    found = [HostScaling(worker.id, worker.host, scaling) for worker, scaling in scaled if scaling is not None]
    session.output.items("hosts", found, status_lines)


autoscaler.add_command(status)


def status_lines(hosts: Iterable[HostScaling]) -> Iterator[str | Line]:
    found = list(hosts)
    if not found:
        yield "no live worker scales a queue; holdfast queue set NAME --autoscaler 1-8 lets one be scaled"
    heads = ("HOST", "QUEUE", "RUNNING", "SLOTS", "BOUNDS", "TAKEN", "FORECAST", "ROOM", "MEMORY", "LOAD")
    if found:
        yield from table(heads, (row for each in found for row in _rows(each)))
    for each in found:
        for lane in each.scaling.lanes:
            yield from (f"job {blocked.job_id} ({each.host}): {blocked.text}" for blocked in lane.blocked)


def _rows(each: HostScaling) -> Iterator[list[str]]:
    facts = each.scaling
    sizes = [say_size(size) for size in (facts.resident, facts.forecast, facts.room)]
    load = f"{facts.load:.1f}/{facts.cores:g}"
    for lane in facts.lanes:
        bounds = f"{lane.least}-{lane.most}"
        counts = [str(lane.running), str(lane.slots), bounds]
        yield [each.host, lane.queue, *counts, *sizes, facts.strain, load]


def lane_lines(facts: QueueView) -> Iterator[str | Line]:
    """How a queue that is scaled stands on each host."""
    for lane in facts.hosts:
        yield f"{lane.host}: {lane.running} of {lane.slots} slots, memory is {lane.strain}"
        yield from (f"  job {blocked.job_id}: {blocked.text}" for blocked in lane.blocked)


def decision_lines(decisions: Sequence[RecordedDecision]) -> Iterator[str | Line]:
    """What was decided, the newest first."""
    if decisions:
        yield from table(("AGE", "HOST", "DECISION", "JOB", "SLOTS", "WHY"), (_decision(each) for each in decisions))


def _decision(each: RecordedDecision) -> list[str]:
    numbers = ["" if number is None else str(number) for number in (each.job_id, each.slots)]
    return [age(each.at), each.host, each.action.value, *numbers, each.text]

"""``autoscaler``: the state of the autoscalers, by host."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import click
from msgspec import Struct

from holdfast.cli.command import CommandGroup, Items, command
from holdfast.cli.session import CliSession
from holdfast.cli.text import table
from holdfast.domain.fleet.autoscaler import AutoscalerStatus, load_autoscaler_status
from holdfast.domain.quantities import format_size
from holdfast.output.printer import Line


class HostAutoscaler(Struct, frozen=True):
    """A worker that scales queues, with the resources of its host and the state of each queue."""

    worker: str
    host: str
    autoscaler: AutoscalerStatus


@click.group("autoscaler", cls=CommandGroup)
def autoscaler() -> None:
    """Look at how hosts bear their programs. holdfast queue set NAME --autoscaler 1-8 lets a queue be scaled."""


@command("status", group=autoscaler, answers=Items("hosts", HostAutoscaler))
def status(session: CliSession) -> None:
    """Show each worker that scales queues: memory, load, slots, and who may not begin.

    \b
    Example:
      holdfast autoscaler status -o json
    """
    statuses = [(worker, load_autoscaler_status(worker.autoscaler)) for worker in session.store.workers.list()]
    hosts = [HostAutoscaler(worker.id, worker.host, status) for worker, status in statuses if status is not None]
    session.output.items("hosts", hosts, _status_lines)


def _status_lines(hosts: Iterable[HostAutoscaler]) -> Iterator[str | Line]:
    listed = list(hosts)
    if not listed:
        yield "no live worker scales a queue; holdfast queue set NAME --autoscaler 1-8 lets one be scaled"
        return
    heads = ("HOST", "QUEUE", "RUNNING", "SLOTS", "BOUNDS", "TAKEN", "FORECAST", "ROOM", "MEMORY", "LOAD")
    yield from table(heads, (row for host in listed for row in _rows(host)))
    for host in listed:
        for lane in host.autoscaler.lanes:
            yield from (f"job {blocked.job_id} ({host.host}): {blocked.text}" for blocked in lane.blocked)


def _rows(host: HostAutoscaler) -> Iterator[list[str]]:
    status = host.autoscaler
    sizes = [format_size(size) for size in (status.resident, status.forecast, status.room)]
    load = f"{status.load:.1f}/{status.cores:g}"
    for lane in status.lanes:
        counts = [str(lane.running), str(lane.slots), f"{lane.least}-{lane.most}"]
        yield [host.host, lane.queue, *counts, *sizes, status.strain, load]

"""The workers of the fleet: ``workers``, ``ask``, ``autoscaler`` and ``size``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import click
from msgspec import Struct

from holdfast.admin.actions.changed import Changed
from holdfast.admin.actions.table import Target, actions_on, find_action
from holdfast.admin.views.fleet import HostAutoscaler, WorkerView, host_autoscalers, worker_views
from holdfast.cli.action import action_flags, perform_confirmed
from holdfast.cli.command import CommandGroup, Items, command, with_options
from holdfast.cli.session import CliSession
from holdfast.cli.text import age, table
from holdfast.domain.commands.command import host_capacity
from holdfast.domain.quantities import as_bytes, format_size
from holdfast.output.printer import Line


@command("workers", answers=Items("workers", WorkerView))
def workers(session: CliSession) -> None:
    """List the workers that have not stopped. A worker is late after 30 s without a heartbeat, and lost after 60 s.

    Lost workers stay in the list for a day.
    """
    session.output.items("workers", worker_views(session.store), _worker_table)


def _perform(session: CliSession, *, worker: str, request: str, dry_run: bool) -> Changed:
    return session.actions.workers.perform(request, worker, dry_run=dry_run)


@command("ask", answers=Changed, changes=True)
@click.argument("worker")
@click.argument("request", type=click.Choice(list(actions_on(Target.WORKER))))
@with_options(*action_flags(find_action(Target.WORKER, "stop"), None))
def ask(session: CliSession, *, worker: str, request: str, dry_run: bool, yes: bool) -> int:
    action, values = find_action(Target.WORKER, request), {"worker": worker, "request": request}
    return perform_confirmed(session, action, _perform, dry_run=dry_run, yes=yes, **values)


_LINES = "\n".join(f"  {name:7}{action.help}" for name, action in actions_on(Target.WORKER).items())
ask.help = f"""Send a request to a worker on any host. It receives the request with its next heartbeat, within 10 s.

\b
{_LINES}

\b
Examples:
  holdfast ask host-1a2b3c quiet
  holdfast ask host-1a2b3c go-on
"""


def _worker_table(views: Iterable[WorkerView]) -> Iterator[Line]:
    heads = ("WORKER", "HOST", "PID", "VERSION", "SLOTS", "HEARTBEAT", "SEEN", "ASKED", "QUEUES", "KINDS")
    return table(heads, (_worker_row(view) for view in views))


def _worker_row(view: WorkerView) -> list[str]:
    slots = "" if view.slots is None else str(view.slots)
    process = [view.id, view.host, str(view.pid), view.version or "", slots]
    signs = [view.heartbeat, age(view.seen_at), view.requested or ""]
    return [*process, *signs, ",".join(view.queues), ",".join(view.kinds)]


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
    session.output.items("hosts", host_autoscalers(session.store), _status_lines)


def _status_lines(hosts: Iterable[HostAutoscaler]) -> Iterator[str | Line]:
    listed = list(hosts)
    if not listed:
        yield "no live worker scales a queue; holdfast queue set NAME --autoscaler 1-8 lets one be scaled"
        return
    heads = ("HOST", "QUEUE", "RUNNING", "SLOTS", "BOUNDS", "TAKEN", "FORECAST", "ROOM", "MEMORY", "LOAD")
    yield from table(heads, (row for host in listed for row in _autoscaler_rows(host)))
    for host in listed:
        for lane in host.autoscaler.lanes:
            yield from (f"job {blocked.job_id} ({host.host}): {blocked.text}" for blocked in lane.blocked)


def _autoscaler_rows(host: HostAutoscaler) -> Iterator[list[str]]:
    status = host.autoscaler
    sizes = [format_size(size) for size in (status.resident, status.forecast, status.room)]
    load = f"{status.load:.1f}/{status.cores:g}"
    for lane in status.lanes:
        counts = [str(lane.running), str(lane.slots), f"{lane.least}-{lane.most}"]
        yield [host.host, lane.queue, *counts, *sizes, status.strain, load]


class SizeAnswer(Struct, frozen=True):
    """The number of commands that fit into 80 % of the host; *by* names the scarcer resource."""

    memory_bytes: int
    cores: int
    job_memory_bytes: int
    job_cores: float
    slots: int
    by: str


@command("size", answers=SizeAnswer)
@click.option("--memory", required=True, metavar="SIZE", help="What one program takes: 512M, 8G.")
@click.option("--cpus", default=1.0, show_default=True, help="How many processors one keeps busy.")
def size(session: CliSession, *, memory: str, cpus: float) -> None:
    """Say how many programs of a size this host could run: 80 % of its memory and of its cores, whichever is less.

    \b
    Example:
      holdfast up --slots "$(holdfast size --memory 2G --quiet)"
    """
    room = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    cores = os.cpu_count() or 1
    slots, by = host_capacity(room, cores, as_bytes(memory), cpus)
    answer = SizeAnswer(room, cores, as_bytes(memory), cpus, slots, by)
    text = f"{slots} at once, bounded by {by}: {room / 2**30:.1f} GiB and {cores} cores, of which 80 % are used"
    session.output.value(answer, lambda: [str(slots) if session.output.quiet else text])

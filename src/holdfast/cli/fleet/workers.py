"""The workers of the fleet: ``workers``, ``ask``, ``autoscaler`` and ``size``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import click
from msgspec import Struct

from holdfast.admin.actions.changed import Changed
from holdfast.admin.actions.table import Target, actions_on, find_action
from holdfast.admin.views.fleet import HostAutoscaler, WorkerView, host_autoscalers, worker_views
from holdfast.cli.action import action_flags, perform_confirmed
from holdfast.cli.command import CommandGroup, Items, command, keep_blocks, with_options
from holdfast.cli.session import CliSession
from holdfast.cli.text import Column, Table, age_column, time_column, with_table
from holdfast.domain.commands.command import host_capacity
from holdfast.domain.fleet.autoscaler import QueueStatus
from holdfast.domain.quantities import as_bytes, format_size
from holdfast.output.printer import Line

WORKERS: Table[WorkerView] = Table(
    (
        Column("WORKER", lambda view: view.id),
        Column("HOST", lambda view: view.host),
        Column("PID", lambda view: view.pid),
        Column("VERSION", lambda view: view.version),
        Column("SLOTS", lambda view: view.slots),
        time_column("STARTED", lambda view: view.started_at, wide=True),
        Column("HEARTBEAT", lambda view: view.heartbeat),
        age_column("SEEN", lambda view: view.seen_at),
        Column("REQUEST", lambda view: view.requested),
        Column("QUEUES", lambda view: ",".join(view.queues)),
        Column("KINDS", lambda view: ",".join(view.kinds)),
    ),
    key="worker",
)


@command("workers", answers=Items("workers", WorkerView))
@with_table(WORKERS)
def workers(session: CliSession, *, table: Table[WorkerView]) -> None:
    """List live and lost workers.

    A worker is late after 30 s without a heartbeat, and lost after 60 s. Lost workers stay in the list for a day.

    Examples:
      holdfast workers
    """
    session.output.items("workers", worker_views(session.store), table.lines)


def _perform(session: CliSession, *, worker: str, request: str, dry_run: bool) -> Changed:
    return session.actions.workers.perform(request, worker, dry_run=dry_run)


@command("ask", answers=Changed, changes=True, creates=False)
@click.argument("worker")
@click.argument("request", type=click.Choice(list(actions_on(Target.WORKER))))
@with_options(*action_flags(find_action(Target.WORKER, "stop"), None))
def ask(session: CliSession, *, worker: str, request: str, dry_run: bool, yes: bool) -> int:
    action, values = find_action(Target.WORKER, request), {"worker": worker, "request": request}
    return perform_confirmed(session, action, _perform, dry_run=dry_run, yes=yes, **values)


_LINES = "\n".join(f"  {name:7}{action.help}" for name, action in actions_on(Target.WORKER).items())
_HELP = f"""Send a request to one worker, on any host. It receives the request with its next heartbeat, within 10 s.

Requests:
{_LINES}

holdfast drain stops claims in the whole store, and holdfast down stops what holdfast up started on this machine.

Examples:
  holdfast ask host-1a2b3c quiet
  holdfast ask host-1a2b3c go-on
"""
ask.help = keep_blocks(_HELP)


def _size_column(heading: str, get: Callable[[ScaledQueue], int]) -> Column[ScaledQueue]:
    return Column(heading, lambda row: format_size(get(row)), get)


#: An autoscaled queue on one host.
ScaledQueue = tuple[HostAutoscaler, QueueStatus]
SCALED_QUEUES: Table[ScaledQueue] = Table(
    (
        Column("HOST", lambda row: row[0].host),
        Column("QUEUE", lambda row: row[1].queue),
        Column("RUNNING", lambda row: row[1].running),
        Column("SLOTS", lambda row: row[1].slots),
        Column("BOUNDS", lambda row: f"{row[1].least}-{row[1].most}"),
        _size_column("TAKEN", lambda row: row[0].autoscaler.resident),
        _size_column("FORECAST", lambda row: row[0].autoscaler.forecast),
        _size_column("ROOM", lambda row: row[0].autoscaler.room),
        Column("MEMORY", lambda row: row[0].autoscaler.strain),
        Column("LOAD", lambda row: f"{row[0].autoscaler.load:.1f}/{row[0].autoscaler.cores:g}"),
    )
)


@click.group("autoscaler", cls=CommandGroup)
def autoscaler() -> None:
    """Show how many commands each host runs, and why. Switch it on with holdfast queue set NAME --autoscaler 1-8."""


@command("status", group=autoscaler, answers=Items("hosts", HostAutoscaler))
@with_table(SCALED_QUEUES)
def status(session: CliSession, *, table: Table[ScaledQueue]) -> None:
    """Show memory, load and slots of workers with autoscaled queues.

    It also lists the commands that do not fit.

    Examples:
      holdfast autoscaler status -o json
    """
    session.output.items("hosts", host_autoscalers(session.store), lambda hosts: _status_lines(hosts, table))


def _status_lines(hosts: Iterable[HostAutoscaler], table: Table[ScaledQueue]) -> Iterator[str | Line]:
    queues = [(host, lane) for host in hosts for lane in host.autoscaler.lanes]
    if not queues:
        yield "no live worker autoscales a queue; switch it on with holdfast queue set NAME --autoscaler 1-8"
        return
    yield from table.lines(queues)
    for host, lane in queues:
        yield from (f"job {blocked.job_id} ({host.host}): {blocked.text}" for blocked in lane.blocked)


class SizeAnswer(Struct, frozen=True):
    """The number of commands that fit into 80 % of the host and its free memory; *by* names the scarcer resource."""

    memory_bytes: int
    free_bytes: int
    cores: float
    job_memory_bytes: int
    job_cores: float
    slots: int
    by: str


@command("size", answers=SizeAnswer)
@click.option("--memory", required=True, metavar="SIZE", help="Memory of one command: 512M, 8G.")
@click.option("--cpus", default=1.0, show_default=True, help="Processors that one command uses.")
def size(session: CliSession, *, memory: str, cpus: float) -> None:
    """Estimate how many commands of a size fit into 80 % of this host's memory and cores, and into its free memory.

    The limits of a container and the processors that this process may use count, not those of the whole machine.

    Examples:
      holdfast size --memory 2G --cpus 2
      holdfast up --slots "$(holdfast size --memory 2G --quiet)"
    """
    from holdfast.worker.autoscaler.host import read_host

    host = read_host()
    slots, by = host_capacity(host.total, host.cores, as_bytes(memory), cpus, used=host.used)
    free = host.total - host.used
    answer = SizeAnswer(host.total, free, host.cores, as_bytes(memory), cpus, slots, by)
    limits = f"{host.total / 2**30:.1f} GiB, {free / 2**30:.1f} GiB of them free, and {host.cores:g} cores"
    text = f"{slots} at the same time, limited by {by}: {limits}; at most 80 % of the host"
    session.output.value(answer, lambda: [str(slots) if session.output.quiet else text])

"""``status``: the processes that are up, and the stop switch of their stores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, suppress

import click
from msgspec import structs

from holdfast.admin.views.fleet import stop_view, worker_views
from holdfast.cli.command import Items, command
from holdfast.cli.ops.pid_file import PidFile, UpStatus, all_up, elsewhere
from holdfast.cli.session import CliSession
from holdfast.cli.text import Column, Table, age_column, with_table
from holdfast.domain.access.masking import MASK, mask_store_url
from holdfast.domain.fleet.stop_switch import StopSwitch
from holdfast.domain.names import escape_controls
from holdfast.domain.quantities import count_of, local_times
from holdfast.errors import HoldfastError, NotFound
from holdfast.output.printer import Line
from holdfast.store import open_store


class UpProcess(UpStatus, frozen=True, kw_only=True):
    """A running ``holdfast up``, and the stop switch of its store, if it is set and the store can be read."""

    stop_switch: StopSwitch | None = None


PROCESSES: Table[UpProcess] = Table(
    (
        Column("PID", lambda up: up.pid),
        age_column("SINCE", lambda up: up.started_at),
        Column("STORE", lambda up: up.url),
        Column("WORKER", lambda up: up.worker, wide=True),
        Column("QUEUES", lambda up: ",".join(up.queues)),
        Column("KINDS", lambda up: ",".join(up.kinds), wide=True),
        Column("DASHBOARD", lambda up: up.web, wide=True),
        Column("LOG", lambda up: up.log),
    )
)


@command("status", answers=Items("up", UpProcess))
@click.option("--all", "everything", is_flag=True, help="Show your processes on every store, even if --url names one.")
@with_table(PROCESSES)
def status(session: CliSession, *, everything: bool, table: Table[UpProcess]) -> None:
    """Show the processes that holdfast up started, and whether the store is stopped (drain, emergency-stop).

    It shows those of the configured store; without one, your processes on every store. Exit 3 if nothing is up. --quiet
    prints process ids. For jobs, use holdfast ls; for workers on all hosts, holdfast workers; for all, holdfast top.

    Examples:
      holdfast status
      holdfast status --all -o json
    """
    processes = list(all_up(None if everything else session.named_url))
    pids = [str(status.pid) for _, status in processes]
    if not processes:
        switch = None if session.named_url is None else _stop_switch(session, session.named_url)
        stopped = "" if switch is None else f"; {switch.text}"
        if alive := _live_workers(session):
            many = count_of(alive, "worker of this store is", "workers of this store are")
            text = f"no holdfast up runs{elsewhere(session) or ' here'}; {many} alive{stopped}"
            raise NotFound(text, hint="holdfast workers lists them; holdfast top shows the whole store.")
        hint = "Start it with holdfast up; workers of other kinds: holdfast workers."
        raise NotFound(f"nothing is up{elsewhere(session)}{stopped}", hint=hint)
    running = [_with_switch(session, pid_file, status) for pid_file, status in processes]
    session.output.items("up", running, lambda rows: pids if session.output.quiet else _lines(rows, table))


def _with_switch(session: CliSession, pid_file: PidFile, status: UpStatus) -> UpProcess:
    is_named = session.named_url is not None and PidFile.of(session.url).path == pid_file.path
    switch = _stop_switch(session, session.url if is_named else status.url)
    return UpProcess(**structs.asdict(status), stop_switch=switch)


def _stop_switch(session: CliSession, url: str) -> StopSwitch | None:
    """The stop switch of a store; None also if the store cannot be read, which must not hide its processes."""
    with suppress(HoldfastError):
        if url == session.url:
            return stop_view(session.store)
        if mask_store_url(url) == url and MASK not in url:
            with closing(open_store(url, create=False)) as store:
                return stop_view(store)
    return None


def _live_workers(session: CliSession) -> int:
    """The number of live workers of the configured store, on all hosts; 0 also if it cannot be read."""
    with suppress(HoldfastError):
        if session.named_url is not None:
            return sum(worker.alive for worker in worker_views(session.store))
    return 0


def _lines(running: Iterable[UpProcess], table: Table[UpProcess]) -> Iterator[Line]:
    processes = list(running)
    yield from table.lines(processes)
    for up in processes:
        if up.stop_switch is not None:
            yield Line(escape_controls(f"{up.url}: {local_times(up.stop_switch.text)}"))

"""``status``: the processes that are up, and the stop switch of their stores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, suppress

import click
from msgspec import structs

from holdfast.admin.views.fleet import stop_view
from holdfast.cli.command import Items, command
from holdfast.cli.ops.pid_file import PidFile, UpStatus
from holdfast.cli.ops.up import all_up
from holdfast.cli.session import CliSession
from holdfast.cli.text import age, table
from holdfast.domain.access.masking import MASK, mask_store_url
from holdfast.domain.fleet.stop_switch import StopSwitch
from holdfast.domain.names import escape_controls
from holdfast.errors import HoldfastError, NotFound
from holdfast.output.printer import Line
from holdfast.store import open_store


class UpProcess(UpStatus, frozen=True, kw_only=True):
    """A running ``holdfast up``, and the stop switch of its store, if it is set and the store can be read."""

    stop_switch: StopSwitch | None = None


@command("status", answers=Items("up", UpProcess))
@click.option("--all", "everything", is_flag=True, help="On every store, though one is named.")
def status(session: CliSession, *, everything: bool) -> None:
    """Show what is up: on the store that --url, HOLDFAST_URL or a file names, or yours on every store.

    It says when the stop switch of a store is set. Exit 3 when nothing is up; --quiet prints pids.
    """
    processes = list(all_up(None if everything else session.named_url))
    pids = [str(status.pid) for _, status in processes]
    if not processes:
        switch = None if session.named_url is None else _stop_switch(session, session.named_url)
        stopped = "" if switch is None else f"; {switch.text}"
        hint = "Start it with holdfast up; workers of other kinds: holdfast workers."
        raise NotFound(f"nothing is up{stopped}", hint=hint)
    running = [_with_switch(session, pid_file, status) for pid_file, status in processes]
    session.output.items("up", running, (lambda _: pids) if session.output.quiet else _table)


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


def _table(running: Iterable[UpProcess]) -> Iterator[Line]:
    processes = list(running)
    rows = ([str(up.pid), age(up.started_at), up.url, ",".join(up.queues), up.log or ""] for up in processes)
    yield from table(("PID", "SINCE", "STORE", "QUEUES", "LOG"), rows)
    for up in processes:
        if up.stop_switch is not None:
            yield Line(escape_controls(f"{up.url}: {up.stop_switch.text}"))

"""``workers`` and ``ask``: live workers, and requests to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import click

from holdfast.admin.actions.actions import WorkerRequestSent
from holdfast.cli.command import Items, command
from holdfast.cli.session import CliSession
from holdfast.cli.text import age, table
from holdfast.domain.jobs.job import WorkerRequest
from holdfast.output.printer import Line
from holdfast.store.fleet.overview import WorkerView, worker_views


@command("workers", answers=Items("workers", WorkerView))
def workers(session: CliSession) -> None:
    """List the workers that are alive."""
    session.output.items("workers", [worker_views(row) for row in session.store.workers.list()], _worker_table)


@command("ask", answers=WorkerRequestSent, changes=True)
@click.argument("worker")
@click.argument("request", type=click.Choice([*(str(request) for request in WorkerRequest), "go-on"]))
def ask(session: CliSession, *, worker: str, request: str) -> None:
    """Ask a worker, wherever it runs, to claim nothing more (quiet), to stop as after a signal, or to go on.

    It obeys with its next heartbeat, within ten seconds. What runs goes on; a worker that stops waits for it.

    \b
    Examples:
      holdfast ask host-1a2b3c quiet
      holdfast ask host-1a2b3c go-on
    """
    answer = session.actions.fleet.send_request(worker, request)
    session.output.value(answer, lambda: [f"{worker} is asked: {request}"])


def _worker_table(views: Iterable[WorkerView]) -> Iterator[Line]:
    heads = ("WORKER", "HOST", "PID", "VERSION", "SLOTS", "SEEN", "ASKED", "QUEUES", "KINDS")
    return table(heads, (_row(view) for view in views))


def _row(view: WorkerView) -> list[str]:
    slots = "" if view.slots is None else str(view.slots)
    process = [view.id, view.host, str(view.pid), view.version or "", slots]
    return [*process, age(view.seen_at), view.requested or "", ",".join(view.queues), ",".join(view.kinds)]

"""The pages of queues and workers, and the form of the stop switch."""

from __future__ import annotations

import shlex
from typing import Any

from starlette.responses import Response

from holdfast.admin.views.fleet import decision_views, queue_views, running_jobs, worker_views
from holdfast.domain.names import quote_argument
from holdfast.web.pages.action import ActionForm, notice
from holdfast.web.request import Request

#: Autoscaler decisions on the page.
MAX_DECISIONS = 30


def show_queues(request: Request) -> Response:
    """All queues, and the autoscaler decisions of the one in the address."""
    selected = request.query("name")
    decisions = decision_views(request.store, selected, limit=MAX_DECISIONS) if selected else []
    cli = f"holdfast queue show {quote_argument(selected)}" if selected else "holdfast queue ls"
    return request.page(
        "queues.html", queues=queue_views(request.store), selected=selected, decisions=decisions, cli=cli
    )


def change_queue(request: Request) -> Response:
    queue = request.query("name")
    form = ActionForm(request, request.actions.queues, request.field("action"), queue)
    if form.lacks_confirmation:
        hidden, cli = {"action": form.action.name}, f"holdfast queue {form.action.name} {quote_argument(queue)}"
        return form.confirm("queues", title=f"of {queue}", hidden=hidden, back=request.url("queues"), cli=cli)
    options: dict[str, Any] = {}
    if form.action.name == "set":
        # An empty field removes the limit.
        options = {name: request.field_number(name) or 0 for name in ("limit", "worker_limit")}
    return request.done(notice(form.perform(**options)), "queues")


def show_workers(request: Request) -> Response:
    workers = worker_views(request.store)
    running = running_jobs(request.store)
    by_worker = {worker.id: [job for job in running if job.worker == worker.id] for worker in workers}
    return request.page(
        "workers.html",
        workers=workers,
        running=by_worker,
        others=[job for job in running if job.worker not in by_worker],
        versions=sorted({worker.version or "none" for worker in workers if worker.alive}),
        cli="holdfast workers",
    )


def change_worker(request: Request) -> Response:
    worker = request.query("id")
    form = ActionForm(request, request.actions.workers, request.field("action"), worker)
    if form.lacks_confirmation:
        hidden, cli = {"action": form.action.name}, f"holdfast ask {shlex.quote(worker)} {form.action.name} --yes"
        return form.confirm("workers", title=f"worker {worker}", hidden=hidden, back=request.url("workers"), cli=cli)
    return request.done(notice(form.perform()), "workers")


def change_stop_switch(request: Request) -> Response:
    form = ActionForm(request, request.actions.stop_switch, request.field("action"), None)
    if form.lacks_confirmation:
        hidden, cli = {"action": form.action.name}, f"holdfast {form.action.name} --yes"
        return form.confirm("queues", title="the whole store", hidden=hidden, back=request.url("queues"), cli=cli)
    return request.done(notice(form.perform()), "")

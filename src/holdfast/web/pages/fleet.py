"""The pages of queues and workers, and the form of the stop switch."""

from __future__ import annotations

import shlex

from starlette.responses import Response

from holdfast.admin.views.fleet import decision_views, queue_views, worker_views
from holdfast.domain.fleet.stop_switch import StopMode
from holdfast.domain.names import quote_argument
from holdfast.errors import InvalidInput
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
    name, action, fleet = request.query("name"), request.field("action"), request.actions.fleet
    match action:
        case "set":
            # An empty field removes the limit.
            limit, worker_limit = request.field_number("limit") or 0, request.field_number("worker_limit") or 0
            queue = fleet.set_queue(name, limit=limit, worker_limit=worker_limit)
            notice = f"Queue {name}: {_describe_limits(queue.limit, queue.worker_limit)}, from the next claim on."
        case "pause":
            fleet.set_queue(name, paused=True, note=request.field("note") or None)
            notice = f"Queue {name} starts nothing more; what runs goes on."
        case "resume":
            fleet.set_queue(name, paused=False)
            notice = f"Queue {name} goes on."
        case _:
            raise InvalidInput(f"a queue cannot be told to {action[:40]!r}", hint="Verbs: set, pause, resume.")
    return request.done(notice, "queues")


def _describe_limits(limit: int | None, worker_limit: int | None) -> str:
    limits = [f"{limit:,} over all hosts" if limit else "", f"{worker_limit:,} per worker" if worker_limit else ""]
    return "at most " + " and ".join(text for text in limits if text) if any(limits) else "no limit"


def show_workers(request: Request) -> Response:
    workers = worker_views(request.store)
    running = request.store.dashboard.running()
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
    worker, requested = request.query("id"), request.field("request")
    if requested == "stop" and not request.field("sure"):
        return request.confirm(
            "workers",
            title=f"stop worker {worker}?",
            text="It ends as after a first signal: it claims nothing more, and waits for what runs.",
            hidden={"request": requested},
            destructive=True,
            button="stop it",
            back=request.url("workers"),
            cli=f"holdfast ask {shlex.quote(worker)} stop",
        )
    request.actions.fleet.send_request(worker, requested)
    return request.done(f"Worker {worker} was asked: {requested}. It hears of it with its next heartbeat.", "workers")


def change_stop_switch(request: Request) -> Response:
    action, note, fleet = request.field("action"), request.field("note") or None, request.actions.fleet
    match action:
        case "resume":
            jobs = fleet.resume_all().jobs
            return request.done(f"The store goes on, with {len(jobs):,} jobs that were stopped.", "")
        case "drain":
            fleet.stop(StopMode.DRAIN, note=note)
            return request.done("The store starts nothing more; what runs goes on.", "")
        case "emergency-stop" if not request.field("sure"):
            return request.confirm(
                "queues",
                title="stop everything?",
                text="No job of any queue starts. Running jobs are requested to stop, and are held until you resume.",
                hidden={"action": action, "note": note or ""},
                destructive=True,
                button="stop everything",
                back=request.url("queues"),
                cli="holdfast emergency-stop --yes",
            )
        case "emergency-stop":
            jobs = fleet.stop(StopMode.STOP, note=note).jobs
            return request.done(f"The store starts nothing more; {len(jobs):,} jobs were requested to stop.", "")
        case _:
            hint = "Actions: drain, emergency-stop, resume."
            raise InvalidInput(f"the store cannot be told to {action[:40]!r}", hint=hint)

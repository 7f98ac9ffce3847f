"""Queues and workers: what they do now, and what they may do."""

from __future__ import annotations

import shlex
from datetime import timedelta

from starlette.responses import Response

from holdfast.admin.views.overview import SLOT, SPAN, queue_summaries
from holdfast.domain.names import quote_argument
from holdfast.errors import InvalidInput
from holdfast.store.fleet.overview import worker_views
from holdfast.web.pages.request import PageRequest

#: A worker that was not seen for so long is looked at with care: heartbeats come every few seconds.
SILENT = timedelta(seconds=30)
#: Decisions of autoscalers that are shown.
DECISIONS = 30


def queues(visit: PageRequest) -> Response:
    """All queues: how full, how old, how fast, and their limits; of a chosen one, what its autoscalers have decided."""
    dashboard, requested = visit.store.dashboard, visit.asked("name")
    found = queue_summaries(dashboard.lanes(), dashboard.queues(), dashboard.tallies(span=SPAN, slot=SLOT))
    return visit.page(
        "queues.html",
        "queues",
        queues=found,
        requested=requested,
        decisions=visit.store.autoscaler.decisions(requested, limit=DECISIONS) if requested else [],
        cli=f"holdfast queue show {quote_argument(requested)}" if requested else "holdfast queue ls",
    )


def change_queue(visit: PageRequest) -> Response:
    """Change a queue's limits, pause or resume it."""
    name, action = visit.asked("name"), visit.given("action")
    match action:
        case "set":
            # An empty field takes the limit away: that is what one sees.
            limit, worker_limit = visit.number("limit") or 0, visit.number("worker_limit") or 0
            told = visit.actions.queue(name, limit=limit, worker_limit=worker_limit)
            said = f"Queue {name}: {_limits(told.limit, told.worker_limit)}, from the next claim on."
        case "pause":
            visit.actions.queue(name, paused=True, note=visit.given("note") or None)
            said = f"Queue {name} starts nothing more; what runs goes on."
        case "resume":
            visit.actions.queue(name, paused=False)
            said = f"Queue {name} goes on."
        case _:
            raise InvalidInput(f"a queue cannot be told to {action[:40]!r}", hint="Verbs: set, pause, resume.")
    return visit.done(said, "queues")


def _limits(limit: int | None, worker_limit: int | None) -> str:
    told = [f"{limit:,} over all hosts" if limit else "", f"{worker_limit:,} per worker" if worker_limit else ""]
    return "at most " + " and ".join(word for word in told if word) if any(told) else "no limit"


def workers(visit: PageRequest) -> Response:
    """The workers that are alive, and what each of them runs."""
    found = [worker_views(each) for each in visit.store.workers.list()]
    running = visit.store.dashboard.running()
    by_worker = {each.id: [job for job in running if job.worker == each.id] for each in found}
    known = {each.id for each in found}
    versions = sorted({each.version or "none" for each in found})
    return visit.page(
        "workers.html",
        "workers",
        workers=found,
        running=by_worker,
        others=[job for job in running if job.worker not in known],
        versions=versions,
        silent=SILENT,
        cli="holdfast workers",
    )


def ask_worker(visit: PageRequest) -> Response:
    """Ask a worker to be quiet, to stop, or to go on."""
    worker, request = visit.asked("id"), visit.given("request")
    if request == "stop" and not visit.given("sure"):
        return visit.page(
            "sure.html",
            "workers",
            title=f"stop worker {worker}?",
            text="It ends as after a first signal: it claims nothing more, and waits for what runs.",
            action=visit.to("workers/act", id=worker),
            hidden={"request": request},
            ids=[],
            note=False,
            grave=True,
            button="stop it",
            back=visit.to("workers"),
            cli=f"holdfast ask {shlex.quote(worker)} stop",
        )
    visit.actions.worker(worker, request)
    return visit.done(f"Worker {worker} was asked: {request}. It hears of it with its next heartbeat.", "workers")

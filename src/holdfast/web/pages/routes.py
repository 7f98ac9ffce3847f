"""All pages and the acts behind their forms, as routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from holdfast.domain.access.roles import Role
from holdfast.errors import HoldfastError
from holdfast.errors.http import title_of
from holdfast.web.pages import batches, fleet, job, jobs, overview, records, schedules
from holdfast.web.pages.request import Handler, PageRequest, PageSite
from holdfast.web.pages.templates import HERE
from holdfast.web.stream import LiveUpdates
from holdfast.web.threads import Threads

#: What people look at.
PAGES: dict[str, Handler] = {
    "/": overview.overview,
    "/find": jobs.find,
    "/jobs": jobs.jobs,
    "/jobs/{id:int}": job.job,
    "/jobs/{id:int}/log": job.log,
    "/batches": batches.batches,
    "/batches/{id:int}": batches.batch,
    "/queues": fleet.queues,
    "/workers": fleet.workers,
    "/schedules": schedules.schedules,
    "/schedule": schedules.schedule,
    "/errors": records.errors,
    "/dependencies": records.dependencies,
    "/acts": records.acts,
    "/doctor": records.doctor,
}
#: What they do: each changes something, leads to a page, and checks the role that its verb needs.
ACTS: dict[str, Handler] = {
    "/jobs/act": jobs.act,
    "/jobs/{id:int}/act": job.act,
    "/filters": jobs.save,
    "/filters/drop": jobs.drop,
    "/batches/{id:int}/act": batches.act,
    "/batches/{id:int}/units": batches.units,
    "/queues/act": fleet.change_queue,
    "/workers/act": fleet.ask_worker,
    "/schedule/act": schedules.act,
    "/errors/act": records.act_on_cluster,
}


def routes(house: PageSite, live: LiveUpdates) -> list[BaseRoute]:
    """The routes of all pages and acts, and of the stream that tells open pages what changed."""

    async def stream(request: Request) -> Response:
        return await live.answer(request, house.may_stay)

    threads = Threads()
    looks = [Route(path, _answer(house, page, threads), methods=["GET"]) for path, page in PAGES.items()]
    static = Mount("/static", StaticFiles(directory=HERE / "static"))
    changes = [Route(path, _answer(house, _by_operator(act), threads), methods=["POST"]) for path, act in ACTS.items()]
    return [*looks, *changes, Route("/live", stream, methods=["GET"]), static]


def _by_operator(act: Handler) -> Handler:
    """Whoever may only look changes nothing, whatever the form says; some verbs ask for more."""

    def checked(visit: PageRequest) -> Response:
        visit.need(Role.OPERATOR)
        return act(visit)

    return checked


def _answer(house: PageSite, handler: Handler, threads: Threads) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        body = await request.body() if request.method == "POST" else b""
        return await threads.answer(request, _handled, house, handler, request, body)

    return answer


def _handled(house: PageSite, handler: Handler, request: Request, body: bytes) -> Response:
    """The page; what went wrong on purpose is a page too."""
    try:
        return handler(PageRequest(house, request, body))
    except HoldfastError as error:
        return wrong(PageRequest(house, request), error)


def wrong(visit: PageRequest, error: HoldfastError) -> Response:
    """What happened, why, and what to do next."""
    status = error.http_status
    told = {"code": error.code, "message": error.message, "hint": error.hint}
    return visit.page("wrong.html", "", status, title=title_of(status), **told)

"""The routes of all pages, and of the actions that their forms send."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from holdfast.domain.access.roles import Role
from holdfast.errors import HoldfastError
from holdfast.errors.http import title_of
from holdfast.web.pages import batches, fleet, inboxes, job, jobs, overview, schedules
from holdfast.web.request import LIVE_HEADER, WEB_FOLDER, Request, Threads, caller_of

if TYPE_CHECKING:
    from holdfast.web.app import Site

Handler = Callable[[Request], Response]

PAGES: dict[str, Handler] = {
    "/": overview.show_overview,
    "/find": jobs.find,
    "/jobs": jobs.show_jobs,
    "/jobs/{id:int}": job.show_job,
    "/jobs/{id:int}/log": job.show_log,
    "/batches": batches.show_batches,
    "/batches/{id:int}": batches.show_batch,
    "/inboxes": inboxes.show_inboxes,
    "/queues": fleet.show_queues,
    "/workers": fleet.show_workers,
    "/schedules": schedules.show_schedules,
    "/schedule": schedules.show_schedule,
    "/errors": jobs.show_errors,
    "/dependencies": job.show_dependencies,
    "/audit-log": overview.show_audit_log,
    "/doctor": overview.show_doctor,
}
#: Each changes something and redirects to a page. All require an operator; some handlers require an admin.
ACTIONS: dict[str, Handler] = {
    "/jobs/action": jobs.change_jobs,
    "/jobs/{id:int}/action": job.change_job,
    "/filters": jobs.save_filter,
    "/filters/drop": jobs.delete_filter,
    "/batches/{id:int}/action": batches.change_batch,
    "/batches/{id:int}/units": batches.change_units,
    "/inboxes/action": inboxes.change_result,
    "/queues/action": fleet.change_queue,
    "/workers/action": fleet.change_worker,
    "/stop-switch/action": fleet.change_stop_switch,
    "/schedule/action": schedules.change_schedule,
    "/errors/action": jobs.change_cluster,
}


def routes(site: Site) -> list[BaseRoute]:
    threads = Threads()
    return [
        *(Route(path, _route(site, handler, threads), methods=["GET"]) for path, handler in PAGES.items()),
        *(Route(path, _route(site, handler, threads), methods=["POST"]) for path, handler in ACTIONS.items()),
        Route("/live", site.live.answer, methods=["GET"]),
        Mount("/static", StaticFiles(directory=WEB_FOLDER / "static")),
    ]


def _route(site: Site, handler: Handler, threads: Threads) -> Callable[[HttpRequest], Awaitable[Response]]:
    async def answer(http: HttpRequest) -> Response:
        if http.method == "GET" and LIVE_HEADER in http.headers:
            key = (caller_of(http.scope).role, http.scope.get("root_path", ""), http.url.path, http.url.query)
            return await site.page_cache.answer(http, key, partial(_answer, site, handler, http, b""))
        body = await http.body() if http.method == "POST" else b""
        return await threads.answer(http, _answer, site, handler, http, body)

    return answer


def _answer(site: Site, handler: Handler, http: HttpRequest, body: bytes) -> Response:
    """Answer a request. An error of Holdfast has a page of its own."""
    try:
        request = Request(site, http, body)
        if http.method == "POST":
            request.require(Role.OPERATOR)
        return handler(request)
    except HoldfastError as error:
        status, request = error.http_status, Request(site, http)
        values = {"code": error.code, "message": error.message, "hint": error.hint}
        return request.page("error.html", "", status=status, title=title_of(status), **values)

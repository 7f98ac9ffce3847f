"""The page of dependencies: the jobs that one job depends on, and its dependents."""

from __future__ import annotations

from starlette.responses import Response

from holdfast.admin.views.jobs import job_view
from holdfast.domain.jobs.job import JobId, State
from holdfast.domain.jobs.selector import Selector
from holdfast.web.pages import charts
from holdfast.web.pages.jobs import job_rows
from holdfast.web.request import Request

MAX_WAITING_JOBS = 50


def show_dependencies(request: Request) -> Response:
    """Without a job in the address, the jobs that wait for others."""
    text, number = request.query("job"), request.query_number("job")
    if number is None:
        jobs = request.store.views.page(Selector(states=(State.WAITING,)), limit=MAX_WAITING_JOBS, brief=True).jobs
        waiting = job_rows(request, jobs)
        cli = "holdfast ls --state waiting"
        return request.page("dependencies.html", "dependencies", job=None, waiting=waiting, number=text, cli=cli)
    job = request.store.views.get(JobId(number))
    edges = request.store.dashboard.edges(job.id)
    return request.page(
        "dependencies.html",
        "dependencies",
        job=job_view(job, request.masks),
        edges=edges,
        graph=charts.graph(charts.nodes(job, edges), edges, request.base) if edges else "",
        number=text,
        cli=f"holdfast show {job.id}",
    )

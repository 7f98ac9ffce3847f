"""The pages of jobs: search, selection, bulk actions, and clusters of errors."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from holdfast.admin.actions.changed import count_objects
from holdfast.admin.actions.table import Target, find_action
from holdfast.admin.views.access import filter_views
from holdfast.admin.views.fleet import kind_names
from holdfast.admin.views.jobs import decoded_job, job_page
from holdfast.admin.views.overview import MAX_CLUSTERED_JOBS, error_clusters, job_counts
from holdfast.domain.access.roles import TEXT_SEARCH, Role
from holdfast.domain.jobs.job import Job, JobId, State
from holdfast.domain.jobs.selector import LISTS, SINGLE, Selector, format_filter, format_values, parse_filter
from holdfast.errors import HoldfastError, InvalidInput
from holdfast.web.pages.action import ActionForm, notice, offered
from holdfast.web.request import Request

PAGE_SIZE = 50
#: Jobs that one form may select, and names that the filter suggests.
MAX_SELECTED, MAX_SUGGESTIONS = 1000, 100
#: Clusters of errors on the page.
MAX_CLUSTERS = 100


def show_jobs(request: Request) -> Response:
    text, error = request.query("filter"), None
    try:
        selector = parse_filter(text)
        if state := request.query("state"):
            selector = selector.only(State(state))
    except (HoldfastError, ValueError) as refusal:
        selector, error = Selector(ids=()), refusal
    if selector.searches_text:
        request.require(Role.OPERATOR, TEXT_SEARCH)
    before = request.query_number("before")
    page = job_page(request.store, selector, before=before, limit=PAGE_SIZE)
    (counts, queues), matching = job_counts(request.store), format_filter(selector)
    cli = f"holdfast ls --filter {shlex.quote(matching)}" if matching and error is None else "holdfast ls"
    return request.page(
        "jobs.html",
        status=400 if error else 200,
        filter=text,
        state=request.query("state"),
        error=error,
        jobs=job_rows(page.jobs),
        next=page.next,
        before=before,
        counts=counts,
        saved=filter_views(request.store),
        suggestions=_suggestions(request, queues),
        states=list(State),
        everything=not matching or error is not None,
        matching=matching,
        bulk=offered(request, Target.JOB, without=("set",)),
        cli="" if selector.empty and error is None else cli,
    )


def job_rows(jobs: Sequence[Job]) -> list[dict[str, Any]]:
    """The rows of a table of jobs. *at* is when a job finished, else when it started, else when it was enqueued."""
    times = (job.finished_at or job.started_at or job.claimed_at or job.created_at for job in jobs)
    return [{**decoded_job(job, brief=True), "at": at, "due": job.due_at} for job, at in zip(jobs, times, strict=True)]


def _suggestions(request: Request, queues: list[str]) -> list[str]:
    """Terms for the filter field. Only operators may search in errors."""
    terms = [f"state={state}" for state in State]
    terms += [f"kind={format_values(kind)}" for kind in kind_names(request.store)[:MAX_SUGGESTIONS]]
    terms += [f"queue={format_values(queue)}" for queue in queues[:MAX_SUGGESTIONS]]
    left_out = ("state", "kind", "queue") if request.may(Role.OPERATOR) else ("state", "kind", "queue", "error")
    return [*terms, *(f"{name}=" for name in (*LISTS, *SINGLE) if name not in left_out), "since=1h"]


def find(request: Request) -> Response:
    """The search field of every page: an id, a filter, or the beginning of a label; for viewers a whole label."""
    text = request.query("q").strip()
    if text.isdecimal() and len(text) < 19:
        return request.redirect(f"jobs/{int(text)}")
    if not text:
        return request.redirect("jobs")
    label = text + "*" * request.may(Role.OPERATOR)
    return request.redirect("jobs", filter=text if "=" in text else f"label={format_values(label)}")


def change_jobs(request: Request) -> Response:
    """Perform an action on the selected jobs, or on all that match, after a confirmation if it needs one."""
    everything, jobs = request.field("which") == "all", request.actions.jobs
    form = ActionForm(request, jobs, request.field("action"), _selection(request, everything=everything))
    matched = jobs.count_matches(form.action.name, form.subject)
    if not request.field("sure") and (everything or form.action.destructive or matched > 1):
        return _confirm(request, form, matched)
    return request.done(notice(form.perform()), "jobs", filter=request.field("back"))


def _selection(request: Request, *, everything: bool) -> Selector:
    if everything:
        text = request.field("filter")
        if not text:
            raise InvalidInput("an action needs a filter or selected jobs", hint="Narrow the list with a filter first.")
        return parse_filter(text)
    ids = [value for value in request.fields("id") if value.isascii() and value.isdecimal() and len(value) < 19]
    if not ids:
        raise InvalidInput("no job is selected", hint="Select jobs with their boxes, or with x.")
    return Selector(ids=tuple(JobId(int(value)) for value in ids[:MAX_SELECTED]))


def _confirm(request: Request, form: ActionForm, matched: int) -> Response:
    selector: Selector = form.subject
    action, text, back = form.action, format_filter(selector), request.field("back")
    ids = [] if selector.ids is None else list(selector.ids)
    arguments = " ".join(map(str, ids)) if ids else f"--filter {shlex.quote(text)}"
    return form.confirm(
        "jobs",
        title=count_objects(matched, "job"),
        hidden={"action": action.name, "which": "chosen" if ids else "all", "filter": text, "back": back},
        ids=ids,
        back=request.url("jobs", filter=back),
        cli=f"holdfast {action.name} {arguments}{' --yes' if matched > 1 else ''}",
    )


def save_filter(request: Request) -> Response:
    name, text = request.field("name"), request.field("filter")
    if not text:
        raise InvalidInput("an empty filter cannot be saved", hint="Write one, for example state=dead.")
    request.actions.jobs.save_filter(name, text)
    return request.done(f"Saved as {name}.", "jobs", filter=text)


def delete_filter(request: Request) -> Response:
    name = request.query("name")
    request.actions.jobs.delete_filter(name)
    return request.done(f"{name} is deleted.", "jobs")


def show_errors(request: Request) -> Response:
    errors = error_clusters(request.store)
    return request.page(
        "errors.html",
        clusters=errors.clusters[:MAX_CLUSTERS],
        left_out=max(0, len(errors.clusters) - MAX_CLUSTERS),
        looked=errors.looked_at,
        capped=errors.looked_at >= MAX_CLUSTERED_JOBS,
        cli="holdfast errors",
    )


def change_cluster(request: Request) -> Response:
    """Retry or delete the dead jobs of one cluster, after a confirmation with the answer of a dry run."""
    key, jobs = request.field("cluster"), request.actions.jobs
    action = find_action(Target.JOB, request.field("action"))
    request.require(action.role)
    if request.field("sure"):
        return request.done(notice(jobs.perform_on_cluster(action.name, key)), "errors")
    preview = jobs.perform_on_cluster(action.name, key, dry_run=True)
    return request.confirm(
        "errors",
        title=f"{action.label.lower()} {count_objects(preview.matched, 'dead job')}?",
        text=action.confirmation,
        preview=notice(preview),
        hidden={"action": action.name, "cluster": key},
        destructive=action.destructive,
        back=request.url("errors"),
    )

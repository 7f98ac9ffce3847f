"""The page of errors: dead jobs in clusters of similar errors."""

from __future__ import annotations

from starlette.responses import Response

from holdfast.admin.actions.jobs import job_action
from holdfast.admin.views.overview import error_clusters
from holdfast.web.pages.jobs import CONFIRMATIONS, describe_change
from holdfast.web.request import Request

#: Dead jobs that are clustered, and clusters on the page.
MAX_CLUSTERED_JOBS, MAX_CLUSTERS = 1000, 100


def show_errors(request: Request) -> Response:
    jobs = request.store.dashboard.errors(limit=MAX_CLUSTERED_JOBS)
    clusters = error_clusters(jobs, request.masks)
    return request.page(
        "errors.html",
        "errors",
        clusters=clusters[:MAX_CLUSTERS],
        left_out=max(0, len(clusters) - MAX_CLUSTERS),
        looked=len(jobs),
        capped=len(jobs) == MAX_CLUSTERED_JOBS,
        cli="holdfast ls --state dead",
    )


def change_cluster(request: Request) -> Response:
    """Retry or delete the dead jobs of one cluster, after a confirmation with their count."""
    action, key = request.field("action"), request.field("cluster")
    request.require(job_action(action).role)
    if not request.field("sure"):
        count = request.actions.jobs.perform_on_cluster(action, key, dry_run=True).matched
        label = "discard" if action == "rm" else action
        return request.confirm(
            "errors",
            title=f"{label} {count:,} dead jobs?",
            text=CONFIRMATIONS[action],
            action=request.url("errors/action"),
            hidden={"action": action, "cluster": key},
            destructive=job_action(action).destructive,
            button=f"{label} {count:,} jobs",
            back=request.url("errors"),
        )
    done = request.actions.jobs.perform_on_cluster(action, key)
    return request.done(describe_change(action, done.changed, done.matched), "errors")

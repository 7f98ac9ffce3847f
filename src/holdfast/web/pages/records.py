"""What is written down: errors by cluster, dependencies, acts; and what the doctor finds."""

from __future__ import annotations

import shlex

from starlette.responses import Response

from holdfast.admin.actions.jobs import job_action
from holdfast.admin.views.jobs import job_view
from holdfast.admin.views.overview import error_clusters
from holdfast.domain.health_check import Level
from holdfast.domain.jobs.job import JobId, State
from holdfast.domain.jobs.selector import Selector
from holdfast.web.pages import charts
from holdfast.web.pages.jobs import SURE, rows, tell
from holdfast.web.pages.request import PageRequest

#: Dead jobs that are looked at for their clusters; jobs that wait, where no job was chosen; acts on a page.
LOOKED_AT, SHOWN, WAITING, ACTS = 1000, 100, 50, 50


def errors(visit: PageRequest) -> Response:
    """Dead jobs whose errors look alike, over all kinds."""
    found = visit.store.dashboard.errors(limit=LOOKED_AT)
    clusters = error_clusters(found, visit.masks)
    return visit.page(
        "errors.html",
        "errors",
        clusters=clusters[:SHOWN],
        left_out=max(0, len(clusters) - SHOWN),
        looked=len(found),
        capped=len(found) == LOOKED_AT,
        cli="holdfast ls --state dead",
    )


def act_on_cluster(visit: PageRequest) -> Response:
    """Retry or remove the dead jobs of one cluster; their count comes first."""
    action, key = visit.given("action"), visit.given("cluster")
    visit.need(job_action(action).role)
    if not visit.given("sure"):
        count = visit.actions.cluster(action, key, dry_run=True).matched
        return visit.page(
            "sure.html",
            "errors",
            title=f"{'discard' if action == 'rm' else action} {count:,} dead jobs?",
            text=SURE[action],
            action=visit.to("errors/act"),
            hidden={"action": action, "cluster": key},
            ids=[],
            note=False,
            grave=job_action(action).destructive,
            button=f"{'discard' if action == 'rm' else action} {count:,} jobs",
            back=visit.to("errors"),
            cli="",
        )
    done = visit.actions.cluster(action, key)
    return visit.done(tell(action, done.changed, done.matched), "errors")


def dependencies(visit: PageRequest) -> Response:
    """What a job needs and what needs it; without a job, those that wait for others."""
    text, number = visit.asked("job"), visit.asked_number("job")
    if number is None:
        waiting = visit.store.views.page(Selector(states=(State.WAITING,)), limit=WAITING, brief=True).jobs
        told = rows(visit, waiting)
        return visit.page(
            "dependencies.html", "dependencies", job=None, waiting=told, asked=text, cli="holdfast ls --state waiting"
        )
    job = visit.store.views.get(JobId(number))
    edges = visit.store.dashboard.edges(job.id)
    placed = charts.nodes(job, edges)
    return visit.page(
        "dependencies.html",
        "dependencies",
        job=job_view(job, visit.masks),
        edges=edges,
        graph=charts.graph(placed, edges, visit.base) if edges else "",
        asked=text,
        cli=f"holdfast show {job.id}",
    )


def acts(visit: PageRequest) -> Response:
    """What people did, the newest first."""
    actor, text, before = visit.asked("actor") or None, visit.asked("text") or None, visit.asked_number("before")
    page = {} if before is None else {"before": before}
    found = visit.store.audit_log.page(limit=ACTS, actor=actor, text=text, **page)
    line = "holdfast audit-log" + (f" --actor {shlex.quote(actor)}" if actor else "")
    line += f" --about {shlex.quote(text)}" if text else ""
    return visit.page(
        "acts.html",
        "acts",
        acts=found,
        actor=actor,
        text=text,
        next=found[-1].id if len(found) == ACTS else None,
        before=before,
        cli=line,
    )


def doctor(visit: PageRequest) -> Response:
    """What the doctor finds here: on this server, and in the store."""
    checks, at = visit.house.examined()
    order = {Level.FAIL: 0, Level.WARN: 1, Level.OK: 2}
    return visit.page(
        "doctor.html",
        "doctor",
        checks=sorted(checks, key=lambda check: order[check.level]),
        failures=sum(check.level is Level.FAIL for check in checks),
        warnings=sum(check.level is Level.WARN for check in checks),
        examined_at=at,
        words={"ok": "ok", "warn": "warning", "fail": "problem"},
        cli="holdfast doctor",
    )

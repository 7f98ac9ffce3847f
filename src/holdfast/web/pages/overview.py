"""The pages of the whole store: the overview, the findings of the doctor, the audit log."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import groupby

from msgspec import Struct
from starlette.responses import Response

from holdfast.admin.views.access import audit_views
from holdfast.admin.views.overview import Attention, Overview, overview
from holdfast.domain.health_check import Level
from holdfast.domain.jobs.job import State
from holdfast.web.request import Request

#: The label and tone of each category of problem, the worst first.
PROBLEMS = {
    "stopped": ("stopped", "bad"),
    "expired": ("lost worker", "bad"),
    "overdue": ("overdue", "bad"),
    "dead": ("dead", "bad"),
    "failing": ("failing", "bad"),
    "late": ("late", "bad"),
    "no_worker": ("no worker", "bad"),
    "unreadable": ("other code", "bad"),
    "lost_worker": ("lost", "bad"),
    "shared_name": ("two applications", "bad"),
    "late_worker": ("late", "warn"),
    "moved_name": ("two modules", "warn"),
    "breaker": ("breaker", "bad"),
    "missed": ("missed", "warn"),
    "slow_queue": ("slow", "warn"),
    "full_queue": ("full", "warn"),
    "paused_queue": ("paused", "warn"),
    "stopped_batch": ("stopped", "warn"),
    "paused_batch": ("paused", "warn"),
    "paused_schedule": ("paused", "warn"),
}
#: Problems of one category that have a line each.
MAX_LISTED = 5
#: Findings in the order of the page, with the states that they are drawn as.
LEVELS = {Level.FAIL: "problem", Level.WARN: "warning", Level.OK: "ok"}
PAGE_SIZE = 50


class AttentionLine(Struct, frozen=True):
    """A line of the list of problems, with the page that helps."""

    label: str
    tone: str
    text: str
    link: str
    at: datetime | None = None


def show_overview(request: Request) -> Response:
    view = overview(request.store, running=0)
    return request.page(
        "overview.html",
        view=view,
        stopped=view.stopped,
        attention=_attention_lines(view.attention, request),
        slots=_slots(view),
        cli="holdfast top",
        states=[State.RUNNING, State.READY, State.SCHEDULED, State.WAITING, State.HELD, State.DEAD],
        per_minute=sum(queue.done_per_minute or 0 for queue in view.queues),
        newest=next((queue.counted_newest for queue in view.queues if queue.counted_newest), None),
        expired=sum(queue.expired for queue in view.queues),
    )


def _attention_lines(problems: list[Attention], request: Request) -> list[AttentionLine]:
    """The problems, the worst first. A frequent category has some lines, and one with the number of the others."""
    order = {category: place for place, category in enumerate(PROBLEMS)}
    by_category = sorted(problems, key=lambda problem: order.get(problem.category, 99))
    lines: list[AttentionLine] = []
    for category, group in groupby(by_category, key=lambda problem: problem.category):
        same = list(group)
        label, tone = PROBLEMS.get(category, (category, "warn"))
        shown = same[:MAX_LISTED]
        lines += [AttentionLine(label, tone, each.text, _link(request, category, each.name), each.at) for each in shown]
        if len(same) > MAX_LISTED:
            more = f"and {len(same) - MAX_LISTED} more"
            lines.append(AttentionLine(label, tone, more, _link(request, category)))
    return lines


def _link(request: Request, category: str, name: str | None = None) -> str:
    """The page of one problem; without a name, the list of all problems of this category."""
    match category:
        case "expired" | "overdue":
            return request.url(f"jobs/{name}") if name else request.url("jobs", state="running")
        case "dead":
            return request.url("errors")
        case "unreadable":
            return request.url("jobs", state="held", kind=name)
        case "failing" | "late" | "paused_schedule" | "missed":
            return request.url("schedule", name=name) if name else request.url("schedules")
        case "paused_batch" | "stopped_batch":
            return request.url(f"batches/{name}" if name else "batches")
        case _:
            of_workers = category.endswith(("_worker", "_name"))
            return request.url("workers" if of_workers else "queues")


def _slots(view: Overview) -> list[tuple[int, int | None, int | None]]:
    """Finished jobs of all queues by slot of time, oldest first: minutes before now, done, dead; None: not counted."""
    length = timedelta(seconds=view.slot_s)
    count = int(view.span_s / view.slot_s)
    minutes = [-(place * length // timedelta(minutes=1)) for place in range(count - 1, -1, -1)]
    done = [_total([queue.done[place] for queue in view.queues]) for place in range(count)]
    dead = [_total([queue.dead[place] for queue in view.queues]) for place in range(count)]
    return list(zip(minutes, done, dead, strict=True))


def _total(counts: Sequence[int | None]) -> int | None:
    """The sum over all queues. What is unknown of one is unknown of all: only the newest jobs were counted."""
    return None if None in counts else sum(each or 0 for each in counts)


def show_doctor(request: Request) -> Response:
    checks, at = request.site.diagnose()
    order = list(LEVELS)
    return request.page(
        "doctor.html",
        checks=sorted(checks, key=lambda check: order.index(check.level)),
        failures=sum(check.level is Level.FAIL for check in checks),
        warnings=sum(check.level is Level.WARN for check in checks),
        examined_at=at,
        states=LEVELS,
        cli="holdfast doctor",
    )


def show_audit_log(request: Request) -> Response:
    actor, text = request.query("actor") or None, request.query("text") or None
    before = request.query_number("before")
    entries = audit_views(request.store, before=before, limit=PAGE_SIZE, actor=actor, text=text)
    cli = "holdfast audit-log" + (f" --actor {shlex.quote(actor)}" if actor else "")
    cli += f" --about {shlex.quote(text)}" if text else ""
    older = entries[-1].id if len(entries) == PAGE_SIZE else None
    return request.page("audit_log.html", entries=entries, actor=actor, text=text, next=older, before=before, cli=cli)

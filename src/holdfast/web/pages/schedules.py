"""The pages of schedules."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from typing import Any

from starlette.responses import Response

from holdfast.admin.views.schedules import PlanView, plan_views, schedule_page, schedule_view, store_time
from holdfast.client.schedules.api import REASONS
from holdfast.domain.jobs.selector import parse_timestamp
from holdfast.domain.names import quote_argument
from holdfast.domain.schedules.definition import Condition
from holdfast.domain.schedules.firing_times import zone_of
from holdfast.web.pages.action import ActionForm, notice
from holdfast.web.pages.charts import PlanMark
from holdfast.web.request import Request

#: Schedules on a page; next plans and past plans of one schedule.
PAGE_SIZE, NEXT_PLANS, PAST_PLANS = 50, 5, 60
#: Reasons of skips that no person requested.
MISSED = frozenset({"late", "window", "catch_up", "backlog"})


def show_schedules(request: Request) -> Response:
    after, now = request.query("after"), store_time(request.store)
    chosen = {name: value for name in ("state", "kind", "name") if (value := request.query(name))}
    page = schedule_page(request.store, **chosen, after=after, limit=PAGE_SIZE, plans=1, now=now)
    return request.page(
        "schedules.html",
        schedules=page.schedules,
        next=page.next,
        after=after,
        chosen=chosen,
        conditions=list(Condition),
        now=now,
        cli=" ".join(["holdfast schedule ls", *(f"--{key} {quote_argument(chosen[key])}" for key in chosen)]),
    )


def show_schedule(request: Request, preview: str = "", fields: dict[str, str] | None = None) -> Response:
    """One schedule. *preview* is the result of a dry run of a backfill, *fields* its form."""
    name, now = request.query("name"), store_time(request.store)
    schedule = schedule_view(request.store, name, plans=NEXT_PLANS, now=now)
    plans = plan_views(request.store, name, limit=PAST_PLANS)
    return request.page(
        "schedule.html",
        "schedules",
        schedule=schedule,
        plans=plans,
        marks=[PlanMark(plan_state(plan), _describe_plan(plan)) for plan in reversed(plans)],
        reasons={str(reason): text for reason, text in REASONS.items()},
        plan_state=plan_state,
        preview=preview,
        self_url=request.url("schedule", name=name) if preview else "",
        fields=fields or {},
        now=now,
        cli=f"holdfast schedule show {quote_argument(name)}",
    )


def plan_state(plan: PlanView) -> str:
    """The state that a past plan is drawn as."""
    if plan.decision == "fired":
        return plan.state or "gone"
    return "missed" if plan.reason in MISSED else "skipped"


def _describe_plan(plan: PlanView) -> str:
    return f"{_format_time(plan.first)}: {plan_state(plan)}, {plan.reason}"


def change_schedule(request: Request) -> Response:
    name = request.query("name")
    form = ActionForm(request, request.actions.schedules, request.field("action"), name)
    if form.action.name == "backfill":
        return _backfill(request, form, name)
    if form.lacks_confirmation:
        hidden, cli = {"action": form.action.name}, f"holdfast schedule {form.action.name} {quote_argument(name)} --yes"
        back = request.url("schedule", name=name)
        return form.confirm("schedules", title=f"schedule {name}", hidden=hidden, back=back, cli=cli)
    options: dict[str, Any] = {"scopes": _scopes(request)} if "scopes" in form.action.options else {}
    done = form.perform(**options)
    jobs = f" Jobs: {', '.join(str(job) for job in done.jobs[:10])}." if done.jobs else ""
    text = f"{notice(done)}{jobs}"
    return request.done(text, "schedules") if form.action.name == "rm" else request.done(text, "schedule", name=name)


def _scopes(request: Request) -> list[str] | None:
    """The scopes of the form, separated by commas; None means all."""
    return [scope.strip() for scope in request.field("scopes").split(",") if scope.strip()] or None


def _backfill(request: Request, form: ActionForm, name: str) -> Response:
    """Show the plans that a backfill would fire; fire them once the person has confirmed."""
    fields = {field: request.field(field) for field in ("first", "last", "scopes")}
    now = store_time(request.store)
    zone = zone_of(request.field("zone") or "UTC")
    span = {"first": _parse_time(fields["first"], now, zone), "last": _parse_time(fields["last"] or "0s", now, zone)}
    dry_run = request.field("sure") != "1"
    text = notice(form.perform(dry_run=dry_run, scopes=_scopes(request), **span))
    return show_schedule(request, text, fields) if dry_run else request.done(text, "schedule", name=name)


def _parse_time(text: str, now: datetime, zone: tzinfo) -> datetime:
    """A time as people or date fields write it; *zone* is that of the form."""
    try:
        timestamp = datetime.fromisoformat(text)
    except ValueError:
        return parse_timestamp(text, now=now)
    return timestamp if timestamp.tzinfo is not None else timestamp.replace(tzinfo=zone)


def _format_time(timestamp: datetime) -> str:
    return f"{timestamp.astimezone(UTC):%Y-%m-%d %H:%M} UTC"

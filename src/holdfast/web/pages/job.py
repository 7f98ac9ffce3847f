"""One job: why it is not running, how far it is, its time, its attempts, its log."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct
from starlette.responses import Response

from holdfast.admin.actions.actions import JOB_ACTIONS
from holdfast.admin.actions.jobs import job_action
from holdfast.admin.views.jobs import job_detail, job_view
from holdfast.admin.views.logs import find_log, read_log, search_log
from holdfast.domain.commands.command import COMMAND
from holdfast.domain.jobs.history import Attempt
from holdfast.domain.jobs.job import FINISHED, Job, JobId, State
from holdfast.domain.jobs.selector import Selector
from holdfast.errors import HoldfastError
from holdfast.web.pages import charts
from holdfast.web.pages.ansi import plain
from holdfast.web.pages.jobs import tell
from holdfast.web.pages.request import PageRequest

#: What can be done to a job in each state; the first is what is wanted most often.
ACTIONS = {
    State.HELD: ("unhold", "set", "cancel", "rm"),
    State.WAITING: ("hold", "set", "cancel", "rm"),
    State.SCHEDULED: ("retry", "hold", "set", "cancel", "rm"),
    State.READY: ("hold", "set", "cancel", "rm"),
    State.RUNNING: ("pause", "cancel"),
    State.DONE: ("rm",),
    State.DEAD: ("retry", "rm"),
    State.CANCELLED: ("retry", "rm"),
}


class Progress(Struct, frozen=True):
    """How far a running job is: its share, how fast it goes, and when it may be through."""

    done: int
    total: int | None
    message: str | None
    rate: float | None
    left: timedelta | None


def progress(job: Job, now: datetime, message: str | None) -> Progress | None:
    """How far a job is, if it says so, and its *message*. A rate is told only of what was done in this attempt."""
    if job.progress_done is None:
        return None
    since = job.started_at or job.claimed_at
    running = job.state is State.RUNNING and since is not None
    seconds = (now - since).total_seconds() if running and since is not None else 0.0
    rate = job.progress_done / seconds if seconds > 0 and job.progress_done > 0 else None
    left = None
    if rate and job.progress_total is not None:
        left = timedelta(seconds=max(0, job.progress_total - job.progress_done) / rate)
    return Progress(job.progress_done, job.progress_total, message, rate, left)


def job(visit: PageRequest) -> Response:
    """One job with all that is known of it."""
    story = visit.store.dashboard.job_record(JobId(visit.id))
    told = job_detail(story, visit.masks)
    stretches = charts.timeline(story.job, told.attempts, told.events, story.now)
    return visit.page(
        "job.html",
        "jobs",
        job=told.job,
        raw=story.job,
        why=told.why,
        attempts=list(reversed(told.attempts)),
        events=list(reversed(told.events)),
        edges=story.edges,
        progress=progress(story.job, story.now, told.job["progress_message"]),
        stretches=stretches,
        first=stretches[0].begin if stretches else story.job.created_at,
        last=story.job.finished_at or story.now,
        actions=[action for action in ACTIONS[story.job.state] if visit.may(JOB_ACTIONS[action].role)],
        noted=[action for action in ACTIONS[story.job.state] if JOB_ACTIONS[action].note],
        is_program=story.job.kind == COMMAND,
        seen_at=story.seen_at,
        now=story.now,
        cli=f"holdfast show {story.job.id}",
    )


def act(visit: PageRequest) -> Response:
    """Do a verb to one job."""
    name = visit.given("action")
    action = job_action(name)
    visit.need(action.role)
    words: dict[str, Any] = {"note": visit.given("note") or None} if action.note else {}
    if name == "set":
        words = {
            "priority": visit.number("priority"),
            "to_queue": visit.given("to_queue") or None,
            "run_at": visit.given("run_at") or None,
        }
    changed = visit.actions.jobs(name, Selector(ids=(JobId(visit.id),)), **words)
    text = tell(name, changed.changed, changed.matched) if changed.changed else f"{name} changed nothing."
    return visit.done(text, "jobs" if name == "rm" and changed.changed else f"jobs/{visit.id}")


def log(visit: PageRequest) -> Response:
    """What a program wrote in one attempt: its end, followed while it runs, or the lines that hold a text."""
    story = visit.store.dashboard.job_record(JobId(visit.id), events=1)
    chosen = _attempt(visit, story.attempts, story.job)
    values, requested, part, found, wrong = visit.masks.values(story.job), visit.asked("find"), None, None, None
    try:
        path = find_log(visit.house.logs, story.job, chosen)
        if requested:
            found = search_log(path, values, requested)
        else:
            finished = story.job.state in FINISHED or chosen != story.job.token
            part = read_log(path, values, begin=visit.asked_number("from"), finished=finished)
    except HoldfastError as error:
        wrong = error
    return visit.page(
        "log.html",
        "jobs",
        job=job_view(story.job, visit.masks),
        attempts=story.attempts,
        token=chosen,
        part=part,
        found=found,
        requested=requested,
        wrong=wrong,
        plain=plain,
        running=story.job.state is State.RUNNING and chosen == story.job.token,
        cli=f"holdfast log {story.job.id}" + (" --follow" if story.job.state is State.RUNNING else ""),
        now=story.now,
    )


def _attempt(visit: PageRequest, attempts: list[Attempt], found: Job) -> int:
    token = visit.asked_number("token")
    if token is not None:
        return token
    return attempts[-1].token if attempts else found.token

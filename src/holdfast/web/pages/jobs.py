"""Jobs: find them, choose some or all that match, and act on them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from starlette.responses import Response

from holdfast.admin.actions.actions import JOB_ACTIONS
from holdfast.admin.actions.jobs import job_action
from holdfast.admin.views.jobs import list_views
from holdfast.admin.views.overview import counts_of
from holdfast.domain.access.roles import ERROR_SEARCH, Role
from holdfast.domain.jobs.filter import LISTS, SINGLE, format_filter, format_values, parse_filter
from holdfast.domain.jobs.job import Job, JobId, State
from holdfast.domain.jobs.selector import Selector
from holdfast.errors import HoldfastError, InvalidInput
from holdfast.web.pages.request import PageRequest

PAGE = 50
#: What can be done to several jobs from the list, in the order of the buttons.
BULK = ("retry", "cancel", "pause", "resume", "hold", "unhold", "rm")
#: What is done by a verb, for the line that tells of it.
PAST = {
    "retry": "retried",
    "cancel": "cancelled",
    "pause": "paused",
    "resume": "resumed",
    "hold": "held",
    "unhold": "let go",
    "rm": "removed",
    "set": "changed",
    "kill": "killed",
    "restart": "restarted",
}


def jobs(visit: PageRequest) -> Response:
    """A page of jobs, the newest first."""
    text, wrong = visit.asked("filter"), None
    try:
        selector = parse_filter(text)
        if state := visit.asked("state"):
            selector = selector.only(State(state))
    except (HoldfastError, ValueError) as error:
        selector, wrong = Selector(ids=()), error
    if selector.error is not None:
        visit.need(Role.OPERATOR, ERROR_SEARCH)
    before = visit.asked_number("before")
    found = visit.store.views.page(selector, before=None if before is None else JobId(before), limit=PAGE, brief=True)
    tallies = visit.store.dashboard.tallies()
    return visit.page(
        "jobs.html",
        "jobs",
        400 if wrong else 200,
        filter=text,
        state=visit.asked("state"),
        wrong=wrong,
        jobs=rows(visit, found.jobs),
        next=found.next,
        before=before,
        counts=counts_of(tallies),
        saved=visit.store.saved_filters.list(),
        words=suggestions(visit, sorted({tally.queue for tally in tallies if tally.queue})),
        states=list(State),
        everything=not format_filter(selector) or wrong is not None,
        matching=format_filter(selector),
        bulk=[action for action in BULK if visit.may(JOB_ACTIONS[action].role)],
        cli="holdfast ls" if wrong is not None else "" if selector.empty else _ls(selector),
    )


def rows(visit: PageRequest, found: Sequence[Job]) -> list[dict[str, Any]]:
    """Jobs as a list shows them. The moment that matters is when it ended, else when it began, or was enqueued."""
    told = list_views(found, visit.masks, visit.store)
    return [{**facts, "at": _moment(job), "due": job.due_at} for facts, job in zip(told, found, strict=True)]


def _moment(job: Job) -> datetime:
    return job.finished_at or job.started_at or job.claimed_at or job.created_at


def _ls(selector: Selector) -> str:
    text = format_filter(selector)
    return f"holdfast ls --filter {shlex.quote(text)}" if text else "holdfast ls"


def suggestions(visit: PageRequest, queues: list[str]) -> list[str]:
    """Terms that a filter may be made of."""
    known = [f"state={state}" for state in State]
    known += [f"kind={format_values(kind)}" for kind in visit.masks.kinds()[:100]]
    known += [f"queue={format_values(queue)}" for queue in queues[:100]]
    left_out = ("state", "kind", "queue") if visit.may(Role.OPERATOR) else ("state", "kind", "queue", "error")
    return [*known, *(f"{word}=" for word in (*LISTS, *SINGLE) if word not in left_out), "since=1h"]


def find(visit: PageRequest) -> Response:
    """Where the search in the head leads: to a job by its number, by a filter, or by how its label begins."""
    text = visit.asked("q").strip()
    if text.isdecimal() and len(text) < 19:
        return visit.go(f"jobs/{int(text)}")
    if not text:
        return visit.go("jobs")
    return visit.go("jobs", filter=text if "=" in text else f"label={format_values(text + '*')}")


# -- acts ------------------------------------------------------------------------------------------


def act(visit: PageRequest) -> Response:
    """Do a verb to the chosen jobs, or to all that match; what is grave, or many, is asked about first."""
    name = visit.given("action")
    action = job_action(name)
    visit.need(action.role)
    every = visit.given("which") == "all"
    selector = _chosen(visit, every=every)
    matched = visit.actions.matched(name, selector)
    if not visit.given("sure") and (every or action.destructive):
        return _ask(visit, name, selector, matched)
    note: dict[str, Any] = {"note": visit.given("note") or None} if action.note else {}
    changed = visit.actions.jobs(name, selector, matched=matched, **note)
    return visit.done(tell(name, changed.changed, matched), "jobs", filter=visit.given("back"))


def _chosen(visit: PageRequest, *, every: bool) -> Selector:
    if every:
        text = visit.given("filter")
        if not text:
            raise InvalidInput("a verb does not take everything", hint="Narrow the list with a filter first.")
        return parse_filter(text)
    ids = [value for value in visit.all_given("id") if value.isascii() and value.isdecimal() and len(value) < 19]
    if not ids:
        raise InvalidInput("no job was chosen", hint="Choose some with their boxes, or with x.")
    return Selector(ids=tuple(JobId(int(value)) for value in ids[:1000]))


def _ask(visit: PageRequest, action: str, selector: Selector, matched: int) -> Response:
    """The question before a verb, with how many jobs it would take."""
    ids = [] if selector.ids is None else list(selector.ids)
    text = format_filter(selector)
    words = " ".join(map(str, ids)) if ids else f"--filter {shlex.quote(text)}"
    yes = " --yes" if JOB_ACTIONS[action].destructive else ""
    return visit.page(
        "sure.html",
        "jobs",
        title=f"{action} {_jobs(matched)}?",
        text=SURE[action],
        action=visit.to("jobs/act"),
        hidden={"action": action, "which": "chosen" if ids else "all", "filter": text, "back": visit.given("back")},
        ids=ids,
        note=JOB_ACTIONS[action].note,
        grave=JOB_ACTIONS[action].destructive,
        button=f"{action} {_jobs(matched)}",
        back=visit.to("jobs", filter=visit.given("back")),
        cli=f"holdfast {action} {words}{yes}",
    )


#: What a verb does, for those who are asked.
SURE = {
    "retry": "Dead and cancelled jobs run again with all their attempts; those that wait for a retry run now.",
    "cancel": "Jobs that nobody runs end at once; running ones are told at their worker's next heartbeat.",
    "pause": "They are held; running ones are told to stop, and lose no attempt.",
    "resume": "Paused and held jobs go on.",
    "hold": "Those that nobody runs are kept from starting until somebody lets them go.",
    "unhold": "Held jobs go on.",
    "rm": "They are removed with their whole history. Running ones, and those that live jobs need, are refused.",
    "kill": "Running jobs are asked to end, and killed if they do not within seconds.",
    "restart": "They run again: the same jobs, with a new attempt.",
}


def tell(action: str, changed: int, matched: int) -> str:
    """What was done, in a line."""
    of = "" if changed == matched else f" of {_jobs(matched)}"
    return f"{_jobs(changed) if not of else f'{changed:,}'}{of} {PAST.get(action, action)}."


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count:,} jobs"


# -- saved filters -----------------------------------------------------------------------------------


def save(visit: PageRequest) -> Response:
    """Keep a filter under a name, for all who look at this store."""
    name, text = visit.given("name"), visit.given("filter")
    if not text:
        raise InvalidInput("an empty filter needs no name", hint="Write one, for example state=dead.")
    visit.actions.save_filter(name, text)
    return visit.done(f"Saved as {name}.", "jobs", filter=text)


def drop(visit: PageRequest) -> Response:
    """Forget a saved filter."""
    name = visit.asked("name")
    visit.actions.drop_filter(name)
    return visit.done(f"{name} is forgotten.", "jobs")

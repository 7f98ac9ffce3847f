"""Schedules: when they fire, what became of their plans, and how they are steered."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from starlette.responses import Response

from holdfast.admin.views.schedules import PlanView, plan_view, schedule_view
from holdfast.client.schedules.api import REASONS
from holdfast.domain.access.roles import Role
from holdfast.domain.jobs.filter import parse_timestamp
from holdfast.domain.text import as_argument
from holdfast.errors import InvalidInput
from holdfast.web.pages.charts import PlanMark
from holdfast.web.pages.request import PageRequest

PAGE, PLANS, HISTORY = 50, 5, 60
#: Skips that nobody has asked for.
MISSED = frozenset({"late", "window", "catch_up"})


def schedules(visit: PageRequest) -> Response:
    """Schedules by name, and when each fires next."""
    after, store = visit.asked("after"), visit.store.schedules
    found = store.page(after=after, limit=PAGE)
    now = store.now()
    return visit.page(
        "schedules.html",
        "schedules",
        schedules=[schedule_view(each, now, plans=1, secrets=visit.masks.of_schedule(each)) for each in found],
        next=found[-1].name if len(found) == PAGE else None,
        after=after,
        now=now,
        cli="holdfast schedule ls",
    )


def schedule(visit: PageRequest, dry: str = "", asked: dict[str, str] | None = None) -> Response:
    """One schedule: in words, its next plans, and what became of those before."""
    name = visit.asked("name")
    store = visit.store
    found, now = store.schedules.get(name), store.schedules.now()
    entries = [plan_view(each) for each in store.plans.history(name, limit=HISTORY)]
    entries += [plan_view(each) for each in store.plans.skips(name, limit=HISTORY)]
    entries = sorted(entries, key=lambda each: each.last, reverse=True)[:HISTORY]
    facts = schedule_view(found, now, plans=PLANS, secrets=visit.masks.of_schedule(found))
    return visit.page(
        "schedule.html",
        "schedules",
        schedule=facts,
        entries=entries,
        marks=marks(entries),
        reasons={str(reason): text for reason, text in REASONS.items()},
        word=word,
        dry=dry,
        own=visit.to("schedule", name=name) if dry else "",
        asked=asked or {},
        now=now,
        cli=f"holdfast schedule show {as_argument(name)}",
    )


def word(each: PlanView) -> str:
    """The state that tells what became of plans."""
    if each.decision == "fired":
        return each.state or "gone"
    return "missed" if each.reason in MISSED else "skipped"


def marks(entries: Sequence[PlanView]) -> list[PlanMark]:
    """The strip of past plans, the oldest first."""
    return [
        PlanMark(word(each), f"{each.first.astimezone(UTC):%Y-%m-%d %H:%M} UTC: {word(each)}, {each.reason}")
        for each in reversed(entries)
    ]


def act(visit: PageRequest) -> Response:
    """Pause, resume, trigger, backfill or remove a schedule."""
    name, action = visit.asked("name"), visit.given("action")
    visit.need(Role.ADMIN if action == "rm" else Role.OPERATOR)
    match action:
        case "pause":
            visit.actions.schedule("pause", name, note=visit.given("note") or None)
            return visit.done(f"{name} is paused.", "schedule", name=name)
        case "resume":
            visit.actions.schedule("resume", name)
            return visit.done(f"{name} goes on from now; what was due meanwhile is skipped.", "schedule", name=name)
        case "trigger":
            fired = visit.actions.trigger(name, scopes=_scopes(visit))
            told = ", ".join(str(job) for job in fired.jobs[:10])
            return visit.done(f"{name} was fired as job {told}.", "schedule", name=name)
        case "backfill":
            return _backfill(visit, name)
        case "rm":
            return _remove(visit, name)
        case _:
            raise InvalidInput(
                f"a schedule cannot be told to {action[:40]!r}", hint="Verbs: pause, resume, trigger, rm."
            )


def _scopes(visit: PageRequest) -> list[str] | None:
    text = visit.given("scopes")
    return [scope.strip() for scope in text.split(",") if scope.strip()] or None if text else None


def _backfill(visit: PageRequest, name: str) -> Response:
    """Say which plans of a stretch were not fired; once that was seen, fire them."""
    asked = {word: visit.given(word) for word in ("first", "last", "scopes")}
    now = visit.store.schedules.now()
    first, last = _moment(asked["first"], now), _moment(asked["last"] or "0s", now)
    dry = visit.given("sure") != "1"
    done = visit.actions.backfill(name, first, last, scopes=_scopes(visit), dry_run=dry)
    span = f" from {_say(done.first)} to {_say(done.last)}" if done.first and done.last else ""
    if dry:
        text = f"{done.plans:,} plans{span} would be fired, {done.known:,} had been before."
        return schedule(visit, text, asked)
    return visit.done(f"{done.plans:,} plans{span} fired, {done.known:,} had been before.", "schedule", name=name)


def _moment(text: str, now: datetime) -> datetime:
    """A moment as a person or a field for dates writes it: without a zone it is UTC."""
    try:
        timestamp = datetime.fromisoformat(text)
    except ValueError:
        return parse_timestamp(text, now=now)
    return timestamp if timestamp.tzinfo is not None else timestamp.replace(tzinfo=UTC)


def _say(timestamp: datetime) -> str:
    return f"{timestamp.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _remove(visit: PageRequest, name: str) -> Response:
    if not visit.given("sure"):
        return visit.page(
            "sure.html",
            "schedules",
            title=f"remove schedule {name}?",
            text="It is forgotten with its ledger; its jobs stay. One that code declares comes back by itself.",
            action=visit.to("schedule/act", name=name),
            hidden={"action": "rm"},
            ids=[],
            note=False,
            grave=True,
            button="remove it",
            back=visit.to("schedule", name=name),
            cli=f"holdfast schedule rm {as_argument(name)}",
        )
    visit.actions.schedule("rm", name)
    return visit.done(f"{name} is removed.", "schedules")

"""The overview: how everything stands, and what wants a look."""

from __future__ import annotations

from datetime import timedelta
from itertools import groupby

from msgspec import Struct
from starlette.responses import Response

from holdfast.admin.views.overview import Attention, DashboardView, dashboard_view
from holdfast.domain.jobs.job import State
from holdfast.web.pages.request import PageRequest

#: What wants a look, the worst first: its word, its tone, and the page that deals with it.
WORDS = {
    "expired": ("lost worker", "bad"),
    "dead": ("dead", "bad"),
    "failing": ("failing", "bad"),
    "late": ("late", "bad"),
    "no_worker": ("no worker", "bad"),
    "breaker": ("breaker", "bad"),
    "missed": ("missed", "warn"),
    "slow_queue": ("slow", "warn"),
    "full_queue": ("full", "warn"),
    "paused_queue": ("paused", "warn"),
    "stopped_batch": ("stopped", "warn"),
    "paused_batch": ("paused", "warn"),
    "paused_schedule": ("paused", "warn"),
}
#: The store tells of so many of one sort.
MOST = 20
#: So many of one sort are told one by one.
FEW = 5


class Look(Struct, frozen=True):
    """A line of what wants a look, and where it leads."""

    word: str
    tone: str
    text: str
    link: str
    at: object = None


def overview(visit: PageRequest) -> Response:
    """Everything at one look."""
    facts = dashboard_view(visit.store)
    return visit.page(
        "overview.html",
        "overview",
        facts=facts,
        looks=list(looks(facts.attention, visit)),
        slots=slots(facts),
        cli="holdfast top",
        states=[State.RUNNING, State.READY, State.SCHEDULED, State.WAITING, State.HELD, State.DEAD],
        per_minute=sum(queue.done_per_minute for queue in facts.queues),
        expired=sum(queue.expired for queue in facts.queues),
    )


def looks(found: list[Attention], visit: PageRequest) -> list[Look]:
    """What wants a look, the worst first; of many of one sort only some, and how many more there are."""
    order = {word: place for place, word in enumerate(WORDS)}
    told: list[Look] = []
    for what, group in groupby(sorted(found, key=lambda each: order.get(each.what, 99)), key=lambda each: each.what):
        each = list(group)
        if what == "dead":
            told.append(_dead(each, visit))
            continue
        word, tone = WORDS.get(what, (what, "warn"))
        told += [Look(word, tone, one.text, _link(one, visit), one.at) for one in each[:FEW]]
        if len(each) > FEW:
            told.append(Look(word, tone, f"and {len(each) - FEW} more", _link_all(what, visit)))
    return told


def _dead(each: list[Attention], visit: PageRequest) -> Look:
    """How many died lately: why, the page of errors tells, where what they said is masked."""
    word, tone = WORDS["dead"]
    many = "1 job is dead" if len(each) == 1 else f"{len(each)}{'+' if len(each) >= MOST else ''} jobs are dead"
    last = max((one.at for one in each if one.at is not None), default=None)
    return Look(word, tone, f"{many}: see what they failed of", visit.to("errors"), last)


def _link(one: Attention, visit: PageRequest) -> str:
    match one.what:
        case "expired":
            return visit.to(f"jobs/{one.name}")
        case "failing" | "late" | "paused_schedule" | "missed":
            return visit.to("schedule", name=one.name)
        case "paused_batch" | "stopped_batch":
            return visit.to(f"batches/{one.name}")
        case "no_worker":
            return visit.to("workers")
        case _:
            return visit.to("queues")


def _link_all(what: str, visit: PageRequest) -> str:
    match what:
        case "expired":
            return visit.to("jobs", state="running")
        case "failing" | "late" | "paused_schedule" | "missed":
            return visit.to("schedules")
        case "paused_batch" | "stopped_batch":
            return visit.to("batches")
        case _:
            return visit.to("workers" if what == "no_worker" else "queues")


def slots(facts: DashboardView) -> list[tuple[int, int, int]]:
    """What ended in each slot of time, over all queues: minutes before now, done, dead; the oldest first."""
    length = timedelta(seconds=facts.slot_s)
    count = int(facts.span_s / facts.slot_s)
    minutes = [-(place * length // timedelta(minutes=1)) for place in range(count - 1, -1, -1)]
    done = [sum(queue.done[place] for queue in facts.queues) for place in range(count)]
    dead = [sum(queue.dead[place] for queue in facts.queues) for place in range(count)]
    return list(zip(minutes, done, dead, strict=True))

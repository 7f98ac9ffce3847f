"""SVG charts: timelines of jobs, dependency graphs, past plans, throughput and progress.

They have no inline style, which the content security policy forbids. A table beside each chart has the same data.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import takewhile

from markupsafe import Markup, escape
from msgspec import Struct, structs

from holdfast.domain.jobs.dependencies import DependencyEdge
from holdfast.domain.jobs.history import Attempt, Event, EventName
from holdfast.domain.jobs.job import EndReason, Job, JobId, State
from holdfast.web.pages.format import STATES, tone, visible

#: Number of periods in a timeline; older ones are left out.
MAX_STRETCHES = 60
BOX_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y = 190, 40, 60, 12


class Stretch(Struct, frozen=True):
    """A period of a job's life. *end* is None while it lasts."""

    state: str
    text: str
    begin: datetime
    end: datetime | None

    def length(self, now: datetime) -> timedelta:
        return (self.end or now) - self.begin


#: The state and text of a job after an event, unless it runs.
_AFTER = {
    EventName.HELD: ("held", "held by a person"),
    EventName.RESUMED: ("ready", "waited"),
    EventName.RETRIED: ("ready", "waited, after a person retried it"),
    EventName.DUE: ("ready", "waited for a worker"),
    EventName.WOKEN: ("ready", "waited for a worker, its dependencies finished"),
    EventName.RELEASED: ("ready", "waited, after a release"),
    EventName.UNREADABLE: ("held", "waited for a worker that can read it"),
    EventName.OFFERED: ("ready", "waited for a worker that can read it"),
    EventName.FAILED: ("scheduled", "waited for its retry"),
    EventName.TAKEN_OVER: ("scheduled", "waited, after its worker was lost"),
}

#: Events of the first attempt, or later.
_TRIED = (
    *(EventName.STARTED, EventName.FAILED, EventName.RELEASED, EventName.UNREADABLE, EventName.TAKEN_OVER),
    EventName.DONE,
)


def timeline(job: Job, attempts: Sequence[Attempt], events: Sequence[Event], now: datetime) -> list[Stretch]:
    """The waits, attempts and pauses of a job, in order."""
    runs = [_run(attempt) for attempt in attempts if attempt.started_at is not None]
    turns = [(job.created_at, *_first(job, events))]
    turns += [(event.at, *_AFTER[EventName(event.name)]) for event in events if event.name in _AFTER]
    end = job.finished_at or now
    stretches: list[Stretch] = []
    for place, (at, name, text) in enumerate(turns):
        until = turns[place + 1][0] if place + 1 < len(turns) else end
        stretches += _waits(Stretch(name, text, at, until), runs)
    ongoing = job.state not in (State.DONE, State.DEAD, State.CANCELLED, State.RUNNING)
    stretches += runs
    stretches.sort(key=lambda stretch: stretch.begin)
    if ongoing and stretches and stretches[-1].end == end:
        stretches[-1] = structs.replace(stretches[-1], end=None)
    return stretches[-MAX_STRETCHES:]


def _first(job: Job, events: Sequence[Event]) -> tuple[str, str]:
    """The first state of a job and its text, from its first events or its present state."""
    names = [event.name for event in takewhile(lambda event: event.name not in _TRIED, events)]
    if EventName.WOKEN in names or job.state is State.WAITING:
        return "waiting", "waited for other jobs"
    if EventName.DUE in names or (job.state is State.SCHEDULED and not job.attempts):
        return "scheduled", "waited for its time"
    if job.state is State.HELD and EventName.HELD not in names and not job.attempts and job.refusals is None:
        return "held", "held since it was added"
    return "ready", "waited for a worker"


def _run(attempt: Attempt) -> Stretch:
    assert attempt.started_at is not None
    name = "running" if attempt.finished_at is None else "done" if attempt.reason == "done" else "failed"
    if attempt.reason in (EndReason.RELEASED, EndReason.CANCELLED, EndReason.UNREADABLE):
        name = "cancelled"
    finished = "runs" if attempt.finished_at is None else attempt.reason or "finished"
    return Stretch(name, f"attempt {attempt.number}: {finished}", attempt.started_at, attempt.finished_at)


def _waits(wait: Stretch, runs: Sequence[Stretch]) -> list[Stretch]:
    """The parts of a wait without the runs in it."""
    begin, end, waits = wait.begin, wait.end, []
    assert end is not None
    for run in runs:
        if run.begin >= end or (run.end or end) <= begin:
            continue
        if run.begin > begin:
            waits.append(structs.replace(wait, begin=begin, end=run.begin))
        begin = max(begin, run.end or end)
    if begin < end:
        waits.append(structs.replace(wait, begin=begin))
    return waits


def stretch_bar(stretch: Stretch, first: datetime, last: datetime) -> Markup:
    """One bar of a timeline that reaches from *first* to *last*."""
    whole = max((last - first).total_seconds(), 1e-6)
    x = 1000 * (stretch.begin - first).total_seconds() / whole
    width = max(4.0, 1000 * stretch.length(last).total_seconds() / whole)
    x = min(x, 1000 - width)
    # A run is a full bar and a wait a thin line, so that they differ without colour too.
    top, height = (2, 12) if stretch.text.startswith("attempt") else (6, 4)
    bar = Markup('<rect class="{}" x="{:.1f}" y="{}" width="{:.1f}" height="{}" rx="1"/>')
    ground = Markup('<rect class="faint" x="0" y="7.5" width="1000" height="1"/>')
    drawn = ground + bar.format(tone(stretch.state), x, top, width, height)
    return Markup('<svg viewBox="0 0 1000 16" preserveAspectRatio="none" aria-hidden="true">{}</svg>').format(drawn)


class Node(Struct, frozen=True):
    """A job in a graph. Dependencies are in the columns on the left of the job, dependents on the right."""

    id: JobId
    column: int
    row: int
    state: str
    title: str
    here: bool = False


def nodes(job: Job, edges: Iterable[DependencyEdge]) -> list[Node]:
    """Place each job of the graph: one column per step, dependencies on the left."""
    seen: dict[JobId, tuple[int, str, str]] = {job.id: (0, job.state, job.label or job.kind)}
    for edge in sorted(edges, key=lambda edge: edge.depth):
        away = -edge.depth if edge.way == "dependencies" else edge.depth
        title = edge.label or edge.kind or "no longer there"
        seen.setdefault(edge.far, (away, edge.state or "gone", title))
    rows: dict[int, int] = {}
    placed = []
    for job_id, (column, name, title) in sorted(seen.items(), key=lambda item: (item[1][0], item[0])):
        row = rows.get(column, 0)
        rows[column] = row + 1
        placed.append(Node(job_id, column, row, name, title, job_id == job.id))
    return placed


def graph(placed: Sequence[Node], edges: Iterable[DependencyEdge], base: str) -> Markup:
    leftmost = min(node.column for node in placed)
    tallest = max(node.row for node in placed) + 1
    columns = max(node.column for node in placed) - leftmost + 1
    height, width = tallest * (BOX_HEIGHT + GAP_Y) + GAP_Y, columns * (BOX_WIDTH + GAP_X) + 10 - GAP_X + 10
    sizes = {column: sum(node.column == column for node in placed) for column in {node.column for node in placed}}

    def corner(node: Node) -> tuple[int, int]:
        spare = (tallest - sizes[node.column]) * (BOX_HEIGHT + GAP_Y) // 2
        return 10 + (node.column - leftmost) * (BOX_WIDTH + GAP_X), GAP_Y + spare + node.row * (BOX_HEIGHT + GAP_Y)

    corners = {node.id: corner(node) for node in placed}
    lines = {(edge.dependency_id, edge.job_id) for edge in edges}
    drawn = [_line(corners[a], corners[b]) for a, b in sorted(lines) if a in corners and b in corners]
    drawn += [_box(node, corners[node.id], base) for node in placed]
    head = '<svg width="{}" height="{}" viewBox="0 0 {} {}" role="group" aria-label="Graph of dependencies">'
    return Markup(head).format(width, height, width, height) + Markup("").join(drawn) + Markup("</svg>")  # noqa: S704


def _line(dependency: tuple[int, int], job: tuple[int, int]) -> Markup:
    x1, y1 = dependency[0] + BOX_WIDTH, dependency[1] + BOX_HEIGHT // 2
    x2, y2 = job[0], job[1] + BOX_HEIGHT // 2
    middle = (x1 + x2) // 2
    path = f"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2 - 6} {y2}"
    arrow = f"M{x2 - 7} {y2 - 4}L{x2 - 1} {y2}L{x2 - 7} {y2 + 4}Z"
    return Markup('<path class="line" d="{}"/><path class="idle" d="{}"/>').format(path, arrow)


def _box(node: Node, corner: tuple[int, int], base: str) -> Markup:
    x, y = corner
    symbol, colour = STATES.get(node.state, ("·", "idle"))
    title = visible(node.title)
    shown = title if len(title) <= 24 else title[:23] + "…"
    box = Markup('<rect class="box{}" x="{}" y="{}" width="{}" height="{}" rx="6"/>').format(
        " here" if node.here else "", x, y, BOX_WIDTH, BOX_HEIGHT
    )
    text = Markup('<text x="{}" y="{}">{}</text><text class="{}" x="{}" y="{}">{} {} · {}</text>').format(
        x + 10, y + 17, shown, colour, x + 10, y + 32, symbol, node.state, node.id
    )
    return Markup('<a href="{}/jobs/{}"><title>{}</title>{}{}</a>').format(base, node.id, title, box, text)


class PlanMark(Struct, frozen=True):
    """One mark of a strip: a state and its tooltip."""

    state: str
    text: str


#: Heights of marks that did not fire, of 30.
_HEIGHTS = {"skipped": 10, "missed": 18}


def strip(marks: Sequence[PlanMark]) -> Markup:
    """Past plans, oldest first."""
    drawn = []
    wide = max(20, len(marks))
    for place, each in enumerate(marks):
        high = _HEIGHTS.get(each.state, 28)
        bar = '<rect class="{}" x="{}" y="{}" width="7" height="{}" rx="1"><title>{}</title></rect>'
        drawn.append(Markup(bar).format(tone(each.state), place * 9, 30 - high, high, visible(each.text)))  # noqa: S704
    head = '<svg class="plans" viewBox="0 0 {} 30" preserveAspectRatio="xMinYMax meet" aria-hidden="true">'
    return Markup(head).format(wide * 9) + Markup("").join(drawn) + Markup("</svg>")  # noqa: S704


def spark(done: Sequence[int | None], dead: Sequence[int | None]) -> Markup:
    """Finished jobs by slot of time: done upwards, dead downwards. The ground lies under the slots that are known."""
    most = max(*(each or 0 for each in (*done, *dead)), 1)
    drawn = []
    for place, (good, bad) in enumerate(zip(done, dead, strict=True)):
        if good:
            high = max(1.0, 15 * good / most)
            drawn.append(f'<rect class="good" x="{place * 2}" y="{15 - high:.1f}" width="1.6" height="{high:.1f}"/>')
        if bad:
            drawn.append(
                f'<rect class="bad" x="{place * 2}" y="16" width="1.6" height="{max(1.5, 6 * bad / most):.1f}"/>'
            )
    unknown = sum(1 for each in done if each is None)
    ground = f'<rect class="faint" x="{unknown * 2}" y="15" width="{(len(done) - unknown) * 2}" height="1"/>'
    head = f'<svg class="spark" viewBox="0 0 {max(1, len(done)) * 2} 22" preserveAspectRatio="none" aria-hidden="true">'
    return Markup(head + ground + "".join(drawn) + "</svg>")  # noqa: S704 - only numbers


def bar(parts: Sequence[tuple[str, int]], total: int, *, thin: bool = False) -> Markup:
    """A progress bar with one part per tone, in this order."""
    drawn, x = [], 0.0
    for colour, count in parts:
        width = 1000 * count / total if total else 0.0
        if count:
            drawn.append(f'<rect class="{escape(colour)}" x="{x:.2f}" y="0" width="{max(width, 2):.2f}" height="12"/>')
        x += width
    kind = "progress thin" if thin else "progress"
    head = f'<svg class="{kind}" viewBox="0 0 1000 12" preserveAspectRatio="none" aria-hidden="true">'
    return Markup(head + "".join(drawn) + "</svg>")  # noqa: S704 - only numbers and our own class names

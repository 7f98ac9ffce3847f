"""Schedules: made, changed, paused; and which of them a planner has to look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from holdfast.domain.schedules.definition import (
    Definition,
    Moved,
    Schedule,
    checked_schedule,
    edited,
    resumed,
    setback,
)
from holdfast.domain.text import checked_actor, clean_text
from holdfast.errors import DuplicateSchedule
from holdfast.store.engine.backend import Backend
from holdfast.store.engine.now import read_now
from holdfast.store.engine.operation import Operation, query
from holdfast.store.jobs.enqueue import SYSTEM
from holdfast.store.schedules.firing import write_skips
from holdfast.store.schedules.plans import locked_schedule, missing_schedule

MAX_NOTE = 1000
#: Longer errors are cut.
MAX_ERROR = 2000
PAGE = 500


class Declaration(Struct, frozen=True):
    """A schedule as code defines it. Of two versions the higher one holds."""

    name: str
    definition: Definition
    version: int = 1


class Declared(StrEnum):
    """What became of a declaration."""

    MADE = "made"
    SAME = "same"
    CHANGED = "changed"
    #: Newer code has declared it otherwise.
    OLDER = "older"
    #: A person has made a schedule of this name.
    TAKEN = "taken"


class Due(Struct, frozen=True):
    """A schedule that a planner has to look at. *definition* is JSON."""

    name: str
    definition: str
    cursor: datetime | None
    fired: int
    failures: int
    token: int


class Troubled(Struct, frozen=True):
    """A schedule that cannot be planned, or that nobody plans; *late*: for longer than a healthy one would be."""

    name: str
    error: str | None
    next_at: datetime | None
    late: bool


class Outlook(Struct, frozen=True):
    """What a planner sees: the store's time, what is due, and how long it may rest when nothing is."""

    now: datetime
    due: list[Due]
    rest: timedelta | None


class ScheduleStore:
    """Schedules by their names. Every change voids what planners have decided meanwhile."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def create(self, name: str, definition: Definition, *, actor: str) -> Schedule:
        """Make a schedule. It has no history: the newest plan that is due is the first.

        Raises:
            DuplicateSchedule: There is one of this name.
        """
        checked_schedule(name)
        checked_actor(actor, system=SYSTEM)
        created = self._backend.write(_create, Declaration(name, definition, 0), actor, declared=False)
        if not created:
            raise DuplicateSchedule(f"there is a schedule {name!r} already", name=name)
        self._backend.notify()
        return self.get(name)

    def declare(self, declarations: Sequence[Declaration], *, actor: str) -> dict[str, Declared]:
        """Make what code defines known; what is known already costs no write.

        A declaration that differs from the last one of the code changes the schedule; one of a lower version does
        not, nor does it touch what a person has made under this name.
        """
        found = {each.name: self._backend.read(_compare, each) for each in declarations}
        for each in declarations:
            if found[each.name] in (Declared.MADE, Declared.CHANGED):
                found[each.name] = self._backend.write(_declare, each, actor)
        if set(found.values()) & {Declared.MADE, Declared.CHANGED}:
            self._backend.notify()
        return found

    def update(self, name: str, change: Callable[[Definition], Definition], *, actor: str) -> Schedule:
        """Define a schedule anew, from what it is. With another rule it goes on from now: its past is skipped.

        Raises:
            NoSuchSchedule: There is none of this name.
        """
        checked_actor(actor, system=SYSTEM)
        self._backend.write(_update, name, change, actor)
        self._backend.notify()
        return self.get(name)

    def pause(self, name: str, *, actor: str, note: str | None = None) -> Schedule:
        """Plan nothing more; what was fired goes on.

        Raises:
            NoSuchSchedule: There is none of this name.
        """
        checked_actor(actor, system=SYSTEM)
        text = None if note is None else clean_text(note, limit=MAX_NOTE)
        self._backend.write(_pause, name, text, actor)
        return self.get(name)

    def resume(self, name: str, *, actor: str) -> Schedule:
        """Let it go on from now: what was due meanwhile is written down as skipped. One that goes on stays as it is.

        Raises:
            NoSuchSchedule: There is none of this name.
        """
        checked_actor(actor, system=SYSTEM)
        self._backend.write(_resume, name, actor)
        self._backend.notify()
        return self.get(name)

    def remove(self, name: str) -> None:
        """Forget a schedule with its ledger; jobs that it has fired stay.

        Raises:
            NoSuchSchedule: There is none of this name.
        """
        self._backend.write(_remove, name)

    def get(self, name: str) -> Schedule:
        """A schedule by its name.

        Raises:
            NoSuchSchedule: There is none of this name.
        """
        rows: list[Schedule] = self._backend.look(query("get_schedule", Schedule, name=name))
        if not rows:
            raise missing_schedule(name)
        return rows[0]

    def all(self) -> Iterator[Schedule]:
        """All schedules by name, in flat memory."""
        after = ""
        while True:
            page = self.page(after=after, limit=PAGE)
            yield from page
            if len(page) < PAGE:
                return
            after = page[-1].name

    def page(self, *, after: str = "", limit: int = 50) -> list[Schedule]:
        """Schedules by name, from the first after *after* on."""
        return self._backend.look(query("list_schedules", Schedule, after=after, limit=limit))

    def now(self) -> datetime:
        """The store's own time: plans are due by it."""
        return self._backend.read(read_now)

    # -- for planners ------------------------------------------------------------------------

    def outlook(self, *, providers: Sequence[str], limit: int) -> Outlook:
        """What is due, among the schedules whose scopes are known without a provider or by one of these."""
        return self._backend.read(_outlook, sorted(providers), limit)

    def set_back(self, due: Due, error: str) -> bool:
        """Note that a schedule could not be planned, and let it rest; false: it was changed meanwhile."""
        text = clean_text(error, limit=MAX_ERROR)
        rest = setback(due.failures + 1)
        return bool(
            self._backend.run(query("record_schedule_failure", name=due.name, token=due.token, error=text, rest=rest))
        )

    def lag(self) -> timedelta:
        """How long the oldest plan that is due has waited for a planner."""
        ((lag,),) = self._backend.look(query("read_schedule_lag"))
        return max(timedelta(0), _duration(lag) or timedelta(0))

    def troubled(self, *, late: timedelta, limit: int = 10) -> list[Troubled]:
        """Schedules that cannot be planned, or have waited for a planner for longer than *late*."""
        return self._backend.look(query("list_schedule_problems", Troubled, late=late, limit=limit))


def _create(declaration: Declaration, actor: str, *, declared: bool) -> Operation[bool]:
    text = declaration.definition.dumps()
    rows = yield query(
        "create_schedule",
        name=declaration.name,
        definition=text,
        declared=text if declared else None,
        version=declaration.version,
        provider=declaration.definition.provider,
        actor=actor,
    )
    return bool(rows)


def _compare(declaration: Declaration) -> Operation[Declared]:
    rows: list[Schedule] = yield query("get_schedule", Schedule, name=declaration.name)
    return _difference(rows, declaration)


def _difference(rows: list[Schedule], declaration: Declaration) -> Declared:
    if not rows:
        return Declared.MADE
    (known,) = rows
    if known.declared is None:
        return Declared.TAKEN
    if declaration.version < known.version:
        return Declared.OLDER
    same = declaration.version == known.version and declaration.definition.dumps() == known.declared
    return Declared.SAME if same else Declared.CHANGED


def _declare(declaration: Declaration, actor: str) -> Operation[Declared]:
    rows: list[Schedule] = []
    while not rows:  # between the two, somebody may remove it
        if (yield from _create(declaration, actor, declared=True)):
            return Declared.MADE
        rows = yield query("lock_schedule", Schedule, name=declaration.name)
    difference = _difference(rows, declaration)
    if difference is Declared.CHANGED:
        text = declaration.definition.dumps()
        yield from _define(rows[0], declaration.definition, declared=text, version=declaration.version, actor=actor)
    return difference


def _update(name: str, change: Callable[[Definition], Definition], actor: str) -> Operation[None]:
    schedule = yield from locked_schedule(name)
    definition = change(schedule.defined)
    yield from _define(schedule, definition, declared=schedule.declared, version=schedule.version, actor=actor)


def _define(
    schedule: Schedule, definition: Definition, *, declared: str | None, version: int, actor: str
) -> Operation[None]:
    now = yield from read_now()
    yield query(
        "define_schedule",
        name=schedule.name,
        definition=definition.dumps(),
        declared=declared,
        version=version,
        provider=definition.provider,
    )
    moved = edited(schedule, definition, now)
    yield from _move(schedule, moved, paused=schedule.paused, note=schedule.note, actor=actor)


def _pause(name: str, note: str | None, actor: str) -> Operation[None]:
    schedule = yield from locked_schedule(name)
    yield from _move(schedule, Moved(schedule.cursor, None), paused=True, note=note, actor=actor)


def _resume(name: str, actor: str) -> Operation[None]:
    schedule = yield from locked_schedule(name)
    moved = resumed(schedule, (yield from read_now()))
    if moved is not None:
        yield from _move(schedule, moved, paused=False, note=None, actor=actor)


def _remove(name: str) -> Operation[None]:
    yield from locked_schedule(name)  # first: whoever plans it now has written its last rows then
    yield query("delete_schedule", name=name)


def _move(schedule: Schedule, moved: Moved, *, paused: bool, note: str | None, actor: str) -> Operation[None]:
    yield from write_skips({schedule.name: moved.skipped})
    yield query(
        "set_schedule_cursor",
        name=schedule.name,
        cursor=moved.cursor,
        next_at=None if paused else moved.next_at,
        paused=paused,
        note=note,
        actor=actor,
    )


def _outlook(providers: list[str], limit: int) -> Operation[Outlook]:
    now = yield from read_now()
    due: list[Due] = yield query("list_due_schedules", Due, providers=providers, limit=limit, until=now)
    rest = [] if due else (yield query("read_next_check", providers=providers))
    return Outlook(now, due, _duration(rest[0][0]) if rest else None)


def _duration(value: timedelta | int | None) -> timedelta | None:
    """A difference of instants as a backend gives it."""
    return timedelta(microseconds=value) if isinstance(value, int) else value

"""The flows that change what a job was asked to do, while nobody runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from msgspec import Struct

from holdfast.domain.history import EventName
from holdfast.domain.job import JobId, State
from holdfast.store.events import record
from holdfast.store.flow import ById, Flow, ask

#: A ready job is set aside for so long: if whoever changes it is lost, it becomes ready by itself.
ASIDE = timedelta(seconds=5)
#: A job that comes back before it was changed is set aside so often.
TRIES = 3

#: Makes the new payload of the old one; the same means that nothing is to be changed.
Change = Callable[[str], str]


class _Asked(Struct, frozen=True):
    id: JobId
    state: State
    due_at: datetime
    payload: str


def set_aside(ids: list[JobId], make: Change) -> Flow[dict[JobId, datetime]]:
    """Take ready jobs that are to be changed out of their lanes for a moment; answers when they were due.

    A claim that began before a change has seen the old payload. It cannot have one that was not ready then.
    """
    rows: list[_Asked] = yield ask("lock_payloads", _Asked, ids=ids)
    ready = {job.id: job.due_at for job in rows if job.state is State.READY and make(job.payload) != job.payload}
    yield ask("set_aside", ids=list(ready), aside=ASIDE)
    return ready


def change(
    ids: list[JobId], aside: Mapping[JobId, datetime], make: Change, *, actor: str, detail: object
) -> Flow[tuple[list[JobId], list[JobId]]]:
    """Give jobs their new payloads and put those that were set aside back in place.

    Answers which were changed, and which have to be set aside once more.
    """
    rows: list[_Asked] = yield ask("lock_payloads", _Asked, ids=ids)
    still = [job for job in rows if job.state not in (State.RUNNING, State.READY)]
    made = {job.id: new for job in still if (new := make(job.payload)) != job.payload}
    yield ask("set_payloads", changed=ById(id=list(made), payload=list(made.values())))
    placed = {job.id: aside[job.id] for job in still if job.id in aside}
    yield ask("set_in_place", placed=ById(id=list(placed), due_at=list(placed.values())))
    yield from record(EventName.CHANGED, dict.fromkeys(made, detail), actor=actor)
    return sorted(made), [job.id for job in rows if job.state is State.READY and make(job.payload) != job.payload]

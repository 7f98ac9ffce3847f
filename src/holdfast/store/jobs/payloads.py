"""The flow that changes what jobs were asked to do, while nobody runs them."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from holdfast.domain.jobs.history import EventName
from holdfast.domain.jobs.job import JobId
from holdfast.store.engine.operation import ById, Operation, query
from holdfast.store.jobs.events import record

#: Makes the new payload of the old one; the same means that nothing is to be changed.
Change = Callable[[str], str]


class _Asked(Struct, frozen=True):
    id: JobId
    payload: str


def rewrite(ids: list[JobId], make: Change, *, actor: str, detail: object) -> Operation[list[JobId]]:
    """Give jobs their new payloads; answers which were changed."""
    idle = [row[0] for row in (yield query("lock_idle_jobs", ids=ids))]
    asked: list[_Asked] = yield query("read_payloads", _Asked, ids=idle)
    made = {job.id: new for job in asked if (new := make(job.payload)) != job.payload}
    yield query("set_payloads", changed=ById(id=list(made), payload=list(made.values())))
    yield from record(EventName.CHANGED, dict.fromkeys(made, detail), actor=actor)
    return sorted(made)

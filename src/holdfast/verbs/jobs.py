"""What people can do to jobs, by the names that the verbs have everywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from msgspec import Struct

from holdfast.domain.access import Role
from holdfast.domain.filter import parse_moment
from holdfast.domain.job import JobId, State
from holdfast.domain.moments import checked_moment
from holdfast.domain.selector import Selector
from holdfast.domain.text import nearest
from holdfast.errors import InvalidInput, NoSuchJob
from holdfast.store import Store
from holdfast.store.control import Control

#: Changes the chosen jobs and answers which.
Act = Callable[..., list[JobId]]


class JobVerb(Struct, frozen=True):
    """Something that can be done to jobs: by which role, and whether one should be asked before."""

    act: Act
    role: Role = Role.OPERATOR
    destructive: bool = False
    note: bool = False


def _kill(control: Control, chosen: Selector, *, actor: str) -> list[JobId]:
    narrowed = chosen.only(State.RUNNING)
    return [] if narrowed.empty else control.cancel(narrowed, actor=actor)


def _remove(control: Control, chosen: Selector, *, actor: str) -> list[JobId]:  # noqa: ARG001 - nothing is left to tell of
    return control.remove(chosen)


def _restart(control: Control, chosen: Selector, *, actor: str, memory: int | None = None) -> list[JobId]:
    if memory is not None:
        control.set_memory(chosen, memory, actor=actor)
    return control.restart(chosen, actor=actor)


def _change(
    control: Control,
    chosen: Selector,
    *,
    actor: str,
    priority: int | None = None,
    to_queue: str | None = None,
    run_at: str | None = None,
) -> list[JobId]:
    if priority is None and to_queue is None and run_at is None:
        raise InvalidInput("nothing to change", hint="Give --priority, --to-queue or --run-at.")
    changed: set[JobId] = set()
    if priority is not None:
        changed |= set(control.set_priority(chosen, priority, actor=actor))
    if to_queue is not None:
        changed |= set(control.move(chosen, to_queue, actor=actor))
    if run_at is not None:
        now = datetime.now(UTC)
        moment = now if run_at == "now" else checked_moment(parse_moment(run_at, now=now))
        changed |= set(control.reschedule(chosen, moment, actor=actor))
    return sorted(changed)


#: The verbs of jobs, by the names that they have everywhere.
JOB_VERBS: Mapping[str, JobVerb] = {
    "cancel": JobVerb(Control.cancel, destructive=True),
    "pause": JobVerb(Control.pause, note=True),
    "resume": JobVerb(Control.resume),
    "retry": JobVerb(Control.retry),
    "kill": JobVerb(_kill, destructive=True),
    "restart": JobVerb(_restart),
    "hold": JobVerb(Control.hold, note=True),
    "unhold": JobVerb(Control.unhold),
    "rm": JobVerb(_remove, role=Role.ADMIN, destructive=True),
    "set": JobVerb(_change),
}


def job_verb(name: str) -> JobVerb:
    """A verb of jobs.

    Raises:
        InvalidInput: There is none of this name.
    """
    if name not in JOB_VERBS:
        near = nearest(name, JOB_VERBS)
        hint = f"Did you mean {near!r}?" if near else f"Verbs: {', '.join(JOB_VERBS)}."
        raise InvalidInput(f"jobs cannot be told to {name[:40]!r}", hint=hint)
    return JOB_VERBS[name]


def refuse_missing(store: Store, selector: Selector) -> None:
    """An id that does not exist is a mistake, also beside others that do.

    Raises:
        NoSuchJob: It names them.
    """
    if selector.ids is None:
        return
    found = {job.id for job in store.views.all(Selector(ids=selector.ids))}
    missing = [str(job_id) for job_id in selector.ids if job_id not in found]
    if missing:
        raise NoSuchJob(f"there is no job {', '.join(missing[:10])}")

"""What people can do to jobs, by the names that the verbs have everywhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping
from datetime import UTC, datetime
from itertools import islice

from msgspec import Struct, structs

from holdfast.domain.access.roles import Role
from holdfast.domain.commands.command import COMMAND, Command
from holdfast.domain.commands.edit import Edit
from holdfast.domain.jobs.filter import parse_timestamp
from holdfast.domain.jobs.job import JobId, State
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.schedules.rule import checked_timestamp
from holdfast.domain.text import as_bytes, checked_name, checked_number, nearest
from holdfast.errors import InvalidInput
from holdfast.store import Store
from holdfast.store.jobs.control import JobControl

#: To find out why some jobs were left alone, so many are looked at.
LOOKED_AT = 10_000

#: Changes the chosen jobs and answers which.
Act = Callable[..., list[JobId]]


def _accept(**given: object) -> None:
    """For a verb that has no words of its own, or takes any."""


class JobAction(Struct, frozen=True):
    """Something that can be done to jobs: what it leaves alone, by which role, whether one should be asked before.

    *check* refuses what *act* could not do with the words that were given. One that *refuses* some jobs has to be tried
    in a dry run; the others leave such jobs alone.
    """

    act: Act
    applies: str
    check: Callable[..., None] = _accept
    role: Role = Role.OPERATOR
    destructive: bool = False
    note: bool = False
    refuses: bool = False


def _kill(control: JobControl, chosen: Selector, *, actor: str) -> list[JobId]:
    narrowed = chosen.only(State.RUNNING)
    return [] if narrowed.empty else control.cancel(narrowed, actor=actor)


def _remove(control: JobControl, chosen: Selector, *, actor: str) -> list[JobId]:  # noqa: ARG001 - nothing is left to tell of
    return control.delete(chosen)


def _check_restart(*, memory: str | None = None) -> None:
    if memory is not None:
        as_bytes(memory)


def _restart(control: JobControl, chosen: Selector, *, actor: str, memory: str | None = None) -> list[JobId]:
    if memory is not None:
        control.set_memory(chosen, as_bytes(memory), actor=actor)
    return control.restart(chosen, actor=actor)


def _check_change(
    *,
    priority: int | None = None,
    to_queue: str | None = None,
    run_at: str | None = None,
    edit: Edit | None = None,
) -> None:
    if priority is None and to_queue is None and run_at is None and not edit:
        raise InvalidInput("nothing to change", hint="Give --priority, --to-queue or --run-at.")
    if priority is not None:
        checked_number(priority, what="a priority")
    if to_queue is not None:
        checked_name(to_queue, what="the queue")
    if run_at is not None:
        _moment(run_at)
    if edit:
        edit.applied(Command(argv=("true",), cwd="/").dumps(), "nobody")


def _moment(text: str) -> datetime:
    now = datetime.now(UTC)
    return now if text == "now" else checked_timestamp(parse_timestamp(text, now=now, ahead=True))


def _change(
    control: JobControl,
    chosen: Selector,
    *,
    actor: str,
    priority: int | None = None,
    to_queue: str | None = None,
    run_at: str | None = None,
    edit: Edit | None = None,
) -> list[JobId]:
    changed: set[JobId] = set()
    if priority is not None:
        changed |= set(control.set_priority(chosen, priority, actor=actor))
    if to_queue is not None:
        changed |= set(control.move(chosen, to_queue, actor=actor))
    if run_at is not None:
        changed |= set(control.reschedule(chosen, _moment(run_at), actor=actor))
    if edit:
        programs = chosen if chosen.kinds is not None else structs.replace(chosen, kinds=(COMMAND,))
        made = control.rewrite(programs, lambda payload: edit.applied(payload, actor), actor=actor, detail=edit.told())
        changed |= set(made)
    return sorted(changed)


#: The verbs of jobs, by the names that they have everywhere.
JOB_ACTIONS: Mapping[str, JobAction] = {
    "cancel": JobAction(JobControl.cancel, "what has ended stays as it is", destructive=True),
    "pause": JobAction(JobControl.pause, "what has ended or is held stays as it is", note=True),
    "resume": JobAction(JobControl.resume, "only what is held or told to pause goes on"),
    "retry": JobAction(
        JobControl.retry,
        "only what is dead, cancelled or waits for a retry runs again, and no second job with one key; holdfast restart"
        " takes what is done",
    ),
    "kill": JobAction(_kill, "only what runs is ended; holdfast cancel takes what waits, too", destructive=True),
    "restart": JobAction(
        _restart,
        "only what has ended begins anew, what is done only if it is a program, and no second job with one key",
        check=_check_restart,
    ),
    "hold": JobAction(JobControl.hold, "only what waits can be held", note=True),
    "unhold": JobAction(JobControl.unhold, "only what is held can be let go"),
    "rm": JobAction(_remove, "it was gone already", role=Role.ADMIN, destructive=True, refuses=True),
    "set": JobAction(
        _change, "the others have these values already, or cannot take them any more", check=_check_change
    ),
}


def job_action(name: str) -> JobAction:
    """A verb of jobs.

    Raises:
        InvalidInput: There is none of this name.
    """
    if name not in JOB_ACTIONS:
        near = nearest(name, JOB_ACTIONS)
        hint = f"Did you mean {near!r}?" if near else f"Verbs: {', '.join(JOB_ACTIONS)}."
        raise InvalidInput(f"jobs cannot be told to {name[:40]!r}", hint=hint)
    return JOB_ACTIONS[name]


def left_alone(store: Store, action: str, selector: Selector, changed: Container[JobId]) -> str:
    """How those jobs stand that a verb did not change, and what it is for."""
    left = (job for job in islice(store.views.all(selector), LOOKED_AT) if job.id not in changed)
    found = Counter(f"{job.state}, and told already" if job.requested is not None else str(job.state) for job in left)
    told = ", ".join(f"{count:,} {state}" for state, count in found.items())
    applies = JOB_ACTIONS[action].applies
    return f"{told}; {applies}" if told else applies

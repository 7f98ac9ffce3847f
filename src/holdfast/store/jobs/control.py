"""What people do to jobs: cancel, pause, retry, hold, change, remove."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from msgspec import Struct, structs

from holdfast.domain.commands.command import COMMAND
from holdfast.domain.commands.edit import Edit
from holdfast.domain.fleet.queue import DEFAULT_QUEUE
from holdfast.domain.jobs.history import EventName
from holdfast.domain.jobs.job import FINISHED, LIVE, ControlRequest, JobId, State
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.unique_key import KeyHolder, KeyScope
from holdfast.domain.text import checked_actor, checked_name, checked_number, clean_text
from holdfast.errors import InvalidInput, JobInUse
from holdfast.store.engine.backend import Backend
from holdfast.store.engine.operation import ById, Operation, Rows, query
from holdfast.store.jobs import dependencies, payloads
from holdfast.store.jobs.dependencies import FinishedJob
from holdfast.store.jobs.events import record
from holdfast.store.jobs.selection import select_ids

CHUNK = 500
PAGE = 10_000
MAY_HOLD = (State.WAITING, State.SCHEDULED, State.READY)
IDLE = (State.HELD, State.WAITING, State.SCHEDULED, State.READY)

ControlOperation = Callable[[list[JobId]], Operation[list[JobId]]]


class _Place(Struct, frozen=True):
    id: JobId
    state: State


class _Revivable(Struct, frozen=True):
    id: JobId
    kind: str
    key: str | None


class JobControl:
    """The verbs. Each takes a selector, works in small transactions, and answers the ids it changed.

    A job in a state that the verb does not apply to is left alone. Every change but a removal
    is an event with its actor, a person's name.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def cancel(self, selector: Selector, *, actor: str) -> list[JobId]:
        """Cancel jobs: at once where nobody runs them; a holder is told with its next renewal."""
        return self._each(selector, LIVE, lambda ids: cancel_jobs(ids, actor), actor=actor)

    def pause(self, selector: Selector, *, actor: str, note: str | None = None) -> list[JobId]:
        """Hold jobs; a running one is told to stop, goes back without losing an attempt, and is held then.

        Its checkpoint stays for the run after :meth:`resume`. A handler that ends its job first has won.
        """
        text = clean_text(note or f"paused by {actor}", limit=1000)
        held = self._each(selector, MAY_HOLD, lambda ids: _hold(ids, actor, text), actor=actor)
        return held + self._each(selector, (State.RUNNING,), lambda ids: _pause(ids, actor, text), actor=actor)

    def resume(self, selector: Selector, *, actor: str) -> list[JobId]:
        """Let held jobs go, and forget a pause that no handler has obeyed yet."""
        freed = self._each(selector, (State.RUNNING,), lambda ids: _unpause(ids, actor), actor=actor)
        return freed + self.unhold(selector, actor=actor)

    def hold(self, selector: Selector, *, actor: str, note: str | None = None) -> list[JobId]:
        """Keep jobs that nobody runs from starting until a person lets them go."""
        text = None if note is None else clean_text(note, limit=1000)
        return self._each(selector, MAY_HOLD, lambda ids: _hold(ids, actor, text), actor=actor)

    def unhold(self, selector: Selector, *, actor: str) -> list[JobId]:
        """Let held jobs go. Needs that are still live are waited for; failed ones no longer count.

        One that is out of attempts has all of them again.
        """
        return self._each(selector, (State.HELD,), lambda ids: _unhold(ids, actor), actor=actor)

    def retry(self, selector: Selector, *, actor: str) -> list[JobId]:
        """Run dead and cancelled jobs again with all their attempts, and those that wait for a retry now.

        Needs that are still live are waited for. Of several with one unique key only the newest
        comes back, and none while another job has the key. No new job is made.
        """
        dead, waiting = (State.DEAD, State.CANCELLED), (State.SCHEDULED,)
        revived = self._each(selector, dead, lambda ids: _revive(ids, actor), actor=actor, newest=True)
        return revived + self._each(selector, waiting, lambda ids: _hasten(ids, actor), actor=actor)

    def restart(self, selector: Selector, *, actor: str) -> list[JobId]:
        """As :meth:`retry`, and programs that are done as well: the same jobs, each with a new attempt.

        The attempt that is done stays in the history, and its log; what it had reached is forgotten.
        """
        done = self._each(selector, (State.DONE,), lambda ids: _revive_done(ids, actor), actor=actor, newest=True)
        return done + self.retry(selector, actor=actor)

    def rewrite(self, selector: Selector, make: payloads.Change, *, actor: str, detail: object = None) -> list[JobId]:
        """Change the payloads of jobs that nobody runs. Who claims one afterwards gets the new one, and never the old.

        *make* may be called again; what it raises leaves its job as it was. The event of each change tells *detail*.
        """
        checked_actor(actor)
        narrowed = selector.only(*sorted(IDLE))
        ids = [] if narrowed.empty else self._backend.read(_all_ids, narrowed)
        changed: list[JobId] = []
        for start in range(0, len(ids), CHUNK):
            part = ids[start : start + CHUNK]
            changed += self._backend.write(payloads.rewrite, part, make, actor=actor, detail=detail)
        return changed

    def set_priority(self, selector: Selector, priority: int, *, actor: str) -> list[JobId]:
        """Change the priority of live jobs."""
        checked_number(priority, what="a priority")
        change = _change("set_priority", EventName.REPRIORITISED, {"priority": priority}, actor)
        return self._each(selector, LIVE, change, actor=actor)

    def set_memory(self, selector: Selector, memory: int, *, actor: str) -> list[JobId]:
        """Change the memory cap, in bytes, of programs that do not run: it holds from their next attempt on."""
        if memory <= 0:
            raise InvalidInput(f"a cap is more than nothing, not {memory}")
        detail = {"memory": memory}
        change = _change("set_memory", EventName.CAPPED, detail, actor)
        edit = Edit(memory=memory)
        programs = selector if selector.kinds is not None else structs.replace(selector, kinds=(COMMAND,))
        live = self.rewrite(programs, lambda payload: edit.applied(payload, actor), actor=actor, detail=detail)
        return self._each(selector, FINISHED, change, actor=actor) + live

    def move(self, selector: Selector, queue: str = DEFAULT_QUEUE, *, actor: str) -> list[JobId]:
        """Move jobs to another queue. A running job stays where it is."""
        checked_name(queue, what="the queue")
        change = _change("set_queue", EventName.MOVED, {"queue": queue}, actor)
        return self._each(selector, IDLE, change, actor=actor)

    def reschedule(self, selector: Selector, due_at: datetime, *, actor: str) -> list[JobId]:
        """Change when jobs are due that nobody runs."""
        if not isinstance(due_at, datetime) or due_at.tzinfo is None:
            raise InvalidInput("due_at needs a time zone")
        change = _change("set_due_time", EventName.RESCHEDULED, {"due_at": due_at}, actor)
        return self._each(selector, IDLE, change, actor=actor)

    def remove(self, selector: Selector) -> list[JobId]:
        """Delete jobs with their whole history.

        Raises:
            JobInUse: One of them is running, or a live job needs it; its chunk is untouched.
        """
        return self._each(selector, State, _remove)

    def _each(
        self,
        selector: Selector,
        states: Iterable[State],
        action: ControlOperation,
        *,
        actor: str | None = None,
        newest: bool = False,
    ) -> list[JobId]:
        """Apply *verb* to all that match, chunk by chunk, each chunk in one transaction."""
        if actor is not None:
            checked_actor(actor)
        narrowed = selector.only(*sorted(states))
        if narrowed.empty:
            return []
        ids = self._backend.read(_all_ids, narrowed)
        if newest:
            ids.reverse()
        changed: list[JobId] = []
        for start in range(0, len(ids), CHUNK):
            changed += self._backend.write(action, ids[start : start + CHUNK])
        if changed:
            self._backend.notify()
        return changed


def _all_ids(selector: Selector) -> Operation[list[JobId]]:
    ids: list[JobId] = []
    while True:
        page = yield from select_ids(selector, after=ids[-1] if ids else JobId(0), limit=PAGE)
        ids += page
        if len(page) < PAGE:
            return ids


def cancel_jobs(ids: list[JobId], actor: str) -> Operation[list[JobId]]:
    """Cancel jobs: at once where nobody runs them; a holder is told. Answers which were, or will be."""
    rows: list[_Place] = yield query("lock_live_jobs", _Place, ids=ids)
    idle = [job.id for job in rows if job.state is not State.RUNNING]
    running = [job.id for job in rows if job.state is State.RUNNING]
    yield from dependencies.pass_on([job.id for job in rows if job.state is State.WAITING])
    finished: list[FinishedJob] = yield query(
        "cancel_idle_jobs", FinishedJob, idle=ById(id=idle, note=[f"cancelled by {actor}"] * len(idle))
    )
    told = yield query("request_job_control", ids=running, requested=ControlRequest.CANCEL, note=None)
    asked = [row[0] for row in told]
    yield from record(EventName.CANCELLED, dict.fromkeys(idle), actor=actor)
    yield from record(EventName.CANCEL_REQUESTED, dict.fromkeys(asked), actor=actor)
    yield from dependencies.after_end(job.id for job in finished if job.has_dependents)
    return sorted(idle + asked)


def _pause(ids: list[JobId], actor: str, note: str) -> Operation[list[JobId]]:
    rows = yield query("request_job_control", ids=ids, requested=ControlRequest.PAUSE, note=note)
    asked = sorted(row[0] for row in rows)
    yield from record(EventName.PAUSE_REQUESTED, dict.fromkeys(asked, note), actor=actor)
    return asked


def _unpause(ids: list[JobId], actor: str) -> Operation[list[JobId]]:
    rows = yield query("withdraw_pause_request", ids=ids)
    freed = sorted(row[0] for row in rows)
    yield from record(EventName.RESUMED, dict.fromkeys(freed), actor=actor)
    return freed


def _hold(ids: list[JobId], actor: str, note: str | None) -> Operation[list[JobId]]:
    rows = yield query("hold_jobs", notes=ById(id=ids, note=[note] * len(ids)))
    held = sorted(row[0] for row in rows)
    yield from record(EventName.HELD, dict.fromkeys(held, note), actor=actor)
    return held


def _unhold(ids: list[JobId], actor: str) -> Operation[list[JobId]]:
    rows: list[_Place] = yield query("release_held_jobs", _Place, ids=ids)
    yield from record(EventName.RESUMED, dict.fromkeys(job.id for job in rows), actor=actor)
    yield from dependencies.judge_waiting([job.id for job in rows if job.state is State.WAITING], insist=True)
    return sorted(job.id for job in rows)


def _hasten(ids: list[JobId], actor: str) -> Operation[list[JobId]]:
    rows = yield query("run_retries_now", ids=ids)
    changed = sorted(row[0] for row in rows)
    yield from record(EventName.RETRIED, dict.fromkeys(changed), actor=actor)
    return changed


def _revive(ids: list[JobId], actor: str) -> Operation[list[JobId]]:
    rows: list[_Revivable] = yield query("lock_unsuccessful_jobs", _Revivable, ids=ids)
    return (yield from _begin_anew(rows, "retry_jobs", actor))


def _revive_done(ids: list[JobId], actor: str) -> Operation[list[JobId]]:
    rows: list[_Revivable] = yield query("lock_done_jobs", _Revivable, ids=ids, kind=COMMAND)
    return (yield from _begin_anew(rows, "rerun_done_jobs", actor))


def _begin_anew(rows: list[_Revivable], statement: str, actor: str) -> Operation[list[JobId]]:
    keyed = {(job.kind, job.key): job.id for job in rows if job.key is not None}  # ascending: the newest wins
    chosen = [job.id for job in rows if job.key is None or keyed[job.kind, job.key] == job.id]
    chosen = yield from _without_taken_keys(chosen, keyed)
    revived: list[_Place] = yield query(statement, _Place, ids=chosen)
    changed = sorted(job.id for job in revived)
    yield from record(EventName.RETRIED, dict.fromkeys(changed), actor=actor)
    yield from dependencies.judge_waiting([job.id for job in revived if job.state is State.WAITING], insist=True)
    return changed


def _without_taken_keys(chosen: list[JobId], keyed: dict[tuple[str, str], JobId]) -> Operation[list[JobId]]:
    """Leave out the jobs whose key another live job has; the others get their keys."""
    if not keyed:
        return chosen
    holders: list[KeyHolder] = yield query("claim_keys", KeyHolder, requested=_wanted(keyed))
    rows = yield query("list_live_ids", ids=[holder.job_id for holder in holders])
    live = {row[0] for row in rows}
    blocked = {(h.kind, h.key) for h in holders if h.job_id in live and h.job_id != keyed[h.kind, h.key]}
    yield query("restore_keys", requested=_wanted({pair: job for pair, job in keyed.items() if pair not in blocked}))
    without = {keyed[pair] for pair in blocked}
    return [job_id for job_id in chosen if job_id not in without]


def _wanted(keyed: dict[tuple[str, str], JobId]) -> Rows:
    order = sorted(keyed)
    return Rows(
        kind=[kind for kind, _ in order],
        key=[key for _, key in order],
        job_id=[keyed[pair] for pair in order],
        scope=[KeyScope.LIVE] * len(order),
        period=[None] * len(order),
    )


def _change(statement: str, event: EventName, values: dict[str, Any], actor: str) -> ControlOperation:
    def action(ids: list[JobId]) -> Operation[list[JobId]]:
        rows = yield query(statement, ids=ids, **values)
        changed = sorted(row[0] for row in rows)
        yield from record(event, dict.fromkeys(changed, values), actor=actor)
        return changed

    return action


def _remove(ids: list[JobId]) -> Operation[list[JobId]]:
    yield query("lock_finished_jobs", ids=ids)
    rows: list[_Place] = yield query("lock_live_jobs", _Place, ids=ids)
    running = [job.id for job in rows if job.state is State.RUNNING]
    if running:
        raise JobInUse(f"job {running[0]} is running and cannot be removed", job_id=running[0])
    has_dependents = yield query("list_live_dependents", ids=ids)
    if has_dependents:
        job_id = min(row[0] for row in has_dependents)
        raise JobInUse(f"job {job_id} is needed by a live job and cannot be removed", job_id=job_id)
    gone = yield query("delete_jobs", ids=ids)
    return sorted(row[0] for row in gone)

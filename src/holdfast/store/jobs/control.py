"""Control of jobs by people: cancel, pause, retry, hold, change, delete."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain

from msgspec import Struct, structs

from holdfast.domain.commands.command import COMMAND, Edit
from holdfast.domain.fleet.queue import DEFAULT_QUEUE, checked_queue
from holdfast.domain.jobs.history import EventName
from holdfast.domain.jobs.job import FINISHED, LIVE, ControlRequest, EndReason, JobId, State
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.names import checked_actor, clean_text
from holdfast.domain.quantities import checked_number, checked_timestamp
from holdfast.errors import InvalidInput, JobInUse
from holdfast.store.engine.changes import JOBS, NO_CHANGES, REQUESTS, Changes
from holdfast.store.engine.operation import ById, Noun, Operation, Query, query
from holdfast.store.jobs import dependencies
from holdfast.store.jobs.dependencies import FinishedJob, RevivableJob
from holdfast.store.jobs.events import record
from holdfast.store.jobs.queries import select_ids
from holdfast.store.jobs.unique_keys import reclaim_keys

#: Jobs that one transaction changes.
CHUNK_SIZE = 500
MAX_NOTE_LENGTH = 1000
MAX_LEFT_BEHIND = 10_000
MAY_HOLD = (State.WAITING, State.SCHEDULED, State.READY)
IDLE = (State.HELD, *MAY_HOLD)

#: Changes some jobs in one transaction and returns the ids that it changed.
ControlOperation = Callable[[list[JobId]], Operation[list[JobId]]]
#: Makes the new payload from the old one; an equal payload means no change.
PayloadChange = Callable[[str], str]


class _Place(Struct, frozen=True):
    id: JobId
    state: State


class ChangedJobs(list[JobId]):
    """The ids of changed jobs. Of these, *requested* only got a request: they run until their holders obey it."""

    def __init__(self, ids: Iterable[JobId] = (), requested: Iterable[JobId] = ()) -> None:
        super().__init__(ids)
        self.requested = frozenset(requested)


class JobControl(Noun):
    """Actions of people on jobs. Each takes a selector, works in small transactions, and returns the ids it changed.

    A job in a state that the action does not apply to stays as it is. Every change except a
    deletion is an event with its actor, a person's name.
    """

    def cancel(self, selector: Selector, *, actor: str) -> ChangedJobs:
        """Cancel jobs: idle ones at once; the holder of a running one receives the request with its next renewal.

        The list has both; its ``requested`` are the running ones. If the handler finishes first, its outcome counts.
        """
        return self._each(selector, LIVE, lambda ids: cancel_jobs(ids, actor), actor=actor, wakes=JOBS | REQUESTS)

    def pause(self, selector: Selector, *, actor: str, note: str | None = None) -> ChangedJobs:
        """Hold jobs. A running one receives a stop request, is released without losing an attempt, and is then held.

        Its checkpoint stays for the run after :meth:`resume`. If the handler finishes first, its outcome counts.
        """
        text = clean_text(note or f"paused by {actor}", limit=MAX_NOTE_LENGTH)

        def request_pause(ids: list[JobId]) -> Operation[list[JobId]]:
            request = query("request_job_control", ids=ids, requested=ControlRequest.PAUSE, note=text)
            return _apply(request, EventName.PAUSE_REQUESTED, text, actor=actor)

        held = self._each(selector, MAY_HOLD, lambda ids: _hold(ids, actor, text), actor=actor)
        running = self._each(selector, (State.RUNNING,), request_pause, actor=actor, wakes=REQUESTS)
        return ChangedJobs(held + running, requested=running)

    def resume(self, selector: Selector, *, actor: str) -> list[JobId]:
        """Release held jobs, and withdraw pauses that no handler has obeyed yet."""
        withdraw_pause = _change("withdraw_pause_request", EventName.RESUMED, {}, actor)
        resumed = self._each(selector, (State.RUNNING,), withdraw_pause, actor=actor)
        return resumed + self.unhold(selector, actor=actor)

    def hold(self, selector: Selector, *, actor: str, note: str | None = None) -> list[JobId]:
        """Keep idle jobs from starting until a person releases them."""
        text = None if note is None else clean_text(note, limit=MAX_NOTE_LENGTH)
        return self._each(selector, MAY_HOLD, lambda ids: _hold(ids, actor, text), actor=actor)

    def unhold(self, selector: Selector, *, actor: str) -> list[JobId]:
        """Release held jobs. They wait for live dependencies; failed ones no longer count.

        A job without attempts left gets all of them again.
        """
        return self._each(selector, (State.HELD,), lambda ids: _unhold(ids, actor), actor=actor)

    def retry(self, selector: Selector, *, actor: str, with_dependents: bool = False) -> list[JobId]:
        """Run dead and cancelled jobs again with all their attempts, and jobs that wait for a retry now.

        They wait for live dependencies. A job whose dependency has failed stays as it is, unless
        that one runs again, too. *with_dependents*: jobs that were cancelled because one of these
        failed run again as well. Of several jobs with one unique key only the newest runs again, and
        none while another job has the key. No new job is created.
        """
        dead = (State.DEAD, State.CANCELLED)
        revived = self._revive(selector, dead, ("lock_unsuccessful_jobs", "retry_jobs"), actor)
        hasten = _change("run_retries_now", EventName.RETRIED, {}, actor)
        changed = revived + self._each(selector, (State.SCHEDULED,), hasten, actor=actor)
        return changed + self._with_dependents(changed, actor) if with_dependents else changed

    def restart(self, selector: Selector, *, actor: str, with_dependents: bool = False) -> list[JobId]:
        """As :meth:`retry`, and commands that are done as well: the same jobs, each with a new attempt.

        The finished attempt and its log stay in the history; its checkpoint and progress are deleted.
        """
        statements = ("lock_done_jobs", "rerun_done_jobs")
        done = self._revive(selector, (State.DONE,), statements, actor, kind=COMMAND)
        changed = done + self.retry(selector, actor=actor)
        return changed + self._with_dependents(changed, actor) if with_dependents else changed

    def left_behind(self, ids: Sequence[JobId]) -> list[JobId]:
        """Up to 10,000 jobs that are cancelled because one of these failed, down the whole chain."""
        return self._backend.read(dependencies.left_behind, ids, MAX_LEFT_BEHIND) if ids else []

    def _with_dependents(self, ids: list[JobId], actor: str) -> list[JobId]:
        behind = self.left_behind(ids)
        return self.retry(Selector(ids=tuple(behind)), actor=actor) if behind else []

    def _revive(
        self, selector: Selector, states: tuple[State, ...], statements: tuple[str, str], actor: str, **values: str
    ) -> list[JobId]:
        """Run finished jobs again: the *statements* lock and change them. They are judged when all of them are live."""
        newest_first = self._select(selector, states, actor)[::-1]
        selected = set(newest_first)
        lock, change = statements

        at_once = len(newest_first) <= CHUNK_SIZE

        def revive(ids: list[JobId]) -> Operation[list[JobId]]:
            revived = yield from _revive(query(lock, RevivableJob, ids=ids, **values), change, actor, selected)
            if at_once:
                yield from dependencies.judge_waiting(revived, where=dependencies.UNLOCKED)
            return revived

        revived = self._in_chunks(newest_first, revive, JOBS)
        if at_once:
            return revived
        for start in range(0, len(revived), CHUNK_SIZE):
            waiting = sorted(revived)[start : start + CHUNK_SIZE]
            self._backend.write(dependencies.judge_waiting, waiting, where=dependencies.UNLOCKED)
        return revived

    def rewrite(self, selector: Selector, make: PayloadChange, *, actor: str, detail: object = None) -> list[JobId]:
        """Change the payloads of idle jobs. A later claim gets the new payload, never the old one.

        *make* may be called again; an exception of it leaves its job as it was. The event of each
        change holds *detail*.
        """
        return self._each(selector, IDLE, lambda ids: _rewrite(ids, make, actor, detail), actor=actor, wakes=NO_CHANGES)

    def set_priority(self, selector: Selector, priority: int, *, actor: str) -> list[JobId]:
        """Change the priority of live jobs."""
        checked_number(priority, label="a priority")
        change = _change("set_priority", EventName.REPRIORITISED, {"priority": priority}, actor)
        return self._each(selector, LIVE, change, actor=actor)

    def set_memory(self, selector: Selector, memory: int, *, actor: str) -> list[JobId]:
        """Change the memory cap, in bytes, of commands that do not run: it applies from their next attempt on."""
        if memory <= 0:
            raise InvalidInput(f"a limit must be greater than zero, not {memory}")
        detail = {"memory": memory}
        change = _change("set_memory", EventName.CAPPED, detail, actor)
        edit = Edit(memory=memory)
        commands = selector if selector.kinds is not None else structs.replace(selector, kinds=(COMMAND,))
        live = self.rewrite(commands, lambda payload: edit.applied(payload, actor), actor=actor, detail=detail)
        return self._each(selector, FINISHED, change, actor=actor) + live

    def move(self, selector: Selector, queue: str = DEFAULT_QUEUE, *, actor: str) -> list[JobId]:
        """Move jobs to another queue. A running job stays in its queue."""
        checked_queue(queue)
        change = _change("set_queue", EventName.MOVED, {"queue": queue}, actor)
        return self._each(selector, IDLE, change, actor=actor)

    def reschedule(self, selector: Selector, due_at: datetime, *, actor: str) -> list[JobId]:
        """Change when idle jobs are due."""
        due_at = checked_timestamp(due_at, label="due_at")
        change = _change("set_due_time", EventName.RESCHEDULED, {"due_at": due_at}, actor)
        return self._each(selector, IDLE, change, actor=actor)

    def delete(self, selector: Selector) -> list[JobId]:
        """Delete jobs with their whole history.

        Raises:
            JobInUse: One of them is running, or a live job depends on it; its chunk is untouched.
        """
        return self._each(selector, State, _delete)

    def _each(
        self,
        selector: Selector,
        states: Iterable[State],
        change: ControlOperation,
        *,
        actor: str | None = None,
        wakes: Changes = JOBS,
    ) -> ChangedJobs:
        """Apply *change* to all matching jobs."""
        return self._in_chunks(self._select(selector, states, actor), change, wakes)

    def _select(self, selector: Selector, states: Iterable[State], actor: str | None) -> list[JobId]:
        if actor is not None:
            checked_actor(actor)
        narrowed = selector.only(*sorted(states))
        return [] if narrowed.empty else self._backend.read(select_ids, narrowed)

    def _in_chunks(self, ids: list[JobId], change: ControlOperation, wakes: Changes) -> ChangedJobs:
        """Apply *change* to jobs, one transaction per chunk."""
        starts = range(0, len(ids), CHUNK_SIZE)
        answers = [self._backend.write(change, ids[start : start + CHUNK_SIZE]) for start in starts]
        requested = chain.from_iterable(answer.requested for answer in answers if isinstance(answer, ChangedJobs))
        return self._wake(ChangedJobs(chain.from_iterable(answers), requested), wakes)


def cancel_jobs(ids: list[JobId], actor: str) -> Operation[ChangedJobs]:
    """Cancel idle jobs, and send a request to the holders of running ones; returns the jobs of both sorts."""
    rows: list[_Place] = yield query("lock_live_jobs", _Place, ids=ids)
    idle = [job.id for job in rows if job.state is not State.RUNNING]
    running = [job.id for job in rows if job.state is State.RUNNING]
    yield from dependencies.pass_on([job.id for job in rows if job.state is State.WAITING])
    finished: list[FinishedJob] = yield query(
        "cancel_idle_jobs",
        FinishedJob,
        idle=dependencies.cancelled_columns(dict.fromkeys(idle, f"cancelled by {actor}"), EndReason.CANCELLED),
    )
    requested = [
        row[0] for row in (yield query("request_job_control", ids=running, requested=ControlRequest.CANCEL, note=None))
    ]
    yield from record(EventName.CANCELLED, dict.fromkeys(idle), actor=actor)
    yield from record(EventName.CANCEL_REQUESTED, dict.fromkeys(requested), actor=actor)
    yield from dependencies.after_end(job.id for job in finished if job.has_dependents)
    return ChangedJobs(sorted(idle + requested), requested)


def _apply(change: Query, event: EventName, detail: object = None, *, actor: str) -> Operation[list[JobId]]:
    """Run a statement that returns the ids it changed, and record the event of each."""
    rows = yield change
    changed = sorted(row[0] for row in rows)
    yield from record(event, dict.fromkeys(changed, detail), actor=actor)
    return changed


def _change(statement: str, event: EventName, values: Mapping[str, object], actor: str) -> ControlOperation:
    return lambda ids: _apply(query(statement, ids=ids, **values), event, values or None, actor=actor)


def _hold(ids: list[JobId], actor: str, note: str | None) -> Operation[list[JobId]]:
    change = query("hold_jobs", notes=ById(id=ids, note=[note] * len(ids)))
    return _apply(change, EventName.HELD, note, actor=actor)


def _unhold(ids: list[JobId], actor: str) -> Operation[list[JobId]]:
    rows: list[_Place] = yield query("release_held_jobs", _Place, ids=ids)
    yield from record(EventName.RESUMED, dict.fromkeys(job.id for job in rows), actor=actor)
    yield from dependencies.judge_waiting([job.id for job in rows if job.state is State.WAITING], insist=True)
    return sorted(job.id for job in rows)


def _revive(lock: Query, statement: str, actor: str, selected: set[JobId]) -> Operation[list[JobId]]:
    locked: list[RevivableJob] = yield lock
    rows = yield from dependencies.without_failed_dependencies(locked, selected)
    keyed = {(job.kind, job.key): job.id for job in rows if job.key is not None}  # ascending: the newest wins
    blocked = yield from reclaim_keys(keyed)
    chosen = [job.id for job in rows if job.key is None or keyed[job.kind, job.key] == job.id]
    chosen = [job_id for job_id in chosen if job_id not in blocked]
    revived: list[_Place] = yield query(statement, _Place, ids=chosen)
    changed = sorted(job.id for job in revived)
    yield query("reopen_plans", ids=changed)
    yield from record(EventName.RETRIED, dict.fromkeys(changed), actor=actor)
    return changed


def _rewrite(ids: list[JobId], make: PayloadChange, actor: str, detail: object) -> Operation[list[JobId]]:
    idle = [row[0] for row in (yield query("lock_idle_jobs", ids=ids))]
    rows = yield query("read_payloads", ids=idle)
    changed = {job_id: new for job_id, payload in rows if (new := make(payload)) != payload}
    yield query("set_payloads", changed=ById(id=list(changed), payload=list(changed.values())))
    yield from record(EventName.CHANGED, dict.fromkeys(changed, detail), actor=actor)
    return sorted(changed)


def _delete(ids: list[JobId]) -> Operation[list[JobId]]:
    yield query("lock_finished_jobs", ids=ids)
    rows: list[_Place] = yield query("lock_live_jobs", _Place, ids=ids)
    running = [job.id for job in rows if job.state is State.RUNNING]
    if running:
        raise JobInUse(f"job {running[0]} is running and cannot be deleted", job_id=running[0])
    has_dependents = yield query("list_live_dependents", ids=ids)
    if has_dependents:
        job_id = min(row[0] for row in has_dependents)
        raise JobInUse(f"job {job_id} is needed by a live job and cannot be deleted", job_id=job_id)
    deleted = yield query("delete_jobs", ids=ids)
    return sorted(row[0] for row in deleted)

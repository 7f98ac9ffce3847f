"""Actions on jobs: the table of actions, and the service that performs them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Any

import msgspec
from msgspec import Struct, structs

from holdfast.admin.actions.actions import Actions, Changed, EnqueuedJob
from holdfast.domain.access.roles import Role
from holdfast.domain.commands.command import COMMAND, Command, Edit
from holdfast.domain.jobs.enqueue_options import EnqueueOptions
from holdfast.domain.jobs.job import JobId, State
from holdfast.domain.jobs.new_job import Enqueued, NewJob
from holdfast.domain.jobs.selector import Selector, format_filter, parse_timestamp
from holdfast.domain.names import checked_name, nearest_name
from holdfast.domain.quantities import as_bytes, checked_number, checked_timestamp
from holdfast.errors import InvalidInput, NoSuchJob, NotFound
from holdfast.store import Store
from holdfast.store.jobs.control import JobControl

#: Number of jobs that are read to explain why an action left some of them unchanged.
MAX_EXPLAINED_JOBS = 10_000
#: Counts of matching jobs stop here.
MAX_COUNT = 1_000_000
#: Number of dead jobs that are searched for a cluster, and of its jobs that one action changes.
MAX_SCANNED_JOBS, MAX_CLUSTER_JOBS = 100_000, 10_000


class JobAction(Struct, frozen=True):
    """One action on jobs.

    *run* changes the selected jobs and returns their ids. *applies* explains which jobs it leaves unchanged. *check*
    refuses invalid options before anything changes. An action that *refuses* some jobs must run in a dry run to find
    out; the others skip such jobs. An action that *revives* jobs may leave their dependents behind. More than one job
    needs a confirmation if the action is *destructive* or *confirms*.
    """

    run: Callable[..., list[JobId]]
    applies: str
    check: Callable[..., None] | None = None
    role: Role = Role.OPERATOR
    destructive: bool = False
    note: bool = False
    refuses: bool = False
    revives: bool = False
    confirms: bool = False


def _kill(control: JobControl, chosen: Selector, *, actor: str) -> list[JobId]:
    narrowed = chosen.only(State.RUNNING)
    return [] if narrowed.empty else control.cancel(narrowed, actor=actor)


def _delete(control: JobControl, chosen: Selector, *, actor: str) -> list[JobId]:  # noqa: ARG001 - no event is left to name the actor
    return control.delete(chosen)


def restartable(selector: Selector, *, done: bool = False) -> Selector:
    """The jobs that ``restart`` takes: dead and cancelled ones. Done ones if *done*, an id or a state asks for them."""
    explicit = done or selector.ids is not None or selector.states is not None
    return selector if explicit else selector.only(State.DEAD, State.CANCELLED)


def _check_restart(*, memory: str | None = None, **_: bool) -> None:
    if memory is not None:
        as_bytes(memory)


def _restart(
    control: JobControl, chosen: Selector, *, actor: str, memory: str | None = None, done: bool = False, **options: bool
) -> list[JobId]:
    chosen = restartable(chosen, done=done)
    if memory is not None:
        control.set_memory(chosen, as_bytes(memory), actor=actor)
    return control.restart(chosen, actor=actor, **options)


def _check_change(
    *, priority: int | None = None, to_queue: str | None = None, run_at: str | None = None, edit: Edit | None = None
) -> None:
    if priority is None and to_queue is None and run_at is None and not edit:
        raise InvalidInput("nothing to change", hint="Give --priority, --to-queue or --run-at.")
    if priority is not None:
        checked_number(priority, label="a priority")
    if to_queue is not None:
        checked_name(to_queue, label="the queue")
    if run_at is not None:
        _parse_run_at(run_at)
    if edit:
        edit.applied(Command(argv=("true",), cwd="/").dumps(), "nobody")


def _parse_run_at(text: str) -> datetime:
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
        changed |= set(control.reschedule(chosen, _parse_run_at(run_at), actor=actor))
    if edit:
        commands = chosen if chosen.kinds is not None else structs.replace(chosen, kinds=(COMMAND,))
        rewrite = partial(edit.applied, actor=actor)
        changed |= set(control.rewrite(commands, rewrite, actor=actor, detail=edit.describe()))
    return sorted(changed)


#: The actions on jobs, by the name that they have on every edge.
JOB_ACTIONS: Mapping[str, JobAction] = {
    "cancel": JobAction(JobControl.cancel, "what has ended stays as it is", destructive=True),
    "pause": JobAction(JobControl.pause, "what has ended or is held stays as it is", note=True),
    "resume": JobAction(JobControl.resume, "only what is held or told to pause goes on"),
    "retry": JobAction(
        JobControl.retry,
        "only what is dead, cancelled or waits for a retry runs again, no second job with one key, and no job before"
        " the one that it depends on; holdfast restart takes what is done",
        revives=True,
    ),
    "kill": JobAction(_kill, "only what runs is ended; holdfast cancel takes what waits, too", destructive=True),
    "restart": JobAction(
        _restart,
        "only what has ended begins anew, what is done only if it is a program and --done or its id asks for it, no"
        " second job with one key, and no job before the one that it depends on",
        check=_check_restart,
        revives=True,
        confirms=True,
    ),
    "hold": JobAction(JobControl.hold, "only what waits can be held", note=True),
    "unhold": JobAction(JobControl.unhold, "only what is held can be let go"),
    "rm": JobAction(_delete, "it was gone already", role=Role.ADMIN, destructive=True, refuses=True),
    "set": JobAction(
        _change, "the others have these values already, or cannot take them any more", check=_check_change
    ),
}


def job_action(name: str) -> JobAction:
    """The action of this name; an unknown name is an InvalidInput with a suggestion."""
    if name not in JOB_ACTIONS:
        near = nearest_name(name, JOB_ACTIONS)
        hint = f"Did you mean {near!r}?" if near else f"Verbs: {', '.join(JOB_ACTIONS)}."
        raise InvalidInput(f"jobs cannot be told to {name[:40]!r}", hint=hint)
    return JOB_ACTIONS[name]


class JobActions:
    """Changes jobs and saved filters, and records each change."""

    def __init__(self, actions: Actions) -> None:
        self._actions = actions
        self._store = actions.store

    def count_matches(self, action: str, selector: Selector) -> int:
        """Count the jobs that an action would take. An empty selector never means all jobs.

        A missing id is refused, and so is a selector that matches nothing: it may have a misspelt label.
        """
        if all(value is None for value in structs.asdict(selector).values()):
            hint = "Give ids, or --label, --queue, --state … or --filter."
            raise InvalidInput(f"which jobs should {action} take?", hint=hint)
        self._store.views.refuse_missing(selector)
        matched = self._store.views.count(selector, cap=MAX_COUNT).count
        if not matched:
            raise NoSuchJob("no job matches", hint="holdfast ls with the same options shows what does.")
        return matched

    def perform(
        self, action: str, selector: Selector, *, dry_run: bool = False, matched: int | None = None, **options: Any
    ) -> Changed:
        """Perform one of :data:`JOB_ACTIONS` on the jobs that match.

        *matched* is their count if the caller has it. Invalid *options* change nothing; a dry run checks them too.
        """
        if (check := job_action(action).check) is not None:
            check(**options)
        count = self.count_matches(action, selector) if matched is None else matched
        if options.get("memory") is not None:
            self._refuse_handlers(selector, count)
        if dry_run:
            return self._try(action, selector, count, **options)
        audited = self._actions.audited(action, format_filter(selector), note=_describe_options(options))
        ids = job_action(action).run(audited.control, selector, actor=self._actions.actor, **options)
        why = _explain_unchanged(self._store, action, selector, set(ids)) if len(ids) < count else None
        behind = self._store.control.left_behind(ids) if job_action(action).revives else []
        return Changed(action, max(count, len(ids)), len(ids), False, ids, why, behind)

    def _refuse_handlers(self, selector: Selector, matched: int) -> None:
        """Refuse a memory cap for jobs of handlers: only commands have one of their own."""
        commands = structs.replace(selector, kinds=(COMMAND,))
        if selector.kinds in (None, (COMMAND,)) and self._store.views.count(commands, cap=MAX_COUNT).count == matched:
            return
        hint = "Change memory= of @app.job and deploy it, or add --kind command to restart the commands alone."
        raise InvalidInput("a job of a handler has the memory cap of its kind: --memory is for commands", hint=hint)

    def perform_on_cluster(self, action: str, key: str, *, dry_run: bool = False) -> Changed:
        """``retry`` or ``rm`` the dead jobs of one cluster of errors, at most 10,000 of them."""
        known, ids = job_action(action), self._ids_of(key)
        selector = Selector(ids=tuple(ids), states=(State.DEAD,))
        if dry_run:
            return self._try(action, selector, len(ids))
        audited = self._actions.audited(action, f"cluster={key}")
        changed = known.run(audited.control, selector, actor=self._actions.actor)
        return Changed(action, len(ids), len(changed), False, changed)

    def _try(self, action: str, selector: Selector, matched: int, **options: Any) -> Changed:
        if job_action(action).refuses:
            control = self._store.dry_run_store().control
            job_action(action).run(control, selector, actor=self._actions.actor, **options)
        return Changed(action, matched, 0, True, [])

    def _ids_of(self, key: str) -> list[JobId]:
        from holdfast.admin.views.masking import Masks
        from holdfast.admin.views.overview import error_of
        from holdfast.domain.jobs.error_clusters import cluster_key

        masks, ids = Masks(self._store), []
        for scanned, job in enumerate(self._store.dashboard.all_errors()):
            if cluster_key(job.kind, error_of(job, masks)) == key:
                ids.append(job.id)
            if scanned >= MAX_SCANNED_JOBS or len(ids) >= MAX_CLUSTER_JOBS:
                break
        if not ids:
            raise NotFound(f"no dead job belongs to the cluster {key[:40]!r}", hint="It may have been dealt with.")
        return ids

    def enqueue(self, kind: str, payload: Mapping[str, Any], *, dry_run: bool = False, **options: Any) -> EnqueuedJob:
        """Enqueue a job of a registered kind, or a command, with :class:`EnqueueOptions`; a dry run only checks it."""
        from holdfast.admin.actions.enqueue import build_job

        job = build_job(self._store, kind, payload, EnqueueOptions(**options), actor=self._actions.actor)
        if dry_run:
            tried = self._store.dry_run_store().jobs.enqueue(job)
            job_id = None if tried.created else tried.id
            return EnqueuedJob(job_id, tried.created, tried.outcome, kind, job.queue, dry_run=True)
        (answer,) = self.enqueue_all("enqueue", [job], note=kind)
        return EnqueuedJob(answer.id, answer.created, answer.outcome, kind, job.queue)

    def enqueue_all(self, action: str, requests: Sequence[NewJob], *, note: str | None = None) -> list[Enqueued]:
        """Enqueue jobs under the name of an action: ``enqueue``, ``add``, ``run``."""
        audited = self._actions.audited(action, _format_ids, note=note, changes=_created_ids)
        return audited.jobs.enqueue_many(requests)

    def save_filter(self, name: str, text: str) -> None:
        """Save a filter of jobs under a name that all users of the store share."""
        audited = self._actions.audited("filter save", f"filter={name}", note=text or None, changes=bool)
        audited.saved_filters.save(name, text, actor=self._actions.actor)

    def delete_filter(self, name: str) -> None:
        self._actions.audited("filter rm", f"filter={name}", changes=bool).saved_filters.delete(name)


def _describe_options(options: Mapping[str, Any]) -> str | None:
    """The note of an audit entry: the person's own note, or the options of the action."""
    used = {name: value for name, value in options.items() if value is not None and value is not False}
    return used.pop("note", None) or " ".join(f"{name}={_describe(value)}" for name, value in used.items()) or None


def _describe(value: Any) -> Any:
    return msgspec.json.encode(value.describe()).decode() if isinstance(value, Edit) else value


def _created_ids(jobs: Sequence[Enqueued]) -> list[JobId]:
    return [job.id for job in jobs if job.created or job.replaced]


def _format_ids(ids: Sequence[JobId]) -> str:
    return f"id={ids[0]}" if len(ids) == 1 else f"id={min(ids)} to {max(ids)}"


def _explain_unchanged(store: Store, action: str, selector: Selector, changed: Container[JobId]) -> str:
    """The states of the jobs that an action did not change, and the jobs that it applies to."""
    left = (job for job in islice(store.views.all(selector), MAX_EXPLAINED_JOBS) if job.id not in changed)
    states = Counter(f"{job.state}, and told already" if job.requested is not None else str(job.state) for job in left)
    counts = ", ".join(f"{count:,} {state}" for state, count in states.items())
    applies = JOB_ACTIONS[action].applies
    return f"{counts}; {applies}" if counts else applies

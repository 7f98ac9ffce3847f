"""Actions on jobs."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from holdfast.admin.actions.actions import EnqueuedJob, TargetActions
from holdfast.admin.actions.changed import Changed, Unchanged, count_objects, group_unchanged
from holdfast.admin.actions.table import Action, Target
from holdfast.admin.views.payload_secrets import job_secrets
from holdfast.domain.access.masking import mask_search
from holdfast.domain.commands.command import COMMAND, Command, Edit
from holdfast.domain.fleet.queue import checked_queue, serves_queue
from holdfast.domain.jobs.enqueue_options import EnqueueOptions
from holdfast.domain.jobs.job import JobId, State
from holdfast.domain.jobs.new_job import Enqueued, NewJob
from holdfast.domain.jobs.selector import Selector, format_filter, parse_timestamp
from holdfast.domain.quantities import as_bytes, checked_number, checked_timestamp
from holdfast.errors import Conflict, InvalidInput, NoSuchJob, NotFound
from holdfast.store.jobs.control import ChangedJobs, JobControl

if TYPE_CHECKING:
    from holdfast.worker.commands.log_files import DeletedJobLogs

#: Number of jobs that are read to explain why an action left some of them unchanged.
MAX_EXPLAINED_JOBS = 10_000
#: Number of jobs whose secrets are masked in the filter of an audit entry.
MAX_MASKED_JOBS = 1000
#: Counts of matching jobs stop here.
MAX_COUNT = 1_000_000
#: The actions on the jobs of a cluster of errors.
CLUSTER_ACTIONS = ("retry", "rm")
#: Number of dead jobs that are searched for a cluster, and of its jobs that one action changes.
MAX_SCANNED_JOBS, MAX_CLUSTER_JOBS = 100_000, 10_000


def _kill(control: JobControl, chosen: Selector, *, actor: str) -> list[JobId]:
    narrowed = chosen.only(State.RUNNING)
    return [] if narrowed.empty else control.cancel(narrowed, actor=actor)


def _delete(control: JobControl, chosen: Selector, *, actor: str) -> list[JobId]:  # noqa: ARG001 - no event is left to name the actor
    return control.delete(chosen)


def restartable(selector: Selector, *, done: bool = False) -> Selector:
    """The jobs that ``restart`` takes: dead and cancelled ones. Done ones if *done*, an id or a state selects them.

    A failure that a later job with its key has replaced is taken only by its id.
    """
    if selector.ids is not None:
        return selector
    newest = structs.replace(selector, newest=True)
    return newest if done or selector.states is not None else newest.only(State.DEAD, State.CANCELLED)


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
        checked_queue(to_queue)
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


#: Changes the selected jobs and returns their ids.
JobChange = Callable[..., list[JobId]]
_CHANGES: Mapping[str, JobChange] = {
    "retry": JobControl.retry,
    "restart": _restart,
    "resume": JobControl.resume,
    "pause": JobControl.pause,
    "hold": JobControl.hold,
    "unhold": JobControl.unhold,
    "set": _change,
    "cancel": JobControl.cancel,
    "kill": _kill,
    "rm": _delete,
}
#: Refuses invalid options before anything changes.
_CHECKS: Mapping[str, Callable[..., None]] = {"restart": _check_restart, "set": _check_change}


class JobActions(TargetActions):
    """Changes jobs and saved filters, and records each change."""

    target = Target.JOB

    def count_matches(self, action: str, selector: Selector) -> int:
        """Count the jobs that an action would take. An empty selector never means all jobs.

        A missing id is refused, and so is a selector that matches nothing: it may have a misspelt label.
        """
        if all(value is None for value in structs.asdict(selector).values()):
            hint = "Give ids, or --label, --queue, --state … or --filter."
            raise InvalidInput(f"{action}: no jobs selected", hint=hint)
        self._store.views.refuse_missing(selector)
        matched = self._store.views.count(selector, cap=MAX_COUNT).count
        if not matched:
            raise NoSuchJob("no job matches", hint="holdfast ls with the same options lists the jobs that match.")
        return matched

    def run(
        self,
        action: Action,
        selector: Selector,
        *,
        matched: int | None = None,
        cluster: str | None = None,
        **options: Any,
    ) -> Changed:
        """Change the jobs that match. *matched* is their count if the caller has it.

        *cluster*: the jobs were selected by this cluster of errors. Invalid *options* change nothing.
        """
        if (check := _CHECKS.get(action.name)) is not None:
            check(**options)
        count = self.count_matches(action.name, selector) if matched is None else matched
        if options.get("memory") is not None:
            self._refuse_handlers(selector, count)
        target = self._masked_filter(selector) if cluster is None else f"cluster={cluster}"
        audited = self._actions.audited(action.audit_name, target, note=_describe_options(options))
        logs = self._logs(selector) if action.name == "rm" else None
        ids = _CHANGES[action.name](audited.control, selector, actor=self._actions.actor, **options)
        requested = ids.requested if isinstance(ids, ChangedJobs) else frozenset()
        return Changed(
            action=action.name,
            target=action.target,
            matched=max(count, len(ids)),
            changed=len(ids) - len(requested),
            ids=[job_id for job_id in ids if job_id not in requested],
            requested=[*sorted(requested)],
            unchanged=self._unchanged(action, selector, set(ids)) if len(ids) < count else [],
            dry_run=self._actions.is_dry_run,
            left_behind=self._store.control.left_behind(ids) if "with_dependents" in action.options else [],
            note=self._warn_unserved(options.get("to_queue")) if logs is None else self._delete_logs(logs, ids),
        )

    def _masked_filter(self, selector: Selector) -> str:
        """The filter for the audit log, without secrets of the newest matching jobs: people search for them, too."""
        texts = {name: getattr(selector, name) for name in ("keys", "labels", "tags")}
        if selector.error is None and not any(texts.values()):
            return format_filter(selector)
        jobs = self._store.views.page(selector, limit=MAX_MASKED_JOBS).jobs
        secrets = sorted({value for job in jobs for value in job_secrets(self._store, job)}, key=len, reverse=True)
        lists = {name: tuple(mask_search(text, secrets) for text in each) for name, each in texts.items() if each}
        error = None if selector.error is None else mask_search(selector.error, secrets)
        return format_filter(structs.replace(selector, **lists, error=error))

    def _warn_unserved(self, queue: str | None) -> str | None:
        workers = self._store.workers.list() if queue is not None else []
        if queue is None or any(serves_queue(msgspec.json.decode(worker.queues), queue) for worker in workers):
            return None
        return f"no live worker serves the queue {queue!r}: start one with --queue {shlex.quote(queue)}"

    def _logs(self, selector: Selector) -> DeletedJobLogs | None:
        from holdfast.worker.commands.log_files import DeletedJobLogs

        if self._actions.logs is None:
            return None
        commands = selector if selector.kinds is not None else structs.replace(selector, kinds=(COMMAND,))
        return DeletedJobLogs(self._actions.logs, self._store.views.all(commands))

    def _delete_logs(self, logs: DeletedJobLogs, deleted: Collection[JobId]) -> str | None:
        if not self._actions.is_dry_run:
            logs.delete(deleted)
        left = logs.count_left(deleted)
        text = f"the logs of {count_objects(left, 'job')} are on other hosts, whose workers delete them within minutes"
        return text if left else None

    def _unchanged(self, action: Action, selector: Selector, changed: Container[JobId]) -> list[Unchanged]:
        jobs = (job for job in islice(self._store.views.all(selector), MAX_EXPLAINED_JOBS) if job.id not in changed)
        return group_unchanged((job.id, action.explain(job.state)) for job in jobs)

    def _refuse_handlers(self, selector: Selector, matched: int) -> None:
        """Refuse a memory cap for jobs of handlers: only commands have one of their own."""
        commands = structs.replace(selector, kinds=(COMMAND,))
        if selector.kinds in (None, (COMMAND,)) and self._store.views.count(commands, cap=MAX_COUNT).count == matched:
            return
        hint = "Change memory= of @app.job and deploy it, or add --kind command to restart the commands alone."
        raise InvalidInput("a job of a handler has the memory cap of its kind: --memory is for commands", hint=hint)

    def perform_on_cluster(self, name: str, key: str, *, dry_run: bool = False) -> Changed:
        """``retry`` or ``rm`` the dead jobs of one cluster of errors, at most 10,000 of them."""
        if name not in CLUSTER_ACTIONS:
            hint = f"Actions: {', '.join(CLUSTER_ACTIONS)}."
            raise InvalidInput(f"unknown action {name[:40]!r} for a cluster", hint=hint)
        ids = self._ids_of(key)
        selector = Selector(ids=tuple(ids), states=(State.DEAD,))
        return self.perform(name, selector, dry_run=dry_run, matched=len(ids), cluster=key)

    def _ids_of(self, key: str) -> list[JobId]:
        from holdfast.admin.views.overview import error_of
        from holdfast.domain.jobs.error_clusters import cluster_key

        ids = []
        for scanned, job in enumerate(self._store.dashboard.all_errors()):
            if cluster_key(job.kind, error_of(job, self._store)) == key:
                ids.append(job.id)
            if scanned >= MAX_SCANNED_JOBS or len(ids) >= MAX_CLUSTER_JOBS:
                break
        if not ids:
            raise NotFound(f"no dead job belongs to the cluster {key[:40]!r}", hint="They may run again already.")
        return ids

    def enqueue(self, kind: str, payload: Mapping[str, Any], *, dry_run: bool = False, **options: Any) -> EnqueuedJob:
        """Enqueue a job of a registered kind, or a command, with :class:`EnqueueOptions`; a dry run only checks it."""
        from holdfast.admin.actions.enqueue import build_job, cancelled_at_once

        job = build_job(self._store, kind, payload, EnqueueOptions(**options), actor=self._actions.actor)
        with self._actions.on_trial(dry_run) as actions:
            (answer,) = actions.jobs.enqueue_all("enqueue", [job], note=kind)
            cancelled = [] if dry_run else cancelled_at_once(self._store, [job], [answer])
        job_id = None if dry_run and answer.created else answer.id
        return EnqueuedJob(job_id, answer.created, answer.outcome, kind, job.queue, dry_run, cancelled)

    def enqueue_all(self, action: str, requests: Sequence[NewJob], *, note: str | None = None) -> list[Enqueued]:
        """Enqueue jobs under the name of an action: ``enqueue``, ``add``, ``run``. Refuses commands if they are off."""
        if any(request.kind == COMMAND for request in requests) and not self._store.command_switch.is_on():
            hint = "An admin of the store allows them again: holdfast db commands on."
            raise Conflict("commands are switched off on this store, so nothing was enqueued", hint=hint)
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

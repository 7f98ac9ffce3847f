"""What people do, in one place: the command line, the pages and the API act through a :class:`Desk`.

Each act is written down with its actor, and answers what it changed; with *dry_run* it only answers what it would.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import structs

from holdfast.admin.actions.jobs import JOB_ACTIONS, job_action, left_alone
from holdfast.admin.actions.results import BackfilledPlans, Changed, EnqueuedJob, Steered, Triggered, WorkerAsked
from holdfast.domain.access.masking import mask_cut, mask_text
from holdfast.domain.access.roles import Role, Via
from holdfast.domain.batches.batch import BatchId
from holdfast.domain.fleet.autoscaler import parse_bounds
from holdfast.domain.jobs.filter import say_filter
from holdfast.domain.jobs.job import JobId, State, WorkerId, WorkerRequest
from holdfast.domain.jobs.selector import Selector
from holdfast.errors import InvalidInput, NoSuchJob, NotFound
from holdfast.store import Store

if TYPE_CHECKING:
    from holdfast.client.schedules.api import Backfilled, Schedules
    from holdfast.store.fleet.overview import QueueView
    from holdfast.worker.schedules.scopes import Provider

__all__ = [
    "BATCH_ACTIONS",
    "JOB_ACTIONS",
    "Actions",
    "BackfilledPlans",
    "Changed",
    "EnqueuedJob",
    "Steered",
    "Triggered",
    "WorkerAsked",
]

#: More jobs than this are counted as this many.
CAP = 1_000_000
#: Dead jobs, or failed units, that are looked through for those of a cluster; and how many jobs one act takes.
LOOK_THROUGH, AT_ONCE = 100_000, 10_000
#: The verbs of batches, and the role that each needs.
BATCH_ACTIONS = {
    "pause": Role.OPERATOR,
    "resume": Role.OPERATOR,
    "cancel": Role.OPERATOR,
    "retry-failed": Role.OPERATOR,
    "rm": Role.ADMIN,
}


class Actions:
    """Where one person acts, by one way. *providers* know the scopes of schedules, where an application is loaded."""

    def __init__(self, store: Store, *, actor: str, via: Via, providers: Mapping[str, Provider] | None = None) -> None:
        self.store = store
        self.actor = actor
        self.via = via
        self._providers = providers or {}

    def dry_run_store(self) -> Actions:
        """Where the same acts are tried: they answer and refuse as they would, and change nothing."""
        return Actions(self.store.dry_run_store(), actor=self.actor, via=self.via, providers=self._providers)

    def did(self, action: str, target: str, *, count: int | None = None, note: str | None = None) -> None:
        """Write down what was done, without what looks like a secret."""
        said = None if note is None else mask_text(note)
        self.store.audit_log.write(action, mask_text(target), actor=self.actor, via=self.via, count=count, note=said)

    # -- jobs ------------------------------------------------------------------------------

    def matched(self, action: str, selector: Selector) -> int:
        """How many jobs are meant. What matches nothing is an error, so that a misspelt label is noticed.

        Raises:
            InvalidInput: Nothing was asked for: a verb does not take that for everything.
            NoSuchJob: An id does not exist, or nothing matches.
        """
        if all(value is None for value in structs.asdict(selector).values()):
            hint = "Give ids, or --label, --queue, --state … or --filter."
            raise InvalidInput(f"which jobs should {action} take?", hint=hint)
        self.store.views.refuse_missing(selector)
        matched = self.store.views.count(selector, cap=CAP).count
        if not matched:
            raise NoSuchJob("no job matches", hint="holdfast ls with the same options shows what does.")
        return matched

    def jobs(
        self, action: str, selector: Selector, *, dry_run: bool = False, matched: int | None = None, **given: Any
    ) -> Changed:
        """Do *verb* to the jobs that match; *given* are the verb's own words. *matched*: they were counted before.

        All of it makes sense, or nothing is done; with *dry_run* it is checked, and the jobs are counted.
        """
        known = job_action(action)
        known.check(**given)
        found = self.matched(action, selector) if matched is None else matched
        if dry_run:
            if known.refuses:
                known.act(self.store.dry_run_store().control, selector, actor=self.actor, **given)
            return Changed(action, found, 0, True, [])
        ids = known.act(self.store.control, selector, actor=self.actor, **given)
        said = {name: value for name, value in given.items() if value is not None}
        note = said.pop("note", None) or " ".join(f"{name}={value}" for name, value in said.items()) or None
        self.did(action, say_filter(selector), count=len(ids), note=note)
        why = left_alone(self.store, action, selector, set(ids)) if len(ids) < found else None
        return Changed(action, found, len(ids), False, ids, why)

    def cluster(self, action: str, key: str, *, dry_run: bool = False) -> Changed:
        """Do *verb* (``retry`` or ``rm``) to the dead jobs of one cluster of errors; at most 10,000 at once.

        Raises:
            NotFound: No dead job belongs to it any more.
        """
        from holdfast.admin.views.masking import Masks
        from holdfast.admin.views.overview import error_of
        from holdfast.domain.jobs.error_clusters import cluster_key

        known, masks = job_action(action), Masks(self.store)
        ids: list[JobId] = []
        for looked, each in enumerate(self.store.dashboard.all_errors()):
            if cluster_key(each.kind, error_of(each, masks)) == key:
                ids.append(each.id)
            if looked >= LOOK_THROUGH or len(ids) >= AT_ONCE:
                break
        if not ids:
            raise NotFound(f"no dead job belongs to the cluster {key[:40]!r}", hint="It may have been dealt with.")
        chosen = Selector(ids=tuple(ids), states=(State.DEAD,))
        if dry_run:
            if known.refuses:
                known.act(self.store.dry_run_store().control, chosen, actor=self.actor)
            return Changed(action, len(ids), 0, True, [])
        changed = known.act(self.store.control, chosen, actor=self.actor)
        self.did(action, f"cluster={key}", count=len(changed))
        return Changed(action, len(ids), len(changed), False, changed)

    def enqueue(
        self,
        kind: str,
        payload: Mapping[str, Any],
        *,
        delay: str | float | timedelta | None = None,
        run_at: datetime | None = None,
        key: str | None = None,
        after: Sequence[int] = (),
        dry_run: bool = False,
        **options: Any,
    ) -> EnqueuedJob:
        """Enqueue a job of a kind that an application has registered; with *dry_run* only check it.

        Raises:
            UnknownKind: Nobody has registered it.
            InvalidPayload: A parameter is unknown, or missing.
            DependencyNotFound: A job of *after* does not exist.
        """
        from holdfast.admin.actions.enqueue import make_request

        request = make_request(
            self.store, kind, payload, delay=delay, run_at=run_at, key=key, after=after, actor=self.actor, **options
        )
        if dry_run:
            tried = self.store.dry_run_store().jobs.enqueue(request)
            return EnqueuedJob(None if tried.created else tried.id, tried.created, kind, request.queue, dry_run=True)
        answer = self.store.jobs.enqueue(request)
        self.did("enqueue", f"id={answer.id}", count=int(answer.created), note=kind)
        return EnqueuedJob(answer.id, answer.created, kind, request.queue)

    # -- batches ---------------------------------------------------------------------------

    def batch(self, action: str, batch_id: BatchId) -> Steered:
        """Do *verb* to a batch.

        Raises:
            NoSuchBatch: It does not exist.
        """
        batches = self.store.batches
        units: int | None = None
        match action:
            case "pause":
                changed = batches.pause(batch_id)
            case "resume":
                changed = batches.resume(batch_id)
            case "cancel":
                was_open = not batches.get(batch_id).state.finished
                units = batches.cancel(batch_id)
                changed = was_open or units > 0
            case "retry-failed":
                units = batches.retry_failed(batch_id)
                changed = units > 0
            case "rm":
                batches.remove(batch_id)
                changed = True
            case _:
                raise InvalidInput(
                    f"a batch cannot be told to {action[:40]!r}", hint=f"Verbs: {', '.join(BATCH_ACTIONS)}."
                )
        if changed:
            self.did(f"batch {action}", f"batch={batch_id}", count=units)
        return Steered(batch_id, action, changed, units)

    def units(self, action: str, batch_id: BatchId, cluster: str, *, dry_run: bool = False) -> Steered:
        """``retry`` or ``skip`` the failed units of a batch that belong to one cluster of errors.

        Raises:
            NotFound: No failed unit belongs to it any more.
        """
        from holdfast.admin.views.batches import batch_secrets
        from holdfast.domain.jobs.error_clusters import cluster_key

        if action not in ("retry", "skip"):
            raise InvalidInput(f"units cannot be told to {action[:40]!r}", hint="Verbs: retry, skip.")
        batch = self.store.batches.get(batch_id)
        secrets = batch_secrets(batch)
        keys = []
        for looked, each in enumerate(self.store.ledger.all_errors(batch_id)):
            if cluster_key(batch.kind, mask_cut(each.error, secrets)) == cluster:
                keys.append(each.key)
            if looked >= LOOK_THROUGH or len(keys) >= LOOK_THROUGH:
                break
        if not keys:
            raise NotFound(f"no failed unit belongs to the cluster {cluster[:40]!r}", hint="It may run again already.")
        ledger = (self.store.dry_run_store() if dry_run else self.store).ledger
        turned = ledger.retry(batch_id, keys) if action == "retry" else ledger.skip(batch_id, keys)
        if not dry_run:
            self.did(f"batch {action}", f"batch={batch_id} cluster={cluster}", count=turned)
        return Steered(batch_id, action, turned > 0, turned, dry_run)

    # -- queues and workers ----------------------------------------------------------------

    def queue(
        self,
        name: str,
        *,
        limit: int | None = None,
        worker_limit: int | None = None,
        autoscaler: str | None = None,
        paused: bool | None = None,
        note: str | None = None,
    ) -> QueueView:
        """Change a queue: its limits (0: none), its autoscaling (``1-8``, ``off``), or whether it starts jobs."""
        if limit is None and worker_limit is None and autoscaler is None and paused is None:
            raise InvalidInput("nothing to change", hint="Give --limit, --worker-limit or --autoscaler.")
        from holdfast.store.fleet.overview import queue_views

        queues = self.store.queues
        bounds = None if autoscaler is None else parse_bounds(autoscaler)
        if autoscaler is not None:
            self.store.autoscaler.set_bounds(name, bounds)
            self.did("queue set", f"queue={name}", note=f"autoscaler={autoscaler}")
        if limit is not None or worker_limit is not None:
            queues.set_limits(name, limit=limit, worker_limit=worker_limit)
            said = {"limit": limit, "worker_limit": worker_limit}
            told = " ".join(f"{word}={value}" for word, value in said.items() if value is not None)
            self.did("queue set", f"queue={name}", note=told)
        if paused is True:
            queues.pause(name, note=note)
            self.did("queue pause", f"queue={name}", note=note)
        elif paused is False:
            queues.resume(name)
            self.did("queue resume", f"queue={name}")
        return queue_views(self.store, [queues.get(name)])[0]

    def worker(self, worker: str, request: str) -> WorkerAsked:
        """Ask a worker to be ``quiet``, to ``stop``, or to ``go-on``.

        Raises:
            NotFound: No such worker is alive.
        """
        if request not in (*WorkerRequest, "go-on"):
            raise InvalidInput(f"a worker cannot be asked to {request[:40]!r}", hint="Ask it: quiet, stop, go-on.")
        self.store.workers.ask(WorkerId(worker), None if request == "go-on" else WorkerRequest(request))
        self.did("ask", f"worker={worker}", note=request)
        return WorkerAsked(WorkerId(worker), request)

    # -- schedules -------------------------------------------------------------------------

    def schedule(self, action: str, name: str, *, note: str | None = None) -> None:
        """``pause``, ``resume`` or ``rm`` a schedule.

        Raises:
            NoSuchSchedule: There is none of this name.
        """
        match action:
            case "pause":
                self.schedules.pause(name, note=note)
            case "resume":
                self.schedules.resume(name)
            case "rm":
                self.schedules.remove(name)
            case _:
                raise InvalidInput(f"a schedule cannot be told to {action[:40]!r}", hint="Verbs: pause, resume, rm.")
        self.did(f"schedule {action}", f"schedule={name}", note=note)

    def trigger(self, name: str, *, scopes: Sequence[str] | None = None) -> Triggered:
        """Fire a schedule now, beside its plans."""
        jobs = self.schedules.trigger(name, scopes=scopes)
        self.did("schedule trigger", f"schedule={name}", count=len(jobs))
        return Triggered(name, jobs)

    def backfill(
        self, name: str, first: datetime, last: datetime, *, scopes: Sequence[str] | None = None, dry_run: bool = False
    ) -> BackfilledPlans:
        """Fire the plans of a stretch of the past that were not fired before; with *dry_run* none."""
        done = _filled(self.schedules.backfill(name, first, last, scopes=scopes, dry_run=dry_run), dry_run=dry_run)
        if not dry_run:
            said = f"{first.isoformat()} to {last.isoformat()}"
            self.did("schedule backfill", f"schedule={name}", count=done.plans, note=said)
        return done

    # -- saved filters ---------------------------------------------------------------------

    def save_filter(self, name: str, text: str) -> None:
        """Keep a filter under a name, for all who look at this store."""
        self.store.saved_filters.save(name, text, actor=self.actor)
        self.did("filter save", f"filter={name}", note=text or None)

    def drop_filter(self, name: str) -> None:
        """Forget a saved filter."""
        self.store.saved_filters.drop(name)
        self.did("filter rm", f"filter={name}")

    @cached_property
    def schedules(self) -> Schedules:
        """To look at schedules, and to make and change them: who does that says so by :meth:`did`."""
        from holdfast.client.schedules.api import Schedules

        return Schedules(lambda: self.store, self._providers, actor=self.actor)


def _filled(done: Backfilled, *, dry_run: bool) -> BackfilledPlans:
    times = [plan.time for plan in done.plans]
    first, last = (min(times), max(times)) if times else (None, None)
    return BackfilledPlans(done.schedule, len(done.plans), done.known, first, last, done.jobs, dry_run)

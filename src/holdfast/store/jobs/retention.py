"""Retention: finished jobs and other old rows are pruned after their time, in small steps."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from msgspec import Struct

from holdfast.domain.jobs.job import JobId, State
from holdfast.domain.retention import ZERO, Retention
from holdfast.store.batches.unit_steps import prune_batches, prune_units
from holdfast.store.engine.operation import Noun, Operation, query, transaction

#: How long the response to a request with an idempotency key is stored.
RESPONSE_RETENTION = timedelta(hours=24)


class RetentionRule(Struct, frozen=True):
    """Rows of one sort and their age: *statement* or *operation* prunes them, or they are the jobs of a *state*.

    *counted_as* is their name in metrics.
    """

    name: str
    counted_as: str
    age: Callable[[Retention], timedelta]
    statement: str = ""
    state: State | None = None
    operation: Callable[[timedelta, int], Operation[int]] | None = None


#: The rows to prune. Keys have a date of their own; units are those of deleted batches.
RULES = (
    RetentionRule("done", "job", lambda retention: retention.done, state=State.DONE),
    RetentionRule("cancelled", "job", lambda retention: retention.cancelled, state=State.CANCELLED),
    RetentionRule("dead", "job", lambda retention: retention.dead, state=State.DEAD),
    RetentionRule("keys", "key", lambda _: timedelta(microseconds=1), "prune_keys"),
    RetentionRule("workers", "worker", lambda retention: retention.longest, "prune_workers"),
    RetentionRule("plans", "plan", lambda retention: retention.plans, "prune_plans"),
    RetentionRule("skipped plans", "plan", lambda retention: retention.plans, "prune_skipped_plans"),
    RetentionRule("decisions", "decision", lambda retention: retention.done, "prune_decisions"),
    RetentionRule("memory profiles", "decision", lambda retention: retention.done, "prune_memory_profiles"),
    RetentionRule("events", "event", lambda retention: retention.events, "prune_events"),
    RetentionRule("audit entries", "audit", lambda retention: retention.audit, "prune_audit_entries"),
    RetentionRule("batches", "batch", lambda retention: retention.batches, operation=prune_batches),
    RetentionRule("units", "unit", lambda _: timedelta(microseconds=1), operation=prune_units),
    RetentionRule("responses", "audit", lambda _: RESPONSE_RETENTION, "prune_idempotency_keys"),
)


class Pruner(Noun):
    """Prunes rows past their retention."""

    def prune(self, retention: Retention | None = None, *, limit: int = 1000) -> dict[str, int]:
        """Apply all rules once; returns the number of pruned rows by the name of the rule.

        A job that a live job depends on stays. A key that is taken forever outlives its job.
        """
        return {rule.name: self.apply(rule, retention or Retention(), limit=limit) for rule in RULES}

    def apply(self, rule: RetentionRule, retention: Retention, *, limit: int = 1000) -> int:
        """Prune up to *limit* rows by one rule; returns their number."""
        age = rule.age(retention)
        if age == ZERO:
            return 0
        if rule.operation is not None:
            return self._backend.write(rule.operation, age, limit)
        if rule.state is None:
            return len(self._backend.run(query(rule.statement, age=age, limit=limit), repeatable=True))
        if not self._fetch("lock_expired_jobs", state=rule.state, age=age, limit=1):
            return 0
        return self._prune_jobs(rule.state, age, limit)

    @transaction()
    def _prune_jobs(self, state: State, age: timedelta, limit: int) -> Operation[int]:
        rows = yield query("lock_expired_jobs", state=state, age=age, limit=limit)
        ids = [JobId(row[0]) for row in rows]
        # A new statement: it sees the jobs that were committed while the rows were being locked.
        kept = yield query("list_live_dependents", ids=ids)
        # Another transaction enqueues a job with the same key: this one would wait for its end.
        kept += yield query("list_locked_keys", ids=ids)
        expired = sorted(set(ids) - {row[0] for row in kept})
        if expired:
            yield query("delete_jobs", ids=expired)
        return len(expired)

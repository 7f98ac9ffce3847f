"""Retention: finished jobs and other old rows are pruned after their time, in small steps."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from msgspec import Struct

from holdfast.domain.jobs.job import JobId, State
from holdfast.domain.retention import ZERO, Retention
from holdfast.errors import PrivilegeMissing
from holdfast.store.batches.events import fold_tallies
from holdfast.store.batches.unit_steps import prune_batches, prune_units
from holdfast.store.engine.operation import Noun, Operation, query, transaction

#: Ids in a range of finished jobs, at least, and jobs that may move when it is dropped: they are copied under a lock.
RANGE_WIDTH, MOST_KEPT = 10_000_000, 10_000
#: Jobs of a closed range stay this many times longer, until the range is dropped. Then they are pruned one by one.
RANGE_PATIENCE = 1.25
#: The end of all ids.
LAST_ID = 2**63 - 1

#: Responses to requests with an idempotency key that are stored: about 0.5 KB each, without the body.
MAX_RESPONSES = 250_000


def prune_responses(age: timedelta, limit: int) -> Operation[int]:
    """Delete responses past their age, and the oldest of too many; returns their number."""
    rows = yield query("prune_idempotency_keys", age=age, limit=limit, most=MAX_RESPONSES)
    return len(rows)


#: A file returns space to the file system while more than this share of it is free, and more than these pages.
FREE_SHARE, FREE_PAGES = 0.25, 2500


def return_space(_: timedelta, limit: int) -> Operation[int]:
    """Return free pages of a SQLite file to the file system; returns their number. PostgreSQL reuses its space."""
    ((free, pages),) = yield query("read_free_pages")
    if free <= max(FREE_PAGES, FREE_SHARE * pages):
        return 0
    yield query("return_free_pages")
    return limit


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


#: The rows to prune. Keys have a date of their own. Requests are those of dropped ranges, units of deleted batches.
RULES = (
    RetentionRule("done", "job", lambda retention: retention.done, state=State.DONE),
    RetentionRule("cancelled", "job", lambda retention: retention.cancelled, state=State.CANCELLED),
    RetentionRule("dead", "job", lambda retention: retention.dead, state=State.DEAD),
    RetentionRule("requests", "job", lambda _: timedelta(microseconds=1), "prune_requests"),
    RetentionRule("keys", "key", lambda _: timedelta(microseconds=1), "prune_keys"),
    RetentionRule("workers", "worker", lambda retention: retention.lost_workers, "prune_workers"),
    RetentionRule("kinds", "kind", lambda retention: retention.kinds, "prune_kinds"),
    RetentionRule("plans", "plan", lambda retention: retention.plans, "prune_plans"),
    RetentionRule("skipped plans", "plan", lambda retention: retention.plans, "prune_skipped_plans"),
    RetentionRule("decisions", "decision", lambda retention: retention.done, "prune_decisions"),
    RetentionRule("memory profiles", "decision", lambda retention: retention.done, "prune_memory_profiles"),
    RetentionRule("events", "event", lambda retention: retention.events, "prune_events"),
    RetentionRule("audit entries", "audit", lambda retention: retention.audit, "prune_audit_entries"),
    RetentionRule("batches", "batch", lambda retention: retention.batches, operation=prune_batches),
    RetentionRule("units", "unit", lambda _: timedelta(microseconds=1), operation=prune_units),
    RetentionRule("ends of batches", "tally", lambda _: timedelta(microseconds=1), operation=fold_tallies),
    RetentionRule("revoked tokens", "audit", lambda retention: retention.audit, "prune_credentials"),
    RetentionRule("responses", "audit", lambda retention: retention.responses, operation=prune_responses),
    RetentionRule("free pages", "page", lambda _: timedelta(microseconds=1), operation=return_space),
)


class Pruner(Noun):
    """Prunes rows past their retention."""

    #: Ids in a range of finished jobs, at least.
    range_width = RANGE_WIDTH

    def prune(self, retention: Retention | None = None, *, limit: int = 1000) -> dict[str, int]:
        """Apply all rules once; returns the number of pruned rows by the name of the rule.

        A job that a live job depends on stays. A key that is taken forever outlives its job. On PostgreSQL, jobs that
        are done may stay up to a quarter longer: a range of them is dropped as a whole.
        """
        return {rule.name: self.apply(rule, retention or Retention(), limit=limit) for rule in RULES}

    def apply(self, rule: RetentionRule, retention: Retention, *, limit: int = 1000) -> int:
        """Prune up to *limit* rows by one rule; returns their number."""
        age = rule.age(retention)
        closed = self._maintain_ranges(age) if rule.state is State.DONE else (0, 0)
        if age == ZERO:
            return 0
        if rule.operation is not None:
            return self._backend.write(rule.operation, age, limit)
        if rule.state is None:
            return len(self._backend.run(query(rule.statement, age=age, limit=limit), repeatable=True))
        count = 0
        for first, next_id, patience in ((0, closed[0], 1), (*closed, RANGE_PATIENCE), (closed[1], LAST_ID, 1)):
            if first < next_id and count < limit:
                count += self._prune_range(rule.state, age * patience, limit - count, first, next_id)
        return count

    def _maintain_ranges(self, age: timedelta) -> tuple[int, int]:
        """Begin and drop ranges of finished jobs. Returns the ids of those that wait until they can be dropped.

        A database user without this right prunes all jobs one by one.
        """
        maintain = query("maintain_ranges", age=age or None, width=self.range_width, most=MOST_KEPT)
        try:
            rows = self._backend.run(maintain, repeatable=True)
        except PrivilegeMissing:
            return 0, 0
        return (rows[0][0], rows[0][1]) if rows else (0, 0)

    def _prune_range(self, state: State, age: timedelta, limit: int, first: int, next_id: int) -> int:
        """Prune jobs of a range of ids one by one; returns their number."""
        if not self._fetch("lock_expired_jobs", state=state, age=age, limit=1, first=first, next=next_id):
            return 0
        return self._prune_jobs(state, age, limit, first, next_id)

    @transaction()
    def _prune_jobs(
        self, state: State, age: timedelta, limit: int, first: int = 0, next_id: int = LAST_ID
    ) -> Operation[int]:
        rows = yield query("lock_expired_jobs", state=state, age=age, limit=limit, first=first, next=next_id)
        ids = [JobId(row[0]) for row in rows]
        # A new statement: it sees the jobs that were committed while the rows were being locked.
        kept = yield query("list_live_dependents", ids=ids)
        # Another transaction enqueues a job with the same key: this one would wait for its end.
        kept += yield query("list_locked_keys", ids=ids)
        expired = sorted(set(ids) - {row[0] for row in kept})
        if expired:
            yield query("delete_jobs", ids=expired)
        return len(expired)

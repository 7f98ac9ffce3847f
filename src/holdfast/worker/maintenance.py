"""Maintenance: promotes due jobs, takes over expired leases, offers unread payloads and prunes old rows."""

from __future__ import annotations

import logging
import random
import socket
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

from holdfast.domain.batches.batch import BatchId
from holdfast.domain.jobs.job import JobId
from holdfast.domain.names import escape_controls
from holdfast.domain.retention import Retention
from holdfast.errors import StatementTimeout, StoreUnavailable
from holdfast.store import Store
from holdfast.store.engine.changes import Change
from holdfast.store.jobs.retention import RULES, RetentionRule
from holdfast.worker import clock
from holdfast.worker.backoff import Backoff
from holdfast.worker.commands.log_files import LogFiles
from holdfast.worker.dead_workers import TAKE_OVER_INTERVAL_S, TAKE_OVER_LIMIT, take_over_from_dead
from holdfast.worker.run_log import log_take_over
from holdfast.worker.service import TickResult

log = logging.getLogger("holdfast")

#: Intervals of the steps. Notifications shorten the wait for a promotion to the second value.
PROMOTE_INTERVAL_S, MIN_PROMOTE_INTERVAL_S = 3.0, 1.0
#: The longest pause between searches of all leases, where one takes long.
FULL_SEARCH_PAUSE_S = 600.0
#: A search for leases that have expired since the last search looks back this much further.
SEARCH_MARGIN_S = 10.0
OFFER_INTERVAL_S = ORPHANS_INTERVAL_S = 10.0
EFFECTS_INTERVAL_S = 1.0
DEPENDENCIES_INTERVAL_S = BATCHES_INTERVAL_S = 30.0
INBOX_INTERVAL_S = PRUNE_INTERVAL_S = 60.0
NAMES_INTERVAL_S = 15.0
#: Finished jobs whose effects on others one step completes.
EFFECTS_LIMIT = 500
#: Jobs that one step promotes, and rows that it prunes.
PROMOTE_LIMIT = PRUNE_LIMIT = 1000
#: Inboxes that the log names after a sweep: those with the most expired results.
MAX_INBOXES = 10
#: Log files that one step checks; the next step continues after them.
LOGS_LIMIT = 2000


@dataclass(slots=True)
class MaintenanceStep:
    """A step, its interval and its next due time. It returns the number of rows, and whether more are due now."""

    name: str
    run: Callable[[], tuple[int, bool]]
    interval: float
    due_at: float = 0.0


class Maintenance:
    """Runs on every worker; there is no leader. Each step is safe to run concurrently.

    A step that fails waits for its next turn and holds up no other.
    """

    name = "maintenance"
    wakes_on = Change.DELAYED

    def __init__(
        self,
        store: Store,
        *,
        heartbeat: float,
        retention: Retention,
        logs: Path,
        maintained: Counter[str],
        check_names: Callable[[], None] = lambda: None,
    ) -> None:
        self.wake = threading.Event()
        self._store = store
        #: At first, and after an outage, leases are taken over only after this time: live workers renew first.
        self._heartbeat = heartbeat
        self._retention = retention
        self._maintained = maintained
        self._check_names = check_names
        self._cursor: JobId | None = None
        self._next_batch: BatchId | None = None
        #: Results that the present sweep has expired, by inbox.
        self._expired: Counter[str] = Counter()
        self._promoted_at = 0.0
        now = clock.now()
        #: When expired leases were last searched for, and the pause after a slow search for all of them.
        self._searched_at, self._search_backoff = now, Backoff(FULL_SEARCH_PAUSE_S)
        self._promotion = MaintenanceStep("promote", self._promote, PROMOTE_INTERVAL_S)
        interval = min(TAKE_OVER_INTERVAL_S, 2 * heartbeat)
        self._host = socket.gethostname()
        self._take_over = MaintenanceStep("take over", self._take_over_expired, interval, now + heartbeat)
        self._log_files = LogFiles(store, logs, max_age=retention.logs)
        self._steps = self._all_steps(now)

    def _all_steps(self, now: float) -> list[MaintenanceStep]:
        steps = [
            self._promotion,
            self._take_over,
            MaintenanceStep("take over from dead workers", self._take_over_from_dead, self._take_over.interval),
            MaintenanceStep("complete effects", self._complete_effects, EFFECTS_INTERVAL_S),
            MaintenanceStep("delete rows without a job", self._delete_orphans, ORPHANS_INTERVAL_S),
            MaintenanceStep("offer refused jobs", self._offer_refused, OFFER_INTERVAL_S),
            MaintenanceStep("check dependencies", self._check_dependencies, DEPENDENCIES_INTERVAL_S),
            MaintenanceStep("revive batches", self._revive_batches, BATCHES_INTERVAL_S),
            MaintenanceStep("continue cancels", self._continue_cancel, BATCHES_INTERVAL_S),
            MaintenanceStep("expire results", self._expire_inbox, INBOX_INTERVAL_S),
            MaintenanceStep("compare names", self._compare_names, NAMES_INTERVAL_S),
        ]
        for rule in RULES:
            run = partial(self._prune, rule)
            steps.append(MaintenanceStep(f"prune {rule.name}", run, PRUNE_INTERVAL_S, now + PRUNE_INTERVAL_S))
        steps.append(MaintenanceStep("prune logs", self._prune_logs, PRUNE_INTERVAL_S, now + PRUNE_INTERVAL_S))
        return steps

    def tick(self) -> TickResult:
        """Run the steps that are due. The first error is raised after the last step."""
        total = 0
        errors: list[Exception] = []
        for step in self._steps:
            if clock.now() < step.due_at:
                continue
            try:
                total += self._run(step)
            except Exception as error:
                if isinstance(error, StoreUnavailable) and not isinstance(error, StatementTimeout):
                    self._take_over.due_at = clock.now() + self._heartbeat
                    raise
                log.warning("maintenance could not %s: %s", step.name, error)
                errors.append(error)
        if errors:
            raise errors[0]
        next_in = max(0.0, min(step.due_at for step in self._steps) - clock.now())
        return TickResult(next_in, processed=total)

    def _run(self, step: MaintenanceStep) -> int:
        step.due_at = clock.now() + step.interval * random.uniform(0.8, 1.2)  # also if it fails
        count, more = step.run()
        if more:
            step.due_at = clock.now()
        return count

    def on_notify(self) -> None:
        """A new job may be due soon: check again, at most once a second."""
        soon = self._promoted_at + MIN_PROMOTE_INTERVAL_S
        if self._promotion.due_at > soon:
            self._promotion.due_at = soon
            self.wake.set()

    def _promote(self) -> tuple[int, bool]:
        self._promoted_at = clock.now()
        count, longest = 0, PROMOTE_INTERVAL_S
        wait = self._store.leases.next_due()
        if wait is not None and wait.total_seconds() <= 0:
            count = self._store.leases.promote(limit=PROMOTE_LIMIT)
            if count == PROMOTE_LIMIT:
                return count, True
            # A job that is still due is locked by another transaction: it must not hide the next one.
            wait, longest = self._store.leases.next_due(overdue=False), MIN_PROMOTE_INTERVAL_S
        next_in = longest if wait is None else min(wait.total_seconds(), longest)
        self._promotion.due_at = clock.now() + next_in
        return count, False

    def _take_over_expired(self) -> tuple[int, bool]:
        if not self._any_expired():
            return 0, False
        taken_over = self._store.leases.take_over(limit=TAKE_OVER_LIMIT, proceed=self._holders_could_renew)
        for each in taken_over:
            log_take_over(each)
        count = len(taken_over)
        self._maintained["lease"] += count
        return count, count == TAKE_OVER_LIMIT

    def _take_over_from_dead(self) -> tuple[int, bool]:
        """Finish the leases of workers of this host whose processes have exited: they need not expire."""
        count = more = 0
        for taken_over in take_over_from_dead(self._store, self._host):
            for each in taken_over:
                log_take_over(each)
            count += len(taken_over)
            more += len(taken_over) == TAKE_OVER_LIMIT
        self._maintained["lease"] += count
        return count, more > 0

    def _any_expired(self) -> bool:
        """Whether a lease has expired. After a slow search, only those count that have expired since."""
        leases, began = self._store.leases, clock.now()
        window = timedelta(seconds=began - self._searched_at + SEARCH_MARGIN_S)
        self._searched_at = began
        if not self._search_backoff.is_over:
            return leases.any_expired(window=window)
        with self._search_backoff.measured():
            return leases.any_expired()

    def _holders_could_renew(self) -> bool:
        """Whether no other program has kept a SQLite file locked lately: its live workers come first after that."""
        return self._store.backend.since_lock_wait() >= 2 * self._heartbeat

    def _delete_orphans(self) -> tuple[int, bool]:
        orphans = self._store.leases.delete_orphans()
        if orphans:
            ids = ", ".join(str(each.id) for each in orphans[:20])
            log.warning("%d rows of the table live had no job, and were deleted: %s", len(orphans), ids)
        return len(orphans), bool(orphans)

    def _offer_refused(self) -> tuple[int, bool]:
        count = self._store.leases.offer_refused(limit=500)
        self._maintained["refusal"] += count
        return count, count > 0

    def _complete_effects(self) -> tuple[int, bool]:
        effects = self._store.leases.complete_effects(limit=EFFECTS_LIMIT)
        return effects.taken, effects.taken == EFFECTS_LIMIT and effects.left < effects.taken

    def _check_dependencies(self) -> tuple[int, bool]:
        self._cursor = self._store.leases.check_waiting(after=self._cursor or JobId(0), limit=500)
        return 0, self._cursor is not None

    def _revive_batches(self) -> tuple[int, bool]:
        count, self._next_batch = self._store.batches.revive(after=self._next_batch or BatchId(0), limit=100)
        self._maintained["batch"] += count
        return count, self._next_batch is not None

    def _continue_cancel(self) -> tuple[int, bool]:
        count = self._store.batches.continue_cancel()
        return count, count > 0

    def _expire_inbox(self) -> tuple[int, bool]:
        expired = self._store.inbox.expire(limit=100)
        count = sum(expired.values())
        self._maintained["result"] += count
        self._expired.update(expired)
        if count < 100:  # the sweep is over
            _log_expired(self._expired)
            self._expired.clear()
        return count, count == 100

    def _compare_names(self) -> tuple[int, bool]:
        self._check_names()
        return 0, False

    def _prune(self, rule: RetentionRule) -> tuple[int, bool]:
        count = self._store.pruner.apply(rule, self._retention, limit=PRUNE_LIMIT)
        self._maintained[rule.counted_as] += count
        return count, count >= PRUNE_LIMIT

    def _prune_logs(self) -> tuple[int, bool]:
        count, more = self._log_files.prune(limit=LOGS_LIMIT)
        self._maintained["log"] += count
        return count, more


def _log_expired(expired: Counter[str]) -> None:
    """Log the results that a sweep has expired: a line for each inbox with the most, and one for all others."""
    most = expired.most_common(MAX_INBOXES)
    for inbox, count in most:
        log.info("inbox %s: %s expired", escape_controls(inbox), _results(count))
    if rest := expired.total() - sum(count for _, count in most):
        log.info("%d other inboxes: %s expired", len(expired) - len(most), _results(rest))


def _results(count: int) -> str:
    return "1 result" if count == 1 else f"{count:,} results"

"""The writer of a run's ledger: outcomes, failures in a row, the breaker, the next units."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
from msgspec import structs

from holdfast.domain.batches.batch import BREAKERS, AbortedBy, RunPlan
from holdfast.domain.batches.breaker import Breaker, group_failures
from holdfast.domain.batches.done_units import DoneUnit, outcome_of, outcomes_of
from holdfast.domain.batches.new_units import TakenUnits
from holdfast.domain.batches.unit import TakenUnit, UnitKey, UnitOutcome, UnitState
from holdfast.store import Store
from holdfast.store.batches.ledger import Flushed
from holdfast.store.batches.state import BatchRun, UnitInFlight
from holdfast.store.batches.unit_choice import NextUnits
from holdfast.worker import clock
from holdfast.worker.batches.outages import outlast
from holdfast.worker.batches.source import Source, pop_last
from holdfast.worker.batches.unit import UnitResult
from holdfast.worker.batches.unit_runner import UnitRunner

#: The latest failures of a run, which explain why it stopped.
MAX_RECENT_FAILURES = 50


class LedgerWriter:
    """Writes the ledger of one run, and takes its next units.

    Any thread adds results; one thread at a time writes. *on_written* is called with finished units once they are in
    the ledger.
    """

    def __init__(
        self,
        store: Store,
        opened: BatchRun,
        runner: UnitRunner,
        plan: RunPlan,
        source: Source,
        *,
        on_written: Callable[[Sequence[UnitOutcome]], None] = lambda _: None,
    ) -> None:
        self.source = source
        #: The first reason to stop.
        self.aborted_by: AbortedBy | None = None
        #: Set to take no more units; those in flight finish.
        self.stopped_taking = False
        #: Units that were taken and did not begin. Without a row in the ledger only their input has them.
        self.unbegun: list[UnitInFlight] = []
        self._store, self._opened, self._plan = store, opened, plan
        self._runner, self._on_written = runner, on_written
        self._in_hand = TakenUnits()
        self._suspect_in_hand, self._rewrites, self._taken, self._collected, self._counted_to = False, False, 0, 0, 0
        self._began_at = self._flushed_at = clock.now()
        # Results in their order, and the failures in a row; both change under the lock.
        self._order = threading.Lock()
        self._results: list[UnitResult | DoneUnit] = []
        #: Adds a unit that is just done. The breaker counts it with the next result of another kind.
        self.add_done: Callable[[DoneUnit], None] = self._results.append
        self._breaker = Breaker(plan.limits)
        self._streak, self._returned = list[UnitOutcome](), list[UnitOutcome]()
        self._recent: deque[UnitOutcome] = deque(maxlen=MAX_RECENT_FAILURES)
        self._failures: str | None = None
        # Results that were collected for the next flush.
        self._unwritten: Sequence[UnitOutcome | DoneUnit] = []
        self._settled, self._amended = list[UnitOutcome](), list[UnitOutcome]()
        self._interrupted: list[UnitInFlight] = []

    # -- results: any thread -----------------------------------------------------------------------

    def stop(self, reason: AbortedBy | None) -> None:
        """Begin no more units, and stop those in flight. The first reason counts; None: the batch goes on elsewhere."""
        self.aborted_by = self.aborted_by or reason
        self._runner.stop()

    def add(self, result: UnitResult) -> None:
        """Add the result of a unit in flight. The breaker stops the run at once, before anything is written."""
        with self._order:
            self._count_done()
            self._results.append(self._counted(result))
            self._counted_to += 1

    def _count_done(self) -> None:
        """Count the units that were just done."""
        if count := len(self._results) - self._counted_to:
            self._breaker.count(count, failed=False)
            self._streak.clear()
            self._counted_to += count

    def _counted(self, result: UnitResult) -> UnitResult:
        outcome = result.outcome
        if outcome is None:
            return result
        failed = outcome.state is UnitState.FAILED
        if failed and self.aborted_by in BREAKERS:  # it failed like the others, after the stop
            return result._replace(outcome=outcome.pending_again(result.row.attempts))
        length = self._breaker.streak
        tripped = self._breaker.count(failed=failed, retried=result.row.failed_before)
        if failed:
            self._recent.append(outcome)
        if self._breaker.streak > length:
            self._streak.append(outcome)
        elif not self._breaker.streak:
            self._streak.clear()
        if failed and tripped is not None and self.aborted_by is None:
            self._trip(tripped)
        elif result.fatal:
            self._explain([outcome])
            self.stop(AbortedBy.FATAL)
        return result

    def _trip(self, reason: AbortedBy) -> None:
        """Return the units that failed in a row, until the cause of their failures is fixed."""
        self._explain(self._streak if reason is AbortedBy.MAX_FAILURES else self._recent)
        self._returned, self._streak = [*self._returned, *self._streak], []
        self.stop(reason)

    def _explain(self, failures: Sequence[UnitOutcome]) -> None:
        if self.aborted_by is None:
            self._failures = msgspec.json.encode(group_failures(self._opened.batch.kind, reversed(failures))).decode()

    @property
    def unwritten(self) -> int:
        """The number of results that are not in the ledger."""
        return len(self._results) + self._collected

    # -- writing: one thread at a time -------------------------------------------------------------

    @property
    def is_finished(self) -> bool:
        """Whether no more units come, and none is in flight."""
        return (self.source.exhausted or self.stopped_taking) and not self._in_hand

    def until_due(self) -> float:
        """Seconds until the ledger must be written, or until the run has reached its deadline."""
        due = self._flushed_at + self._plan.checkpoint.seconds
        if self._plan.deadline is not None and not self._runner.stopping.is_set():
            due = min(due, self._began_at + self._plan.deadline.total_seconds())
        return max(0.0, due - clock.now())

    def is_due(self, *, waiting: int) -> bool:
        """Whether to write now; *waiting* is the number of units in flight that have not started."""
        is_late = clock.now() - self._flushed_at >= self._plan.checkpoint.seconds
        if is_late or self.source.size.is_full(len(self._unwritten)):
            return True
        wants_more = not waiting and not self._runner.stopping.is_set() and self._room() > 0
        # An empty source is queried again when no unit is in flight, or after the interval.
        return wants_more and not (self.source.dry and self._in_hand)

    def stop_if_due(self) -> None:
        """Stop at the deadline, and when the limit of units is reached."""
        plan = self._plan
        if plan.deadline is not None and clock.now() - self._began_at >= plan.deadline.total_seconds():
            self.stop(AbortedBy.DEADLINE)
        if plan.limit is not None and self._taken >= plan.limit and not self._in_hand:
            self.stop(AbortedBy.LIMIT)

    def leave_out(self, key: UnitKey) -> None:
        """Leave a unit in flight that did not start pending."""
        self._in_hand.finish(key)

    def put_back_surplus(self, waiting: deque[TakenUnit]) -> None:
        """Put back units that wait behind others which are not short: another shard may run them."""
        units = pop_last(waiting, self.source.size.surplus(len(waiting), in_hand=len(self._in_hand)))
        self._in_hand.finish(*(key for key, _ in units))
        self._taken -= len(units)
        self.source.put_back(units)

    def collect(self) -> None:
        """Collect the results that were added; those of returned units become pending again."""
        with self._order:
            self._count_done()
            count, self._counted_to = self._counted_to, 0
            results, (returned, self._returned) = self._results[:count], (self._returned, [])
            self._collected += count
            del self._results[:count]
        if done := self._in_hand.finish_all(results):  # the common case, at once
            self._unwritten = [*self._unwritten, *done] if self._unwritten else done
        elif results:
            self._unwritten = unwritten = self._unwritten if isinstance(self._unwritten, list) else [*self._unwritten]
            for result in results:
                self._collect(result, unwritten)
        if returned:
            self._put_back({outcome.key: outcome for outcome in returned})

    def _collect(self, result: UnitResult | DoneUnit, unwritten: list[UnitOutcome | DoneUnit]) -> None:
        if not isinstance(result, UnitResult):
            self._in_hand.finish(result[0])
            unwritten.append(result)
            return
        self._in_hand.finish(result.row.key)
        self._suspect_in_hand = False
        outcome = result.outcome
        if result.interrupted:
            self._interrupted.append((result.row.key, result.row.position))
        elif outcome is None:
            self.unbegun.append((result.row.key, result.row.position))
        elif not result.written:
            unwritten.append(outcome)
        else:
            self._settled.append(outcome)
            self._amended += [outcome] if result.amended else []

    def _put_back(self, returned: dict[UnitKey, UnitOutcome]) -> None:
        unwritten = [*map(outcome_of, self._unwritten)]
        waiting = {outcome.key for outcome in unwritten}
        written = [each.pending_again() for key, each in returned.items() if key not in waiting]
        self._unwritten = [*(each.pending_again() if each.key in returned else each for each in unwritten), *written]
        self._rewrites = self._rewrites or bool(written)

    def flush(self, on_taken: Callable[[Sequence[TakenUnit]], None] | None = None) -> None:
        """Write what was collected; with *on_taken*, take the next units too and call it with them."""
        room = 0 if self._runner.stopping.is_set() or on_taken is None else max(0, self._room())
        request = self._request(room)
        outcomes, self._unwritten = outcomes_of(self._unwritten), []
        flush = partial(self._store.batches.flush, self._opened, outcomes)
        flush = partial(flush, amended=self._amended, interrupted=self._interrupted)

        def flush_again() -> Flushed:
            """After an outage: the same may have arrived before, so its rows may exist."""
            self._runner.unknown_commits.update((each.key, each) for each in outcomes)
            return flush(structs.replace(request, fresh=False))

        flushed = outlast(lambda: flush(request), again=flush_again)
        self._flushed_at = self.source.size.flushed_at = clock.now()
        self._collected, self._rewrites, self._amended, self._interrupted = 0, False, [], []
        if request.limit:
            self.source.advance(flushed, in_hand=len(self._in_hand))
        self._taken += len(flushed.taken)
        self._suspect_in_hand = self._suspect_in_hand or flushed.choice.isolated
        self._in_hand.take(flushed.choice.in_flight)
        if on_taken is not None:
            on_taken(flushed.taken)
        self._report(outcomes, flushed)
        if flushed.stop in BREAKERS:  # the breaker of another run of this batch tripped
            with self._order:
                self._count_done()
                self._returned, self._streak = [*self._returned, *self._streak], []
        if flushed.stop is not None:
            self.stop(flushed.stop)

    def finish(self) -> None:
        """Write the rest of a run; units in flight that did not start are left pending."""
        self.collect()
        self.unbegun += self._in_hand.items()
        self._in_hand = TakenUnits()
        self.flush()

    def _room(self) -> int:
        """The number of units to take now. A poison suspect runs alone; with ``in_doubt_if_lost``, none is ahead."""
        if self._suspect_in_hand or self.source.exhausted or self.stopped_taking:
            return 0
        plan = self._plan
        window = plan.jobs if plan.in_doubt_if_lost else self.source.window(plan)
        left = window if plan.limit is None else plan.limit - self._taken
        return min(window - len(self._in_hand), left)

    def _request(self, room: int) -> NextUnits:
        """The request of a flush: for *room* next units, none after a stop."""
        plan, source = self._plan, self.source
        next_units = source.request(room) if room > 0 else NextUnits()
        return structs.replace(
            next_units,
            in_hand=self._in_hand.items(),
            retry_failed=plan.retry_failed,
            isolated=self._suspect_in_hand,
            in_doubt_if_lost=plan.in_doubt_if_lost,
            fresh=source.fresh and not self._runner.unknown_commits and not self._rewrites,
            planned=source.planned,
            # No other run may take the units that a breaker returns.
            abort=self.aborted_by if self.aborted_by in BREAKERS else None,
            failures=self._failures,
        )

    def _report(self, outcomes: Sequence[UnitOutcome], flushed: Flushed) -> None:
        """Report finished units: those written now, and those that their own transactions have written."""
        finished, self._settled = [*outcomes, *self._settled] if self._settled else outcomes, []
        if self.aborted_by in BREAKERS:  # returned units are not finished
            finished = [each for each in finished if each.state is not UnitState.PENDING]
        if flushed.discarded:
            unknown = self._runner.unknown_commits
            known = [unknown.get(each.key) if each.key in flushed.discarded else each for each in finished]
            finished = [each for each in known if each is not None]
        if finished:
            self._on_written(finished)

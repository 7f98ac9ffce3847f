"""The planner: the service that decides on due plans. Any number of them work side by side, without a leader."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from time import perf_counter

from msgspec import Struct, structs

from holdfast.domain.jobs.job import JobId
from holdfast.domain.jobs.kind_options import PublishedKind
from holdfast.domain.schedules.decision import MAX_TIMES, ScheduleDecision, Skipped, SkipReason, decide
from holdfast.domain.schedules.definition import Definition, checked_scopes, load_definition
from holdfast.domain.schedules.firing_times import MICROSECOND
from holdfast.domain.schedules.plan import Plan
from holdfast.errors import HoldfastError, JobLocked, StoreBusy, StoreUnavailable
from holdfast.store import Store
from holdfast.store.engine.changes import Change
from holdfast.store.schedules.fired_plans import Advance, AdvanceResult
from holdfast.store.schedules.plans import BEFORE_ALL
from holdfast.store.schedules.schedules import DueSchedule
from holdfast.worker import clock
from holdfast.worker.handler_call import describe_error
from holdfast.worker.schedules.plan_jobs import jobs_of
from holdfast.worker.schedules.scopes import MAX_NEW_CALLS, ProviderCall, ScopeProviders
from holdfast.worker.service import TickResult
from holdfast.worker.stats import Stats

log = logging.getLogger("holdfast")

#: The longest wait between ticks when nothing is due, and the wait when other planners or providers are busy.
POLL_INTERVAL_S, RETRY_INTERVAL_S = 30.0, 0.2
#: The time that a tick waits for the scope providers that it has called. A later answer wakes the planner.
PROVIDER_WAIT_S = 0.05
RELEASE_INTERVAL_S = 5.0
#: About the most plans of one transaction, and the transactions of a tick where the store has more than one writer.
BATCH_SIZE, PARALLEL_BATCHES = 2000, 2
#: The most plans of one schedule in one transaction: with many scopes, fewer times are taken at once.
MAX_PLANS = 5000
#: A clock that gains more than this on the monotonic clock has jumped.
MAX_GAIN = timedelta(minutes=5)
#: A clock that has jumped is trusted again after it has kept its new time for this long.
PROBATION_S = 60.0
JUMPED = "the store's clock jumped ahead by %s; nothing is planned until it is stable"


class Planner:
    """Reads due schedules, decides outside any transaction, and applies its decisions in short ones.

    A planner that is killed holds no locks; another one decides the same. A schedule that cannot be planned is delayed
    alone.
    """

    name = "planner"
    wakes_on = Change.SCHEDULES

    def __init__(
        self, store: Store, providers: ScopeProviders, *, counts: Stats, provider_wait: float = PROVIDER_WAIT_S
    ) -> None:
        self.wake = threading.Event()
        self._provider_wait = provider_wait
        self._store = store
        self._providers = providers
        self._counts = counts
        self._clock_check = ClockCheck()
        self._release_at = 0.0
        self._next_queued: JobId | None = None
        providers.on_answer = self.wake.set

    def tick(self) -> TickResult:
        """Decide on one batch of schedules. Those without a provider come first, and wait for no function."""
        began = perf_counter()
        if clock.now() >= self._release_at:
            self._release_at = clock.now() + RELEASE_INTERVAL_S
            with suppress(JobLocked):  # a user's transaction has locked a job: the next release may succeed
                self._store.plans.release()
            self._next_queued = self._store.plans.unqueue(after=self._next_queued or BEFORE_ALL)
        limit = BATCH_SIZE if self._store.backend.single_writer else PARALLEL_BATCHES * BATCH_SIZE
        due = self._store.schedules.due(
            providers=self._providers.free, busy=self._providers.busy, limit=limit, provider_limit=MAX_NEW_CALLS
        )
        if not self._clock_check.trusts(due.now, clock.now()):
            return TickResult(1.0)
        tick = _Tick(due.now, {})
        plain = self._plan(due.schedules, tick)
        answered, scoped = self._plan_scoped(due.scoped, tick)
        self._counts.planner.add((), [perf_counter() - began])
        self._counts.scope_calls = self._providers.counts()
        considered, results = len(due.schedules) + len(due.scoped) + answered, [*plain, *scoped]
        moved = any(result.moved for result in results)
        rest = self._rest(due.next_in) if not considered else 0.0 if moved else RETRY_INTERVAL_S
        return TickResult(rest, considered=considered, processed=sum(result.fired for result in results))

    def _rest(self, next_in: timedelta | None) -> float:
        """Return the seconds until the next plan is due, or until a call of a provider has to be abandoned."""
        waits = [POLL_INTERVAL_S, self._providers.next_timeout, None if next_in is None else next_in.total_seconds()]
        return min(seconds for seconds in waits if seconds is not None)

    def _plan(self, schedules: Sequence[DueSchedule], tick: _Tick) -> list[AdvanceResult]:
        """Decide on schedules and apply the decisions in batches, all but the last in another thread.

        So the database works on one batch while this process prepares the next.
        """
        advance = self._store.plans.advance
        decided = (decision for each in schedules if (decision := self._try(each, tick)) is not None)
        results: list[AdvanceResult] = []
        with ThreadPoolExecutor(1, thread_name_prefix="holdfast-planner") as thread:
            writes: list[tuple[list[Advance], Callable[[], AdvanceResult]]] = []
            for batch, is_last in _batches(decided):
                if len(batch[0].fire) > MAX_PLANS:
                    results += self._apply_parts(batch[0], schedules)
                elif is_last:
                    writes.append((batch, partial(advance, batch)))
                else:
                    writes.append((batch, thread.submit(advance, batch).result))
            results += [self._apply(batch, schedules, write) for batch, write in reversed(writes)]
        return results

    def _apply_parts(self, advance: Advance, schedules: Sequence[DueSchedule]) -> Iterator[AdvanceResult]:
        """Apply a decision about one time in many scopes in several transactions. The cursor moves with the last.

        A part that is void, because the schedule has changed, ends the decision. Plans that were fired stay known.
        """
        fired = 0
        for part in _parts(advance):
            result = self._apply_one(structs.replace(part, earlier=fired), schedules)
            fired += result.fired
            yield result
            if part.name not in result.moved:
                return

    def _plan_scoped(self, schedules: Sequence[DueSchedule], tick: _Tick) -> tuple[int, list[AdvanceResult]]:
        """Call the providers of schedules, and decide on those whose calls have returned. Returns their number, too."""
        begun_at = clock.now()
        results = self._plan(schedules, tick)
        calls = self._providers.take(new_since=begun_at, until=begun_at + self._provider_wait)
        tick.answers.update((call.schedule.name, call) for call in calls)
        results += self._plan([call.schedule for call in calls], tick)
        for schedule, error in self._providers.abandon():
            self._record_failure(schedule, error)
        return len(calls), results

    def on_notify(self) -> None:
        """Tick at once: a schedule may have been created or changed."""
        self.wake.set()

    def _try(self, schedule: DueSchedule, tick: _Tick) -> Advance | None:
        """Decide on one schedule; None: its scopes are not known yet, or it cannot be planned."""
        try:
            return self._decide(schedule, tick)
        except (StoreUnavailable, StoreBusy):
            raise
        except Exception as error:  # noqa: BLE001 - one faulty schedule must not stop the others
            self._record_failure(schedule, error)
            return None

    def _decide(self, schedule: DueSchedule, tick: _Tick) -> Advance | None:
        definition = load_definition(schedule.definition)
        rule = definition.rule()
        # An answer for one time belongs to the decision for which it was asked: a later one may be about another time.
        by_time = definition.provider is not None and self._providers.take_time(definition.provider)
        answer = tick.answers.get(schedule.name) if by_time else None
        now, most = tick.now if answer is None else answer.decided_at, 1 if by_time else MAX_TIMES
        decision = decide(definition, rule, schedule.cursor, now, fired=schedule.fired, cap=most)
        scopes = self._scopes(definition, schedule, decision.fire[0], tick) if decision.fire else ()
        if scopes is None:
            return None
        valid, invalid = (scopes, ()) if definition.provider is None else checked_scopes(scopes)
        # An invalid scope costs a row in the ledger too.
        if len(decision.fire) * (size := len(valid) + len(invalid)) > MAX_PLANS:
            cap = max(1, MAX_PLANS // size)
            decision = decide(definition, rule, schedule.cursor, now, fired=schedule.fired, cap=min(cap, most))
        if decision.fire and definition.kind not in tick.kinds:
            tick.kinds[definition.kind] = self._store.kinds.get(definition.kind)
        plans = [Plan(schedule.name, time, scope) for time in decision.fire for scope in valid]
        return Advance(
            name=schedule.name,
            token=schedule.token,
            cursor=decision.cursor,
            next_at=decision.next_at,
            overlap=definition.effective_overlap,
            max_backlog=definition.max_backlog,
            fire=jobs_of(schedule.definition, tick.kinds[definition.kind]).fires(plans) if plans else (),
            skip=decision.skip if valid and not invalid else _skips(decision, valid, invalid),
            runs=definition.runs,
        )

    def _scopes(
        self, definition: Definition, schedule: DueSchedule, time: datetime, tick: _Tick
    ) -> Sequence[str] | None:
        """Return the scopes of a schedule; None: its provider is called, and has not answered yet."""
        if definition.provider is None:
            return definition.known_scopes
        if schedule.name in tick.answers:
            return tick.answers[schedule.name].answer()
        self._providers.call(definition.provider, schedule, time, now=tick.now)
        return None

    def _record_failure(self, schedule: DueSchedule, error: BaseException) -> None:
        unexpected = not isinstance(error, HoldfastError)
        text = describe_error(error).partition("\n\n")[0] if unexpected else str(error)
        log.warning("schedule %r cannot be planned: %s", schedule.name, text, exc_info=error if unexpected else None)
        self._counts.set_back += 1
        self._store.schedules.record_failure(schedule, text)

    def _apply_one(self, advance: Advance, schedules: Sequence[DueSchedule]) -> AdvanceResult:
        return self._apply([advance], schedules, partial(self._store.plans.advance, [advance]))

    def _apply(
        self, advances: Sequence[Advance], schedules: Sequence[DueSchedule], write: Callable[[], AdvanceResult]
    ) -> AdvanceResult:
        """Apply decisions together; if that fails, one by one, so that only the faulty schedule is delayed."""
        try:
            result = write()
        except Exception as error:
            # One faulty schedule must not stop the others, nor one whose jobs a user's transaction has locked.
            if isinstance(error, StoreUnavailable | StoreBusy) and not isinstance(error, JobLocked):
                raise
            if len(advances) > 1:
                results = [self._apply_one(each, schedules) for each in advances]
                moved = [name for each in results for name in each.moved]
                return AdvanceResult(moved, sum(each.fired for each in results), {})
            ((name, token),) = ((each.name, each.token) for each in advances)
            schedule = next(each for each in schedules if each.name == name)
            self._record_failure(structs.replace(schedule, token=token), error)
            return AdvanceResult([name], 0, {})
        self._counts.plans["fired"] += result.fired
        for reason, count in result.skipped.items():
            self._counts.plans["skipped"] += count
            self._counts.missed[reason] += count
        return result


class _Tick(Struct, frozen=True):
    """The store's time, the kinds that this tick has read, and the answers of scope providers, by schedule."""

    now: datetime
    kinds: dict[str, PublishedKind]
    answers: dict[str, ProviderCall] = {}


def _skips(decision: ScheduleDecision, valid: Sequence[str], invalid: Sequence[str]) -> list[Skipped]:
    """Add a skip for each invalid scope, and for each plan time without any scope."""
    scopes = invalid if valid or invalid else ("",)
    return [*decision.skip, *(Skipped(at, at, 1, SkipReason.SCOPE, scope) for at in decision.fire for scope in scopes)]


def _parts(advance: Advance) -> Iterator[Advance]:
    """Divide a decision about one time. Each part raises the token, and until the last one the schedule stays due."""
    time, token, skip = advance.fire[0].plan.time, advance.token, advance.skip
    for start in range(0, len(advance.fire), MAX_PLANS):
        part = structs.replace(advance, token=token, fire=advance.fire[start : start + MAX_PLANS], skip=skip)
        if start + MAX_PLANS < len(advance.fire):
            part = structs.replace(part, cursor=time - MICROSECOND, next_at=time, more=True)
        yield part
        token, skip = token + 1, ()


def _batches(advances: Iterable[Advance]) -> Iterator[tuple[list[Advance], bool]]:
    """Group decisions into transactions; the last one is marked. A decision of more than MAX_PLANS is alone."""
    batch: list[Advance] = []
    size = 0
    for each in advances:
        if batch and size + len(each.fire) > min(BATCH_SIZE, MAX_PLANS):
            yield batch, False
            batch, size = [], 0
        batch.append(each)
        size += len(each.fire)
    if batch:
        yield batch, True


class ClockCheck:
    """Compares the store's clock with the worker's monotonic clock.

    A clock that is set back is harmless, because cursors never move back. A clock that jumps ahead, if only for a
    short time, would fire plans long before they are due.
    """

    def __init__(self) -> None:
        #: Times of both clocks: the last ones that were trusted, and those of the last jump.
        self._trusted: tuple[datetime, float] | None = None
        self._jumped: tuple[datetime, float] | None = None

    def trusts(self, now: datetime, at: float) -> bool:
        """Return whether plans may be decided by the store's time *now*; *at* is the monotonic time, in seconds."""
        if (ahead := _gain(self._trusted or (now, at), now, at)) > MAX_GAIN:
            if self._jumped is None or abs(_gain(self._jumped, now, at)) > MAX_GAIN:
                self._jumped = (now, at)
                log.warning(JUMPED, ahead)
            if at - self._jumped[1] < PROBATION_S:
                return False
        self._trusted, self._jumped = (now, at), None
        return True


def _gain(since: tuple[datetime, float], now: datetime, at: float) -> timedelta:
    return (now - since[0]) - timedelta(seconds=at - since[1])

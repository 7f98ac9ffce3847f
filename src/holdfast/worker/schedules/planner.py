"""The planner: decides on the plans that are due, beside any number of others, without a leader."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from datetime import datetime
from time import perf_counter

from msgspec import Struct

from holdfast.domain.jobs.kind import PublishedKind
from holdfast.domain.jobs.new_job import Actor, NewJob
from holdfast.domain.jobs.published_kind import plan_parameter, request_of
from holdfast.domain.schedules.decision import ScheduleDecision, Skipped, SkipReason, decide
from holdfast.domain.schedules.definition import Definition, checked_scopes, load_definition, scopes_of
from holdfast.domain.schedules.plan import Plan, jittered
from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.store import Store
from holdfast.store.schedules.firing import Advance, Decided, PlanToFire
from holdfast.store.schedules.schedules import Due
from holdfast.worker import clock
from holdfast.worker.schedules.clock_check import ClockCheck
from holdfast.worker.schedules.ping import ping_request
from holdfast.worker.schedules.scopes import ScopeProviders
from holdfast.worker.service import TickResult
from holdfast.worker.stats import Stats

log = logging.getLogger("holdfast")

#: With nothing due, a planner looks so often, in seconds; and so often when others, or providers, are at it.
LOOK_EVERY, LOOK_AGAIN = 30.0, 0.2
#: So many seconds of a tick are for providers.
PATIENCE = 0.2
#: How often it looks for plans that wait for one that is out of the way.
RELEASE_EVERY = 5.0
#: Schedules that are looked at in one tick, and plans that are fired in one transaction.
BATCH = 1000
#: Of a schedule with many scopes, fewer moments are taken at once: about so many plans.
MOST = 5000


class Planner:
    """Reads what is due, decides outside any transaction, and takes the steps in short ones.

    A planner that is killed or stopped holds nothing: another decides the same. A schedule that cannot be planned is
    set back alone.
    """

    name = "planner"

    def __init__(self, store: Store, providers: ScopeProviders, *, counts: Stats, patience: float = PATIENCE) -> None:
        self.wake = threading.Event()
        self._patience = patience
        self._store = store
        self._providers = providers
        self._counts = counts
        self._timekeeper = ClockCheck()
        self._release_at = 0.0

    def tick(self) -> TickResult:
        """Decide on one batch of schedules."""
        began = perf_counter()
        self._release()
        outlook = self._store.schedules.outlook(providers=self._providers.names, limit=BATCH)
        if not self._timekeeper.believes(outlook.now, clock.now()):
            return TickResult(1.0)
        tick = _Tick(outlook.now, clock.now() + self._patience, {})
        advances = [found for due in outlook.due if (found := self._try(due, tick)) is not None]
        decided = [self._take(batch, outlook.due) for batch in _batches(advances)]
        self._counts.planner.add((), perf_counter() - began)
        rest = LOOK_EVERY if outlook.rest is None else min(LOOK_EVERY, max(0.0, outlook.rest.total_seconds()))
        if outlook.due:
            rest = 0.0 if any(each.moved for each in decided) else LOOK_AGAIN
        return TickResult(rest, considered=len(outlook.due), processed=sum(each.fired for each in decided))

    def on_notify(self) -> None:
        """A schedule may have been made or changed."""
        self.wake.set()

    def _release(self) -> None:
        if clock.now() >= self._release_at:
            self._release_at = clock.now() + RELEASE_EVERY
            self._store.plans.release()

    # -- one schedule ------------------------------------------------------------------------

    def _try(self, due: Due, tick: _Tick) -> Advance | None:
        """What is to be done about one schedule; None: nothing now."""
        try:
            return self._decide(due, tick)
        except StoreUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it, the others go on
            self._set_back(due, error)
            return None

    def _decide(self, due: Due, tick: _Tick) -> Advance | None:
        definition = load_definition(due.definition)
        spec = definition.when
        decision = decide(spec, spec.rule(), due.cursor, tick.now, fired=due.fired)
        scopes: Sequence[str] = ()
        bad: Sequence[str] = ()
        if decision.fire:
            asked = self._scopes(definition, due, tick)
            if asked is None:
                return None
            scopes, bad = checked_scopes(asked)
            if len(decision.fire) * len(scopes) > MOST:
                cap = max(1, MOST // len(scopes))
                decision = decide(spec, spec.rule(), due.cursor, tick.now, fired=due.fired, cap=cap)
            if definition.kind not in tick.kinds:
                tick.kinds[definition.kind] = self._store.kinds.get(definition.kind)
        return Advance(
            name=due.name,
            token=due.token,
            cursor=decision.cursor,
            next_at=decision.next_at,
            overlap=spec.overlaps,
            fire=[
                fire_of(Plan(due.name, time, scope), definition, tick.kinds[definition.kind])
                for time in decision.fire
                for scope in scopes
            ],
            skip=[*decision.skip, *_unusable(decision, scopes, bad)],
            runs=spec.runs,
        )

    def _scopes(self, definition: Definition, due: Due, tick: _Tick) -> Sequence[str] | None:
        if definition.provider is None:
            return scopes_of(definition)
        return self._providers.ask(definition.provider, due.name, due.token, until=tick.patient_until)

    def _set_back(self, due: Due, error: BaseException) -> None:
        unexpected = not isinstance(error, HoldfastError)
        log.warning("schedule %r cannot be planned: %s", due.name, error, exc_info=error if unexpected else None)
        self._counts.set_back += 1
        self._store.schedules.set_back(due, f"{type(error).__name__}: {error}" if unexpected else str(error))

    # -- many schedules ----------------------------------------------------------------------

    def _take(self, advances: Sequence[Advance], due: Sequence[Due]) -> Decided:
        """Take them together; if that fails, one by one, so that only the one that cannot be taken stays behind."""
        try:
            decided = self._store.plans.advance(advances)
        except StoreUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            if len(advances) > 1:
                return _sum([self._take([each], due) for each in advances])
            self._set_back(next(each for each in due if each.name == advances[0].name), error)
            return Decided([advances[0].name], 0, {})
        self._count(decided)
        return decided

    def _count(self, decided: Decided) -> None:
        self._counts.plans["fired"] += decided.fired
        for reason, count in decided.skipped.items():
            self._counts.plans["skipped"] += count
            self._counts.missed[reason] += count


class _Tick(Struct, frozen=True):
    """What one tick knows: the store's time, how long it waits for providers, and the kinds it has looked up."""

    now: datetime
    patient_until: float
    kinds: dict[str, PublishedKind]


def _sum(decided: Sequence[Decided]) -> Decided:
    return Decided([name for each in decided for name in each.moved], sum(each.fired for each in decided), {})


def fire_of(
    plan: Plan, definition: Definition, kind: PublishedKind, *, actor: str = Actor.SCHEDULER, hasty: bool = False
) -> PlanToFire:
    """The job that a plan becomes; a *hasty* one waits neither for its delay nor for its jitter."""
    name = plan_parameter(kind.options)
    payload = definition.payload if name is None else {**definition.payload, name: plan}
    spec = definition.when
    request = request_of(
        kind,
        payload,
        queue=definition.queue,
        priority=definition.priority,
        label=plan.schedule,
        run_at=None if hasty or not spec.jitter else plan.time + spec.delay + jittered(plan, spec.jitter),
        actor=actor,
    )
    return PlanToFire(plan, request, _then(definition, request, plan))


def _then(definition: Definition, request: NewJob, plan: Plan) -> NewJob | None:
    return None if definition.ping is None else ping_request(definition.ping, request.queue, plan.schedule)


def _unusable(decision: ScheduleDecision, scopes: Sequence[str], bad: Sequence[str]) -> Iterator[Skipped]:
    """Scopes that cannot be names, in the ledger under what is left of them; and moments that had none at all."""
    for time in decision.fire:
        for scope in bad if scopes or bad else ("",):
            yield Skipped(time, time, 1, SkipReason.SCOPE, scope)


def _batches(advances: Sequence[Advance]) -> Iterator[list[Advance]]:
    """About as many plans as one transaction should take; the plans of one schedule are never divided."""
    batch: list[Advance] = []
    size = 0
    for each in advances:
        if batch and size + len(each.fire) > BATCH:
            yield batch
            batch, size = [], 0
        batch.append(each)
        size += len(each.fire)
    if batch:
        yield batch

"""The ledger of a batch: how units ended, and which to take next."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from operator import attrgetter
from typing import Any

from msgspec import Struct, structs

from holdfast.domain.batches.batch import OPEN_BATCHES, AbortedBy, UnitKey, UnitOutcome, UnitRow, UnitState, deltas
from holdfast.domain.jobs.handler_exceptions import AlreadyFinished
from holdfast.domain.jobs.job import ControlRequest
from holdfast.errors import LeaseLost
from holdfast.store.batches.in_flight import MAX_CRASHES, UnitInFlight, count, decode, hold
from holdfast.store.batches.opening import BatchRun
from holdfast.store.engine.operation import BulkInsert, Operation, Rows, query

#: So long a result waits for its consumer.
KEEP = timedelta(hours=24)


class NextUnits(Struct, frozen=True, kw_only=True):
    """What a run wants next. *in_hand* are the units that are still running.

    Of *candidates*, the next keys of a foreground run's input, at most *limit* are taken; without them the next
    waiting units of the ledger. *doubt*: if the holder is lost, its units wait for a person.
    """

    in_hand: Sequence[UnitInFlight] = ()
    candidates: Sequence[UnitInFlight] | None = None
    limit: int = 0
    retry_failed: bool = True
    in_doubt_if_lost: bool = False
    #: No key of this run comes twice, and none has a row yet: nothing need be looked up.
    fresh: bool = False
    #: Stop all who work on the batch: what goes back with this must not be taken by another.
    abort: AbortedBy | None = None


NOTHING = NextUnits()


class Flushed(Struct, frozen=True):
    """What came of a flush: the units that were taken, how many candidates were looked at, why to stop."""

    taken: list[UnitRow]
    looked: int
    stop: AbortedBy | None


def flush(run: BatchRun, ends: list[UnitOutcome], ask_for: NextUnits) -> Operation[Flushed]:
    standing = yield from _lock_run(run)
    ((shared,),) = yield query("check_batch_shared", batch_id=run.batch.id, job_id=run.lease.job_id)
    yield from _put_ends(run, ends, fresh=ask_for.fresh and not shared)
    if ask_for.abort is not None:
        yield query("abort_batch", id=run.batch.id, aborted_by=ask_for.abort)
    choice = _Choice(run, ask_for, shared=bool(shared))
    if standing.stop is None and ask_for.candidates is not None:
        yield from choice.among(ask_for.candidates, ask_for.limit)
    elif standing.stop is None and ask_for.limit:
        yield from choice.next(ask_for.limit)
    held = [*ask_for.in_hand, *choice.held]
    yield from hold(run.batch, run.lease, held, isolated=choice.isolated, in_doubt_if_lost=ask_for.in_doubt_if_lost)
    return Flushed(choice.taken, choice.looked, standing.stop)


class RunStatus(Struct, frozen=True):
    """How a run stands: what a person wants of its batch, and what stops all its runs."""

    requested: ControlRequest | None
    aborted_by: AbortedBy | None

    @property
    def stop(self) -> AbortedBy | None:
        return self.aborted_by if self.requested is None else _STOP_FOR[self.requested]


#: What stops a run when a person wants something of its batch.
_STOP_FOR = {ControlRequest.PAUSE: AbortedBy.PAUSE, ControlRequest.CANCEL: AbortedBy.CANCEL}


def write_ends(run: BatchRun, ends: list[UnitOutcome]) -> Operation[None]:
    """Lock the batch, and write how units ended.

    Raises:
        LeaseLost: The run's job was taken over; nothing was written.
    """
    yield from _lock_run(run)
    yield from _put_ends(run, ends, fresh=False)


def end_one(run: BatchRun, end: UnitOutcome) -> Operation[None]:
    """End one unit together with its effect.

    Raises:
        LeaseLost: The run's job was taken over; nothing was written.
        AlreadyOver: Another holder has ended the unit; nothing was written.
    """
    yield from _lock_run(run)
    known: list[UnitRow] = yield query("get_units", UnitRow, batch_id=run.batch.id, keys=[end.key])
    if known and known[0].state not in OPEN_BATCHES:
        raise AlreadyFinished(f"unit {end.key} of batch {run.batch.id} is over already")
    yield from _put_ends(run, [end], fresh=False)


def _lock_run(run: BatchRun) -> Operation[RunStatus]:
    told = {"job_id": run.lease.job_id, "token": run.lease.token, "batch_id": run.batch.id}
    rows: list[RunStatus] = yield query("lock_batch_run", RunStatus, **told)
    if not rows:
        raise LeaseLost.of(run.lease.job_id, run.lease.token)
    return rows[0]


def _put_ends(run: BatchRun, ends: list[UnitOutcome], *, fresh: bool) -> Operation[None]:
    """Write how units ended; *fresh*: none of them has a row yet. What has ended already stays as it is."""
    if not ends:
        return
    if fresh:
        changed = deltas(ends)
        yield _appended(run, ends, plain=changed.keys() == {"done"})
    else:
        table = Rows(**_columns(ends, _FACTS), poison_suspect=[False] * len(ends))
        rows = yield query("write_units", batch_id=run.batch.id, run_number=run.batch.run_number, unit=table)
        turned = {row[0] for row in rows}
        ends = ends if len(turned) == len(ends) else [end for end in ends if end.key in turned]
        changed = deltas(ends)
    yield from _hand_over(run, ends)
    yield from count(run.batch.id, run.lease.job_id, changed)


def _appended(run: BatchRun, ends: list[UnitOutcome], *, plain: bool) -> BulkInsert:
    """New rows; *plain*: all are done, and what most of them do not have need not be written."""
    size = len(ends)
    facts = _BRIEF if plain and all(end.data is None for end in ends) else _FACTS
    same: dict[str, list[Any]] = {"batch_id": [run.batch.id] * size, "run_number": [run.batch.run_number] * size}
    return BulkInsert("unit", {**_columns(ends, facts), **same})


def _hand_over(run: BatchRun, ends: list[UnitOutcome]) -> Operation[None]:
    """Put results into their inboxes, in the transaction in which their units turn."""
    handed = [(end.key, end.handed) for end in ends if end.handed is not None]
    if handed:
        table = Rows(
            key=[key for key, _ in handed],
            inbox=[result.inbox for _, result in handed],
            data=[result.data for _, result in handed],
        )
        yield query("insert_inbox_results", batch_id=run.batch.id, keep=KEEP, result=table)


#: What is written of an end; the value of a state by its quickest name.
_BRIEF = {
    "key": "key",
    "position": "position",
    "state": "state._value_",
    "attempts": "attempts",
    "duration_ms": "duration_ms",
}
_FACTS = {**_BRIEF, **{name: name for name in ("crashes", "label", "warning", "error", "data")}}


def _columns(ends: list[UnitOutcome], facts: dict[str, str]) -> dict[str, list[Any]]:
    return {name: [*map(attrgetter(path), ends)] for name, path in facts.items()}


class _Choice:
    """Which units to take next: none that is over, none that another holder has; a suspect only alone."""

    def __init__(self, run: BatchRun, ask_for: NextUnits, *, shared: bool) -> None:
        self.taken: list[UnitRow] = []
        self.looked = 0
        self.isolated = False
        self._run = run
        self._mine = {key for key, _ in ask_for.in_hand}
        self._retry = ask_for.retry_failed
        self._fresh = ask_for.fresh and not shared
        self._shared = shared
        self._fresh_ones: Sequence[UnitInFlight] = ()

    @property
    def held(self) -> Sequence[UnitInFlight]:
        """What was taken, by key and place."""
        return self._fresh_ones or [(unit.key, unit.position) for unit in self.taken]

    def among(self, candidates: Sequence[UnitInFlight], limit: int) -> Operation[None]:
        if self._fresh:
            self._fresh_ones = candidates[:limit]
            self.taken = [UnitRow(key, place, UnitState.PENDING, 0, 0, 0, False) for key, place in self._fresh_ones]
            self.looked = len(self.taken)
            return
        keys = [key for key, _ in candidates]
        rows: list[UnitRow] = yield query("get_units", UnitRow, batch_id=self._run.batch.id, keys=keys)
        known = {unit.key: unit for unit in rows}
        others = yield from self._others()
        for key, place in candidates:
            if len(self.taken) >= limit:
                return
            unit = known.get(key) or UnitRow(key, place, UnitState.PENDING, 0, 0, 0, False)
            if self._may_run(unit) and key not in others:
                if not self._take(structs.replace(unit, position=place)):
                    return
                others.add(key)  # it may come once more
            self.looked += 1

    def next(self, limit: int) -> Operation[None]:
        others = yield from self._others()
        rows: list[UnitRow] = yield query(
            "read_pending_units",
            UnitRow,
            batch_id=self._run.batch.id,
            limit=limit + len(others) + len(self._mine),
        )
        for unit in rows:
            if len(self.taken) >= limit:
                return
            if unit.key not in others and not self._take(unit):
                return

    def _others(self) -> Operation[set[UnitKey]]:
        if not self._shared:
            return set(self._mine)
        rows = yield query("list_in_flight", batch_id=self._run.batch.id, job_id=self._run.lease.job_id)
        return {key for row in rows for key, _ in decode(row[0])} | self._mine

    def _may_run(self, unit: UnitRow) -> bool:
        if unit.state is UnitState.FAILED:
            return self._retry and unit.run_number < self._run.batch.run_number and unit.crashes < MAX_CRASHES
        return unit.state is UnitState.PENDING

    def _take(self, unit: UnitRow) -> bool:
        """Take a unit if it may run beside the others; a suspect waits until nothing else is in hand."""
        if self.isolated or (unit.poison_suspect and (self.taken or self._mine)):
            return False
        self.isolated = unit.poison_suspect
        self.taken.append(unit)
        return True


def plan(run: BatchRun, units: list[UnitInFlight], retry_failed: bool) -> Operation[None]:  # noqa: FBT001
    yield from write_ends(run, [])
    if retry_failed and run.batch.run_number > 1:
        told = {"batch_id": run.batch.id, "run_number": run.batch.run_number, "crashes": MAX_CRASHES}
        again = yield query("retry_units", keys=[key for key, _ in units], **told)
        yield from count(run.batch.id, run.lease.job_id, {"failed": -len(again)})
    table = Rows(key=[key for key, _ in units], position=[place for _, place in units])
    yield query("insert_pending_units", batch_id=run.batch.id, run_number=run.batch.run_number, unit=table)

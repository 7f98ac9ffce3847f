"""The ledger of a batch: outcomes of units, and the choice of the next units."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.domain.batches.batch import AbortedBy
from holdfast.domain.batches.done_units import DoneUnits
from holdfast.domain.batches.unit import (
    RUNNABLE_UNITS,
    TakenUnit,
    UnitKey,
    UnitOutcome,
    UnitState,
    counter_deltas,
    kept_errors,
    note_deltas,
)
from holdfast.domain.fleet.stop_switch import StopMode
from holdfast.domain.jobs.context import AlreadyFinished
from holdfast.domain.jobs.job import ControlRequest
from holdfast.errors import LeaseLost
from holdfast.store.batches.state import MAX_CRASHES, NO_DELTAS, BatchRun, UnitInFlight, count, hold
from holdfast.store.batches.unit_choice import NOTHING, Choice, NextUnits, choose_next
from holdfast.store.engine.operation import BulkInsert, Operation, Rows, columns_of, query

#: How long a result waits for its consumer.
RESULT_RETENTION = timedelta(hours=24)
#: Units that a statement adds on average, at least; for fewer, a bulk insert is faster.
UNITS_PER_INSERT = 20


class Flushed(Struct, frozen=True):
    """The result of a flush: the next units, and the reason to stop.

    *discarded* are the keys of outcomes that were not written because their units had finished.
    """

    choice: Choice
    stop: AbortedBy | None
    discarded: frozenset[UnitKey] = frozenset()

    @property
    def taken(self) -> Sequence[TakenUnit]:
        """The units that were taken."""
        return self.choice.units

    @property
    def examined(self) -> int:
        """The number of candidates examined."""
        return self.choice.examined


class RunStatus(Struct, frozen=True):
    """Requests that concern a run: those of people to its batch, an abort of all its runs, and the stop switch.

    *now* is the clock of the store; *shared*: another holder works on the batch, or has. None means unknown.
    """

    requested: ControlRequest | None
    aborted_by: AbortedBy | None
    switch: StopMode | None
    now: datetime
    shared: bool | None

    @property
    def stop(self) -> AbortedBy | None:
        if self.requested is not None:
            return AbortedBy(self.requested)
        return self.aborted_by or (None if self.switch is None else AbortedBy.STOP_SWITCH)


def flush(
    run: BatchRun,
    ends: Sequence[UnitOutcome] = (),
    next_units: NextUnits = NOTHING,
    *,
    amended: Sequence[UnitOutcome] = (),
    interrupted: Sequence[UnitInFlight] = (),
) -> Operation[Flushed]:
    """Write the outcomes of units and take the next units, in one transaction, under the run's lease.

    *amended* are outcomes that the units' own transactions have written, with later notes. *interrupted* are units that
    began and did not finish: they keep their states, and run after units that no run has begun.

    - The counters change by the states that the units had in the ledger; an outcome for a finished unit is discarded.
    - No unit is taken that is finished, or in flight with another holder.
    - A poison suspect is taken only when no other unit is in flight, and no unit beside it.
    - While a pause or a cancel is requested, or the store is stopped, no unit is taken.

    Raises:
        LeaseLost: The run's job was taken over; nothing was written.
    """
    status = yield from lock_run(run)
    fresh = next_units.fresh and not (yield from _is_shared(run, status))
    written = yield from _put_ends(run, ends, status.now, fresh=fresh, planned=next_units.planned)
    changed = Counter(written.deltas)
    if amended or interrupted:
        changed.update((yield from _put_notes(run, amended, interrupted)))
    if next_units.abort is not None:
        yield query("abort_batch", id=run.batch.id, aborted_by=next_units.abort, failures=next_units.failures)
    if status.stop is not None or not next_units.limit:
        choice = Choice([], (), 0)
    elif next_units.candidates is not None and fresh:
        candidates, limit = next_units.candidates, next_units.limit
        fresh_units = candidates if len(candidates) <= limit else candidates[:limit]
        choice = Choice(fresh_units, fresh_units, len(fresh_units))
    else:
        choice = yield from choose_next(run, next_units, shared=status.shared is not False)
    in_hand = [*next_units.in_hand, *choice.in_flight] if next_units.in_hand else choice.in_flight
    isolated = choice.isolated or (next_units.isolated and len(in_hand) == 1)
    doubt = next_units.in_doubt_if_lost
    yield from hold(run.batch, run.lease, in_hand, isolated=isolated, in_doubt_if_lost=doubt, changed=changed)
    return Flushed(choice, status.stop, written.discarded)


def _is_shared(run: BatchRun, status: RunStatus) -> Operation[bool]:
    """Whether another holder works on the batch, or has."""
    if status.shared is not None:
        return status.shared
    ((shared,),) = yield query("check_batch_shared", batch_id=run.batch.id, job_id=run.lease.job_id)
    return bool(shared)


def end_one(run: BatchRun, end: UnitOutcome) -> Operation[None]:
    """Write the outcome of one unit together with its effect."""
    status = yield from lock_run(run)
    written = yield from _put_ends(run, [end], status.now, fresh=False)
    yield from count(run.batch.id, run.lease.job_id, written.deltas)
    if written.discarded:
        raise AlreadyFinished(f"unit {end.key} of batch {run.batch.id} is finished already")


def plan(run: BatchRun, units: Sequence[UnitInFlight], *, retry_failed: bool) -> Operation[None]:
    """Add pending units to the ledger."""
    yield from lock_run(run)
    if retry_failed and run.batch.run_number > 1:
        values = {"batch_id": run.batch.id, "run_number": run.batch.run_number, "crashes": MAX_CRASHES}
        again = yield query("retry_units", keys=[key for key, _ in units], **values)
        yield from count(run.batch.id, run.lease.job_id, {"failed": -len(again)})
    table = Rows(key=[key for key, _ in units], position=[place for _, place in units])
    yield query("insert_pending_units", batch_id=run.batch.id, run_number=run.batch.run_number, unit=table)


def lock_run(run: BatchRun) -> Operation[RunStatus]:
    """Check the lease of a run, and lock its batch.

    Raises:
        LeaseLost: The run's job was taken over.
    """
    values = {
        "job_id": run.lease.job_id,
        "token": run.lease.token,
        "worker": run.lease.worker,
        "batch_id": run.batch.id,
    }
    rows: list[RunStatus] = yield query("lock_batch_run", RunStatus, **values)
    if not rows:
        raise LeaseLost.of(run.lease.job_id, run.lease.token)
    return rows[0]


class _KnownUnit(Struct, frozen=True):
    key: UnitKey
    state: UnitState
    error: str | None
    earlier_errors: str | None


class _Written(Struct, frozen=True):
    """The change of the counters by outcomes, and the keys of those that were discarded."""

    deltas: Mapping[str, int] = NO_DELTAS
    discarded: frozenset[UnitKey] = frozenset()


def _put_ends(
    run: BatchRun, ends: Sequence[UnitOutcome], now: datetime, *, fresh: bool, planned: bool = False
) -> Operation[_Written]:
    """Write the outcomes of units. The caller changes the counters in the same transaction.

    *fresh*: none of them has a row yet; *planned*: all have one.

    The counters change by the state that the ledger had, not by what the run knew of it.
    """
    if not ends:
        return _Written()
    finished: Collection[UnitKey] = ()
    before: dict[UnitKey, UnitState] = {}
    failed: dict[UnitKey, _KnownUnit] = {}
    discarded: frozenset[UnitKey] = frozenset()
    plain = DoneUnits.of(ends)
    if fresh and plain is not None:  # the common case needs no more statements
        yield from _add(run, plain, now)
        return _Written({"done": len(ends)})
    if fresh:
        yield BulkInsert("unit", columns_of(ends, **_COLUMNS), _same(run, now, last_run=run.batch.run_number))
    else:
        if planned and plain is not None:
            finished = yield from _finish(run, plain)
            if len(finished) == len(ends):
                return _Written({"done": len(ends)})
            ends = [end for end in ends if end.key not in finished]
        table = columns_of(ends, **(_COLUMNS if plain is None else _BRIEF_COLUMNS))
        values = {"batch_id": run.batch.id, "run_number": run.batch.run_number, "keys": table["key"]}
        values["worker"] = run.worker
        known: list[_KnownUnit] = yield query("write_units", _KnownUnit, unit=Rows(**table), **values)
        before = {unit.key: unit.state for unit in known}
        failed = {unit.key: unit for unit in known if unit.error is not None}
        discarded = frozenset(unit.key for unit in known if unit.state not in RUNNABLE_UNITS)
        ends = [end for end in ends if end.key not in discarded] if discarded else ends
    yield from _keep_errors(run, [end for end in ends if end.earlier_errors or end.key in failed], failed)
    yield from _hand_over(run, ends)
    deltas = Counter(counter_deltas(ends, before))
    deltas["done"] += len(finished)
    return _Written(deltas, discarded)


def _finish(run: BatchRun, units: DoneUnits) -> Operation[set[UnitKey]]:
    """Finish units that are pending and have no error. Returns their keys."""
    durations = msgspec.json.encode(dict(units.durations())).decode()
    values = {"batch_id": run.batch.id, "run_number": run.batch.run_number, "worker": run.worker}
    rows = yield query("finish_units", durations=durations, **values)
    return {key for (key,) in rows}


def _keep_errors(run: BatchRun, ends: Sequence[UnitOutcome], failed: Mapping[UnitKey, _KnownUnit]) -> Operation[None]:
    """Keep the errors of earlier attempts: of the same run, and those that the outcomes have replaced."""
    kept: dict[UnitKey, str] = {}
    for end in ends:
        unit = failed.get(end.key)
        before, replaced = (None, ()) if unit is None else (unit.earlier_errors, (unit.error or "",))
        kept[end.key] = kept_errors(before, *replaced, *end.earlier_errors)
    if kept:
        table = Rows(key=[*kept], errors=[*kept.values()])
        yield query("keep_unit_errors", batch_id=run.batch.id, unit=table)


def _add(run: BatchRun, units: DoneUnits, now: datetime) -> Operation[None]:
    """Add rows of units. Few statements do if their places follow each other and most durations are equal."""
    groups = units.groups()
    if len(groups) > 1 + len(units) // UNITS_PER_INSERT:
        columns = columns_of(units, "key", "position", "duration_ms")
        yield BulkInsert("unit", columns, _same(run, now, state=UnitState.DONE, attempts=1))
        return
    values = {"batch_id": run.batch.id, "run_number": run.batch.run_number, "worker": run.worker}
    for start, end in groups:
        place = {"position": units.positions[start], "duration_ms": units.durations_ms[start]}
        yield query("insert_done_units", keys=msgspec.json.encode(units.keys[start:end]).decode(), **place, **values)


def _same(run: BatchRun, now: datetime, **more: Any) -> dict[str, Any]:
    """The columns that have one value in all rows of a flush."""
    same = {"batch_id": run.batch.id, "run_number": run.batch.run_number, "attempted_at": now, "worker": run.worker}
    return same | more


def _put_notes(
    run: BatchRun, amended: Sequence[UnitOutcome], interrupted: Sequence[UnitInFlight]
) -> Operation[Counter[str]]:
    """Write later notes of finished units, and mark units that began and did not finish.

    Returns the change of the counters.
    """
    changed: Counter[str] = Counter()
    for end in amended:
        unit = {"batch_id": run.batch.id, "key": end.key}
        notes = yield query("get_unit_notes", **unit)
        yield query("amend_unit", label=end.label, warning=end.warning, data=end.data, **unit)
        changed.update(note_deltas(notes, -1))
        changed.update(note_deltas([(end.label, end.warning)] if notes else [], 1))
    if interrupted:
        table = Rows(key=[key for key, _ in interrupted], position=[place for _, place in interrupted])
        yield query("begin_units", batch_id=run.batch.id, run_number=run.batch.run_number, unit=table)
    return changed


def _hand_over(run: BatchRun, ends: Sequence[UnitOutcome]) -> Operation[None]:
    """Put results into their inboxes, in the transaction that writes the outcomes of their units."""
    results = [(end.key, end.handed) for end in ends if end.handed is not None]
    if results:
        handed = columns_of([result for _, result in results], "inbox", "data")
        table = Rows(key=[key for key, _ in results], **handed)
        yield query("insert_inbox_results", batch_id=run.batch.id, keep=RESULT_RETENTION, result=table)


#: Columns of an outcome and their attributes; ``_value_`` is the fastest access to the value of an enum.
_BRIEF_COLUMNS = {name: name for name in ("key", "position", "attempts", "duration_ms")} | {"state": "state._value_"}
_COLUMNS = _BRIEF_COLUMNS | {name: name for name in ("crashes", "poison_suspect", "label", "warning", "error", "data")}

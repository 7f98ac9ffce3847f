"""The ledger of a batch: outcomes of units, and the choice of the next units."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import timedelta
from typing import Any

from msgspec import Struct, structs

from holdfast.domain.batches.batch import AbortedBy
from holdfast.domain.batches.unit import (
    RUNNABLE_UNITS,
    UnitKey,
    UnitOutcome,
    UnitRow,
    UnitState,
    counter_deltas,
    note_deltas,
)
from holdfast.domain.fleet.stop_switch import StopMode
from holdfast.domain.jobs.context import AlreadyFinished
from holdfast.domain.jobs.job import ControlRequest
from holdfast.errors import LeaseLost
from holdfast.store.batches.state import MAX_CRASHES, BatchRun, UnitInFlight, count, hold, units_in_hand
from holdfast.store.engine.operation import BulkInsert, Operation, Rows, columns_of, query

#: How long a result waits for its consumer.
RESULT_RETENTION = timedelta(hours=24)


#: A place among the units that an earlier run began: run, position, key.
Place = tuple[int, int, UnitKey]
FIRST_PLACE: Place = (0, -1, UnitKey(""))


class NextUnits(Struct, frozen=True, kw_only=True):
    """A request for the next units of a run. *in_hand* are the units that are still running.

    At most *limit* units are taken: from *candidates*, the next keys of a foreground run's input; *after* a place,
    from the units that an earlier run began and this run has met; or without both from the pending units of the
    ledger. With *in_doubt_if_lost*, the units of a lost holder wait for a person.
    """

    in_hand: Sequence[UnitInFlight] = ()
    #: The unit in hand is a poison suspect that runs alone: if the holder is lost, this unit crashed it.
    isolated: bool = False
    candidates: Sequence[UnitInFlight] | None = None
    after: Place | None = None
    limit: int = 0
    retry_failed: bool = True
    #: Leave candidates that an earlier run began for later, and record that this run has met them.
    defer: bool = False
    in_doubt_if_lost: bool = False
    #: The keys of this run are unique and none has a row yet, so the ledger is not queried.
    fresh: bool = False
    #: Stop all holders of the batch: no other holder may take the units that this flush returns.
    abort: AbortedBy | None = None
    #: The failures that are the reason, as JSON.
    failures: str | None = None


NOTHING = NextUnits()


class Flushed(Struct, frozen=True):
    """The result of a flush: the units taken, the number of candidates examined, and the reason to stop.

    *last* is the place of the last unit that was read *after* a place; None at the end. *discarded* are the keys of
    outcomes that were not written because their units had finished.
    """

    taken: list[UnitRow]
    examined: int
    stop: AbortedBy | None
    last: Place | None = None
    discarded: frozenset[UnitKey] = frozenset()


class RunStatus(Struct, frozen=True):
    """Requests that concern a run: those of people to its batch, an abort of all its runs, and the stop switch."""

    requested: ControlRequest | None
    aborted_by: AbortedBy | None
    switch: StopMode | None

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

    *amended* are outcomes that the units' own transactions have written, with later notes. *interrupted* are units
    that began and did not finish: they keep their states, and run after units that no run has begun.

    - The counters change by the states that the units had in the ledger; an outcome for a finished unit is discarded.
    - No unit is taken that is finished, or that another holder has in hand.
    - A poison suspect is taken only when no other unit is in hand, and no unit beside it.
    - While a pause or a cancel is requested, or the store is stopped, no unit is taken.

    Raises:
        LeaseLost: The run's job was taken over; nothing was written.
    """
    status = yield from lock_run(run)
    ((shared,),) = yield query("check_batch_shared", batch_id=run.batch.id, job_id=run.lease.job_id)
    fresh = next_units.fresh and not shared
    discarded = yield from _put_ends(run, ends, fresh=fresh)
    yield from _put_notes(run, amended, interrupted)
    if next_units.abort is not None:
        yield query("abort_batch", id=run.batch.id, aborted_by=next_units.abort, failures=next_units.failures)
    if status.stop is not None or not next_units.limit:
        choice = Choice([], (), 0)
    elif next_units.candidates is not None and fresh:
        fresh_units = next_units.candidates[: next_units.limit]
        choice = Choice([_new_unit(key, place) for key, place in fresh_units], fresh_units, len(fresh_units))
    else:
        choice = yield from _choose(run, next_units, shared=bool(shared))
    in_hand = [*next_units.in_hand, *choice.in_flight]
    isolated = choice.isolated or (next_units.isolated and len(in_hand) == 1)
    yield from hold(run.batch, run.lease, in_hand, isolated=isolated, in_doubt_if_lost=next_units.in_doubt_if_lost)
    return Flushed(choice.units, choice.examined, status.stop, choice.last, discarded)


def end_one(run: BatchRun, end: UnitOutcome) -> Operation[None]:
    """Write the outcome of one unit together with its effect."""
    yield from lock_run(run)
    discarded = yield from _put_ends(run, [end], fresh=False)
    if discarded:
        raise AlreadyFinished(f"unit {end.key} of batch {run.batch.id} is over already")


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
    values = {"job_id": run.lease.job_id, "token": run.lease.token, "batch_id": run.batch.id}
    rows: list[RunStatus] = yield query("lock_batch_run", RunStatus, **values)
    if not rows:
        raise LeaseLost.of(run.lease.job_id, run.lease.token)
    return rows[0]


class _KnownUnit(Struct, frozen=True):
    key: UnitKey
    state: UnitState


def _put_ends(run: BatchRun, ends: Sequence[UnitOutcome], *, fresh: bool) -> Operation[frozenset[UnitKey]]:
    """Write the outcomes of units; *fresh*: none of them has a row yet. Returns the keys of discarded outcomes.

    The counters change by the state that the ledger had, not by what the run knew of it.
    """
    discarded: frozenset[UnitKey] = frozenset()
    if not ends:
        return discarded
    before: dict[UnitKey, UnitState] = {}
    if fresh:
        yield _appended(run, ends)
    else:
        table = columns_of(ends, **(_BRIEF_COLUMNS if all(map(_is_brief, ends)) else _COLUMNS))
        values = {"batch_id": run.batch.id, "run_number": run.batch.run_number, "keys": table["key"]}
        known: list[_KnownUnit] = yield query("write_units", _KnownUnit, unit=Rows(**table), **values)
        before = {unit.key: unit.state for unit in known}
        discarded = frozenset(unit.key for unit in known if unit.state not in RUNNABLE_UNITS)
        ends = [end for end in ends if end.key not in discarded] if discarded else ends
    yield from _hand_over(run, ends)
    yield from count(run.batch.id, run.lease.job_id, counter_deltas(ends, before))
    return discarded


def _appended(run: BatchRun, ends: Sequence[UnitOutcome]) -> BulkInsert:
    """New rows; if all are plainly done, the columns that few of them need are left out."""
    size = len(ends)
    same: dict[str, list[Any]] = {"batch_id": [run.batch.id] * size, "run_number": [run.batch.run_number] * size}
    if all(map(_is_brief, ends)):
        return BulkInsert("unit", {**columns_of(ends, **_BRIEF_COLUMNS), **same})
    same["last_run"] = same["run_number"]
    return BulkInsert("unit", {**columns_of(ends, **_COLUMNS), **same})


def _is_brief(end: UnitOutcome) -> bool:
    return end.state is UnitState.DONE and end.label is None and end.warning is None and end.data is None


def _put_notes(run: BatchRun, amended: Sequence[UnitOutcome], interrupted: Sequence[UnitInFlight]) -> Operation[None]:
    """Write later notes of finished units, and mark units that began and did not finish."""
    changed: Counter[str] = Counter()
    for end in amended:
        unit = {"batch_id": run.batch.id, "key": end.key}
        notes = yield query("get_unit_notes", **unit)
        yield query("amend_unit", label=end.label, warning=end.warning, data=end.data, **unit)
        changed.update(note_deltas(notes, -1))
        changed.update(note_deltas([(end.label, end.warning)] if notes else [], 1))
    yield from count(run.batch.id, run.lease.job_id, changed)
    if interrupted:
        table = Rows(key=[key for key, _ in interrupted], position=[place for _, place in interrupted])
        yield query("begin_units", batch_id=run.batch.id, run_number=run.batch.run_number, unit=table)


def _hand_over(run: BatchRun, ends: Sequence[UnitOutcome]) -> Operation[None]:
    """Put results into their inboxes, in the transaction that writes the outcomes of their units."""
    results = [(end.key, end.handed) for end in ends if end.handed is not None]
    if results:
        handed = columns_of([result for _, result in results], "inbox", "data")
        table = Rows(key=[key for key, _ in results], **handed)
        yield query("insert_inbox_results", batch_id=run.batch.id, keep=RESULT_RETENTION, result=table)


#: Columns of an outcome and their attributes; ``_value_`` is the fastest access to the value of an enum.
_BRIEF_COLUMNS = {name: name for name in ("key", "position", "attempts", "duration_ms")} | {"state": "state._value_"}
_COLUMNS = _BRIEF_COLUMNS | {name: name for name in ("crashes", "label", "warning", "error", "data")}


class Choice(Struct, frozen=True):
    """The next units of a run, and the number of candidates examined."""

    units: list[UnitRow]
    in_flight: Sequence[UnitInFlight]
    examined: int
    last: Place | None = None

    @property
    def isolated(self) -> bool:
        """Whether the only unit is a poison suspect."""
        return bool(self.units) and self.units[0].poison_suspect


def choose_units(
    candidates: Iterable[UnitRow],
    *,
    taken: Collection[UnitKey],
    is_idle: bool,
    limit: int,
    may_run: Callable[[UnitRow], bool],
) -> Choice:
    """Choose units that may run and that no holder has *taken*, in order.

    A poison suspect is chosen only alone: if the run is idle, and as the only unit.
    """
    units: list[UnitRow] = []
    unavailable = set(taken)
    examined = 0
    for unit in candidates:
        if len(units) >= limit:
            break
        if unit.key not in unavailable and may_run(unit):
            has_suspect = bool(units) and units[0].poison_suspect
            if has_suspect or (unit.poison_suspect and (units or not is_idle)):
                break
            units.append(unit)
            unavailable.add(unit.key)  # the input may repeat a key
        examined += 1
    return Choice(units, [(unit.key, unit.position) for unit in units], examined)


def _choose(run: BatchRun, request: NextUnits, *, shared: bool) -> Operation[Choice]:
    mine = {key for key, _ in request.in_hand}
    taken = mine | {*(yield from units_in_hand(run.batch.id, besides=run.lease.job_id))} if shared else mine
    if request.candidates is not None:
        return (yield from _choose_candidates(run, request, taken, is_idle=not mine))
    rows: list[UnitRow]
    if request.after is None:
        limit = request.limit + len(taken) + len(mine)
        rows = yield query("read_pending_units", UnitRow, batch_id=run.batch.id, limit=limit)
        choice = choose_units(rows, taken=taken, is_idle=not mine, limit=request.limit, may_run=lambda _: True)
        return structs.replace(choice, examined=0)
    values = dict(zip(("last_run", "position", "key"), request.after, strict=True))
    values |= {"batch_id": run.batch.id, "run_number": run.batch.run_number, "crashes": MAX_CRASHES}
    values |= {"retry_failed": request.retry_failed, "limit": request.limit}
    rows = yield query("read_units_again", UnitRow, **values)
    choice = choose_units(rows, taken=taken, is_idle=not mine, limit=request.limit, may_run=lambda _: True)
    if not choice.examined:
        return structs.replace(choice, last=request.after if rows else None)
    seen = rows[choice.examined - 1]
    return structs.replace(choice, last=(seen.last_run, seen.position, seen.key))


def _choose_candidates(
    run: BatchRun, request: NextUnits, taken: Collection[UnitKey], *, is_idle: bool
) -> Operation[Choice]:
    """Choose from the next keys of the input of a run."""
    assert request.candidates is not None
    keys = [key for key, _ in request.candidates]
    rows: list[UnitRow] = yield query("get_units", UnitRow, batch_id=run.batch.id, keys=keys)
    known = {unit.key: unit for unit in rows}
    candidates = (_at_place(known.get(key), key, place) for key, place in request.candidates)
    deferred: list[UnitKey] = []

    def may_run(unit: UnitRow) -> bool:
        if unit.state is UnitState.FAILED:
            is_due = request.retry_failed and unit.last_run < run.batch.run_number and unit.crashes < MAX_CRASHES
        else:
            is_due = unit.state is UnitState.PENDING
        if is_due and request.defer and 0 < unit.last_run < run.batch.run_number:
            deferred.append(unit.key)
            return False
        return is_due

    choice = choose_units(candidates, taken=taken, is_idle=is_idle, limit=request.limit, may_run=may_run)
    if deferred:
        yield query("meet_units", batch_id=run.batch.id, run_number=run.batch.run_number, keys=deferred)
    return choice


def _at_place(unit: UnitRow | None, key: UnitKey, place: int) -> UnitRow:
    """A unit at its place in the input of this run; None: it has no row yet."""
    if unit is None:
        return _new_unit(key, place)
    return unit if unit.position == place else structs.replace(unit, position=place)


def _new_unit(key: UnitKey, place: int) -> UnitRow:
    return UnitRow(key, place, UnitState.PENDING, 0, 0, 0, False)

"""The ledger of a batch: outcomes of units, and the choice of the next units."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import timedelta
from typing import Any

from msgspec import Struct, structs

from holdfast.domain.batches.batch import AbortedBy
from holdfast.domain.batches.unit import RUNNABLE_UNITS, UnitKey, UnitOutcome, UnitRow, UnitState, counter_deltas
from holdfast.domain.fleet.stop_switch import StopMode
from holdfast.domain.jobs.context import AlreadyFinished
from holdfast.domain.jobs.job import ControlRequest
from holdfast.errors import LeaseLost
from holdfast.store.batches.state import MAX_CRASHES, BatchRun, UnitInFlight, count, hold, units_in_hand
from holdfast.store.engine.operation import BulkInsert, Operation, Rows, columns_of, query

#: How long a result waits for its consumer.
RESULT_RETENTION = timedelta(hours=24)


class NextUnits(Struct, frozen=True, kw_only=True):
    """A request for the next units of a run. *in_hand* are the units that are still running.

    At most *limit* units are taken: from *candidates*, the next keys of a foreground run's input, or without
    them the next pending units of the ledger. With *in_doubt_if_lost*, the units of a lost holder wait for a person.
    """

    in_hand: Sequence[UnitInFlight] = ()
    candidates: Sequence[UnitInFlight] | None = None
    limit: int = 0
    retry_failed: bool = True
    in_doubt_if_lost: bool = False
    #: The keys of this run are unique and none has a row yet, so the ledger is not queried.
    fresh: bool = False
    #: Stop all holders of the batch: no other holder may take the units that this flush returns.
    abort: AbortedBy | None = None


NOTHING = NextUnits()


class Flushed(Struct, frozen=True):
    """The result of a flush: the units taken, the number of candidates examined, and the reason to stop."""

    taken: list[UnitRow]
    examined: int
    stop: AbortedBy | None


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


def flush(run: BatchRun, ends: Sequence[UnitOutcome] = (), next_units: NextUnits = NOTHING) -> Operation[Flushed]:
    """Write the outcomes of units and take the next units, in one transaction, under the run's lease.

    - No unit is taken that is finished, or that another holder has in hand.
    - A poison suspect is taken only when no other unit is in hand, and no unit beside it.
    - While a pause or a cancel is requested, or the store is stopped, no unit is taken.

    Raises:
        LeaseLost: The run's job was taken over; nothing was written.
    """
    status = yield from _lock_run(run)
    ((shared,),) = yield query("check_batch_shared", batch_id=run.batch.id, job_id=run.lease.job_id)
    fresh = next_units.fresh and not shared
    yield from _put_ends(run, list(ends), fresh=fresh)
    if next_units.abort is not None:
        yield query("abort_batch", id=run.batch.id, aborted_by=next_units.abort)
    if status.stop is not None or (next_units.candidates is None and not next_units.limit):
        choice = Choice([], (), 0)
    elif next_units.candidates is not None and fresh:
        fresh_units = next_units.candidates[: next_units.limit]
        choice = Choice([_new_unit(key, place) for key, place in fresh_units], fresh_units, len(fresh_units))
    else:
        choice = yield from _choose(run, next_units, shared=bool(shared))
    in_hand = [*next_units.in_hand, *choice.in_flight]
    yield from hold(
        run.batch, run.lease, in_hand, isolated=choice.isolated, in_doubt_if_lost=next_units.in_doubt_if_lost
    )
    return Flushed(choice.units, choice.examined, status.stop)


def write_ends(run: BatchRun, ends: list[UnitOutcome]) -> Operation[None]:
    """Lock the batch, and write the outcomes of units."""
    yield from _lock_run(run)
    yield from _put_ends(run, ends, fresh=False)


def end_one(run: BatchRun, end: UnitOutcome) -> Operation[None]:
    """Write the outcome of one unit together with its effect."""
    yield from _lock_run(run)
    known: list[UnitRow] = yield query("get_units", UnitRow, batch_id=run.batch.id, keys=[end.key])
    if known and known[0].state not in RUNNABLE_UNITS:
        raise AlreadyFinished(f"unit {end.key} of batch {run.batch.id} is over already")
    yield from _put_ends(run, [end], fresh=False)


def plan(run: BatchRun, units: Sequence[UnitInFlight], *, retry_failed: bool) -> Operation[None]:
    """Add pending units to the ledger."""
    yield from write_ends(run, [])
    if retry_failed and run.batch.run_number > 1:
        values = {"batch_id": run.batch.id, "run_number": run.batch.run_number, "crashes": MAX_CRASHES}
        again = yield query("retry_units", keys=[key for key, _ in units], **values)
        yield from count(run.batch.id, run.lease.job_id, {"failed": -len(again)})
    table = Rows(key=[key for key, _ in units], position=[place for _, place in units])
    yield query("insert_pending_units", batch_id=run.batch.id, run_number=run.batch.run_number, unit=table)


def _lock_run(run: BatchRun) -> Operation[RunStatus]:
    values = {"job_id": run.lease.job_id, "token": run.lease.token, "batch_id": run.batch.id}
    rows: list[RunStatus] = yield query("lock_batch_run", RunStatus, **values)
    if not rows:
        raise LeaseLost.of(run.lease.job_id, run.lease.token)
    return rows[0]


def _put_ends(run: BatchRun, ends: list[UnitOutcome], *, fresh: bool) -> Operation[None]:
    """Write the outcomes of units; *fresh*: none of them has a row yet. A finished unit stays as it is."""
    if not ends:
        return
    if fresh:
        changed = counter_deltas(ends)
        yield _appended(run, ends, plain=changed.keys() == {"done"})
    else:
        table = Rows(**columns_of(ends, **_COLUMNS), poison_suspect=[False] * len(ends))
        rows = yield query("write_units", batch_id=run.batch.id, run_number=run.batch.run_number, unit=table)
        written = {row[0] for row in rows}
        ends = ends if len(written) == len(ends) else [end for end in ends if end.key in written]
        changed = counter_deltas(ends)
    yield from _hand_over(run, ends)
    yield from count(run.batch.id, run.lease.job_id, changed)


def _appended(run: BatchRun, ends: list[UnitOutcome], *, plain: bool) -> BulkInsert:
    """New rows; *plain*: all are done, so the columns that few of them need are left out."""
    size = len(ends)
    columns = _BRIEF_COLUMNS if plain and all(end.data is None for end in ends) else _COLUMNS
    same: dict[str, list[Any]] = {"batch_id": [run.batch.id] * size, "run_number": [run.batch.run_number] * size}
    return BulkInsert("unit", {**columns_of(ends, **columns), **same})


def _hand_over(run: BatchRun, ends: list[UnitOutcome]) -> Operation[None]:
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
    if request.candidates is None:
        pending: list[UnitRow] = yield query(
            "read_pending_units", UnitRow, batch_id=run.batch.id, limit=request.limit + len(taken) + len(mine)
        )
        choice = choose_units(pending, taken=taken, is_idle=not mine, limit=request.limit, may_run=lambda _: True)
        return structs.replace(choice, examined=0)
    keys = [key for key, _ in request.candidates]
    rows: list[UnitRow] = yield query("get_units", UnitRow, batch_id=run.batch.id, keys=keys)
    known = {unit.key: unit for unit in rows}
    candidates = (_at_place(known.get(key), key, place) for key, place in request.candidates)

    def may_run(unit: UnitRow) -> bool:
        if unit.state is UnitState.FAILED:
            return request.retry_failed and unit.run_number < run.batch.run_number and unit.crashes < MAX_CRASHES
        return unit.state is UnitState.PENDING

    return choose_units(candidates, taken=taken, is_idle=not mine, limit=request.limit, may_run=may_run)


def _at_place(unit: UnitRow | None, key: UnitKey, place: int) -> UnitRow:
    """A unit at its place in the input of this run; None: it has no row yet."""
    if unit is None:
        return _new_unit(key, place)
    return unit if unit.position == place else structs.replace(unit, position=place)


def _new_unit(key: UnitKey, place: int) -> UnitRow:
    return UnitRow(key, place, UnitState.PENDING, 0, 0, 0, False)

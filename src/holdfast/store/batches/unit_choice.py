"""The choice of the next units of a run: from its input, or from the ledger."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from msgspec import Struct, structs

from holdfast.domain.batches.batch import AbortedBy
from holdfast.domain.batches.unit import REOPENED_UNITS, TakenUnit, UnitKey, UnitRow, UnitState, note_deltas, row_of
from holdfast.store.batches.state import MAX_CRASHES, BatchRun, Place, UnitInFlight, after, count, units_in_hand
from holdfast.store.engine.operation import Operation, query


class NextUnits(Struct, frozen=True, kw_only=True):
    """A request for the next units of a run. *in_hand* are the units that are still running.

    At most *limit* units are taken: from *candidates*, the next keys of a foreground run's input; *after* a place,
    from the units that an earlier run began and this run has met; or without both from the pending units of the
    ledger. With *in_doubt_if_lost*, the units of a lost holder wait for a person.
    """

    in_hand: Sequence[UnitInFlight] = ()
    #: The unit in flight is a poison suspect that runs alone: if the holder is lost, this unit crashed it.
    isolated: bool = False
    candidates: Sequence[UnitInFlight] | None = None
    after: Place | None = None
    limit: int = 0
    retry_failed: bool = True
    #: Leave candidates that an earlier run began for later, and record that this run has met them.
    defer: bool = False
    #: Overrule the ledger: candidates that an earlier run finished run again.
    again: bool = False
    in_doubt_if_lost: bool = False
    #: The keys of this run are unique and none has a row yet, so the ledger is not queried.
    fresh: bool = False
    #: All units of this run have a row.
    planned: bool = False
    #: Stop all holders of the batch: no other holder may take the units that this flush returns.
    abort: AbortedBy | None = None
    #: The failures that are the reason, as JSON.
    failures: str | None = None


NOTHING = NextUnits()


class Choice(Struct, frozen=True):
    """The next units of a run, and the number of candidates examined.

    *last* is the place of the last unit that was read *after* a place; None at the end.
    """

    units: Sequence[TakenUnit]
    in_flight: Sequence[UnitInFlight]
    examined: int
    last: Place | None = None
    #: Whether the only unit is a poison suspect.
    isolated: bool = False


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
    isolated = bool(units) and units[0].poison_suspect
    return Choice(units, [(unit.key, unit.position) for unit in units], examined, isolated=isolated)


def choose_next(run: BatchRun, request: NextUnits, *, shared: bool) -> Operation[Choice]:
    """Choose the next units of a run; *shared*: other holders may have units in flight."""
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
    values = {"batch_id": run.batch.id, "run_number": run.batch.run_number, "crashes": MAX_CRASHES}
    values |= {"retry_failed": request.retry_failed, "limit": request.limit}
    rows = yield query("read_units_again", UnitRow, **values, **after(request.after))
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
        if request.again and unit.state in REOPENED_UNITS:
            return unit.run_number < run.batch.run_number
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
    units = [*map(row_of, choice.units)]
    finished = [unit.key for unit in units if unit.state in REOPENED_UNITS]
    if not finished:
        return choice
    yield from _reopen(run, finished)
    return structs.replace(choice, units=[structs.replace(unit, state=UnitState.PENDING) for unit in units])


def _reopen(run: BatchRun, keys: list[UnitKey]) -> Operation[None]:
    """Make finished units pending again."""
    notes = yield query("list_unit_notes", batch_id=run.batch.id, keys=keys)
    changed = note_deltas([(label, warning) for _, label, warning in notes], -1)
    changed.subtract(state for state, _, _ in notes)
    yield query("overrule_units", batch_id=run.batch.id, run_number=run.batch.run_number, keys=keys)
    yield from count(run.batch.id, run.lease.job_id, changed)


def _at_place(unit: UnitRow | None, key: UnitKey, place: int) -> UnitRow:
    """A unit at its place in the input of this run; None: it has no row yet."""
    if unit is None:
        return UnitRow(key, place)
    return unit if unit.position == place else structs.replace(unit, position=place)

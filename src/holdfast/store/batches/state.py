"""The state of a batch: its lock, its holders with their units in flight, its counters, its end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.domain.batches.batch import AbortedBy, Batch, BatchId, BatchState, state_after
from holdfast.domain.batches.history import BatchEventName
from holdfast.domain.batches.new_units import HeldUnits
from holdfast.domain.batches.unit import (
    MAX_LABELS,
    Counters,
    UnitKey,
    UnitRow,
    UnitState,
    sum_counters,
    withdrawal_deltas,
)
from holdfast.domain.jobs.job import ControlRequest, JobId, Lease, Token, WorkerId
from holdfast.errors import NoSuchBatch
from holdfast.store.batches.events import finish, record
from holdfast.store.engine.operation import Operation, Rows, columns_of, query

#: Changes by people are counted under this job id, which no job has.
PEOPLE = JobId(0)
#: A unit that killed its process this many times has failed.
MAX_CRASHES = 3
#: The label of units that killed their processes.
CRASHED = "crashed"

#: Units that one transaction changes for a person.
STEP_SIZE = 2000

#: A unit in flight: its key and its place in the input.
UnitInFlight = tuple[UnitKey, int]

#: A place in the order in which units run: the run that last began the unit, its position in the input, its key.
Place = tuple[int, int, UnitKey]
FIRST_PLACE: Place = (0, -1, UnitKey(""))

NO_DELTAS: Mapping[str, int] = {}
_decoder = msgspec.json.Decoder(HeldUnits)


def after(place: Place) -> dict[str, Any]:
    """The parameters of a statement that reads units after a place."""
    return dict(zip(("last_run", "position", "key"), place, strict=True))


class Holder(Struct, frozen=True):
    """A process that works on a batch. *owner* is JSON: host, pid, command."""

    job_id: JobId
    token: Token
    owner: str
    claimed_at: datetime
    remaining: timedelta
    worker: WorkerId


class BatchRun(Struct, frozen=True):
    """A run: its batch, the lease of its own job, its worker, and whether the code changed since the last run."""

    batch: Batch
    lease: Lease
    worker: WorkerId
    created: bool
    edited: bool


def locked(batch_id: BatchId) -> Operation[Batch]:
    rows: list[Batch] = yield query("lock_batch", Batch, id=batch_id)
    if not rows:
        raise NoSuchBatch(f"there is no batch {batch_id}", batch_id=batch_id)
    return rows[0]


def holders_of(batch_id: BatchId) -> Operation[list[Holder]]:
    return (yield query("list_batch_holders", Holder, batch_id=batch_id))


def counted(batch_id: BatchId) -> Operation[Counters]:
    return sum_counters(dict((yield query("read_unit_counts", batch_id=batch_id, labels=MAX_LABELS))))


def units_in_hand(batch_id: BatchId, *, besides: JobId = PEOPLE) -> Operation[list[UnitKey]]:
    """The units in flight of all holders of a batch, except those of one job. The batch is locked."""
    rows = yield query("list_in_flight", batch_id=batch_id, job_id=besides)
    return [key for (units,) in rows for key, _ in _decoder.decode(units).placed()]


class UnitCursor(Struct, frozen=True):
    """The last units of a step: a pending one by its place, and one of another state by its key."""

    place: Place = FIRST_PLACE
    key: str = ""


START = UnitCursor()


class UnitStep(Struct, frozen=True):
    """The number of units that a step has changed, and where the next step begins; None: there is none."""

    changed: int
    cursor: UnitCursor | None


def cancel_units(batch_id: BatchId, cursor: UnitCursor, limit: int) -> Operation[UnitStep]:
    """Cancel units that are not in flight, and units whose results wait in an inbox: *limit* of each at most."""
    held = yield from units_in_hand(batch_id)
    pending: list[Place] = yield query("list_pending_keys", batch_id=batch_id, limit=limit, **after(cursor.place))
    waiting = yield query("list_unit_keys", batch_id=batch_id, state=UnitState.RUNNING, after=cursor.key, limit=limit)
    keys = [key for _, _, key in pending]
    units = yield query("cancel_units", batch_id=batch_id, in_flight=held, keys=keys)
    results = yield query("cancel_inbox_results", batch_id=batch_id, keys=[key for (key,) in waiting])
    changed = len(units) + len(results)
    yield from count(batch_id, PEOPLE, {**withdrawal_deltas(results), "cancelled": changed})
    if len(pending) < limit and len(waiting) < limit:
        return UnitStep(changed, None)
    (key,) = waiting[-1] if waiting else (cursor.key,)
    return UnitStep(changed, UnitCursor(pending[-1] if pending else cursor.place, key))


def conclude(batch: Batch) -> Operation[None]:
    """Finish a running batch without holders, if no unit is left or if a stop was requested."""
    holders = yield from holders_of(batch.id)
    if holders or batch.state is not BatchState.RUNNING:
        return
    why = batch.aborted_by if batch.requested is None else AbortedBy(batch.requested)
    if batch.requested == ControlRequest.CANCEL:
        step = yield from cancel_units(batch.id, START, STEP_SIZE)
        if step.cursor is not None:
            return  # maintenance continues
    now = yield from counted(batch.id)
    met = max(batch.total or 0, now.over)
    state = state_after(now, met, why)
    if why is not None or (state.finished and (yield from _has_no_more(batch))):
        is_known = batch.total is not None or why is AbortedBy.CANCEL
        yield from finish(batch, state, why, met if is_known else None)


def _has_no_more(batch: Batch) -> Operation[bool]:
    """Whether no unit waits. A run that was lost has returned its units, and only its next run knows the other keys."""
    pending = yield query("read_pending_units", batch_id=batch.id, limit=1)
    return batch.total is not None and not pending


def conclude_run(
    run: BatchRun, aborted_by: AbortedBy | None, total: int, *, complete: bool, sized: bool
) -> Operation[Counters]:
    """Finish the batch of a foreground run that has left it, unless another holder works on it.

    *total* is the number of known units; *complete*: the run has met every key of its input; *sized*: *total* counts
    the keys that it has not met too. A run that is neither leaves the batch without a total.
    """
    batch = yield from locked(run.batch.id)
    yield query("delete_in_flight", ids=[run.lease.job_id])
    holders = yield from holders_of(batch.id)
    rest: UnitCursor | None = None
    if batch.requested == ControlRequest.CANCEL:  # the run may not have received the request
        aborted_by = AbortedBy.CANCEL
        rest = (yield from cancel_units(batch.id, START, STEP_SIZE)).cursor
    elif aborted_by is AbortedBy.PAUSE and batch.requested is None:
        aborted_by = AbortedBy.SIGNAL  # a person has withdrawn the pause: the batch can be continued
    if complete and aborted_by is None and not holders and run.batch.run_number > 1:
        yield from skip_vanished(run)
    now = yield from counted(batch.id)
    if not holders and rest is None:  # otherwise maintenance continues
        met = now.over + now.in_inbox
        is_final = aborted_by is AbortedBy.CANCEL or (complete and aborted_by is None)
        known = met if is_final else max(total, met)
        is_known = is_final or sized
        state = state_after(now, known, aborted_by) if is_known or aborted_by is not None else BatchState.STOPPED
        if state is BatchState.RUNNING:
            yield query("set_batch_total", id=batch.id, total=known)
        else:
            yield from finish(batch, state, aborted_by, known if is_known else None)
    return now


def skip_vanished(run: BatchRun) -> Operation[None]:
    """Skip units of earlier runs that the input no longer has."""
    rows = yield query("skip_missing_units", batch_id=run.batch.id, run_number=run.batch.run_number)
    yield from count(run.batch.id, run.lease.job_id, {"skipped": len(rows)})


class InFlight(Struct, frozen=True):
    """The units in flight of the holder of one job; *units* is the JSON of :class:`HeldUnits`."""

    job_id: JobId
    batch_id: BatchId
    run_number: int
    units: str
    isolated: bool
    in_doubt_if_lost: bool


def return_units(job_ids: Iterable[JobId]) -> Operation[None]:
    """Return the units in flight of the holders of these jobs to the ledger, as poison suspects.

    A poison suspect runs alone: this identifies a unit that kills its process, and the other
    units lose nothing.
    """
    holdings: list[InFlight] = yield query("delete_in_flight", InFlight, ids=list(job_ids))
    for holding in sorted(holdings, key=lambda each: each.batch_id):
        in_hand = _decoder.decode(holding.units).placed()
        yield from record(holding.batch_id, holding.run_number, BatchEventName.LOST, units=len(in_hand))
        if in_hand:
            yield query("lock_batch", id=holding.batch_id)
            yield from _return(holding, in_hand)


def _return(holding: InFlight, in_hand: Sequence[UnitInFlight]) -> Operation[None]:
    state = UnitState.IN_DOUBT if holding.in_doubt_if_lost else UnitState.PENDING
    values = {"state": state, "run_number": holding.run_number, "crashes": int(holding.isolated)}
    table = Rows(key=[key for key, _ in in_hand], position=[place for _, place in in_hand])
    known: list[UnitRow] = yield query(
        "get_units", UnitRow, batch_id=holding.batch_id, keys=[key for key, _ in in_hand]
    )
    failed = {unit.key for unit in known if unit.state is UnitState.FAILED}
    units: list[UnitRow] = yield query("return_lost_units", UnitRow, batch_id=holding.batch_id, unit=table, **values)
    doubtful = [unit for unit in units if unit.state is UnitState.IN_DOUBT]
    killers = [unit for unit in units if unit.crashes >= MAX_CRASHES and unit.state is UnitState.PENDING]
    if killers:
        table = _failed_columns(killers)
        values = {"run_number": holding.run_number, "keys": table.columns["key"], "unit": table, "worker": None}
        yield query("write_units", batch_id=holding.batch_id, **values)
    changed = {"failed": len(killers) - sum(unit.key in failed for unit in doubtful), "in_doubt": len(doubtful)}
    yield from count(holding.batch_id, holding.job_id, changed)
    # A counter of its own shows other holders that units have rows which they did not write: check_batch_shared.
    mark = Rows(name=["done"], count=[0])
    yield query("add_unit_counts", batch_id=holding.batch_id, job_id=holding.job_id, delta=mark)


def _failed_columns(units: list[UnitRow]) -> Rows:
    size = len(units)
    return Rows(
        **columns_of(units, "key", "position", "attempts", "crashes"),
        state=[UnitState.FAILED] * size,
        poison_suspect=[True] * size,
        label=[CRASHED] * size,
        error=[f"its process died {unit.crashes} times while it ran" for unit in units],
        **dict.fromkeys(("warning", "data", "duration_ms"), [None] * size),
    )


def hold(
    batch: Batch,
    lease: Lease,
    units: Sequence[UnitInFlight],
    *,
    owner: str = "{}",
    isolated: bool = False,
    in_doubt_if_lost: bool = False,
    changed: Mapping[str, int] = NO_DELTAS,
) -> Operation[None]:
    """Record the units in flight of a holder; they replace its earlier ones. Add *changed* to its counters."""
    place = {"job_id": lease.job_id, "batch_id": batch.id, "token": lease.token, "run_number": batch.run_number}
    values = {"owner": owner, "isolated": isolated, "in_doubt_if_lost": in_doubt_if_lost} | place
    values["units"] = msgspec.json.encode(HeldUnits.of(units)).decode()
    delta = _counter_rows(changed)
    yield query("put_in_flight", **values) if delta is None else query("put_progress", delta=delta, **values)


def count(batch_id: BatchId, job_id: JobId, changed: Mapping[str, int]) -> Operation[None]:
    """Add to the counters of one holder."""
    delta = _counter_rows(changed)
    if delta is not None:
        yield query("add_unit_counts", batch_id=batch_id, job_id=job_id, delta=delta)


def _counter_rows(changed: Mapping[str, int]) -> Rows | None:
    deltas = {name: n for name, n in changed.items() if n}
    return Rows(name=[*deltas], count=[*deltas.values()]) if deltas else None

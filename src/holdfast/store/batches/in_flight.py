"""Units in flight: the units that a holder has in hand, and their return after its loss."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from holdfast.domain.batches.batch import Batch, BatchId
from holdfast.domain.batches.unit import UnitKey, UnitRow, UnitState
from holdfast.domain.jobs.job import JobId, Lease
from holdfast.store.engine.operation import Operation, Rows, query

#: A unit that killed its process this many times has failed.
MAX_CRASHES = 3
#: The label of units that killed their processes.
CRASHED = "crashed"

#: A unit in hand: its key and its place in the input.
UnitInFlight = tuple[UnitKey, int]


class InFlight(Struct, frozen=True):
    """The units of a batch that the holder of one job has in hand, as JSON."""

    job_id: JobId
    batch_id: BatchId
    run_number: int
    units: str
    isolated: bool
    in_doubt_if_lost: bool


def return_units(job_ids: Iterable[JobId]) -> Operation[None]:
    """Return the units that the holders of these jobs had in hand to the ledger, as poison suspects.

    A poison suspect runs alone: this identifies a unit that kills its process, and the other
    units lose nothing.
    """
    holdings: list[InFlight] = yield query("delete_in_flight", InFlight, ids=list(job_ids))
    for holding in sorted(holdings, key=lambda each: each.batch_id):
        in_hand = decode(holding.units)
        if in_hand:
            yield query("lock_batch", id=holding.batch_id)
            yield from _return(holding, in_hand)


def _return(holding: InFlight, in_hand: list[UnitInFlight]) -> Operation[None]:
    units: list[UnitRow] = yield query(
        "return_lost_units",
        UnitRow,
        batch_id=holding.batch_id,
        state=UnitState.IN_DOUBT if holding.in_doubt_if_lost else UnitState.PENDING,
        run_number=holding.run_number,
        crashes=int(holding.isolated),
        unit=Rows(key=[key for key, _ in in_hand], position=[place for _, place in in_hand]),
    )
    killers = [unit for unit in units if unit.crashes >= MAX_CRASHES and unit.state is UnitState.PENDING]
    if killers:
        yield query(
            "write_units", batch_id=holding.batch_id, run_number=holding.run_number, unit=_failed_columns(killers)
        )
    doubtful = sum(unit.state is UnitState.IN_DOUBT for unit in units)
    yield from count(holding.batch_id, holding.job_id, {"failed": len(killers), "in_doubt": doubtful})


def _failed_columns(units: list[UnitRow]) -> Rows:
    return Rows(
        key=[unit.key for unit in units],
        position=[unit.position for unit in units],
        state=[UnitState.FAILED] * len(units),
        attempts=[unit.attempts for unit in units],
        crashes=[unit.crashes for unit in units],
        poison_suspect=[True] * len(units),
        label=[CRASHED] * len(units),
        warning=[None] * len(units),
        error=[f"its process died {unit.crashes} times while it ran" for unit in units],
        data=[None] * len(units),
        duration_ms=[None] * len(units),
    )


def hold(
    batch: Batch,
    lease: Lease,
    units: Sequence[UnitInFlight],
    *,
    owner: str = "{}",
    isolated: bool = False,
    in_doubt_if_lost: bool = False,
) -> Operation[None]:
    """Record the units that a holder has in hand; they replace its earlier ones."""
    yield query(
        "put_in_flight",
        job_id=lease.job_id,
        batch_id=batch.id,
        token=lease.token,
        run_number=batch.run_number,
        units=encode(units),
        isolated=isolated,
        in_doubt_if_lost=in_doubt_if_lost,
        owner=owner,
    )


def count(batch_id: BatchId, job_id: JobId, changed: dict[str, int]) -> Operation[None]:
    """Add to the counters of one holder."""
    deltas = {name: n for name, n in changed.items() if n}
    if deltas:
        yield query(
            "add_unit_counts", batch_id=batch_id, job_id=job_id, delta=Rows(name=[*deltas], count=[*deltas.values()])
        )


def decode(units: str) -> list[UnitInFlight]:
    return msgspec.json.decode(units, type=list[UnitInFlight])


def encode(units: Iterable[UnitInFlight]) -> str:
    return msgspec.json.encode(list(units)).decode()

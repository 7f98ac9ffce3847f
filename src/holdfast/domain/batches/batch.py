"""Batches: one function over many units, under one identity."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, NewType

import msgspec
from msgspec import Struct

from holdfast.domain.jobs.job import ControlRequest
from holdfast.errors import InvalidInput

BatchId = NewType("BatchId", int)
#: A unit's key as the ledger keeps it: JSON, so that 5 and "5" differ.
UnitKey = NewType("UnitKey", str)

MAX_UNIT_KEY = 1000
#: What is kept of the error of a unit, in characters.
MAX_UNIT_ERROR = 8000
#: The kind of a foreground run's own job. No worker knows it.
DRIVER = "holdfast.driver"


class UnitState(StrEnum):
    """Where a unit stands. It is running while a holder has it in hand, or while its result waits in an inbox."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"
    IN_DOUBT = "in_doubt"


#: Units that are over, whatever comes.
FINISHED_UNITS = frozenset({UnitState.DONE, UnitState.SKIPPED, UnitState.CANCELLED})
#: Units that may run; the end of one that is not among them is not written.
OPEN_BATCHES = frozenset({UnitState.PENDING, UnitState.FAILED})


class BatchState(StrEnum):
    """Where a batch stands. Stopped: by a signal, a breaker or a deadline, and resumable."""

    READY = "ready"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    DONE = "done"
    PARTIAL = "partial"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def finished(self) -> bool:
        return self in (BatchState.DONE, BatchState.PARTIAL, BatchState.FAILED, BatchState.CANCELLED)


class AbortedBy(StrEnum):
    """What stopped a run before its end."""

    SIGNAL = "signal"
    MAX_FAILURES = "max_failures"
    MAX_TOTAL_FAILURES = "max_total_failures"
    MAX_FAILURE_RATE = "max_failure_rate"
    DEADLINE = "deadline"
    PAUSE = "pause"
    CANCEL = "cancel"
    FATAL = "fatal"
    LIMIT = "limit"
    LEASE_LOST = "lease_lost"


#: Ends that say: mend the cause, then run it again.
BREAKERS = frozenset(
    {AbortedBy.MAX_FAILURES, AbortedBy.MAX_TOTAL_FAILURES, AbortedBy.MAX_FAILURE_RATE, AbortedBy.FATAL}
)


class Batch(Struct, frozen=True):
    """A batch as the store knows it. *passes* counts its runs; *version* and *inputs* are guarded against drift."""

    id: BatchId
    identity: str
    generation: int
    kind: str
    arguments: str
    source: str
    name: str | None
    state: BatchState
    requested: ControlRequest | None
    aborted_by: AbortedBy | None
    total: int | None
    run_number: int
    version: str | None
    inputs: str | None
    code: str | None
    options: str
    actor: str
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class UnitRow(Struct, frozen=True, gc=False):
    """A unit's row in the ledger."""

    key: UnitKey
    position: int
    state: UnitState
    run_number: int
    attempts: int
    crashes: int
    poison_suspect: bool
    label: str | None = None
    warning: str | None = None
    error: str | None = None
    data: str | None = None
    duration_ms: int | None = None


class HandedResult(Struct, frozen=True, gc=False):
    """A result that is handed over: the inbox it goes to, and its JSON."""

    inbox: str
    data: str


class UnitOutcome(Struct, frozen=True, kw_only=True, gc=False):
    """How one run of a unit ended. *before* is what the ledger had of it, for the counters.

    With a result that is *handed* over it is running still, until that is accepted.
    """

    key: UnitKey
    position: int
    state: UnitState
    before: UnitState = UnitState.PENDING
    attempts: int = 1
    crashes: int = 0
    label: str | None = None
    warning: str | None = None
    error: str | None = None
    data: str | None = None
    duration_ms: int | None = None
    handed: HandedResult | None = None


class Counters(Struct, frozen=True, kw_only=True):
    """How many units of a batch stand where.

    *warned* ones are done too, or in an inbox; *returned* ones are pending again.
    """

    done: int = 0
    failed: int = 0
    skipped: int = 0
    cancelled: int = 0
    in_doubt: int = 0
    in_inbox: int = 0
    warned: int = 0
    returned: int = 0
    labels: dict[str, int] = {}

    @property
    def over(self) -> int:
        """Units that have ended, for this run at least: neither pending nor in an inbox."""
        return self.done + self.failed + self.skipped + self.cancelled + self.in_doubt


LABEL = "label:"
#: Under which name a state is counted, where that is not its own.
_COUNTED = {UnitState.PENDING: "returned", UnitState.RUNNING: "in_inbox"}


def counters(rows: Mapping[str, int]) -> Counters:
    """The counters from their rows, summed over all holders."""
    plain = {name: n for name, n in rows.items() if not name.startswith(LABEL)}
    labels = {name.removeprefix(LABEL): n for name, n in sorted(rows.items()) if name.startswith(LABEL) and n}
    return Counters(**plain, labels=labels)


def _is_special(end: UnitOutcome) -> bool:
    """Whether it is more than one more that is done."""
    is_plain = end.state is UnitState.DONE and end.before is UnitState.PENDING
    return not is_plain or end.label is not None or end.warning is not None


def undone(results: Iterable[tuple[str | None, str | None]]) -> dict[str, int]:
    """What labels and warnings of units change in the counters, whose results were handed over in vain."""
    changed: dict[str, int] = {}
    for label, warning in results:
        changed["in_inbox"] = changed.get("in_inbox", 0) - 1
        if label is not None:
            changed[f"{LABEL}{label}"] = changed.get(f"{LABEL}{label}", 0) - 1
        if warning is not None:
            changed["warned"] = changed.get("warned", 0) - 1
    return changed


def deltas(ends: list[UnitOutcome]) -> dict[str, int]:
    """What the ends of units change in the counters."""
    if not any(map(_is_special, ends)):
        return {"done": len(ends)} if ends else {}
    changed: dict[str, int] = {}

    def add(name: str, n: int) -> None:
        changed[name] = changed.get(name, 0) + n

    for end in ends:
        if end.before is not UnitState.PENDING:
            add(end.before, -1)
        add(_COUNTED.get(end.state, end.state), 1)
        if end.warning is not None and (end.state is UnitState.DONE or end.handed):
            add("warned", 1)
        if end.label is not None and (end.state in FINISHED_UNITS or end.handed):
            add(f"{LABEL}{end.label}", 1)
    return {name: n for name, n in changed.items() if n}


class Summary(Struct, frozen=True, kw_only=True):
    """How a run ended, for programs and for people."""

    total: int
    succeeded: int
    failed: int
    skipped: int
    cancelled: int
    pending: int
    in_doubt: int = 0
    in_inbox: int = 0
    warned: int = 0
    returned: int = 0
    aborted: bool = False
    aborted_by: AbortedBy | None = None
    max_failures_hit: bool = False
    labels: dict[str, int] = {}


def summarise(counted: Counters, total: int, aborted_by: AbortedBy | None) -> Summary:
    return Summary(
        total=total,
        succeeded=counted.done,
        failed=counted.failed,
        skipped=counted.skipped,
        cancelled=counted.cancelled,
        pending=max(0, total - counted.over - counted.in_inbox),
        in_doubt=counted.in_doubt,
        in_inbox=counted.in_inbox,
        warned=counted.warned,
        returned=counted.returned,
        aborted=aborted_by is not None,
        aborted_by=aborted_by,
        max_failures_hit=aborted_by is AbortedBy.MAX_FAILURES,
        labels=counted.labels,
    )


def state_after(counted: Counters, total: int, aborted_by: AbortedBy | None) -> BatchState:
    """Where a batch stands after a run."""
    match aborted_by:
        case AbortedBy.CANCEL:
            return BatchState.CANCELLED
        case AbortedBy.PAUSE:
            return BatchState.PAUSED
        case None if counted.over >= total:
            return _finished(counted)
        case None if counted.over + counted.in_inbox >= total:
            return BatchState.RUNNING
        case _:
            return BatchState.STOPPED


def _finished(counted: Counters) -> BatchState:
    if not counted.failed and not counted.in_doubt:
        return BatchState.DONE
    return BatchState.PARTIAL if counted.done else BatchState.FAILED


def exit_code(counted: Counters, aborted_by: AbortedBy | None) -> int:
    """The exit code of a run: what stopped it comes first, then what became of the units."""
    match aborted_by:
        case AbortedBy.LEASE_LOST:
            return 15
        case AbortedBy.CANCEL:
            return 12
        case _ if aborted_by in BREAKERS:
            return 8
        case AbortedBy.DEADLINE:
            return 10
        case AbortedBy.SIGNAL:
            return 7
        case AbortedBy.PAUSE:
            return 11
        case _:
            pass
    if counted.failed or counted.in_doubt:
        return 6 if counted.done else 1
    return 0


def unit_key(value: Any) -> UnitKey:
    """The key of a unit: a JSON value of at most 1,000 bytes."""
    if type(value) is int:
        return UnitKey(str(value))
    try:
        text = msgspec.json.encode(value, order="sorted").decode()
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise InvalidInput(
            f"{value!r} is no key for a unit: {error}", hint="Keys are texts, numbers or lists."
        ) from None
    if len(text.encode()) > MAX_UNIT_KEY:
        raise InvalidInput(f"the key {text[:60]}… is too long", hint=f"A key takes {MAX_UNIT_KEY:,} bytes at most.")
    if "\\u0000" in text:
        raise InvalidInput(f"the key {text[:60]} holds a NUL", hint="No store can keep that; take it out.")
    return UnitKey(text)


def identity(kind: str, arguments: Mapping[str, Any], source: str) -> str:
    """What makes two runs the same: the function, its arguments, and where its keys come from."""
    told = msgspec.json.encode([kind, dict(arguments), source], order="sorted")
    return hashlib.sha256(told).hexdigest()[:32]

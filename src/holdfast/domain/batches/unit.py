"""Units: the rows of a batch's ledger, counted by state."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, NewType

import msgspec
from msgspec import Struct

from holdfast.domain.jobs.json_values import check_finite
from holdfast.errors import InvalidInput

#: A unit's key as the ledger keeps it: JSON, so that 5 and "5" differ.
UnitKey = NewType("UnitKey", str)

#: In bytes.
MAX_UNIT_KEY = 1000
#: In characters.
MAX_UNIT_ERROR = 8000


class UnitState(StrEnum):
    """The state of a unit. It is running while a holder works on it, or while its result waits in an inbox."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"
    IN_DOUBT = "in_doubt"


#: States that no later run changes.
FINISHED_UNITS = frozenset({UnitState.DONE, UnitState.SKIPPED, UnitState.CANCELLED})
#: States in which a unit may run; an outcome for any other state is discarded.
RUNNABLE_UNITS = frozenset({UnitState.PENDING, UnitState.FAILED})


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
    """A result for an inbox. *data* is JSON."""

    inbox: str
    data: str


class UnitOutcome(Struct, frozen=True, kw_only=True, gc=False):
    """How one run of a unit ended. *before* is its state in the ledger until now, for the counters.

    A unit with a *handed* result stays running until the result is accepted.
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


def unit_key(value: Any) -> UnitKey:
    """The key of a unit: a JSON value of at most 1,000 bytes."""
    if type(value) is int:
        return UnitKey(str(value))
    try:
        text = msgspec.json.encode(value, order="sorted").decode()
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        hint = "Keys are texts, numbers or lists."
        raise InvalidInput(f"{value!r} is no key for a unit: {error}", hint=hint) from None
    if len(text.encode()) > MAX_UNIT_KEY:
        raise InvalidInput(f"the key {text[:60]}… is too long", hint=f"A key takes {MAX_UNIT_KEY:,} bytes at most.")
    if "null" in text:
        check_finite(value, label="the key")
    if "\\u0000" in text:
        raise InvalidInput(f"the key {text[:60]} holds a NUL", hint="No store can keep that; take it out.")
    return UnitKey(text)


class Counters(Struct, frozen=True, kw_only=True):
    """The number of units by state.

    *warned* units are done too, or in an inbox; *returned* units are pending again.
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
        """Units that are finished, at least for this run: neither pending nor in an inbox."""
        return self.done + self.failed + self.skipped + self.cancelled + self.in_doubt


LABEL = "label:"
#: Counter names of states that differ from the state.
_COUNTED = {UnitState.PENDING: "returned", UnitState.RUNNING: "in_inbox"}


def sum_counters(rows: Mapping[str, int]) -> Counters:
    """Counters from rows that are summed over all holders."""
    plain = {name: n for name, n in rows.items() if not name.startswith(LABEL)}
    labels = {name.removeprefix(LABEL): n for name, n in sorted(rows.items()) if name.startswith(LABEL) and n}
    return Counters(**plain, labels=labels)


def _is_plain(outcome: UnitOutcome) -> bool:
    """Whether the outcome only adds one to ``done``."""
    is_first_done = outcome.state is UnitState.DONE and outcome.before is UnitState.PENDING
    return is_first_done and outcome.label is None and outcome.warning is None


def withdrawal_deltas(results: Iterable[tuple[str | None, str | None]]) -> dict[str, int]:
    """The change of the counters when results leave an inbox unaccepted; each is a label and a warning."""
    changed: defaultdict[str, int] = defaultdict(int)
    for label, warning in results:
        changed["in_inbox"] -= 1
        if label is not None:
            changed[f"{LABEL}{label}"] -= 1
        if warning is not None:
            changed["warned"] -= 1
    return dict(changed)


def counter_deltas(outcomes: list[UnitOutcome]) -> dict[str, int]:
    """The change of the counters by these outcomes."""
    if all(map(_is_plain, outcomes)):
        return {"done": len(outcomes)} if outcomes else {}
    changed: defaultdict[str, int] = defaultdict(int)
    for outcome in outcomes:
        if outcome.before is not UnitState.PENDING:
            changed[outcome.before] -= 1
        changed[_COUNTED.get(outcome.state, outcome.state)] += 1
        if outcome.warning is not None and (outcome.state is UnitState.DONE or outcome.handed):
            changed["warned"] += 1
        if outcome.label is not None and (outcome.state in FINISHED_UNITS or outcome.handed):
            changed[f"{LABEL}{outcome.label}"] += 1
    return {name: n for name, n in changed.items() if n}

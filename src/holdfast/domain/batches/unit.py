"""Units: the rows of a batch's ledger."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NewType

import msgspec
from msgspec import Struct

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
        raise InvalidInput(
            f"{value!r} is no key for a unit: {error}", hint="Keys are texts, numbers or lists."
        ) from None
    if len(text.encode()) > MAX_UNIT_KEY:
        raise InvalidInput(f"the key {text[:60]}… is too long", hint=f"A key takes {MAX_UNIT_KEY:,} bytes at most.")
    if "\\u0000" in text:
        raise InvalidInput(f"the key {text[:60]} holds a NUL", hint="No store can keep that; take it out.")
    return UnitKey(text)

"""Units: the rows of a batch's ledger, counted by state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, NewType, Self

import msgspec
from msgspec import Struct, structs

from holdfast.domain.jobs.json_values import check_finite
from holdfast.domain.names import plain_text
from holdfast.domain.quantities import plain_number
from holdfast.errors import InvalidInput

#: A unit's key as the ledger keeps it: JSON, so that 5 and "5" differ.
UnitKey = NewType("UnitKey", str)

#: In bytes.
MAX_UNIT_KEY = 1000
#: Whole numbers below this one are short keys; above it any number is allowed that fits a key.
SHORT_INT = 10**20
LONG_INT = 10**MAX_UNIT_KEY
#: In characters.
MAX_UNIT_ERROR = 8000
#: Errors of earlier attempts that a unit keeps, and the characters of each.
MAX_EARLIER_ERRORS, MAX_EARLIER_ERROR = 5, 600


#: Labels of a batch that are counted by name: labels come from data, and there may be one for each unit.
MAX_LABELS = 100


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
#: Finished states from which a run that overrules the ledger starts again.
REOPENED_UNITS = frozenset({UnitState.DONE, UnitState.SKIPPED})
#: States in which a unit may run; an outcome for any other state is discarded.
RUNNABLE_UNITS = frozenset({UnitState.PENDING, UnitState.FAILED})


class UnitRow(Struct, frozen=True, gc=False):
    """A unit's row in the ledger."""

    key: UnitKey
    position: int
    #: From here on the defaults are those of a unit that has no row yet.
    state: UnitState = UnitState.PENDING
    run_number: int = 0
    attempts: int = 0
    crashes: int = 0
    poison_suspect: bool = False
    label: str | None = None
    warning: str | None = None
    error: str | None = None
    data: str | None = None
    duration_ms: int | None = None
    #: The run of the batch that last began the unit; 0 if none has, or if its first run finished it.
    last_run: int = 0
    #: The end of its last attempt, and the worker that made it.
    attempted_at: datetime | None = None
    worker: str | None = None
    #: JSON: the errors of earlier attempts, the newest last.
    earlier_errors: str | None = None

    @property
    def failed_before(self) -> bool:
        """Whether the unit failed in an earlier run; a unit that a breaker returned is pending and has its error."""
        return self.state is UnitState.FAILED or self.error is not None


#: A unit that was taken. One without a row in the ledger is only its key and its place in the input.
TakenUnit = UnitRow | tuple[UnitKey, int]


def row_of(unit: TakenUnit) -> UnitRow:
    """The row of a unit that was taken."""
    return unit if isinstance(unit, UnitRow) else UnitRow(*unit)


class HandedResult(Struct, frozen=True, gc=False):
    """A result for an inbox. *data* is JSON."""

    inbox: str
    data: str


class InboxDepth(Struct, frozen=True):
    """The results in an inbox, counted up to a cap: all, and those that a consumer has.

    *free_since*: the time since which the oldest free result waits.
    """

    inbox: str
    results: int
    taken: int
    free_since: datetime | None


class UnitOutcome(Struct, frozen=True, kw_only=True, gc=False):
    """How one run of a unit ended. A unit with a *handed* result stays running until the result is accepted."""

    key: UnitKey
    position: int
    state: UnitState
    attempts: int = 1
    crashes: int = 0
    label: str | None = None
    warning: str | None = None
    error: str | None = None
    data: str | None = None
    duration_ms: int | None = None
    handed: HandedResult | None = None
    #: It may have had its effect: next time it runs alone, after the verifier.
    poison_suspect: bool = False
    #: The errors of the attempts before this one in the same run.
    earlier_errors: tuple[str, ...] = ()

    def pending_again(self, attempts: int | None = None) -> Self:
        """The same unit, pending and without this attempt. It keeps its error."""
        attempts = max(0, self.attempts - 1) if attempts is None else attempts
        notes = dict.fromkeys(("label", "warning", "data", "handed"))
        return structs.replace(self, state=UnitState.PENDING, attempts=attempts, **notes)


def kept_errors(before: str | None, *errors: str) -> str:
    """The errors of earlier attempts as JSON: those *before*, then *errors*; the last few, each cut."""
    known = [] if before is None else msgspec.json.decode(before, type=list[str])
    cut = [error if len(error) <= MAX_EARLIER_ERROR else f"{error[: MAX_EARLIER_ERROR - 1]}…" for error in errors]
    return msgspec.json.encode([*known, *cut][-MAX_EARLIER_ERRORS:]).decode()


def unit_key(value: Any) -> UnitKey:
    """The key of a unit: a JSON value of at most 1,000 bytes."""
    if type(value) is int and -SHORT_INT < value < SHORT_INT:
        return UnitKey(str(value))
    if type(value) is int and abs(value) >= LONG_INT:
        raise InvalidInput("the key is too long: a number", hint=f"A key takes {MAX_UNIT_KEY:,} bytes at most.")
    try:
        text = str(value) if type(value) is int else msgspec.json.encode(value, order="sorted").decode()
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        if (plain := _plain_key(value)) is not None:
            return unit_key(plain)
        hint = "Keys are texts, numbers or lists."
        raise InvalidInput(f"{value!r} is not a valid key of a unit: {error}", hint=hint) from None
    if len(text.encode()) > MAX_UNIT_KEY:
        raise InvalidInput(f"the key {text[:60]}… is too long", hint=f"A key takes {MAX_UNIT_KEY:,} bytes at most.")
    if "null" in text:
        check_finite(value, label="the key")
    if "\\u0000" in text:
        raise InvalidInput(f"the key {text[:60]} holds a NUL", hint="No store can keep that; take it out.")
    return UnitKey(text)


def _plain_key(value: Any) -> str | int | None:
    """The key as a ``str`` or ``int`` if it is one of a subclass, which the encoder does not know."""
    if isinstance(value, str) and type(value) is not str:
        return plain_text(value)
    if isinstance(value, int) and type(value) is not int:
        return plain_number(value)
    return None


def is_key_from(key: UnitKey, first: UnitKey) -> bool:
    """Whether a key is *first*, or a greater integer or string."""
    if key == first:
        return True
    value, other = msgspec.json.decode(key), msgspec.json.decode(first)
    return type(value) is type(other) and isinstance(value, int | str) and value > other


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
    #: The labels with the most units, and the number of other labels.
    labels: dict[str, int] = {}
    other_labels: int = 0

    @property
    def over(self) -> int:
        """Units that are finished, at least for this run: neither pending nor in an inbox."""
        return self.done + self.failed + self.skipped + self.cancelled + self.in_doubt


LABEL = "label:"


def sum_counters(rows: Mapping[str, int]) -> Counters:
    """Counters from rows that are summed over all holders."""
    plain = {name: n for name, n in rows.items() if not name.startswith(LABEL)}
    labels = {name.removeprefix(LABEL): n for name, n in sorted(rows.items()) if name.startswith(LABEL) and n}
    return Counters(**plain, labels=labels)


def _is_plain(outcome: UnitOutcome) -> bool:
    """Whether the outcome of a pending unit only adds one to ``done``."""
    return outcome.state is UnitState.DONE and outcome.label is None and outcome.warning is None


def note_deltas(results: Iterable[tuple[str | None, str | None]], sign: int) -> Counter[str]:
    """The change of the counters of labels and warnings; each result is a label and a warning."""
    changed: Counter[str] = Counter()
    for label, warning in results:
        if label is not None:
            changed[f"{LABEL}{label}"] += sign
        if warning is not None:
            changed["warned"] += sign
    return changed


def withdrawal_deltas(results: Iterable[tuple[str | None, str | None]]) -> dict[str, int]:
    """The change of the counters when results leave an inbox unaccepted; each is a label and a warning."""
    results = list(results)
    changed = note_deltas(results, -1)
    changed["in_inbox"] -= len(results)
    return dict(changed)


def counter_deltas(outcomes: Sequence[UnitOutcome], before: Mapping[UnitKey, UnitState]) -> dict[str, int]:
    """The change of the counters by these outcomes; *before* are the states that the ledger had until now.

    A unit without a row was pending.
    """
    if all(map(_is_plain, outcomes)) and UnitState.FAILED not in before.values():
        return {"done": len(outcomes)} if outcomes else {}
    changed: Counter[str] = Counter()
    for outcome in outcomes:
        if before.get(outcome.key) is UnitState.FAILED:
            changed["failed"] -= 1
        if outcome.state is not UnitState.PENDING:
            changed["in_inbox" if outcome.state is UnitState.RUNNING else outcome.state] += 1
        elif outcome.error is not None:  # a breaker returned it; an interrupted unit has no error
            changed["returned"] += 1
        if outcome.warning is not None and (outcome.state is UnitState.DONE or outcome.handed):
            changed["warned"] += 1
        if outcome.label is not None and (outcome.state in FINISHED_UNITS or outcome.handed):
            changed[f"{LABEL}{outcome.label}"] += 1
    return {name: n for name, n in changed.items() if n}

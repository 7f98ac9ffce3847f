"""Outcomes of units that wait to be written to the ledger."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from holdfast.domain.batches.unit import UnitOutcome, UnitRow, UnitState


class OutcomeBuffer:
    """Outcomes that are not in the ledger yet, and the latest failures in a row."""

    def __init__(self) -> None:
        self.unwritten: list[UnitOutcome] = []
        self._streak: list[UnitOutcome] = []

    def add(self, outcome: UnitOutcome, *, failed: bool, written: bool) -> None:
        """Add an outcome; *written*: a transaction of the unit has put it into the ledger."""
        if not written:
            self.unwritten.append(outcome)
        if failed:
            self._streak.append(outcome)
        else:
            self._streak.clear()

    def release_streak(self) -> None:
        """Make the units of the current streak pending again, until the cause of their failures is fixed."""
        self.unwritten = _release(self.unwritten, self._streak)
        self._streak = []

    def take(self) -> list[UnitOutcome]:
        """Remove and return all unwritten outcomes."""
        outcomes, self.unwritten = self.unwritten, []
        return outcomes


def pending_again(outcome: UnitOutcome, row: UnitRow | None = None) -> UnitOutcome:
    """The same unit, pending and without this attempt."""
    attempts = max(0, outcome.attempts - 1) if row is None else row.attempts
    return structs.replace(outcome, state=UnitState.PENDING, attempts=attempts, label=None, warning=None, data=None)


def _release(unwritten: Sequence[UnitOutcome], streak: Sequence[UnitOutcome]) -> list[UnitOutcome]:
    """The outcomes to write when *streak* becomes pending; failures that the ledger has already are reverted."""
    released = {outcome.key for outcome in streak}
    waiting = {outcome.key for outcome in unwritten}
    written = [outcome for outcome in streak if outcome.key not in waiting]
    return [
        *(pending_again(outcome) if outcome.key in released else outcome for outcome in unwritten),
        *(structs.replace(pending_again(outcome), before=UnitState.FAILED) for outcome in written),
    ]

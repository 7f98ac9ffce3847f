"""Counters: how many units of a batch are in which state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from holdfast.domain.batches.unit import FINISHED_UNITS, UnitOutcome, UnitState


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
    changed: dict[str, int] = {}
    for label, warning in results:
        changed["in_inbox"] = changed.get("in_inbox", 0) - 1
        if label is not None:
            changed[f"{LABEL}{label}"] = changed.get(f"{LABEL}{label}", 0) - 1
        if warning is not None:
            changed["warned"] = changed.get("warned", 0) - 1
    return changed


def counter_deltas(outcomes: list[UnitOutcome]) -> dict[str, int]:
    """The change of the counters by these outcomes."""
    if all(map(_is_plain, outcomes)):
        return {"done": len(outcomes)} if outcomes else {}
    changed: dict[str, int] = {}

    def add(name: str, n: int) -> None:
        changed[name] = changed.get(name, 0) + n

    for outcome in outcomes:
        if outcome.before is not UnitState.PENDING:
            add(outcome.before, -1)
        add(_COUNTED.get(outcome.state, outcome.state), 1)
        if outcome.warning is not None and (outcome.state is UnitState.DONE or outcome.handed):
            add("warned", 1)
        if outcome.label is not None and (outcome.state in FINISHED_UNITS or outcome.handed):
            add(f"{LABEL}{outcome.label}", 1)
    return {name: n for name, n in changed.items() if n}

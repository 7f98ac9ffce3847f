"""The checkpoint interval of a run: how often its ledger is written."""

from __future__ import annotations

from datetime import timedelta

from msgspec import Struct

from holdfast.domain.quantities import Duration, as_duration
from holdfast.errors import InvalidInput

#: Outcomes that may wait to be written: a kill repeats at most these units and those in flight.
MAX_UNWRITTEN = 50
#: Units are short when a group of them runs for less time. A kill then repeats at most the work of this time.
SHORT_GROUP_S = 0.05
#: Limits of an interval. Units that a run has taken and not written run again, each alone, when the run is killed.
MAX_UNITS, MIN_SECONDS, MAX_SECONDS = 1000, 0.01, 60.0


class CheckpointInterval(Struct, frozen=True):
    """The ledger is written after this number of *units* or *seconds*, whichever comes first.

    If it *grows*, more units may wait while they are short: up to 1,000, and not longer than :data:`SHORT_GROUP_S`.
    """

    units: int = MAX_UNWRITTEN
    seconds: float = 1.0
    grows: bool = False

    @property
    def max_units(self) -> int:
        """The largest number of units that may wait."""
        return MAX_UNITS if self.grows else self.units


def checkpoint_interval(every: Duration | None) -> CheckpointInterval:
    """The interval: after ``each`` unit, every number of units, or every duration such as ``"5s"``.

    ``auto`` is the default interval that grows while units are short.

    Raises:
        InvalidInput: It is none of these, or out of range.
    """
    if every is None:
        return CheckpointInterval()
    if every == "auto":
        return CheckpointInterval(grows=True)
    if every == "each":
        return CheckpointInterval(units=1)
    if isinstance(every, int) or (isinstance(every, str) and every.isdecimal()):
        if not 1 <= int(every) <= MAX_UNITS:
            raise InvalidInput(f"a checkpoint is written every 1 to {MAX_UNITS:,} units, not every {every}")
        return CheckpointInterval(units=int(every))
    try:
        seconds = as_duration(every if isinstance(every, str | timedelta) else "").total_seconds()
    except InvalidInput:
        raise InvalidInput(
            f"not a checkpoint: {every!r}", hint='Write "each", "auto", a number of units, or a time: "5s".'
        ) from None
    if not MIN_SECONDS <= seconds <= MAX_SECONDS:
        raise InvalidInput(f"a checkpoint is written every 10 ms to {MAX_SECONDS:.0f} s, not every {every}")
    return CheckpointInterval(units=MAX_UNITS, seconds=seconds)

"""One unit: what its function may know and say, and how its run is judged."""

from __future__ import annotations

import hashlib
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from holdfast.domain.batch import Unit as UnitRow
from holdfast.domain.batch import UnitEnd, UnitState
from holdfast.domain.raised import Cancelled, Fatal, Skip
from holdfast.domain.result import kept_result
from holdfast.domain.retry import Curve, delay_after
from holdfast.domain.text import clean_text
from holdfast.run.handler import say

log = logging.getLogger("holdfast.batch")

#: What is kept of a warning, a reason, an error.
MAX_NOTE, MAX_ERROR = 500, 8000


class Ended(NamedTuple):
    """A unit that was run: no *end* means interrupted; *written*: its row is in the ledger already."""

    row: UnitRow
    end: UnitEnd | None
    written: bool


class Unit:
    """Given to a unit function that has a parameter annotated with it."""

    __slots__ = ("_data", "_label", "_run", "_warning", "attempt", "key", "row", "settled")

    def __init__(self, run: Run, row: UnitRow, key: Any) -> None:
        #: The unit's key.
        self.key = key
        #: The number of this attempt, from 1, counted over all runs of the batch.
        self.attempt = row.attempts + 1
        self.row = row
        self._run = run
        self._label: str | None = None
        self._data: Any = None
        self._warning: str | None = None
        #: The end that was written in a transaction of the unit's own.
        self.settled: UnitEnd | None = None

    @property
    def stopping(self) -> threading.Event:
        """Set when the run is to stop: a signal, a breaker, a deadline, a pause, a cancel."""
        return self._run.stopping

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        return logging.LoggerAdapter(log, {"batch": self._run.batch_id, "unit": self.key})

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt at this unit of this batch, and for no other: for services that take one."""
        text = f"{self._run.identity}/{self._run.generation}/{self.row.key}"
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def done(self, label: str | None = None, data: Any = None) -> None:
        """The unit is done; *label* is counted (``duplicate``, ``new``), *data* kept as JSON."""
        self._label = None if label is None else clean_text(label, limit=MAX_NOTE)
        self._data = data

    def warn(self, text: str) -> None:
        """The unit is done, but somebody should know."""
        self._warning = clean_text(text, limit=MAX_NOTE)

    def check(self) -> None:
        """Raise Cancelled when the run is to stop: the unit is pending again, and has lost nothing."""
        if self._run.stopping.is_set():
            raise Cancelled

    def sleep(self, seconds: float) -> None:
        """Wait, but not when the run is to stop."""
        self._run.stopping.wait(seconds)
        self.check()

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """A connection to the store's own database, in a transaction: effect and ledger are kept together.

        The unit's row is written last, just before the commit, so that its effect is made exactly once.
        """
        began = time.monotonic()
        ends: list[UnitEnd] = []

        def end() -> UnitEnd:
            ends.append(self.ended(UnitState.DONE, None, time.monotonic() - began))
            return ends[-1]

        with self._run.transaction(end) as connection:
            yield connection
        self.settled = ends[-1]

    def ended(self, state: UnitState, error: str | None, took: float, *, returned: Any = None) -> UnitEnd:
        value = self._data if self._data is not None else returned
        return UnitEnd(
            key=self.row.key,
            place=self.row.place,
            state=state,
            before=self.row.state,
            attempts=self.attempt,
            crashes=self.row.crashes,
            label=self._label if state is UnitState.DONE else None,
            warning=self._warning,
            error=None if error is None else clean_text(error, limit=MAX_ERROR),
            data=None if value is None or state is not UnitState.DONE else _kept(value),
            took_ms=round(took * 1000),
        )


class Run:
    """What all units of one run share."""

    def __init__(
        self,
        *,
        batch_id: int,
        identity: str,
        generation: int,
        function: Callable[[Unit], Any],
        plain: Callable[[Any], Any] | None,
        decode: Callable[[str], Any],
        retries: int,
        curve: Curve,
        transaction: Callable[..., Any],
    ) -> None:
        self.batch_id = batch_id
        self.identity = identity
        self.generation = generation
        self.stopping = threading.Event()
        self.transaction = transaction
        #: Set when a unit says that it makes no sense to go on.
        self.fatal = threading.Event()
        self._function = function
        #: The same for a function that wants to know nothing but the key.
        self._plain = plain
        self._decode = decode
        self._retries = retries
        self._curve = curve

    def run(self, row: UnitRow) -> Ended:
        """Run one unit and say how it ended."""
        key = self._decode(row.key)
        unit = Unit(self, row, key) if self._plain is None else None  # made only for who wants to know
        began, tries = time.monotonic(), 0
        while True:
            try:
                returned = self._function(unit) if unit is not None else self._plain(key)  # type: ignore[misc]
            except BaseException as error:  # noqa: BLE001 - SystemExit of a unit must not end the run
                tries += 1
                unit = unit or Unit(self, row, key)
                end = self._after(error, unit, tries, time.monotonic() - began)
            else:
                if unit is None and returned is None:
                    return Ended(row, _done(row, time.monotonic() - began), written=False)
                unit = unit or Unit(self, row, key)
                end = unit.ended(UnitState.DONE, None, time.monotonic() - began, returned=returned)
            if unit.settled is not None:
                return Ended(row, unit.settled, written=True)
            if end is not None or self.stopping.is_set():
                return Ended(row, end, written=False)
            unit.attempt += 1

    def _after(self, error: BaseException, unit: Unit, tries: int, took: float) -> UnitEnd | None:
        """What an exception means; None: it is tried again, or was interrupted."""
        match error:
            case Cancelled() if self.stopping.is_set():
                return None
            case Skip():
                unit.warn(str(error))
                return unit.ended(UnitState.SKIPPED, None, took)
            case Fatal():
                self.fatal.set()
                return unit.ended(UnitState.FAILED, say(error), took)
        if tries > self._retries:
            return unit.ended(UnitState.FAILED, say(error), took)
        self.stopping.wait(delay_after(self._curve, tries, chance=random.random()).total_seconds())
        return None


def _done(row: UnitRow, took: float) -> UnitEnd:
    """The most frequent end: done, and nothing to say about it."""
    return UnitEnd(
        key=row.key,
        place=row.place,
        state=UnitState.DONE,
        before=row.state,
        attempts=row.attempts + 1,
        crashes=row.crashes,
        took_ms=round(took * 1000),
    )


def _kept(value: Any) -> str | None:
    from holdfast.run.handler import done

    return kept_result(done(value).result)

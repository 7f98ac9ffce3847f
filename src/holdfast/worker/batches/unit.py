"""One unit: what its function may know and say, and how its run is judged."""

from __future__ import annotations

import hashlib
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.domain.batches.batch import MAX_UNIT_ERROR, Batch, HandedResult, UnitOutcome, UnitRow, UnitState
from holdfast.domain.jobs.handler_exceptions import AlreadyFinished, Cancelled, Fatal, Skip
from holdfast.domain.jobs.kind import to_json
from holdfast.domain.jobs.result import kept_result
from holdfast.domain.jobs.retry import Curve, delay_after
from holdfast.domain.text import checked_name, clean_text
from holdfast.errors import CommandFailed, InvalidPayload, StoreUnavailable
from holdfast.worker.batches.limits import Alarms
from holdfast.worker.handler import say

if TYPE_CHECKING:
    from holdfast.worker.commands.run import Completed

log = logging.getLogger("holdfast.batch")

#: What is kept of a label, a warning, a reason.
MAX_NOTE = 500
#: The label of units that a lost run had done.
VERIFIED = "verified"
#: The longest result that is handed over, in bytes.
MAX_HANDED = 1024 * 1024


class UnitResult(NamedTuple):
    """A unit that was run: no *end* means interrupted; *written*: its row is in the ledger already."""

    row: UnitRow
    end: UnitOutcome | None
    written: bool


#: How a unit is run. An end alone is that of a unit that is done, and not in the ledger yet.
Perform = Callable[[UnitRow], UnitResult | UnitOutcome]


class Unit:
    """Given to a unit function that has a parameter annotated with it."""

    __slots__ = (
        *("_data", "_handed", "_label", "_own", "_run", "_warning"),
        *("attempt", "key", "row", "settled", "timed_out"),
    )

    def __init__(self, run: UnitRunner, row: UnitRow, key: Any) -> None:
        #: The unit's key.
        self.key = key
        #: The number of this attempt, from 1, counted over all runs of the batch.
        self.attempt = row.attempts + 1
        self.row = row
        self._run = run
        self._label: str | None = None
        self._data: Any = None
        self._warning: str | None = None
        self._handed: HandedResult | None = None
        #: Set when its time is up.
        self.timed_out = False
        self._own: threading.Event | None = None
        #: The end that was written in a transaction of the unit's own.
        self.settled: UnitOutcome | None = None

    @property
    def stopping(self) -> threading.Event:
        """Set when the unit is to stop: a signal, a breaker, a deadline, a pause, a cancel, its own timeout."""
        return self._own or self._run.stopping

    def begin(self) -> None:
        """A new attempt, which has all its time before it."""
        self.timed_out = False
        self._own = threading.Event()
        if self._run.stopping.is_set():
            self._own.set()

    def stop(self) -> None:
        """Tell the function to stop."""
        if self._own is not None:
            self._own.set()

    def time_out(self) -> float | None:
        """Tell the function that its time is up."""
        self.timed_out = True
        self.stop()
        return None

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

    def hand_over(self, value: Any, *, inbox: str | None = None) -> None:
        """The unit's result goes to a consumer: it waits in *inbox*, named after the function by default.

        The unit is done when the consumer has accepted it, and has failed if nobody did within 24 hours.

        Raises:
            InvalidPayload: The value cannot be written as JSON, or takes more than 1 MB.
        """
        data = to_json(value, what="the result")
        if len(data) > MAX_HANDED:
            raise InvalidPayload(f"a result of {len(data):,} bytes is too large for an inbox: at most {MAX_HANDED:,}")
        name = self._run.kind if inbox is None else checked_name(inbox, what="the inbox")
        self._handed = HandedResult(name, data.decode())

    def check(self) -> None:
        """Raise Cancelled when the unit is to stop: it is pending again, and has lost nothing.

        A unit whose time is up has failed instead.
        """
        if self.stopping.is_set():
            raise Cancelled

    def sleep(self, seconds: float) -> None:
        """Wait, but not when the unit is to stop."""
        self.stopping.wait(seconds)
        self.check()

    def command(
        self, argv: Sequence[str], *, cwd: str | Path | None = None, env: Mapping[str, str] | None = None
    ) -> Completed:
        """Run a program to its end; a signal to this process, such as Ctrl-C, does not reach it.

        It ends with everything it has started when the unit's time is up, and when this process dies.

        Raises:
            CommandFailed: Its exit code is not 0; the message ends with what it said last.
        """
        from holdfast.worker.commands.run import run_command

        finished = run_command(argv, cwd=cwd, env=env, is_late=lambda: self.timed_out)
        if self.timed_out:
            raise Cancelled
        if finished.exit_code != 0:
            raise CommandFailed(f"{argv[0]} ended with {finished.said}: {finished.last_words}")
        return finished

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """A connection to the store's own database, in a transaction: effect and ledger are kept together.

        The unit's row is written last, just before the commit, so that its effect is made exactly once.
        """
        began = time.monotonic()
        ends: list[UnitOutcome] = []

        def end() -> UnitOutcome:
            ends.append(self.finished(UnitState.DONE, None, time.monotonic() - began))
            return ends[-1]

        try:
            with self._run.transaction(end) as connection:
                yield connection
        except StoreUnavailable:
            self._run.unheard = True
            raise
        self.settled = ends[-1]

    def finished(self, state: UnitState, error: str | None, took: float, *, returned: Any = None) -> UnitOutcome:
        value = self._data if self._data is not None else returned
        handed = self._handed if state is UnitState.DONE else None
        return UnitOutcome(
            key=self.row.key,
            position=self.row.position,
            state=state if handed is None else UnitState.RUNNING,
            before=self.row.state,
            attempts=self.attempt,
            crashes=self.row.crashes,
            label=self._label if state is UnitState.DONE else None,
            warning=self._warning,
            error=None if error is None else clean_text(error, limit=MAX_UNIT_ERROR),
            data=None if value is None or state is not UnitState.DONE else _kept(value),
            duration_ms=round(took * 1000),
            handed=handed,
        )


class UnitRunner:
    """What all units of one run share, and how one of them is run."""

    def __init__(
        self,
        *,
        batch: Batch,
        function: Callable[[Unit], Any],
        plain: Callable[[Any], Any] | None,
        decode: Callable[[str], Any],
        retries: int,
        curve: Curve,
        timeout: float | None = None,
        verify: Callable[[Any], bool] | None = None,
        transaction: Callable[..., Any],
    ) -> None:
        self._verify = verify
        self.batch_id = batch.id
        self.kind = batch.kind
        self.identity = batch.identity
        self.generation = batch.generation
        self.stopping = threading.Event()
        #: They tell units whose time is up.
        self.alarms = None if timeout is None else Alarms(timeout)
        self.transaction = transaction
        #: Set when nobody heard whether a unit's own transaction was committed: its row may be there.
        self.unheard = False
        #: Set when a unit says that it makes no sense to go on.
        self.fatal = threading.Event()
        self._function = function
        #: The same for a function that wants to know nothing but the key.
        self._plain = plain
        self._decode = decode
        self._retries = retries
        self._curve = curve

    def stop(self) -> None:
        """Begin no unit any more, and tell those under way."""
        self.stopping.set()
        if self.alarms is not None:
            self.alarms.each(lambda unit: unit.stop())

    def give_up(self) -> None:
        """A unit says that it makes no sense to go on."""
        self.fatal.set()
        self.stop()

    def performer(self) -> tuple[Perform, Callable[[], None]]:
        """How a thread runs its units, and what to do when it ends."""
        return self.run, lambda: None

    def date(self, timestamp: float) -> None:
        """The lease of the run was renewed by a call that was sent at *moment*."""

    def close(self) -> None:
        """Nothing runs any more, or nothing may."""

    def run(self, row: UnitRow) -> UnitResult | UnitOutcome:
        """Run one unit and say how it ended."""
        began = time.monotonic()
        try:
            key = self._decode(row.key)
        except Exception as error:  # noqa: BLE001 - whatever the types of the user say
            return UnitResult(
                row, Unit(self, row, row.key).finished(UnitState.FAILED, _unfit(error), 0.0), written=False
            )
        if row.poison_suspect and self._verify is not None:
            known = self._verified(row, key, self._verify)
            if known is not None:
                return known
        if self._plain is None:
            return self._tried(Unit(self, row, key), began)
        try:
            returned = self._plain(key)
        except BaseException as error:  # noqa: BLE001 - SystemExit of a unit must not end the run
            return self._tried(Unit(self, row, key), began, error)
        took = time.monotonic() - began
        if returned is None:
            return _done(row, took)  # most units: nothing more is made for them
        return UnitResult(
            row, Unit(self, row, key).finished(UnitState.DONE, None, took, returned=returned), written=False
        )

    def _verified(self, row: UnitRow, key: Any, verify: Callable[[Any], bool]) -> UnitResult | None:
        """A lost run may have done it: ask; None: it did not."""
        unit = Unit(self, row, key)
        try:
            if not verify(key):
                return None
        except Exception as error:  # noqa: BLE001 - the user's own code
            return UnitResult(row, unit.finished(UnitState.FAILED, say(error), 0.0), written=False)
        unit.done(VERIFIED)
        return UnitResult(row, unit.finished(UnitState.DONE, None, 0.0), written=False)

    def _tried(self, unit: Unit, began: float, error: BaseException | None = None) -> UnitResult:
        """Try the unit as often as it may be tried; *error*: what came of the first time."""
        tries, returned = 0, None
        end: UnitOutcome | None
        while True:
            if error is None:
                try:
                    returned = self._call(unit)
                except BaseException as raised:  # noqa: BLE001 - as above
                    error = raised
            if isinstance(error, AlreadyFinished):
                return UnitResult(unit.row, None, written=True)
            took = time.monotonic() - began
            tries += 1
            if error is None:
                end = unit.finished(UnitState.DONE, None, took, returned=returned)
            else:
                end = self._after(error, unit, tries, took)
            if unit.settled is not None:
                return UnitResult(unit.row, unit.settled, written=True)
            if end is not None or self.stopping.is_set():
                return UnitResult(unit.row, end, written=False)
            unit.attempt += 1
            error = None

    def _call(self, unit: Unit) -> Any:
        if self.alarms is None:
            return self._function(unit)
        unit.begin()
        self.alarms.begin(unit)
        try:
            return self._function(unit)
        finally:
            self.alarms.end(unit)

    def _after(self, error: BaseException, unit: Unit, tries: int, took: float) -> UnitOutcome | None:
        """What an exception means; None: it is tried again, or was interrupted."""
        match error:
            case Cancelled() if unit.timed_out and self.alarms is not None:
                error = TimeoutError(self.alarms.said)
            case Cancelled() if self.stopping.is_set():
                return None
            case Skip():
                unit.warn(str(error))
                return unit.finished(UnitState.SKIPPED, None, took)
            case Fatal():
                self.give_up()
                return unit.finished(UnitState.FAILED, say(error), took)
        if tries > self._retries:
            return unit.finished(UnitState.FAILED, say(error), took)
        self.stopping.wait(delay_after(self._curve, tries, chance=random.random()).total_seconds())
        return None


def _unfit(error: Exception) -> str:
    return f"the key does not fit the function: {error}"


def _done(row: UnitRow, took: float) -> UnitOutcome:
    """The most frequent end: done, and nothing to say about it."""
    if row.state is UnitState.PENDING and not row.attempts:
        return UnitOutcome(key=row.key, position=row.position, state=UnitState.DONE, duration_ms=round(took * 1000))
    return UnitOutcome(
        key=row.key,
        position=row.position,
        state=UnitState.DONE,
        before=row.state,
        attempts=row.attempts + 1,
        crashes=row.crashes,
        duration_ms=round(took * 1000),
    )


def _kept(value: Any) -> str | None:
    from holdfast.worker.handler import done

    return kept_result(done(value).result)

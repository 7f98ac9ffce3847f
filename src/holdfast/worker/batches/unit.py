"""The unit as its function sees it: key, attempt, stop requests, result."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.domain.batches.done_units import DoneUnit
from holdfast.domain.batches.unit import MAX_UNIT_ERROR, HandedResult, TakenUnit, UnitOutcome, UnitRow, UnitState
from holdfast.domain.commands.command import DEFAULT_STOP_DELAY
from holdfast.domain.jobs.context import AlreadyFinished, Cancelled, Fatal, Skip
from holdfast.domain.jobs.job import OVERDUE
from holdfast.domain.jobs.json_values import to_json
from holdfast.domain.jobs.verdict import Done
from holdfast.domain.names import checked_name, clean_text
from holdfast.domain.quantities import Duration, as_duration
from holdfast.errors import CommandFailed, InvalidInput, InvalidPayload, StoreUnavailable
from holdfast.worker.batches.outages import OUTAGE
from holdfast.worker.handler_call import describe_error, done, safe_text

if TYPE_CHECKING:
    from holdfast.worker.batches.unit_runner import UnitRunner
    from holdfast.worker.commands.run import Completed

log = logging.getLogger("holdfast.batch")

#: Labels, warnings and reasons are cut to this length.
MAX_NOTE_CHARACTERS = 500
MAX_HANDED_BYTES = 1024 * 1024


class UnitResult(NamedTuple):
    """The result of one attempt at a unit. *outcome* is None if there is nothing to write."""

    row: UnitRow
    outcome: UnitOutcome | None
    #: The outcome is in the ledger already.
    written: bool = False
    #: The outcome is in the ledger, and its label, warning or data changed afterwards.
    amended: bool = False
    #: The attempt failed, and another one may succeed.
    retry: bool = False
    #: No other unit can succeed.
    fatal: bool = False
    #: The unit began, and stopped on request.
    interrupted: bool = False
    #: The store did not answer: that is not a failure of the unit.
    outage: bool = False


#: Runs one unit. The short form belongs to a unit that no run had begun, and is not in the ledger yet.
Perform = Callable[[TakenUnit], UnitResult | DoneUnit]
Take = Callable[[], TakenUnit]
AddDone = Callable[[DoneUnit], None]
AddResult = Callable[[UnitResult], None]
#: Takes units by a function and runs them one after the other: up to a number of them, and not for long. It passes each
#: result on at once: the short form to the second function, other results to the last one.
PerformAll = Callable[[Take, int, AddDone, AddResult], None]


class Unit:
    """One attempt at a unit; passed to a unit function that has a parameter annotated with this class."""

    __slots__ = (
        *("_cancel", "_data", "_handed", "_in_transaction", "_label", "_own", "_run", "_warning"),
        *("attempt", "key", "row", "settled", "timed_out"),
    )

    def __init__(self, run: UnitRunner, row: UnitRow, key: Any) -> None:
        #: The key of the unit.
        self.key = key
        #: The number of this attempt, from 1, over all runs of the batch.
        self.attempt = row.attempts + 1
        self.row = row
        self._run = run
        self._label: str | None = None
        self._data: Any = None
        self._warning: str | None = None
        self._handed: HandedResult | None = None
        #: Whether the unit exceeded its timeout.
        self.timed_out = False
        self._own: threading.Event | None = None
        self._cancel: Callable[[], object] | None = None
        self._in_transaction = False
        #: The outcome that the unit's own transaction wrote.
        self.settled: UnitOutcome | None = None

    @property
    def stopping(self) -> threading.Event:
        """Set when the unit has to stop: a signal, a breaker, a deadline, a pause, a cancel, or its own timeout."""
        return self._own or self._run.stopping

    def begin(self) -> None:
        """Begin the attempt, with a stop request of its own."""
        self._own = threading.Event()
        if self._run.stopping.is_set():
            self._own.set()

    def stop(self) -> None:
        """Send the function a stop request."""
        if self._own is not None:
            self._own.set()

    def time_out(self) -> float | None:
        """Send the function a stop request because its time is up; a coroutine is cancelled."""
        self.timed_out = True
        self.stop()
        if self._cancel is not None:
            self._cancel()
        return None

    def cancel_with(self, cancel: Callable[[], object]) -> None:
        """Call *cancel* when the time of the unit is up."""
        self._cancel = cancel
        if self.timed_out:
            cancel()

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose records carry the batch and the key."""
        return logging.LoggerAdapter(log, {"batch": self._run.batch.id, "unit": self.key})

    @property
    def idempotency_key(self) -> str:
        """A key for services that accept one: the same for every attempt at this unit of this batch."""
        text = f"{self._run.batch.identity}/{self._run.batch.generation}/{self.row.key}"
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def done(self, label: str | None = None, data: Any = None) -> None:
        """Record that the unit is done. Labels (``duplicate``, ``new``) are counted; *data* is kept as JSON."""
        self._label = None if label is None else clean_text(label, limit=MAX_NOTE_CHARACTERS)
        self._data = data

    def warn(self, text: str) -> None:
        """Record a warning; the unit still counts as done."""
        self._warning = clean_text(text, limit=MAX_NOTE_CHARACTERS)

    def hand_over(self, value: Any, *, inbox: str | None = None) -> None:
        """Put the result of the unit into an inbox, which is named after the function by default.

        The unit is done once a consumer accepts the result, and fails if none does within 24 hours.

        Raises:
            InvalidPayload: The value cannot be written as JSON, or takes more than 1 MB.
            InvalidInput: The transaction of the unit has committed.
        """
        if self.settled is not None:
            raise InvalidInput("the unit is done: its transaction has committed", hint="Hand over within the block.")
        data = to_json(value, label="the result")
        if (size := len(data)) > MAX_HANDED_BYTES:
            raise InvalidPayload(f"a result of {size:,} bytes is too large for an inbox: at most {MAX_HANDED_BYTES:,}")
        name = self._run.batch.kind if inbox is None else checked_name(inbox, label="the inbox")
        self._handed = HandedResult(name, data.decode())

    def check(self) -> None:
        """Raise :class:`Cancelled` when the unit has to stop. The unit is pending again, and keeps its attempts.

        A unit that exceeded its timeout fails instead.
        """
        if self.stopping.is_set():
            raise Cancelled

    def sleep(self, seconds: float) -> None:
        """Sleep; raises like :meth:`check` as soon as the unit has to stop."""
        self.stopping.wait(seconds)
        self.check()

    def command(
        self,
        argv: Sequence[str],
        *,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        stop_delay: Duration = DEFAULT_STOP_DELAY,
    ) -> Completed:
        """Run a command and wait for it. Signals to this process, such as Ctrl-C, do not reach it.

        When the unit exceeds its timeout, the command receives SIGTERM; after *stop_delay* it and all its children are
        killed. They are killed at once when this process dies.

        Raises:
            CommandFailed: Its exit code is not 0; the message ends with its last output.
        """
        from holdfast.worker.commands.run import run_command

        delay = as_duration(stop_delay)
        finished = run_command(argv, cwd=cwd, env=env, is_late=lambda: self.timed_out, stop_delay=delay)
        if self.timed_out:
            raise Cancelled
        if finished.exit_code != 0:
            raise CommandFailed(f"{argv[0]} ended with {finished.status}: {finished.last_output}")
        return finished

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """A transaction on the store's own database; the context manager returns the connection.

        The outcome of the unit is written just before the commit, so the writes of the unit take effect exactly once.
        The unit is done then: an error after the block is logged and becomes its warning. A unit has one such block.
        Your code must not commit or roll back; savepoints are fine.

        Raises:
            InvalidInput: The unit has already used its transaction, or is in it.
            NoTransaction: Your code has ended the transaction.
        """
        if self.settled is not None:
            hint = "A unit is done when its transaction has committed: write everything in one block."
            raise InvalidInput("the unit has already used its transaction", hint=hint)
        if self._in_transaction:
            hint = "Use the connection of the outer block, with a savepoint for a part that may fail."
            raise InvalidInput("the transaction of the unit is open already", hint=hint)
        began = time.monotonic()
        outcomes: list[UnitOutcome] = []

        def outcome() -> UnitOutcome:
            outcomes.append(self.outcome(UnitState.DONE, None, time.monotonic() - began))
            return outcomes[-1]

        self._in_transaction = True
        try:
            with self._run.transaction(outcome) as connection:
                yield connection
        except StoreUnavailable:
            if outcomes:
                self._run.unknown_commits[self.row.key] = outcomes[-1]
            raise
        finally:
            self._in_transaction = False
        self.settled = outcomes[-1]

    def result(self, took_s: float, *, returned: Any = None, error: BaseException | None = None) -> UnitResult:
        """The result of this attempt, which returned a value or raised an *error*."""
        try:
            return self._result(took_s, returned, error)
        except BaseException:
            if error is None:
                raise
            # A property of the error raises: it is a failure like others.
            failed = self.outcome(UnitState.FAILED, describe_error(error), took_s)
            return UnitResult(self.row, failed, retry=True)

    def _result(self, took_s: float, returned: Any, error: BaseException | None) -> UnitResult:
        row = self.row
        if self.settled is not None:
            return self._result_after_commit(self.settled, returned, error)
        match error:
            case None:
                self._mark_if_overdue(took_s)
                return UnitResult(row, self.outcome(UnitState.DONE, None, took_s, returned=returned))
            case AlreadyFinished():
                return UnitResult(row, self._run.unknown_commits.get(row.key), written=True)
            case Cancelled() if self.timed_out:
                error = TimeoutError(self._run.timeout_message)
            case Cancelled() if self._run.stopping.is_set():
                return UnitResult(row, None, interrupted=True)
            case Skip():
                self.warn(safe_text(error))
                return UnitResult(row, self.outcome(UnitState.SKIPPED, None, took_s))
        fatal = isinstance(error, Fatal)
        failed = self.outcome(UnitState.FAILED, describe_error(error), took_s)
        return UnitResult(row, failed, retry=not fatal, fatal=fatal, outage=isinstance(error, OUTAGE))

    def _result_after_commit(self, settled: UnitOutcome, returned: Any, error: BaseException | None) -> UnitResult:
        """The unit is done once its transaction has committed; a later error is logged and becomes a warning."""
        if error is not None and not isinstance(error, Cancelled):
            text = describe_error(error).partition("\n")[0]
            self.log.warning("unit %s raised after its transaction had committed: %s", self.row.key, text)
            self.warn(f"after its transaction: {text}")
        elif error is None:
            self._mark_if_overdue((settled.duration_ms or 0) / 1000)
        duration_s = (settled.duration_ms or 0) / 1000
        outcome = self.outcome(UnitState.DONE, None, duration_s, returned=returned)
        fatal = isinstance(error, Fatal)
        return UnitResult(self.row, outcome, written=True, amended=outcome != settled, fatal=fatal)

    def _mark_if_overdue(self, took_s: float) -> None:
        """Add a warning if the unit is done after its timeout: its thread could not be stopped."""
        if self.timed_out:
            text = f"{OVERDUE}{self._run.timeout_message}, and ended after {took_s:.3g} s"
            self.log.warning("unit %s is %s", self.row.key, text)
            self.warn(f"{text}; {self._warning}" if self._warning else text)

    def outcome(self, state: UnitState, error: str | None, took_s: float, *, returned: Any = None) -> UnitOutcome:
        """The outcome of this attempt; a result that was handed over keeps the unit running."""
        value = self._data if self._data is not None else returned
        handed = self._handed if state is UnitState.DONE else None
        stored = done(value) if value is not None and state is UnitState.DONE else Done()
        return UnitOutcome(
            key=self.row.key,
            position=self.row.position,
            state=state if handed is None else UnitState.RUNNING,
            attempts=self.attempt,
            crashes=self.row.crashes,
            label=self._label if state is UnitState.DONE else None,
            warning=self._warning or stored.dropped,
            error=None if error is None else clean_text(error, limit=MAX_UNIT_ERROR),
            data=stored.result,
            duration_ms=round(took_s * 1000),
            handed=handed,
        )

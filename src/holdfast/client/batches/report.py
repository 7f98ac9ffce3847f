"""Reports of runs: the result for callers, progress for people, lines for programs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from operator import attrgetter
from typing import Any, NoReturn, Self

import msgspec
from msgspec import UNSET, Struct, UnsetType, structs

from holdfast.domain.batches.batch import (
    AbortedBy,
    Batch,
    BatchState,
    LeftBy,
    Summary,
    exit_code,
    known_total,
    summarise,
)
from holdfast.domain.batches.breaker import FailureGroup, failure_groups
from holdfast.domain.batches.done_units import DoneUnits
from holdfast.domain.batches.unit import Counters, UnitKey, UnitOutcome, UnitRow, UnitState
from holdfast.domain.quantities import format_rate, format_short_duration
from holdfast.errors import HoldfastError, OutputLost
from holdfast.errors.table import BATCH_ENDS, BatchEnd
from holdfast.output.envelope import Failure
from holdfast.output.printer import Format, Output, OutputError, PipeClosed, Status, json_line
from holdfast.output.progress_bar import ProgressCallback, has_bar, progress
from holdfast.worker.batches.conflicts import command_line

#: Quick units would fill a log with lines of progress.
PROGRESS_PAUSE_S = 1.0
#: Groups of failures that a message names.
MAX_FAILURE_LINES = 3
_STATE = attrgetter("state")


class BatchResult(Struct, frozen=True):
    """The result of a run: the batch, its counts, and the exit code.

    *error* is set when the run did not begin, or broke: another run is alive, a person has paused the batch, a
    conflicting service is running, the version or an input has drifted, an option is invalid, or the store does not
    answer. *batch* and *summary* are None then. They are set when the keys could not be read to their end
    (:class:`holdfast.errors.InputFailed`), and when the output could not be written (``OutputLost``).
    """

    batch: Batch | None
    summary: Summary | None
    exit_code: int
    error: HoldfastError | None = None

    @classmethod
    def after(
        cls, batch: Batch, counters: Counters, aborted_by: AbortedBy | None, *, left_by: LeftBy | None = None
    ) -> Self:
        """The result of a run that is finished. *left_by*: the option that made it leave units behind."""
        if aborted_by is AbortedBy.PAUSE and batch.state is BatchState.STOPPED:
            aborted_by = batch.aborted_by  # a person has withdrawn the pause
        summary = summarise(counters, known_total(batch, counters), aborted_by)
        if aborted_by is None and batch.state is BatchState.STOPPED:
            left_by = left_by or LeftBy.BREAK
        elif aborted_by is None and batch.state is BatchState.RUNNING and summary.pending != 0:
            left_by = LeftBy.OTHERS
        elif aborted_by is not AbortedBy.LIMIT or summary.pending == 0:
            left_by = None
        return cls(batch, structs.replace(summary, left_by=left_by), exit_code(counters, aborted_by))

    def check(self) -> None:
        """Raise the error of the run, if there was one."""
        if self.error is not None:
            raise self.error

    def exit(self) -> NoReturn:
        """End the process with the exit code of the run."""
        sys.exit(self.exit_code)


class RunAnswer(Struct, frozen=True):
    """The answer of a run in JSON. *note* is for people, such as that no worker serves the batch."""

    batch: int | None
    generation: int
    summary: Summary
    dry_run: bool = False
    note: str | None = None
    #: The failures for which a breaker stopped the run, grouped.
    failures: list[FailureGroup] = []
    #: The key of the last unit that this run finished. Absent where other processes run the units side by side.
    last_key: Any | UnsetType = UNSET
    #: Where the function lives, and whether it was edited since the last run of the batch.
    origin: str | None = None
    edited: bool = False


class UnitLine(Struct, frozen=True, omit_defaults=True):
    """A unit in NDJSON; it is written when the unit is in the ledger."""

    key: Any
    status: str
    duration_ms: int | None
    attempts: int
    label: str | None = None
    warning: str | None = None
    data: Any = None
    error: str | None = None
    #: The errors of earlier attempts, the newest last.
    earlier_errors: list[str] = []
    #: The end of the last attempt, and the worker that made it; only the ledger knows them.
    attempted_at: datetime | None = None
    worker: str | None = None


class RunReport:
    """Reports one run to its output."""

    def __init__(
        self,
        output: Output,
        batch: Batch,
        *,
        total: int | None,
        every: int | None,
        created: bool,
        edited: bool = False,
        before: int = 0,
        failed: int = 0,
        watches: bool = False,
    ) -> None:
        #: Whether other processes run the units: no unit is the last one then.
        self._watches = watches
        #: Units that were finished before this report began: progress counts them, the rate does not.
        self._before = before
        #: Unit lines that this report has printed.
        self._printed = 0
        self._last_key: UnitKey | None = None
        #: Set once some of the output could not be written.
        self._lost: OutputLost | None = None
        self._note_of_answer: str | None = None
        self._output = output
        self._batch = batch
        self._created = created
        self._edited = edited
        self._total = total
        #: Units between two lines of progress; 0: no lines.
        self._every = every if every is not None else 10 if output.format is Format.TEXT else 0
        #: Seconds between two lines of progress; an explicit number of units needs no pause.
        self._pause_s = PROGRESS_PAUSE_S if every is None else 0.0
        self._finished = before
        self._failed = failed
        self._noted = before
        self._began = self._noted_at = time.monotonic()
        self._stack = ExitStack()
        #: The progress bar of a terminal; elsewhere progress is printed as lines.
        self._bar: ProgressCallback | None = None

    def __enter__(self) -> Self:
        self._note_begin()
        if has_bar(self._output):
            self._bar = self._stack.enter_context(progress(self._output, f"batch {self._batch.id}", self._total))
            self._bar(self._finished, self._failed)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._bar = None

    def _note_begin(self) -> None:
        batch = self._batch
        known = "" if batch.name is None else f" {batch.name!r}"
        head = f"batch {batch.id}{known}, generation {batch.generation}: {batch.kind} over {batch.source}"
        if not self._created:
            head += f"; continuing, run {batch.run_number}"
        elif batch.generation > 1:
            head += "; the last generation is finished, this is a new one"
        self.note(head)
        if self._edited:
            self.note("warning: the function was edited since the last run of this batch")

    def note(self, text: str) -> None:
        self._output.note(text)

    def warn(self, text: str | None) -> None:
        """Print a note, and keep it for the result; None withdraws it."""
        if text is not None and text != self._note_of_answer:
            self.note(text)
        self._note_of_answer = text

    def units(self, outcomes: Sequence[UnitOutcome | UnitRow]) -> None:
        """Report units that the ledger has now."""
        self.lines(outcomes)
        self._last_key = outcomes[-1].key
        failed = 0 if isinstance(outcomes, DoneUnits) else [*map(_STATE, outcomes)].count(UnitState.FAILED)
        self.progress(self._finished + len(outcomes), self._failed + failed)

    def lines(self, outcomes: Sequence[UnitOutcome | UnitRow]) -> None:
        """Print units as NDJSON. The run goes on when the reader has closed the pipe."""
        self._printed += len(outcomes)
        if outcomes and self._output.format is Format.NDJSON:
            lines = (
                done_lines(outcomes) if isinstance(outcomes, DoneUnits) else map(json_line, map(unit_line, outcomes))
            )
            with self._printing():
                self._output.checkpointed_lines("\n".join(lines), len(outcomes), checkpoint=self._printed)

    def progress(self, finished: int, failed: int) -> None:
        """Show how many units are finished, and how many of them failed."""
        self._finished, self._failed = finished, failed
        if self._bar is not None:
            self._bar(finished, failed)
        elif self._every and finished - self._noted >= self._every and self._has_paused():
            self._noted = finished
            self.note(self._progress_line())

    def _has_paused(self) -> bool:
        """Whether the last line of progress is old enough for another one."""
        now = time.monotonic()
        if now - self._noted_at < self._pause_s:
            return False
        self._noted_at = now
        return True

    def _progress_line(self) -> str:
        rate = max(1e-6, self._finished - self._before) / max(1e-6, time.monotonic() - self._began)
        words = [f"{self._finished:,}" + (f" of {self._total:,}" if self._total else "") + " units", format_rate(rate)]
        if self._failed:
            words.append(f"{self._failed:,} failed")
        if self._total and self._total > self._finished:
            words.append(f"{format_short_duration((self._total - self._finished) / rate)} left")
        return ", ".join(words)

    @contextmanager
    def _printing(self) -> Iterator[None]:
        """Print. The run goes on without a reader, and without space for its output: the ledger has everything."""
        try:
            yield
        except PipeClosed:
            pass
        except OutputError as error:
            self._lost = OutputLost(f"the output cannot be written: {error}")
            self._output.note(f"error: {self._lost.message} [{self._lost.code}]")

    def finish(self, result: BatchResult, *, cause: str | None = None) -> BatchResult:
        """Print the result of the run, and return it: with an error if some of the output was lost.

        *cause* says what a fatal error was.
        """
        batch, summary, exit_code = self._batch, result.summary, result.exit_code
        assert summary is not None
        answer = RunAnswer(
            batch.id,
            batch.generation,
            summary,
            note=self._note_of_answer,
            failures=[] if result.batch is None else failure_groups(result.batch),
            last_key=UNSET if self._watches else self._last_key and msgspec.json.decode(self._last_key),
            origin=batch.origin,
            edited=self._edited,
        )
        with self._printing():
            if exit_code == 0:
                self._output.value(answer, lambda: [_summary_line(batch, summary)], ndjson_summary=True)
            else:
                status: Status = "partial_failure" if exit_code == 6 else "error"
                end = BATCH_ENDS[exit_code]
                failure = _failure(batch, answer, end, cause)
                if (error := result.error) is not None:
                    fields = {"code": error.code, "hint": error.hint, "retryable": error.retryable}
                    failure = structs.replace(failure, **fields, next=failure.next if error.retryable else None)
                self._output.error(failure, data=answer, status=status)
            self._output.flush()
        if self._lost is None or result.error is not None:
            return result
        return structs.replace(result, error=self._lost, exit_code=exit_code or self._lost.exit_code)


def _failure(batch: Batch, answer: RunAnswer, end: BatchEnd, cause: str | None) -> Failure:
    message = "a unit reported a fatal error" if answer.summary.aborted_by is AbortedBy.FATAL else end.meaning
    message = cause or message
    lines = failure_lines(answer.failures)
    if answer.summary.aborted and answer.last_key not in (None, UNSET):
        lines.append(f"the last finished unit is {answer.last_key}")
    return Failure(
        code=end.code,
        message="; ".join([f"{message}: {_summary_line(batch, answer.summary)}", *lines]),
        hint=end.hint.format(batch=batch.id, command=command_line()),
        retryable=end.resumable,
        retry_after_s=end.retry_after_s,
        next=command_line() if end.resumable else None,
    )


def failure_lines(failures: Sequence[FailureGroup]) -> list[str]:
    """The largest groups of the failures that stopped a run, for people."""
    lines = [f"{each.count:,} times {each.error} (unit {each.key})" for each in failures[:MAX_FAILURE_LINES]]
    more = len(failures) - MAX_FAILURE_LINES
    return [*lines, f"{more:,} other errors"] if more > 0 else lines


def done_lines(units: DoneUnits) -> Iterator[str]:
    """Lines of NDJSON: units with one duration differ only in their keys."""
    for start, end in units.groups():
        rest = f',"status":"done","duration_ms":{json_line(units.durations_ms[start])},"attempts":1}}'
        keys = f'{rest}\n{{"key":'.join(units.keys[start:end])
        yield f'{{"key":{keys}{rest}'


def unit_line(unit: UnitOutcome | UnitRow) -> UnitLine:
    """A unit in NDJSON, from its outcome or from the ledger."""
    return UnitLine(
        key=msgspec.json.decode(unit.key),
        status=unit.state,
        duration_ms=unit.duration_ms,
        attempts=unit.attempts,
        label=unit.label,
        warning=unit.warning,
        data=None if unit.data is None else msgspec.json.decode(unit.data),
        error=unit.error,
        earlier_errors=_earlier_errors(unit),
        attempted_at=unit.attempted_at if isinstance(unit, UnitRow) else None,
        worker=unit.worker if isinstance(unit, UnitRow) else None,
    )


def _earlier_errors(unit: UnitOutcome | UnitRow) -> list[str]:
    if isinstance(unit, UnitOutcome):
        return list(unit.earlier_errors)
    return [] if unit.earlier_errors is None else msgspec.json.decode(unit.earlier_errors, type=list[str])


def _summary_line(batch: Batch, summary: Summary) -> str:
    names = ("failed", "skipped", "cancelled", "in_doubt", "in_inbox", "pending", "warned", "returned")
    labels, others = summary.largest_labels()
    counts = {name.replace("_", " "): getattr(summary, name) for name in names} | labels | {"more labels": others}
    total = "" if summary.total is None else f" of {summary.total:,}"
    words = [f"{summary.succeeded:,}{total} done", *(f"{n:,} {name}" for name, n in counts.items() if n)]
    return "; ".join(filter(None, [f"batch {batch.id}: {', '.join(words)}", _left(summary)]))


def _left(summary: Summary) -> str:
    """What the run left behind, and why."""
    if summary.total is None and summary.left_by is LeftBy.LIMIT:
        return "the limit left the rest of the input"
    if summary.left_by is not None:
        return _LEFT[summary.left_by]
    return "the input was not read to its end" if summary.total is None else ""


_LEFT = {
    LeftBy.LIMIT: "the limit left units for the next run",
    LeftBy.ONLY: "units that --only did not name are left for another run",
    LeftBy.RESUME_FROM: "units before --resume-from are left for another run",
    LeftBy.BREAK: "the loop ended before its input; the next run continues there",
    LeftBy.OTHERS: "other runs still work on the pending units",
}

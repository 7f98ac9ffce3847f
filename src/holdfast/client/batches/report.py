"""What a run of a batch tells: progress for people, lines for programs, and at the end a summary."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Self

import msgspec
from msgspec import Struct

from holdfast.domain.batches.batch import AbortedBy, Batch, Summary, UnitOutcome, UnitRow, UnitState
from holdfast.domain.text import per_second, span
from holdfast.output.envelope import Failure
from holdfast.output.printer import Format, Output
from holdfast.output.progress import Tell, has_bar, progress
from holdfast.worker.batches.owner import command_line

#: Codes, words and hints of the ends of a run, by exit code. Exit 0 needs none.
ENDS: dict[int, tuple[str, str, str]] = {
    1: ("E_ALL_FAILED", "every unit failed", "See the errors with: holdfast batch units {batch} --state failed"),
    6: ("E_PARTIAL_FAILURE", "some units failed", "See them with: holdfast batch units {batch} --state failed"),
    7: ("E_ABORTED", "stopped on request", "Go on with: {command}"),
    8: ("E_MAX_FAILURES", "too many failures", "Mend the cause, then go on with: {command}"),
    10: ("E_DEADLINE", "the time was up", "Go on with: {command}"),
    11: ("E_PAUSED", "paused by a person", "holdfast batch resume {batch}, then go on with: {command}"),
    12: ("E_CANCELLED", "cancelled by a person", "The next run begins a new generation."),
    15: ("E_LEASE_LOST", "another run has taken over", "See who it is with: holdfast batch show {batch}"),
}
RESUMABLE = frozenset({7, 8, 10, 11})


class RunAnswer(Struct, frozen=True):
    """What a run prints for programs."""

    batch: int | None
    generation: int
    summary: Summary
    dry_run: bool = False


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


class RunReport:
    """Tells of one run."""

    def __init__(
        self,
        output: Output,
        batch: Batch,
        *,
        total: int | None,
        every: int,
        created: bool,
        edited: bool = False,
        before: int = 0,
    ) -> None:
        #: Units that had ended before anybody looked.
        self._before = before
        self._output = output
        self._batch = batch
        self._created = created
        self._edited = edited
        self._total = total
        self._every = max(1, every)
        self._finished = 0
        self._failed = 0
        self._told = 0
        self._began = time.monotonic()
        #: Whether people are told how far it is.
        self._tells = output.format is Format.TEXT and not output.quiet
        self._stack = ExitStack()
        #: The bar of a terminal; without it there are lines.
        self._bar: Tell | None = None

    def __enter__(self) -> Self:
        self._tell_begin()
        if has_bar(self._output):
            what = f"batch {self._batch.id}"
            self._bar = self._stack.enter_context(progress(self._output, what, self._total))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._bar = None

    def _tell_begin(self) -> None:
        batch = self._batch
        known = "" if batch.name is None else f" {batch.name!r}"
        head = f"batch {batch.id}{known}, generation {batch.generation}: {batch.kind} over {batch.source}"
        if self._created and batch.generation > 1:
            self.note(f"{head}; the last generation has ended, this is a new one")
        elif self._created:
            self.note(head)
        else:
            self.note(f"{head}; going on, run {batch.run_number}")
        if self._edited:
            self.note("warning: the function was edited since the last run of this batch")

    def note(self, text: str) -> None:
        self._output.note(text)

    def units(self, ends: Sequence[UnitOutcome | UnitRow]) -> None:
        """Tell of units that are in the ledger now."""
        finished = self._finished + len(ends)
        if self._output.format is Format.NDJSON:
            self._output.lines_of([unit_line(end) for end in ends], checkpoint=finished)
        elif self._tells:
            self.far(finished, self._failed + sum(end.state is UnitState.FAILED for end in ends))
        self._finished = finished

    def far(self, finished: int, failed: int) -> None:
        """Tell people how many units have ended, and how many of them failed."""
        if not self._tells:
            return
        self._finished, self._failed = finished, failed
        if self._bar is not None:
            self._bar(finished, failed)
        elif finished - self._told >= self._every:
            self._told = finished
            self.note(self._progress())

    def _progress(self) -> str:
        rate = max(1e-6, self._finished - self._before) / max(1e-6, time.monotonic() - self._began)
        words = [
            f"{self._finished:,}" + (f" of {self._total:,}" if self._total else "") + " units",
            per_second(rate),
        ]
        if self._failed:
            words.append(f"{self._failed:,} failed")
        if self._total and self._total > self._finished:
            words.append(f"{span((self._total - self._finished) / rate)} left")
        return ", ".join(words)

    def finished(self, summary: Summary, code: int) -> None:
        batch = self._batch
        answer = RunAnswer(batch.id, batch.generation, summary)
        if code == 0:
            self._output.value(answer, lambda: [_said(batch, summary)], ndjson_summary=True)
            return
        word, text, hint = ENDS[code]
        if summary.aborted_by is AbortedBy.FATAL:
            text = "a unit said that it makes no sense to go on, or the run could not begin"
        failure = Failure(
            code=word,
            message=f"{text}: {_said(batch, summary)}",
            hint=hint.format(batch=batch.id, command=command_line()),
            retryable=code in RESUMABLE,
            retry_after_s=60.0 if code == 8 else None,
            next=command_line() if code in RESUMABLE else None,
        )
        self._output.error(failure, data=answer, status="partial_failure" if code == 6 else "error")


def unit_line(end: UnitOutcome | UnitRow) -> UnitLine:
    """A unit for programs: as it has just ended, or as the ledger keeps it."""
    return UnitLine(
        key=msgspec.json.decode(end.key),
        status=end.state,
        duration_ms=end.duration_ms,
        attempts=end.attempts,
        label=end.label,
        warning=end.warning,
        data=None if end.data is None else msgspec.json.decode(end.data),
        error=end.error,
    )


def _said(batch: Batch, summary: Summary) -> str:
    names = ("failed", "skipped", "cancelled", "in_doubt", "in_inbox", "pending", "warned", "returned")
    told = {name.replace("_", " "): getattr(summary, name) for name in names} | summary.labels
    words = [f"{summary.succeeded:,} of {summary.total:,} done", *(f"{n:,} {name}" for name, n in told.items() if n)]
    return f"batch {batch.id}: {', '.join(words)}"

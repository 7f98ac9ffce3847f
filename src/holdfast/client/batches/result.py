"""The result of a run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NoReturn, Self, TypeVar

from msgspec import Struct

from holdfast.domain.batches.batch import AbortedBy, Batch, Summary, exit_code, summarise
from holdfast.domain.batches.unit import Counters
from holdfast.errors import BatchHeld, BatchPaused, Drift, HoldfastError, ServiceRunning
from holdfast.output.envelope import failure_of
from holdfast.output.printer import Output

T = TypeVar("T")


class BatchResult(Struct, frozen=True):
    """The result of a run: the batch, its counts, and the exit code.

    *error* is set when the run did not begin: another run is alive, a person has paused the batch, a conflicting
    service is running, or the version or an input has drifted. *batch* and *summary* are None then.
    """

    batch: Batch | None
    summary: Summary | None
    exit_code: int
    error: HoldfastError | None = None

    @classmethod
    def after(cls, batch: Batch, counters: Counters, aborted_by: AbortedBy | None) -> Self:
        """The result of a run that is finished."""
        return cls(batch, summarise(counters, batch.total or 0, aborted_by), exit_code(counters, aborted_by))

    def check(self) -> None:
        """Raise the error that kept the run from beginning, if there was one."""
        if self.error is not None:
            raise self.error

    def exit(self) -> NoReturn:
        """End the process with the exit code of the run."""
        sys.exit(self.exit_code)


def begin_or_report(begin: Callable[[], T], output: Output) -> T | BatchResult:
    """Call *begin*; an error that keeps a run from beginning is printed, and becomes its result."""
    try:
        return begin()
    except (BatchHeld, ServiceRunning, BatchPaused, Drift) as error:
        output.error(failure_of(error))
        return BatchResult(None, None, error.exit_code, error)

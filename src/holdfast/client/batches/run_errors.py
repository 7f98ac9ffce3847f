"""Errors of runs: printed, and turned into results and exit codes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from msgspec import structs

from holdfast.client.batches.options import RunOptions
from holdfast.client.batches.report import BatchResult
from holdfast.errors import BatchHeld, BatchPaused, Drift, HoldfastError, ServiceRunning, StoreStopped
from holdfast.output.envelope import failure_of
from holdfast.output.printer import Format, Output, PipeClosed, SilentOutput

#: Errors that keep a run from beginning although everything is in order.
REFUSALS = (BatchHeld, ServiceRunning, BatchPaused, StoreStopped, Drift)


def run_or_report(run: Callable[[RunOptions], BatchResult], options: RunOptions) -> BatchResult:
    """Call *run*; an error is printed and becomes the result. Where nothing is printed, only a refusal does."""
    output = Output(Format.TEXT)
    try:
        output = options.printer()
        return run(structs.replace(options, output=output))
    except HoldfastError as error:
        if isinstance(output, SilentOutput) and not isinstance(error, REFUSALS):
            raise
        _print_error(error, output)
        return BatchResult(None, None, error.exit_code, error)


@contextmanager
def exit_on_error(options: RunOptions) -> Iterator[RunOptions]:
    """Print an error and end the program with its exit code; where nothing is printed, the error is raised."""
    output = Output(Format.TEXT)
    try:
        output = options.printer()
        yield structs.replace(options, output=output)
    except HoldfastError as error:
        if isinstance(output, SilentOutput):
            raise
        _print_error(error, output)
        raise SystemExit(error.exit_code) from error


def _print_error(error: HoldfastError, output: Output) -> None:
    with suppress(PipeClosed):
        output.error(failure_of(error))
        output.flush()

"""The run of a batch: where it happens, and its errors: printed, and turned into results and exit codes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from msgspec import structs

from holdfast.client.batches.dry_run import dry_run
from holdfast.client.batches.function import BoundFunction, UnitFunction
from holdfast.client.batches.keys import checked_keys
from holdfast.client.batches.local import run_batch
from holdfast.client.batches.options import RunOptions
from holdfast.client.batches.remote import run_on_workers
from holdfast.client.batches.report import BatchResult
from holdfast.domain.access.tokens import check_api_key
from holdfast.domain.quantities import local_times
from holdfast.errors import BatchHeld, BatchPaused, Drift, HoldfastError, InvalidInput, ServiceRunning, StoreStopped
from holdfast.output.envelope import Failure, failure_of, usage_failure
from holdfast.output.printer import Format, Output, PipeClosed, SilentOutput, requested_format
from holdfast.settings import load_settings
from holdfast.store import Store

#: Errors that keep a run from beginning although everything is in order.
REFUSALS = (BatchHeld, ServiceRunning, BatchPaused, StoreStopped, Drift)


def run_or_report(
    store: Callable[[], Store], units: UnitFunction[..., Any] | BoundFunction, keys: Iterable[Any], options: RunOptions
) -> BatchResult:
    """Run a batch; an error is printed and becomes the result. Where nothing is printed, only a refusal does."""
    output = Output(Format.TEXT)
    try:
        output = options.printer()
        if not options.dry_run:
            check_key()
        return run_anywhere(store(), bind(units), keys, structs.replace(options, output=output))
    except HoldfastError as error:
        if isinstance(output, SilentOutput) and not isinstance(error, REFUSALS):
            raise
        _print_failure(_failure_of(error, output), output)
        return BatchResult(None, None, error.exit_code, error)


def run_anywhere(store: Store, bound: BoundFunction, keys: Iterable[Any], options: RunOptions) -> BatchResult:
    """Run a batch at its placement: in this process or on the workers; or do a dry run."""
    keys = checked_keys(keys)
    if (options.dry_run or options.once) and (result := dry_run(store, bound, keys, options)) is not None:
        return result
    match options.placement.where:
        case "here":
            return run_batch(store, bound, keys, options)
        case "workers":
            return run_on_workers(store, bound, keys, options)
        case where:
            raise InvalidInput(f"where is 'here' or 'workers', not {where!r}")


def check_key() -> None:
    """Refuse a run without the key that the configuration requires."""
    check_api_key(os.environ.get("HOLDFAST_API_KEY", ""), load_settings().api_key_sha256)


def bind(units: UnitFunction[..., Any] | BoundFunction) -> BoundFunction:
    return units if isinstance(units, BoundFunction) else units.bind()


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
        _print_failure(_failure_of(error, output), output)
        raise SystemExit(error.exit_code) from error


def exit_on_usage_error(words: Sequence[str], message: str, path: str) -> None:
    """Print what is wrong with the *words* of a command line and exit; with text, leave it to the parser."""
    output: Output = SilentOutput()
    with suppress(HoldfastError):  # a broken configuration is reported as soon as the command line is right
        output = RunOptions(output=requested_format(words)).printer()
    if output.format is not Format.TEXT:
        _print_failure(usage_failure(message, path), output)
        raise SystemExit(InvalidInput.exit_code)


def _failure_of(error: HoldfastError, output: Output) -> Failure:
    """The failure to print; the times of a refusal are by the clock of the user, if it is text."""
    failure = failure_of(error)
    if output.format is not Format.TEXT or not isinstance(error, REFUSALS):
        return failure
    return structs.replace(failure, message=local_times(failure.message))


def _print_failure(failure: Failure, output: Output) -> None:
    with suppress(PipeClosed):
        output.error(failure)
        output.flush()

"""The table of errors: exit codes, error codes, and the ends of a batch run.

The commands ``exit-codes`` and ``explain``, the reference and the runs of batches read it.
"""

from __future__ import annotations

from inspect import getdoc, isclass

from msgspec import Struct

from holdfast import errors
from holdfast.errors.http import HttpError
from holdfast.errors.tree import HoldfastError


class ExitCode(Struct, frozen=True):
    """The meaning of an exit code."""

    code: int
    name: str
    meaning: str


EXIT_CODES = {
    code: ExitCode(code, name, meaning)
    for code, name, meaning in (
        (0, "ok", "Everything asked for was done."),
        (1, "failed", "The work failed, all of it."),
        (2, "usage", "The command itself is wrong: a flag, a value, a payload."),
        (3, "not_found", "Nothing matches: no such job, key, label, queue or kind."),
        (4, "configuration", "The configuration or a permission stands in the way."),
        (5, "store_unavailable", "The store does not answer. Try again later."),
        (6, "partial", "Some of it failed, some of it was done."),
        (7, "aborted", "Stopped on request; run the same command again to go on."),
        (8, "breaker", "Too many failures in a row; mend the cause, then run it again."),
        (9, "conflict", "Somebody else holds it."),
        (10, "deadline", "The time was up before the end."),
        (11, "paused", "It is paused."),
        (12, "cancelled", "It was cancelled."),
        (13, "nothing_to_do", "There was nothing to do, and that was to be told."),
        (14, "drift", "Code or input has changed under an open run."),
        (15, "lease_lost", "The lease was lost to another holder."),
        (130, "interrupted", "A second interrupt: out at once."),
    )
}


class BatchEnd(Struct, frozen=True):
    """How a batch run ends with an exit code other than 0. The hint has places for ``{batch}`` and ``{command}``."""

    code: str
    meaning: str
    hint: str
    #: The same command continues the run.
    resumable: bool = False
    retry_after_s: float | None = None


BATCH_ENDS = {
    1: BatchEnd(
        "E_ALL_FAILED", "every unit failed", "See the errors with: holdfast batch units {batch} --state failed"
    ),
    6: BatchEnd("E_PARTIAL_FAILURE", "some units failed", "See them with: holdfast batch units {batch} --state failed"),
    7: BatchEnd("E_ABORTED", "stopped on request", "Go on with: {command}", resumable=True),
    8: BatchEnd(
        "E_MAX_FAILURES",
        "too many failures",
        "Mend the cause, then go on with: {command}",
        resumable=True,
        retry_after_s=60.0,
    ),
    10: BatchEnd("E_DEADLINE", "the time was up", "Go on with: {command}", resumable=True),
    11: BatchEnd(
        "E_PAUSED", "paused by a person", "holdfast batch resume {batch}, then go on with: {command}", resumable=True
    ),
    12: BatchEnd("E_CANCELLED", "cancelled by a person", "The next run begins a new generation."),
    15: BatchEnd("E_LEASE_LOST", "another run has taken over", "See who it is with: holdfast batch show {batch}"),
}


class ErrorExplanation(Struct, frozen=True):
    """The meaning of an error code."""

    code: str
    #: None for errors of HTTP requests alone, which have a status.
    exit_code: int | None
    meaning: str
    hint: str
    retryable: bool
    http_status: int | None = None


def error_classes() -> list[type[HoldfastError]]:
    """Every exported class of the tree."""
    classes = [value for value in vars(errors).values() if isclass(value)]
    return [each for each in classes if issubclass(each, HoldfastError)]


def error_table() -> dict[str, ErrorExplanation]:
    """Every error code. Where two share a code, the class of the tree counts."""
    http_errors: list[type[HttpError]] = [HttpError, *HttpError.__subclasses__()]
    rows = [
        ErrorExplanation(each.code, None, getdoc(each) or "", each.hint, each.retryable, each.http_status)
        for each in http_errors
    ]
    rows += [
        ErrorExplanation(end.code, code, end.meaning, end.hint.format(batch="BATCH", command="COMMAND"), end.resumable)
        for code, end in BATCH_ENDS.items()
    ]
    rows += [
        ErrorExplanation(each.code, each.exit_code, getdoc(each) or "", each.hint, each.retryable)
        for each in error_classes()
    ]
    return {row.code: row for row in rows}

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
        (0, "ok", "Success."),
        (1, "failed", "All of the work failed."),
        (2, "usage", "Usage error: a flag, a value or a payload is invalid."),
        (3, "not_found", "Nothing matches: no such job, key, label, queue or kind."),
        (4, "configuration", "A setting or a permission is wrong."),
        (5, "store_unavailable", "The store does not answer. Try again later."),
        (6, "partial", "Some of the work failed."),
        (7, "aborted", "Stopped on request. Run the same command again to continue."),
        (8, "breaker", "Too many failures in a row. Fix the cause, then run it again."),
        (9, "conflict", "Conflict: another process holds it, or nothing could be changed."),
        (10, "deadline", "The deadline passed."),
        (11, "paused", "It is paused."),
        (12, "cancelled", "It was cancelled."),
        (13, "nothing_to_do", "Nothing to do (with options that report this, such as --once)."),
        (14, "drift", "The version, the place or the input of an unfinished run has changed."),
        (15, "lease_lost", "The lease was lost to another holder."),
        (130, "interrupted", "A second interrupt stopped it at once."),
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
    7: BatchEnd("E_ABORTED", "stopped on request", "Continue with: {command}", resumable=True),
    8: BatchEnd(
        "E_MAX_FAILURES",
        "too many failures",
        "Fix the cause, then continue with: {command}",
        resumable=True,
        retry_after_s=60.0,
    ),
    10: BatchEnd("E_DEADLINE", "the deadline passed", "Continue with: {command}", resumable=True),
    11: BatchEnd(
        "E_PAUSED", "paused by a person", "holdfast batch resume {batch}, then continue with: {command}", resumable=True
    ),
    12: BatchEnd("E_CANCELLED", "cancelled by a person", "The next run starts a new generation."),
    15: BatchEnd("E_LEASE_LOST", "another run has taken over", "See the other run with: holdfast batch show {batch}"),
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


#: Errors of the command line itself, which no library raises.
COMMAND_LINE_ERRORS = (
    ErrorExplanation("E_USAGE", 2, "The command line is invalid.", "See the help of the command: --help.", False),
    ErrorExplanation("E_SYSTEM", 4, "The system refused a file, a right or a resource.", "See the message.", False),
    ErrorExplanation(
        "E_INTERRUPTED", 130, "A signal ended the command.", "Run it again if you need its answer.", False
    ),
)


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
    rows += COMMAND_LINE_ERRORS
    rows += [
        ErrorExplanation(each.code, each.exit_code, getdoc(each) or "", each.hint, each.retryable)
        for each in error_classes()
    ]
    return {row.code: row for row in rows}

"""Error reports: one line and a hint, or one JSON document, and the exit code."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.session import CliSession
from holdfast.errors import HoldfastError, InvalidInput, OutputLost
from holdfast.output.printer import Format, Output, OutputError, PipeClosed

if TYPE_CHECKING:
    from holdfast.output.envelope import Failure

USAGE, SYSTEM, INTERRUPTED = 2, 4, 130


def report_safely(error: BaseException, session: CliSession) -> int:
    """Report *error* and return the exit code, even if the report itself cannot be written."""
    try:
        return report(error, session)
    except (PipeClosed, OutputError) as unwritten:
        return report(unwritten, session)


def report(error: BaseException, session: CliSession) -> int:
    """Report *error* and return the exit code."""
    match error:
        case HoldfastError():
            if session.flags.get("verbose"):
                sys.excepthook(type(error), error, error.__traceback__)
            from holdfast.output.envelope import failure_of

            session.output.error(localized(failure_of(error), error, session.output))
            return error.exit_code
        case click.exceptions.NoArgsIsHelpError():
            sys.stderr.write(error.format_message() + "\n")  # a bare group name prints its help, not an error
            return USAGE
        case click.ClickException():
            path = "holdfast" if (ctx := getattr(error, "ctx", None)) is None else ctx.command_path
            from holdfast.output.envelope import usage_failure

            session.output.error(usage_failure(error.format_message(), path))
            return USAGE
        case PipeClosed():
            return discard_output()
        case OutputError():
            return report_unwritable_output(error.error)
        case KeyboardInterrupt() | click.Abort():
            session.output.error(_failure("E_INTERRUPTED", "interrupted"))
            return INTERRUPTED
        case SystemExit():
            return error.code if isinstance(error.code, int) else 1
        case _:
            return _report_other(error, session)


def _report_other(error: BaseException, session: CliSession) -> int:
    """Report an error of the system, or an unexpected one."""
    from holdfast.worker.shortage import SHORTAGE_HINT, is_shortage  # few commands need it

    if is_shortage(error):
        text = f"the process has run out of memory, threads or files: {str(error) or type(error).__name__}"
        session.output.error(_failure("E_SYSTEM", text, hint=SHORTAGE_HINT))
        return SYSTEM
    if isinstance(error, OSError):
        session.output.error(_failure("E_SYSTEM", f"the system refused: {error}", hint="Check path and rights."))
        return SYSTEM
    sys.excepthook(type(error), error, error.__traceback__)
    text = f"this is a defect of Holdfast: {type(error).__name__}: {error}"
    session.output.error(_failure("E_INTERNAL", text, hint="Please report it, with the lines above."))
    return 1


def localized(failure: Failure, error: HoldfastError, output: Output) -> Failure:
    """*failure* with its times by the clock of the user, if it is printed as text. Invalid input is quoted as it is."""
    if output.format is not Format.TEXT or isinstance(error, InvalidInput):
        return failure
    from msgspec import structs

    from holdfast.domain.quantities import local_times

    return structs.replace(failure, message=local_times(failure.message))


def _failure(code: str, message: str, **more: Any) -> Failure:
    from holdfast.output.envelope import Failure

    return Failure(code=code, message=message, **more)


def discard_output() -> int:
    """Send buffered output to /dev/null: a reader that closes the pipe is not a failure."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def report_unwritable_output(error: OSError) -> int:
    """Report on stderr that the command ran but its output was lost."""
    discard_output()
    with suppress(OSError):
        sys.stderr.write(f"error: the output cannot be written: {error} [{OutputLost.code}]\n")
    return OutputLost.exit_code

"""Whatever a command raises becomes one line and a hint, or one JSON document, and an exit code."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.session import Session
from holdfast.errors import HoldfastError
from holdfast.output.printer import OutputError, PipeClosed

if TYPE_CHECKING:
    from holdfast.output.envelope import Failure

USAGE, SYSTEM, INTERRUPTED = 2, 4, 130


def tell_safely(error: BaseException, session: Session) -> int:
    """The same where not even the failure can be written."""
    try:
        return tell(error, session)
    except PipeClosed:
        return quiet_end()
    except OutputError as unwritten:
        return not_written(unwritten.error)


def tell(error: BaseException, session: Session) -> int:
    """Tell of *error*, and answer the exit code."""
    match error:
        case HoldfastError():
            if session.flags.get("verbose"):
                sys.excepthook(type(error), error, error.__traceback__)
            from holdfast.output.envelope import failure_of

            session.output.error(failure_of(error))
            return error.exit_code
        case click.exceptions.NoArgsIsHelpError():
            sys.stderr.write(error.format_message() + "\n")  # a name alone is a question, not a mistake
            return USAGE
        case click.ClickException():
            session.output.error(_usage(error))
            return USAGE
        case PipeClosed():
            return quiet_end()
        case OutputError():
            return not_written(error.error)
        case KeyboardInterrupt() | click.Abort():
            session.output.error(failure("E_INTERRUPTED", "interrupted"))
            return INTERRUPTED
        case SystemExit():
            return error.code if isinstance(error.code, int) else 1
        case OSError():
            session.output.error(failure("E_SYSTEM", f"the system refuses: {error}", hint="Check path and rights."))
            return SYSTEM
        case _:
            sys.excepthook(type(error), error, error.__traceback__)
            text = f"this is a defect of Holdfast: {type(error).__name__}: {error}"
            session.output.error(failure("E_INTERNAL", text, hint="Please report it, with what stands above."))
            return 1


def failure(code: str, message: str, **more: Any) -> Failure:
    from holdfast.output.envelope import Failure

    return Failure(code=code, message=message, **more)


def _usage(error: click.ClickException) -> Failure:
    ctx = getattr(error, "ctx", None)
    place = "holdfast" if ctx is None else ctx.command_path
    return failure("E_USAGE", error.format_message(), hint=f"See {place} --help.", next=f"{place} --help")


def quiet_end() -> int:
    """What is left in the buffer goes nowhere, and that is no failure."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def not_written(error: OSError) -> int:
    """The command was carried out, but nobody could be told."""
    quiet_end()
    with suppress(OSError):
        sys.stderr.write(f"error: the output cannot be written: {error} [E_OUTPUT]\n")
    return 1

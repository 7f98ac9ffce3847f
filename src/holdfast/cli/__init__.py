"""The command line. Sub-commands are imported when they are called."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import click

from holdfast._version import __version__
from holdfast.cli.output import Format, PipeClosed
from holdfast.cli.session import Session
from holdfast.cli.shared import Group
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.cli.answers import Failure

COMMANDS = {
    "up": ("up:up", "Run everything for a store in one process."),
    "down": ("up:down", "Stop what up has started."),
    "status": ("up:status", "Show what is up."),
    "service": ("service:service", "Run it as a service of systemd."),
    "worker": ("worker:command", "Run jobs."),
    "enqueue": ("enqueue:command", "Enqueue a job by the name of its kind."),
    "ls": ("look:ls", "List jobs, the newest first."),
    "show": ("look:show", "Show one job with its history."),
    "why": ("look:why", "Say why a job is not running."),
    "wait": ("wait:command", "Wait until jobs have ended; the exit code tells how."),
    "cancel": ("verbs:cancel", "Cancel jobs."),
    "pause": ("verbs:pause", "Hold jobs, running ones too."),
    "resume": ("verbs:resume", "Let paused and held jobs go on."),
    "retry": ("verbs:retry", "Run dead and cancelled jobs again."),
    "hold": ("verbs:hold", "Keep jobs from starting."),
    "unhold": ("verbs:unhold", "Let held jobs go."),
    "set": ("verbs:change", "Change priority, queue or time of jobs."),
    "rm": ("verbs:rm", "Remove jobs with their history."),
    "queue": ("queues:queue", "Look at queues, limit, pause and resume them."),
    "workers": ("queues:workers", "List the workers that are alive."),
    "top": ("top:command", "Watch states, queues, workers and running jobs."),
    "doctor": ("doctor:command", "Check the environment and the store, and say what to mend."),
    "db": ("db:db", "Migrate, check, back up, vacuum or move the store."),
    "completion": ("about:completion", "Print the completion script of a shell."),
    "config": ("about:config", "Show the configuration and where it comes from."),
    "exit-codes": ("about:exit_codes", "List the exit codes."),
    "explain": ("about:explain", "Explain an error code."),
}
INTERRUPTED = 130


@click.group(cls=Group, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="holdfast")
def cli() -> None:
    """Durable jobs for long-running work.

    Every command prints text for people, and with -o json or -o ndjson for programs. The exit codes
    are fixed: see holdfast exit-codes.
    """


def main(arguments: list[str] | None = None) -> NoReturn:
    """The ``holdfast`` program: every failure becomes one line and a hint, or one JSON document, and an exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    session = Session(format=asked_format(words))
    code = _run(words, session)
    try:
        session.close()
        sys.stdout.flush()
    except BrokenPipeError:
        code = _quiet_end()
    sys.exit(code)


def _run(words: list[str], session: Session) -> int:
    try:
        code = cli.main(words, prog_name="holdfast", standalone_mode=False, obj=session)
        return code if isinstance(code, int) else 0
    except HoldfastError as error:
        if session.flags.get("verbose"):
            sys.excepthook(type(error), error, error.__traceback__)
        session.output.error(told(error))
        return error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        sys.stderr.write(error.format_message() + "\n")  # a name alone is a question, not a mistake
        return 2
    except click.UsageError as error:
        session.output.error(_usage(error))
        return 2
    except click.ClickException as error:
        session.output.error(failure("E_USAGE", error.format_message()))
        return 2
    except PipeClosed:
        return _quiet_end()
    except Exception as error:  # noqa: BLE001 - a program that reads our answer must get one
        sys.excepthook(type(error), error, error.__traceback__)
        session.output.error(failure("E_INTERNAL", f"this is a defect of Holdfast: {type(error).__name__}: {error}"))
        return 1
    except (KeyboardInterrupt, click.Abort):
        session.output.error(failure("E_INTERRUPTED", "interrupted"))
        return INTERRUPTED


def told(error: HoldfastError) -> Failure:
    """An error as programs see it."""
    context = {name: str(value) for name, value in error.context.items()}
    return failure(error.code, error.message, hint=error.hint, retryable=error.retryable, context=context)


def failure(code: str, message: str, **more: Any) -> Failure:
    from holdfast.cli.answers import Failure

    return Failure(code=code, message=message, **more)


def asked_format(words: list[str]) -> Format | None:
    """The format that the line asks for, also when the line cannot be understood otherwise."""
    for word, value in zip(words, [*words[1:], ""], strict=False):
        found = value if word in ("-o", "--output") else word.removeprefix("--output=").removeprefix("-o")
        if word.startswith(("-o", "--output")) and found in list(Format):
            return Format(found)
    return None


def _usage(error: click.UsageError) -> Failure:
    place = error.ctx.command_path if error.ctx is not None else "holdfast"
    return failure("E_USAGE", error.format_message(), hint=f"See {place} --help.", next=f"{place} --help")


def _quiet_end() -> int:
    """What is left in the buffer goes nowhere, and that is no failure."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0

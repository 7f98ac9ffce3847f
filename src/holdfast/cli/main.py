"""The command line. Sub-commands are imported when they are called."""

from __future__ import annotations

import sys
from typing import NoReturn

import click

from holdfast._version import __version__
from holdfast.cli.command import CommandGroup
from holdfast.cli.errors import not_written, quiet_end, tell_safely
from holdfast.cli.session import Session
from holdfast.output.printer import Format, repair_streams

COMMANDS = {
    "up": ("ops.up:up", "Run everything for a store in one process."),
    "down": ("ops.up:down", "Stop what up has started."),
    "status": ("ops.up:status", "Show what is up."),
    "web": ("ops.web:command", "Serve the dashboard and the HTTP API."),
    "service": ("ops.service:service", "Run it as a service of systemd."),
    "worker": ("ops.worker:command", "Run jobs."),
    "add": ("commands.add:add", "Add a program as a job."),
    "sweep": ("commands.add:sweep", "Add a program for every combination of parameters."),
    "run": ("commands.run:run", "Run a program here and now, as a job."),
    "log": ("commands.run:show_log", "Show what a program has written."),
    "kill": ("jobs.actions:kill", "End jobs that run."),
    "restart": ("jobs.actions:restart", "Run programs again: the same jobs, new attempts."),
    "enqueue": ("jobs.enqueue:command", "Enqueue a job by the name of its kind."),
    "ls": ("jobs.list:ls", "List jobs, the newest first."),
    "show": ("jobs.list:show", "Show one job with its history."),
    "why": ("jobs.list:why", "Say why a job is not running."),
    "wait": ("jobs.wait:command", "Wait until jobs have ended; the exit code tells how."),
    "cancel": ("jobs.actions:cancel", "Cancel jobs."),
    "pause": ("jobs.actions:pause", "Hold jobs, running ones too."),
    "resume": ("jobs.actions:resume", "Let paused and held jobs go on."),
    "retry": ("jobs.actions:retry", "Run dead and cancelled jobs again."),
    "hold": ("jobs.actions:hold", "Keep jobs from starting."),
    "unhold": ("jobs.actions:unhold", "Let held jobs go."),
    "set": ("jobs.edit:change", "Change priority, queue or time of jobs, and programs until they run."),
    "rm": ("jobs.actions:rm", "Remove jobs with their history."),
    "batch": ("batches.batch:batch", "Run a function over many units; look at batches and steer them."),
    "schedule": (
        "schedules.schedule:schedule",
        "Fire jobs by the clock: add schedules, look at their plans, steer them.",
    ),
    "scheduler": ("ops.worker:scheduler", "Plan schedules, and run no jobs."),
    "queue": ("fleet.queues:queue", "Look at queues, limit, pause and resume them."),
    "workers": ("fleet.queues:workers", "List the workers that are alive."),
    "ask": ("fleet.queues:ask", "Ask a worker to be quiet, to stop or to go on."),
    "acts": ("ops.access:acts", "List what people did: who, when, by which way."),
    "token": ("ops.access:token", "Make, list and revoke tokens for the dashboard and the API."),
    "top": ("fleet.top:command", "Watch states, queues, workers and running jobs."),
    "doctor": ("ops.doctor:command", "Check the environment and the store, and say what to mend."),
    "db": ("ops.db:db", "Migrate, check, back up, vacuum or move the store."),
    "autoscaler": ("fleet.autoscaler:autoscaler", "Look at how hosts bear their programs."),
    "size": ("fleet.size:size", "Say how many programs this host could run at once."),
    "audit": ("ops.deploy:audit", "Say whether it is safe to deploy."),
    "drain": ("ops.deploy:drain", "Start nothing more, and wait until nothing runs."),
    "emergency-stop": ("ops.deploy:emergency_stop", "Stop everything, at once."),
    "completion": ("ops.about:completion", "Print the completion script of a shell."),
    "config": ("ops.about:config", "Show the configuration and where it comes from."),
    "exit-codes": ("ops.about:exit_codes", "List the exit codes."),
    "explain": ("ops.about:explain", "Explain an error code."),
}


@click.group(cls=CommandGroup, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="holdfast")
def cli() -> None:
    """Durable jobs for long-running work.

    Every command prints text for people, and with -o json or -o ndjson for programs. The exit codes
    are fixed: see holdfast exit-codes.
    """


def main(arguments: list[str] | None = None) -> NoReturn:
    """The ``holdfast`` program: every failure becomes one line and a hint, or one JSON document, and an exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    repair_streams()
    session = Session(format=asked_format(words))
    code = _run(words, session)
    try:
        session.close()
        sys.stdout.flush()
    except BrokenPipeError:
        code = quiet_end()
    except OSError as error:
        code = not_written(error)
    sys.exit(code)


def _run(words: list[str], session: Session) -> int:
    try:
        code = cli.main(words, prog_name="holdfast", standalone_mode=False, obj=session)
    except BaseException as error:  # noqa: BLE001 - whoever reads our answer must get one
        return tell_safely(error, session)
    return code if isinstance(code, int) else 0


def asked_format(words: list[str]) -> Format | None:
    """The format that the line asks for, also when the line cannot be understood otherwise."""
    for word, value in zip(words, [*words[1:], ""], strict=False):
        found = value if word in ("-o", "--output") else word.removeprefix("--output=").removeprefix("-o")
        if word.startswith(("-o", "--output")) and found in list(Format):
            return Format(found)
    return None

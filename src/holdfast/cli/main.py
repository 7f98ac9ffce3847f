"""The ``holdfast`` command line and the table of its commands."""

from __future__ import annotations

import sys
from typing import NoReturn

import click

from holdfast import __version__
from holdfast.cli.command import CommandGroup
from holdfast.cli.errors import discard_output, report_safely, report_unwritable_output
from holdfast.cli.session import CliSession
from holdfast.output.printer import Format, repair_streams

#: Name of each command: its module and function, imported on call, and its line in the help.
COMMANDS = {
    "up": ("ops.up:up", "Run everything for a store in one process."),
    "down": ("ops.up:down", "Stop what up has started."),
    "status": ("ops.status:status", "Show what is up."),
    "web": ("ops.web:web", "Serve the dashboard and the HTTP API."),
    "service": ("ops.service:service", "Run it as a service of systemd."),
    "worker": ("ops.worker:worker", "Run jobs."),
    "add": ("commands.add:add", "Add a program as a job."),
    "sweep": ("commands.sweep:sweep", "Add a program for every combination of parameters."),
    "run": ("commands.run:run", "Run a program here and now, as a job."),
    "log": ("commands.log:log", "Show what a program has written."),
    "files": ("commands.files:files", "Append to shared files, and replace them, without half lines and half files."),
    "kill": ("jobs.actions:kill", "Cancel running jobs."),
    "restart": ("jobs.actions:restart", "Run commands again that have failed or were cancelled."),
    "enqueue": ("jobs.enqueue:enqueue", "Enqueue a job by the name of its kind."),
    "ls": ("jobs.list:ls", "List jobs, the newest first."),
    "show": ("jobs.show:show", "Show one job with its history."),
    "why": ("jobs.show:why", "Say why a job is not running."),
    "wait": ("jobs.wait:wait", "Wait until jobs have ended; the exit code tells how."),
    "cancel": ("jobs.actions:cancel", "Cancel jobs."),
    "pause": ("jobs.actions:pause", "Hold jobs, including running ones."),
    "resume": ("jobs.actions:resume", "Release paused and held jobs."),
    "retry": ("jobs.actions:retry", "Run dead and cancelled jobs again with all their attempts."),
    "hold": ("jobs.actions:hold", "Keep idle jobs from starting until they are released."),
    "unhold": ("jobs.actions:unhold", "Release held jobs."),
    "set": (
        "jobs.actions:edit",
        "Change priority, queue or time of jobs that are not finished, and commands until they run.",
    ),
    "rm": ("jobs.actions:rm", "Delete jobs with their whole history."),
    "batch": ("batches.batch:batch", "Run a function over many units; look at batches and steer them."),
    "inbox": ("batches.inbox:inbox", "Take results that units hand over; accept and refuse them."),
    "schedule": (
        "schedules.schedule:schedule",
        "Fire jobs by the clock: add schedules, look at their plans, steer them.",
    ),
    "scheduler": ("ops.worker:scheduler", "Plan schedules, and run no jobs."),
    "queue": ("fleet.queues:queue", "Look at queues, limit, pause and resume them."),
    "workers": ("fleet.workers:workers", "List the workers that are alive."),
    "ask": ("fleet.workers:ask", "Send a request to a worker on any host."),
    "audit-log": ("ops.access:audit_log", "List what people did: who, when, by which way."),
    "token": ("ops.access:token", "Make, list and revoke tokens for the dashboard and the API."),
    "top": ("fleet.top:top", "Watch states, queues, workers and running jobs."),
    "doctor": ("ops.doctor:doctor", "Check the environment and the store, and say what to mend."),
    "db": ("ops.db:db", "Migrate, check, back up, vacuum or move the store."),
    "autoscaler": ("fleet.workers:autoscaler", "Look at how hosts bear their programs."),
    "size": ("fleet.workers:size", "Say how many programs this host could run at once."),
    "audit": ("ops.deploy:audit", "Say whether it is safe to deploy."),
    "drain": ("ops.deploy:drain", "Start no more jobs in the whole store, and wait until none is running."),
    "emergency-stop": ("ops.deploy:emergency_stop", "Start no more jobs in the whole store, and stop running ones."),
    "completion": ("ops.about:completion", "Print the completion script of a shell."),
    "config": ("ops.about:config", "Show the configuration and where it comes from."),
    "exit-codes": ("ops.about:exit_codes", "List the exit codes."),
    "explain": ("ops.about:explain", "Explain an error code."),
}


@click.group(cls=CommandGroup, lazy=COMMANDS)
@click.version_option(__version__, prog_name="holdfast")
def cli() -> None:
    """Durable jobs for long-running work.

    Every command prints text for people, and with -o json or -o ndjson for programs. The exit codes
    are fixed: see holdfast exit-codes.
    """


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run one command line and exit. Each failure prints one line with a hint, or one JSON document."""
    if arguments is None:
        arguments = sys.argv[1:]
    repair_streams()
    session = CliSession(format=requested_format(arguments))
    try:
        result = cli.main(arguments, prog_name="holdfast", standalone_mode=False, obj=session)
        code = result if isinstance(result, int) else 0
    except BaseException as error:  # noqa: BLE001 - a caller that parses stdout needs an answer in every case
        code = report_safely(error, session)
    try:
        session.close()
        sys.stdout.flush()
    except BrokenPipeError:
        code = discard_output()
    except OSError as error:
        code = report_unwritable_output(error)
    sys.exit(code)


def requested_format(arguments: list[str]) -> Format | None:
    """Find ``--output`` without click, so that usage errors come in the requested format too."""
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=False):
        separate = argument in ("-o", "--output")
        value = following if separate else argument.removeprefix("--output=").removeprefix("-o")
        if argument.startswith(("-o", "--output")) and value in list(Format):
            return Format(value)
    return None

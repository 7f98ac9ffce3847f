"""The ``holdfast`` command line and the table of its commands."""

from __future__ import annotations

import gc
import sys
from typing import NoReturn

import click

from holdfast import __version__
from holdfast.cli.command import CommandGroup
from holdfast.cli.errors import discard_output, report_safely, report_unwritable_output
from holdfast.cli.session import CliSession
from holdfast.output.printer import OutputError, PipeClosed, repair_streams, requested_format

#: The commands by the headings of the help: module and function, imported on call, and the line in the help.
COMMANDS = {
    "Start here": {
        "up": ("ops.up:up", "Run worker, scheduler and, with --web, the dashboard."),
        "down": ("ops.up:down", "Stop the processes that up started."),
        "status": ("ops.status:status", "Show the processes that up started."),
        "top": ("fleet.top:top", "Watch states, queues, workers and running jobs."),
    },
    "Jobs": {
        "enqueue": ("jobs.enqueue:enqueue", "Enqueue a job of a kind that your application defines."),
        "ls": ("jobs.list:ls", "List jobs, newest first."),
        "show": ("jobs.show:show", "Show one job with its history."),
        "why": ("jobs.show:why", "Explain why a job is not running."),
        "errors": ("jobs.list:errors", "Group failed and retrying jobs by their errors."),
        "wait": ("jobs.wait:wait", "Wait until jobs finish; the exit code is their result."),
        "cancel": ("jobs.actions:cancel", "Cancel jobs, idle and running."),
        "kill": ("jobs.actions:kill", "Cancel running jobs only; idle jobs stay."),
        "hold": ("jobs.actions:hold", "Keep idle jobs from starting; running jobs continue."),
        "unhold": ("jobs.actions:unhold", "Release held jobs."),
        "pause": ("jobs.actions:pause", "Stop running jobs and hold idle ones; they lose no attempt."),
        "resume": ("jobs.actions:resume", "Release paused and held jobs, or a stopped store."),
        "retry": ("jobs.actions:retry", "Run dead and cancelled jobs again; attempts count from 0."),
        "set": ("jobs.actions:edit", "Change jobs: priority, queue, time, command settings."),
        "rm": ("jobs.actions:rm", "Delete jobs and their history."),
    },
    "Commands": {
        "add": ("commands.add:add", "Add a shell command as a job."),
        "sweep": ("commands.sweep:sweep", "Add a command for every combination of parameters."),
        "run": ("commands.run:run", "Run a command here and now, recorded as a job."),
        "log": ("commands.log:log", "Show the output of a command."),
        "restart": ("jobs.actions:restart", "Run failed commands again: one more attempt and log."),
        "files": ("commands.files:files", "Append to files and replace them safely from scripts."),
    },
    "Batches": {
        "batch": ("batches.batch:batch", "Run a function over many units; control batches."),
        "inbox": ("batches.inbox:inbox", "Take, accept and refuse the results that units hand over."),
    },
    "Schedules": {
        "schedule": ("schedules.schedule:schedule", "Add, list, preview, pause and backfill schedules."),
        "scheduler": ("ops.worker:scheduler", "Fire schedules without running jobs."),
    },
    "Workers and queues": {
        "worker": ("ops.worker:worker", "Run a worker until you stop it."),
        "workers": ("fleet.workers:workers", "List live and lost workers."),
        "ask": ("fleet.workers:ask", "Quiet, stop or resume one worker, on any host."),
        "queue": ("fleet.queues:queue", "List, limit, pause and resume queues."),
        "autoscaler": ("fleet.workers:autoscaler", "Show how many commands each host runs, and why."),
        "size": ("fleet.workers:size", "Estimate how many commands fit on this host."),
        "web": ("ops.web:web", "Serve the dashboard and the HTTP API."),
    },
    "Deploy and repair": {
        "doctor": ("ops.doctor:doctor", "Check the environment and the store, and suggest fixes."),
        "audit": ("ops.deploy_audit:audit", "Check whether the store is ready for a deploy."),
        "drain": ("ops.stop_switch:drain", "Start no jobs in the whole store; wait for running ones."),
        "emergency-stop": ("ops.stop_switch:emergency_stop", "Start no jobs in the whole store; stop running ones."),
        "service": ("ops.service:service", "Install or remove a systemd service that runs up."),
    },
    "Store": {
        "db": ("ops.db:db", "Migrate, check, back up, vacuum or move the store."),
        "token": ("ops.tokens:token", "Create, list and revoke tokens for dashboard and API."),
        "audit-log": ("ops.audit_log:audit_log", "List who did what, when and how."),
    },
    "About": {
        "config": ("ops.config:config", "Show the settings and where each comes from."),
        "completion": ("ops.about:completion", "Print the completion script for a shell."),
        "exit-codes": ("ops.about:exit_codes", "List the exit codes."),
        "explain": ("ops.about:explain", "Explain an error code."),
    },
}


@click.group(cls=CommandGroup, lazy=COMMANDS)
@click.version_option(__version__, prog_name="holdfast")
def cli() -> None:
    """Durable jobs for long-running work.

    A first job:
      holdfast add -- sleep 5      # put a command into the queue
      holdfast up --web            # run it; the dashboard shows it
    """


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run one command line and exit. Each failure prints one line with a hint, or one JSON document."""
    if arguments is None:
        arguments = sys.argv[1:]
        gc.freeze()  # modules live to the end: a collection would only cost time
        gc.disable()  # until the command is loaded
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
    except (BrokenPipeError, PipeClosed):
        code = discard_output()
    except OSError as error:
        code = report_unwritable_output(error)
    except OutputError as error:
        code = report_unwritable_output(error.error)
    sys.exit(code)

"""``worker`` and ``scheduler``: run jobs, or only plan schedules, until a signal arrives."""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn

import click
from msgspec import Struct

from holdfast.app import Holdfast
from holdfast.cli.command import command, with_options
from holdfast.cli.session import CliSession, load_app
from holdfast.domain.access.masking import mask_store_url
from holdfast.domain.jobs.job import INTERNAL_PREFIX
from holdfast.domain.names import escape_controls
from holdfast.errors import InvalidInput
from holdfast.worker.exit import exit_process
from holdfast.worker.stop_signals import Signals

if TYPE_CHECKING:  # the dashboard takes its options from here, and runs no worker
    from holdfast.worker.worker import Worker

log = logging.getLogger("holdfast")

#: Time to release jobs after the second signal, before the process exits.
RELEASE_TIMEOUT_S = 0.7
SECOND_SIGNAL_EXIT = 130

APP = click.option("--app", metavar="MODULE:APP", help="Application with the kinds to run: module:name.")
VERSION = click.option("--version", metavar="VERSION", help="Version of the code to report. [the application's]")
METRICS = click.option("--metrics", metavar="HOST:PORT", help="Address for /metrics, /livez and /readyz.")
RETENTION = click.option(
    "--retention",
    multiple=True,
    metavar="NAME=TIME",
    help="How long to keep finished rows: done=7d, or dead=0 (forever); repeatable.",
)
LOG = (
    click.option("--log-format", type=click.Choice(["text", "json"]), help="Format of the log. [text]"),
    click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        help="Least severe messages to log. [info]",
    ),
)
#: Adds the options of a worker to a command; the configuration supplies the rest.
worker_options = with_options(
    APP,
    click.option(
        "-q", "--queue", "queues", multiple=True, help="Queue to serve, '*' for all; repeatable. [those of the kinds]"
    ),
    click.option(
        "--kind", "kinds", multiple=True, help="Run only this kind; repeatable. [all kinds of the application]"
    ),
    click.option("--slots", type=click.IntRange(1, 10_000), help="Maximum number of jobs at the same time. [8]"),
    click.option("--grace", metavar="TIME", help="How long running jobs may continue after the first signal. [30s]"),
    click.option("--run-commands", type=click.Choice(["on", "off"]), help="Run commands. [on; off with --app]"),
    RETENTION,
    VERSION,
    METRICS,
    *LOG,
)


class WorkerAnswer(Struct, frozen=True):
    """The number of runs of a worker, by result."""

    worker: str
    results: dict[str, int]


@command("worker", answers=WorkerAnswer)
@worker_options
@click.option("--drain", is_flag=True, help="Exit when nothing is ready or running.")
@click.option("--no-plans", is_flag=True, help="Do not fire schedules in this process.")
def worker(session: CliSession, *, drain: bool, no_plans: bool, **flags: Any) -> None:
    """Run a worker until you stop it. To start a scheduler and the dashboard with it, use holdfast up.

    With --app it runs the kinds of the application, and commands only with --run-commands on. It refuses an application
    without kinds, which lacks the import of its jobs. Without --app it runs commands. It can import modules of the
    current directory. The store is the one of --url, else the application's own, else HOLDFAST_URL or the url of the
    configuration file.

    After the first SIGINT or SIGTERM it claims no more jobs. Running jobs may finish within the grace period; the
    others are released and lose no attempt. After a second signal it exits at once.

    Examples:
      holdfast worker --app shop.jobs:app
      holdfast worker --app shop.jobs:app -q mail -q default --slots 16
      holdfast worker --app shop.jobs:app --drain
    """
    settings = start_log(session, flags)
    app = load_app(settings["app"], url=session.url_flag)
    run_worker(session, app, build_worker(session, app, settings, drain=drain, plans=not no_plans), settings)


@command("scheduler", answers=WorkerAnswer)
@with_options(APP, RETENTION, VERSION, METRICS, *LOG)
def scheduler(session: CliSession, **flags: Any) -> None:
    """Fire schedules until a signal stops it, and run no jobs.

    Every worker fires schedules too: use this on hosts that should run no jobs. Each plan fires once, even if several
    schedulers run or some are killed. --app names the application that declares the schedules and lists their scopes.

    Examples:
      holdfast scheduler --app shop.jobs:app
    """
    settings = start_log(session, flags)
    app = load_app(settings["app"], url=session.url_flag)
    scheduler = app.scheduler(retention=settings["retention"], version=settings["version"])
    run_worker(session, app, scheduler, {**settings, "grace": "1s"})


def start_log(session: CliSession, flags: dict[str, Any]) -> dict[str, Any]:
    """Start the log of a long-running command and return its settings; stdout stays free for the answer."""
    ages = dict(_named_age(text) for text in flags.pop("retention", ()))
    settings = {name: session.setting(name, flag) for name, flag in flags.items()}
    settings["retention"] = {**session.setting("retention"), **ages}
    session.output.keep_stdout()
    configure_log(style=settings["log_format"], level=settings["log_level"])
    return settings


def _named_age(text: str) -> tuple[str, str]:
    name, equals, age = text.partition("=")
    if not equals:
        raise InvalidInput(f"{text!r} is not a valid retention", hint="Write NAME=TIME, for example done=7d.")
    return name.strip(), age


def build_worker(session: CliSession, app: Holdfast, settings: dict[str, Any], **options: Any) -> Worker:
    """The worker of a command. Only without an application does it run commands by default.

    Raises:
        InvalidInput: The application that ``--app`` names has no kinds: a module is not imported.
    """
    target = settings["app"]
    worker = app.worker(
        queues=settings["queues"] or None,
        kinds=settings["kinds"] or None,
        slots=settings["slots"],
        grace=settings["grace"],
        version=settings["version"],
        **options,
        memory_profiles=session.setting("memory_profiles"),
        log_keep_free=session.setting("log_keep_free"),
        host_limits=session.setting("host_limits"),
        retention=settings["retention"],
        commands={"auto": None if target else True, "on": True, "off": False}[settings["run_commands"]],
    )
    if target and not _own_kinds(worker):
        module = target.partition(":")[0]
        hint = (
            f"Import the modules with its jobs where {module} is imported: import shop.mails. A worker for commands "
            "has no --app, or --run-commands on; holdfast scheduler only fires schedules."
        )
        raise InvalidInput(f"{target} has no kinds: import the modules that register them", hint=hint)
    return worker


def run_worker(
    session: CliSession,
    app: Holdfast,
    worker: Worker,
    settings: dict[str, Any],
    *,
    on_start: Callable[[], None] = lambda: None,
) -> NoReturn:
    """Run a worker until a signal arrives or, with ``drain``, until no job is left; then exit the process."""
    if settings["metrics"] is not None:
        from holdfast.worker.metrics import MetricsServer

        print_notice(f"metrics on port {MetricsServer(settings['metrics'], worker, app.store).port}")
    Signals(lambda: _stop(worker, settings["grace"]), lambda: _leave(worker)).start()
    on_start()
    print_notice(_introduction(worker, settings.get("slots"), _describe_store(session, app.url)))
    worker.run(exits=True)
    results = ", ".join(f"{count} {result}" for result, count in sorted(worker.counts.results.items()))
    session.output.value(WorkerAnswer(worker.id, dict(worker.counts.results)), lambda: ())
    session.output.flush()
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads that still run have lost their leases: a normal exit would wait for them.
    exit_process(0, f"finished; {results or 'no job was run'}" if worker.kinds else "finished", report=print_notice)


def _describe_store(session: CliSession, url: str) -> str:
    """The store of the worker. If a configured one differs, the application has its own URL, which wins."""
    if session.named_url in (None, url):
        return mask_store_url(url)
    configured = f"{mask_store_url(session.url)} of {session.loaded.values['url'].origin}"
    return f"{mask_store_url(url)} (the application's own URL overrides {configured}; --url overrides both)"


def _introduction(worker: Worker, slots: int | None, store: str) -> str:
    if not worker.kinds:
        return f"scheduler {worker.id}: fires the schedules of {store}"
    kinds = ", ".join(_own_kinds(worker)) or "none (name an application with --app)"
    return f"worker {worker.id}: {slots} slots, queues {', '.join(worker.queues)}, store {store}\nkinds: {kinds}"


def _own_kinds(worker: Worker) -> list[str]:
    """The kinds of a worker but pings, which every worker sends."""
    return [kind for kind in worker.kinds if not kind.startswith(INTERNAL_PREFIX)]


def _stop(worker: Worker, grace: str) -> None:
    may_end = f": {worker.running} jobs may finish within {grace}; signal again to exit at once" if worker.kinds else ""
    print_notice(f"stopping{may_end}")
    worker.stop()


def _leave(worker: Worker) -> None:
    print_notice("exiting at once; running jobs are released")
    release = threading.Thread(target=worker.abandon, daemon=True)
    release.start()
    release.join(RELEASE_TIMEOUT_S)
    exit_process(SECOND_SIGNAL_EXIT, "exited after a second signal", report=print_notice)


def print_notice(text: str) -> None:
    """Print a line to stderr; if the log is JSON, log it instead."""
    if logs_json():
        log.info(text)
    else:
        click.echo(text, err=True)


#: The fields that a record may carry besides its message.
RECORD_FIELDS = (
    *("event", "job", "kind", "queue", "attempt", "token", "worker", "duration_s", "retry_in_s"),
    *("schedule", "plan", "scope"),
)


def configure_log(*, style: str = "text", level: str = "info") -> None:
    """Send Holdfast's logs to stderr; *style* is ``text`` or ``json``."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    logger = logging.getLogger("holdfast")
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False


def logs_json() -> bool:
    """Whether this process logs JSON."""
    return any(isinstance(handler.formatter, JsonFormatter) for handler in logging.getLogger("holdfast").handlers)


def record_fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name in RECORD_FIELDS if (value := getattr(record, name, None)) is not None}


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TextFormatter(logging.Formatter):
    """One line, then the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={value}" for name, value in record_fields(record).items())
        line = f"{_time(record)} {record.levelname.lower():7} {record.getMessage()}{fields}"
        return escape_controls(f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line)


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **record_fields(record),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)

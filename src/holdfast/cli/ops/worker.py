"""``holdfast worker``: run jobs until told to stop."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn

import click
from msgspec import Struct

from holdfast.app import Holdfast
from holdfast.cli.app_loader import load_app
from holdfast.cli.command import command as shared_command
from holdfast.cli.command import with_options
from holdfast.cli.session import Session
from holdfast.domain.access.masking import mask_store_url
from holdfast.output import log_format
from holdfast.worker.signals import Signals
from holdfast.worker.worker import Worker

log = logging.getLogger("holdfast")

#: How long the second signal may take to give jobs back, in seconds.
LAST_ACT = 0.7
SECOND_SIGNAL = 130

APP = click.option("--app", metavar="MODULE:APP", help="The application whose kinds to run.")
METRICS = click.option("--metrics", metavar="HOST:PORT", help="Serve /metrics, /livez and /readyz here.")
LOG = (
    click.option("--log-format", type=click.Choice(["text", "json"]), help="How to write the log. [text]"),
    click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="What to log. [info]"),
)
OPTIONS = (
    APP,
    click.option("-q", "--queue", "queues", multiple=True, help="A queue to serve; repeatable. [those of the kinds]"),
    click.option("--slots", type=click.IntRange(1, 10_000), help="Jobs at a time. [8]"),
    click.option("--grace", metavar="TIME", help="How long jobs may go on after a first signal. [30s]"),
    METRICS,
    *LOG,
)


class Ran(Struct, frozen=True):
    """What a worker did until it ended: how many runs ended how."""

    worker: str
    results: dict[str, int]


#: Gives a command the options of a worker; what they do not say is configured.
working = with_options(*OPTIONS)


@shared_command("worker", answers=Ran)
@working
@click.option("--drain", is_flag=True, help="End when nothing is ready or running.")
@click.option("--no-plans", is_flag=True, help="Leave the planning of schedules to others.")
def command(session: Session, *, drain: bool, no_plans: bool, **flags: Any) -> None:
    """Run jobs: claim what is ready, run it, record how it ended.

    The current directory is importable. Without --app only built-in kinds run. The store is the app's
    own, unless --url names another; without either it is HOLDFAST_URL, or what the configuration says.

    The first SIGINT or SIGTERM stops claiming: what runs may end within the grace, the rest is
    given back without losing an attempt. The second one leaves at once.

    \b
    Examples:
      holdfast worker --app shop.jobs:app
      holdfast worker --app shop.jobs:app -q mail -q default --slots 16
      holdfast worker --app shop.jobs:app --drain
    """
    asked = {name: session.setting(name, flag) for name, flag in flags.items()}
    session.output.keep_stdout()
    log_format.configure(style=asked["log_format"], level=asked["log_level"])
    app = load_app(asked["app"], url=session.asked_url)
    serve(session, app, working_on(session, app, asked, drain=drain, plans=not no_plans), asked)


@shared_command("scheduler", answers=Ran)
@with_options(APP, METRICS, *LOG)
def scheduler(session: Session, **flags: Any) -> None:
    """Plan the schedules of the store until told to stop, and run no jobs.

    Every worker plans as well: this is for hosts that should plan only. However many there are, and whichever of
    them is killed, each plan fires once. --app names the application that declares schedules and knows their scopes.

    \b
    Example:
      holdfast scheduler --app shop.jobs:app
    """
    asked = {name: session.setting(name, flag) for name, flag in flags.items()}
    session.output.keep_stdout()
    log_format.configure(style=asked["log_format"], level=asked["log_level"])
    app = load_app(asked["app"], url=session.asked_url)
    serve(session, app, app.scheduler(), {**asked, "grace": "1s"})


def working_on(
    session: Session, app: Holdfast, asked: dict[str, Any], *, drain: bool = False, plans: bool = True
) -> Worker:
    """The worker that was asked for."""
    scaling = {name: session.setting(name) for name in ("memory_profiles", "host_limits")}
    return app.worker(
        queues=asked["queues"] or None, slots=asked["slots"], drain=drain, grace=asked["grace"], plans=plans, **scaling
    )


def serve(
    session: Session,
    app: Holdfast,
    worker: Worker,
    asked: dict[str, Any],
    *,
    told: Callable[[Worker], None] = lambda _: None,
) -> NoReturn:
    """Run a worker until a signal, or until there is nothing left; *told* hears of it when it is about to begin."""
    if asked["metrics"] is not None:
        _serve_metrics(asked["metrics"], worker, app)
    Signals(lambda: _stop(worker, asked["grace"]), lambda: _leave(worker)).start()
    told(worker)
    say(_introduction(worker, asked.get("slots"), mask_store_url(app.url)))
    worker.run(exits=True)
    say(f"ended; {_summary(worker)}" if worker.kinds else "finished")
    session.output.value(Ran(worker.id, dict(worker.counts.results)), lambda: ())
    session.output.flush()
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads that still run have lost their jobs: they must not go on for a moment longer.
    os._exit(0)


def _introduction(worker: Worker, slots: int | None, store: str) -> str:
    if not worker.kinds:
        return f"scheduler {worker.id}: plans the schedules of {store}"
    kinds = [kind for kind in worker.kinds if not kind.startswith("holdfast.")]
    told = ", ".join(kinds) or "none (name an application with --app)"
    return f"worker {worker.id}: {slots} slots, queues {', '.join(worker.queues)}, store {store}\nkinds: {told}"


def _stop(worker: Worker, grace: str) -> None:
    may_end = f": {worker.running} jobs may end within {grace}; once more to leave at once" if worker.kinds else ""
    say(f"stopping{may_end}")
    worker.stop()


def _leave(worker: Worker) -> None:
    say("leaving at once; jobs that ran are given back")
    last = threading.Thread(target=worker.abandon, daemon=True)
    last.start()
    last.join(LAST_ACT)
    os._exit(SECOND_SIGNAL)


def _serve_metrics(address: str, worker: Worker, app: Holdfast) -> None:
    from holdfast.worker.metrics import MetricsServer

    server = MetricsServer(address, worker, app.store)
    say(f"metrics on port {server.port}")


def _summary(worker: Worker) -> str:
    results = worker.counts.results
    return ", ".join(f"{count} {result}" for result, count in sorted(results.items())) or "nothing was run"


def say(text: str) -> None:
    """A line for people; where programs read the log, it is a line of the log."""
    if log_format.is_json():
        log.info(text)
    else:
        click.echo(text, err=True)

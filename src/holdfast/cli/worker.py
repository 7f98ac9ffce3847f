"""``holdfast worker``: run jobs until told to stop."""

from __future__ import annotations

import importlib
import logging
import os
import re
import signal
import socket
import sys
import threading
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

import click
from msgspec import Struct

from holdfast import logs
from holdfast.app import Holdfast
from holdfast.cli.render import masked
from holdfast.cli.session import Session
from holdfast.cli.shared import command as shared_command
from holdfast.errors import ConfigurationError
from holdfast.run.worker import Worker

log = logging.getLogger("holdfast")

#: How long the second signal may take to give jobs back, in seconds.
LAST_ACT = 0.7
SECOND_SIGNAL = 130


class Ran(Struct, frozen=True):
    """What a worker did until it ended: how many runs ended how."""

    worker: str
    results: dict[str, int]


@shared_command("worker", answers=Ran)
@click.option("--app", metavar="MODULE:APP", help="The application whose kinds to run.")
@click.option("-q", "--queue", "queues", multiple=True, help="A queue to serve; repeatable. [those of the kinds]")
@click.option("--slots", type=click.IntRange(1, 10_000), help="Jobs at a time. [8]")
@click.option("--drain", is_flag=True, help="End when nothing is ready or running.")
@click.option("--grace", metavar="TIME", help="How long jobs may go on after a first signal. [30s]")
@click.option("--metrics", metavar="HOST:PORT", help="Serve /metrics, /livez and /readyz here.")
@click.option("--log-format", type=click.Choice(["text", "json"]), help="How to write the log. [text]")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="What to log. [info]")
def command(session: Session, *, drain: bool, **flags: Any) -> None:
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
    logs.configure(style=asked["log_format"], level=asked["log_level"])
    app = load_app(asked["app"], url=session.asked_url)
    worker = app.worker(queues=asked["queues"] or None, slots=asked["slots"], drain=drain, grace=asked["grace"])
    if asked["metrics"] is not None:
        serve_metrics(asked["metrics"], worker, app)
    Signals(worker, asked["grace"]).start()
    _say(f"worker {worker.id}: {asked['slots']} slots, queues {', '.join(worker.queues)}, store {masked(app.url)}")
    _say(f"kinds: {', '.join(worker.kinds) or 'none (name an application with --app)'}")
    worker.run(exits=True)
    _say(f"ended; {_summary(worker)}")
    session.output.value(Ran(worker.id, dict(worker.counts.results)), lambda: ())
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads that still run have lost their jobs: they must not go on for a moment longer.
    os._exit(0)


def serve_metrics(address: str, worker: Worker, app: Holdfast) -> None:
    from holdfast.run.metrics import MetricsServer

    server = MetricsServer(address, worker, app.store)
    _say(f"metrics on port {server.port}")


class Signals:
    """Two levels of stop, heard in a thread: a handler that runs in the main one could find it holding a lock."""

    def __init__(self, worker: Worker, grace: str) -> None:
        self._worker = worker
        self._grace = grace
        self._line, wake = socket.socketpair()
        self._line.setblocking(True)
        wake.setblocking(False)
        self._wake = wake

    def start(self) -> None:
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        threading.Thread(target=self._hear, name="holdfast-signals", daemon=True).start()

    def _hear(self) -> None:
        seen = 0
        while True:
            for number in self._heard():
                if number in (signal.SIGINT, signal.SIGTERM):
                    seen += 1
                    self._first() if seen == 1 else self._second()

    def _heard(self) -> bytes:
        try:
            return self._line.recv(64)
        except OSError:
            # A handler has closed what is not its own: a worker that cannot hear must not go on.
            os._exit(1)

    def _first(self) -> None:
        _say(f"stopping: {self._worker.running} jobs may end within {self._grace}; once more to leave at once")
        self._worker.stop()

    def _second(self) -> None:
        _say("leaving at once; jobs that ran are given back")
        last = threading.Thread(target=self._worker.abandon, daemon=True)
        last.start()
        last.join(LAST_ACT)
        os._exit(SECOND_SIGNAL)


def load_app(target: str | None, *, url: str | None = None) -> Holdfast:
    """The application that ``MODULE:APP`` names, or an empty one.

    Raises:
        ConfigurationError: The module cannot be imported, or holds no such application.
    """
    if target is None:
        return Holdfast(url)
    name, _, attribute = target.partition(":")
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", name) or not (attribute or "app").isidentifier():
        raise ConfigurationError(f"{target!r} is no application", hint="Write MODULE:APP, for example shop.jobs:app.")
    module = _imported(name)
    app = getattr(module, attribute or "app", None)
    if not isinstance(app, Holdfast):
        found = [key for key, value in vars(module).items() if isinstance(value, Holdfast)]
        hint = f"Did you mean {name}:{found[0]}?" if found else "Name it as MODULE:APP."
        raise ConfigurationError(f"{name!r} has no application {attribute or 'app'!r}", hint=hint)
    if url is not None:
        app.use(url)
    return app


def _imported(name: str) -> ModuleType:
    """The module, with the current directory on the path. What it raises is told by its last line."""
    try:
        sys.path.insert(0, str(Path.cwd()))
    except FileNotFoundError:
        raise ConfigurationError("the current directory does not exist any more") from None
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            hint = "The current directory is importable; is this the right one? Write MODULE:APP."
            raise ConfigurationError(f"there is no module {name!r}", hint=hint) from None
        raise _not_imported(name, error) from error
    except (Exception, SystemExit) as error:
        raise _not_imported(name, error) from error


def _not_imported(name: str, error: BaseException) -> ConfigurationError:
    where = traceback.extract_tb(error.__traceback__)[-1]
    last = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
    return ConfigurationError(
        f"the module {name!r} cannot be imported: {last}", hint=f"See {where.filename}, line {where.lineno}."
    )


def _summary(worker: Worker) -> str:
    results = worker.counts.results
    return ", ".join(f"{count} {result}" for result, count in sorted(results.items())) or "nothing was run"


def _say(text: str) -> None:
    """A line for people; where programs read the log, it is a line of the log."""
    if logs.is_json():
        log.info(text)
    else:
        click.echo(text, err=True)

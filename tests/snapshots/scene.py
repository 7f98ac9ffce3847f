"""The fixed store: what can happen has happened once, at fixed times. Only this file knows parts behind the public names."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path

import holdfast
from holdfast.cli.main import main
from holdfast.client.batches.function import published_kind
from holdfast.domain.batches.unit import UnitState
from holdfast.store.batches.runs import RunRequest
from holdfast.testing import drain, plan
from tests.snapshots.fixed import Clock, fixed
from tests.store.batches.test_batches import WORKER, finish, take
from tests.support import scene as web
from tests.support.jobs import claim_jobs

#: Who holds the batch that runs.
OWNER = {
    "host": "host-1",
    "pid": 4711,
    "started": 1,
    "boot": "b",
    "namespace": "n",
    "command": "holdfast batch run shop:resync",
}
#: How the autoscaler of the host stands.
SCALING = {
    "total": 16 * 2**30, "used": 6 * 2**30, "limit": 12 * 2**30, "room": 4 * 2**30, "resident": 2 * 2**30,
    "forecast": 3 * 2**30, "cores": 8.0, "load": 2.5, "cpu_pressure": 0.1, "memory_pressure": 0.0, "strain": "low",
    "frozen": [],
    "lanes": [{"queue": "builds", "least": 1, "most": 8, "slots": 3, "running": 1, "blocked": []}],
}  # fmt: skip
#: Files in the home folder that lines of commands name.
FILES = {
    "other.toml": 'slots = 4\nqueues = ["mail"]\n[command]\nmemory = "1G"\n[command.env]\nAPI_TOKEN = "s3cr3t"\n',
    "commands.txt": 'make all\n["make", "docs"]\n{"argv": ["make", "test"], "memory": "2G", "key": "tests", "env": {"A": "1"}}\n',
    "wrong.txt": '["make"\n{"argv": ["make"], "colour": 1}\n',
    "runs.csv": "seed,size\n1,small\n2,large\n",
    "payload.json": '{"to": "file"}\n',
    "units.py": (
        "import holdfast\n"
        "def load(key, *, loud=False):\n"
        "    if key == 3:\n"
        "        raise ValueError('three is missing')\n"
        "    if key == 4:\n"
        "        raise holdfast.Skip('four is empty')\n"
    ),
}


def build(home: Path) -> tuple[Clock, dict[str, str]]:
    """Fill the store in *home*; answers the clock as it stands then, and a token of each role."""
    clock = Clock()
    for name, text in FILES.items():
        (home / name).write_text(text, encoding="utf-8")
    with fixed(home, clock, still=True), holdfast.Holdfast("sqlite:///jobs.db", version="2026.11") as app:
        made = _Scene(app, clock)
        made.build()
        _call("db", "migrate", "--url", "sqlite:///empty.db")
    return clock, made.tokens


class _Scene(web.Scene):
    """The scene of the pages, and what else commands can show. Minutes pass between its parts."""

    def __init__(self, app: holdfast.Holdfast, clock: Clock) -> None:
        super().__init__(app)
        self.clock = clock
        self.tokens: dict[str, str] = {}
        self.handlers |= _kinds(app, clock)
        self.copy = app.unit(name="copy")(_copy)

    def build(self) -> _Scene:
        parts = (
            self._plans, self._fired, self._done, self._dead, self._retried, self._lost, self._command, self._programs,
            self._waiting, self._keyed, self._batch, self._batches, self._access, self._lapsed,
        )  # fmt: skip
        for part in parts:
            part()
            self.clock.advance(minutes=7)
        for last in (self._running, self._switches, self._scaled, self._held):
            last()
            self.clock.advance(seconds=5)
        return self

    def _plans(self) -> None:
        """Schedules whose plans were fired, skipped and caught up with."""
        create = self.app.schedules.create
        create("rollup", "measured", "every 10m", catch_up="none")
        create("regions", "mail", "*/15 * * * *", scopes=["eu", "us"], payload={"to": "all"}, overlap="queue_all")
        create("poll", "measured", "every 5m", catch_up="every", window="20m", runs=6)
        for minutes in (10, 45, 10):
            self.clock.advance(minutes=minutes)
            plan(self.app)
            drain(self.app)

    def _retried(self) -> None:
        """A job that waits for its retry, one that took two tries, and two that were cancelled or finished late."""
        self._put("flaky", "flaky", label="flaky", tags=["slow"], priority=5)
        self._put("second try", "second_try", label="second-try")
        self._put("measured", "measured", label="measured")
        self._put("cancelled", "mail", payload={"to": "nobody"}, label="cancelled", delay="1h")
        drain(self.app)
        _call("cancel", str(self.jobs["cancelled"]))
        self.clock.advance(seconds=2)
        drain(self.app)

    def _lost(self) -> None:
        """A job whose worker died: another one took it over."""
        self._put("taken over", "careful", label="taken-over", queue="careful")
        worker = web._worker(self.app.store, "worker-0", kinds=["careful"], queues=["careful"])
        claim_jobs(self.app.store, worker, queues=["careful"], kinds=["careful"], limit=1, started=True)
        self.clock.advance(minutes=5)
        drain(self.app)

    def _programs(self) -> None:
        """Programs that wait, with caps, variables and needs."""
        caps = ["--memory", "2G", "--cpus", "0.5", "--timeout", "1h", "--log-cap", "1M", "--retry", "2"]
        variables = ["--env", "RATE=0.1", "--env", "API_TOKEN=s3cr3t-value-here"]
        _call(
            "add", *caps, *variables, "--cwd", "/srv/train", "-l", "train", "--key", "train", "--", "python", "train.py"
        )
        _call("add", "--cwd", "/srv/train", "--after", "finished:label=train", "-q", "builds", "--", "make", "report")
        _call("sweep", "--cwd", "/srv/train", "--param", "size=1,2", "-q", "builds", "--", "simulate", "{size}")

    def _keyed(self) -> None:
        self._put(
            "keyed",
            "mail",
            payload={"to": "key"},
            key="mail-key",
            label="keyed",
            tags=["a", "b"],
            queue="later",
            delay="2d",
        )
        self._put(
            "needs dead",
            "mail",
            payload={"to": "late"},
            label="needs-dead",
            after=[self.jobs["fetch"], self.jobs["held"]],
        )

    def _batches(self) -> None:
        """A batch that is done, one with results in an inbox, and one that was cancelled."""
        self.app.run(self.copy, range(1, 6), output="none")
        self.app.store.kinds.publish([published_kind(self.copy)])
        handed = self.app.unit(name="handed")(_handed)
        self.app.run(handed, range(1, 5), output="none")
        first, second = self.app.inbox("results").take(2)
        first.accept()
        second.refuse("the picture is dark")
        stopped = self.app.submit(self.app.unit(name="stopped")(_copy), range(3))
        self.actions.batches.perform("cancel", stopped.id)

    def _access(self) -> None:
        """A token of each role, and one that was revoked."""
        for role in ("viewer", "operator", "admin"):
            self.tokens[role] = json.loads(_call("token", "add", role, "--role", role, "-o", "json"))["data"]["token"]
        _call("token", "add", "old")
        _call("token", "rm", "old", "--yes")

    def _lapsed(self) -> None:
        """A job whose worker is silent, and that nobody has taken over yet."""
        self._put("silent", "careful", label="silent", queue="careful")
        worker = web._worker(self.app.store, "worker-lost", kinds=["careful"], queues=["careful"])
        claim_jobs(self.app.store, worker, queues=["careful"], kinds=["careful"], limit=1, started=True)

    def _scaled(self) -> None:
        _call("queue", "set", "builds", "--autoscaler", "1-8")
        web._worker(self.app.store, "builder-2", kinds=["command"], queues=["builds"])
        self.app.store.autoscaler.report_status("builder-2", json.dumps(SCALING))

    def _held(self) -> None:
        """A batch that runs here and now, with units in every state."""
        store, owner = self.app.store, json.dumps(OWNER)
        asked = RunRequest(
            identity="held", kind="resync", arguments="{}", source="range 1-9", actor="ada", owner=owner, total=9
        )
        run = store.batches.open(asked, worker=WORKER)
        finish(store, run, 1, 2, label="new")
        finish(store, run, 3, state=UnitState.FAILED, error="ValueError: three is missing")
        finish(store, run, 4, state=UnitState.SKIPPED, warning="empty")
        finish(store, run, 5, state=UnitState.IN_DOUBT, error="its run was lost")
        take(store, run, 6, 7)


def _call(*words: str) -> str:
    """One command; answers what it printed."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()), suppress(SystemExit):
        main(list(words))
    return out.getvalue()


def _kinds(app: holdfast.Holdfast, clock: Clock) -> dict[str, object]:
    tries: list[int] = []

    @app.job(retry=["1h"], max_attempts=5)
    def flaky() -> None:
        raise ConnectionError("the line is busy")

    @app.job(retry=["1s"], max_attempts=3)
    def second_try() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("the line is busy")
        return "at last"

    @app.job()
    def measured() -> dict[str, int]:
        clock.advance(seconds=3)
        return {"rows": 12}

    @app.job(on_lost="retry", max_crashes=3, retry=["2h"])
    def careful() -> None: ...

    return {handler.kind.name: handler for handler in (flaky, second_try, measured, careful)}


def _copy(key: int) -> None:
    """A unit that works."""


def _handed(key: int, *, unit: holdfast.Unit) -> None:
    """A unit whose result waits in an inbox."""
    unit.hand_over({"key": key}, inbox="results")

"""The log of runs: one line for each event, with the fields of its job (E1.10)."""

from __future__ import annotations

import json
import logging
import signal
from datetime import UTC, datetime

import msgspec
import pytest

import holdfast
from holdfast import Plan
from holdfast.cli.ops.worker import record_fields
from tests.cli.ops.test_worker import APP
from tests.support.jobs import lapse, put, take_one
from tests.support.processes import wait_until
from tests.support.program import program
from tests.support.programs import cli_jobs
from tests.worker.test_maintenance import maintenance_of


class Lines(logging.Handler):
    """Collects the level and the fields of each line."""

    def __init__(self):
        super().__init__()
        self.events = []

    def emit(self, record):
        self.events.append((record.levelname.lower(), record_fields(record)))

    def named(self, event):
        return [(level, fields) for level, fields in self.events if fields.get("event") == event]


@pytest.fixture
def lines():
    """The lines of all levels."""
    logger, handler = logging.getLogger("holdfast.jobs"), Lines()
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


@pytest.fixture
def app(real_database):
    with holdfast.Holdfast(real_database.url) as app:
        yield app


def run_once(app):
    app.worker(poll=0.05, drain=True).run()


def test_a_success_has_two_lines_at_debug(app, lines):
    """Queue, kind, attempt and duration."""

    @app.job(queue="nightly")
    def report() -> None:
        pass

    ref = report.enqueue()
    run_once(app)
    for event in ("started", "finished"):
        ((level, fields),) = lines.named(event)
        assert (level, fields["job"], fields["kind"], fields["queue"]) == ("debug", ref.id, "report", "nightly")
        assert (fields["attempt"], "schedule" in fields) == (1, False)
    assert fields["duration_s"] >= 0


@pytest.mark.parametrize("name", ["with", "without"])
def test_the_jobs_of_schedules_have_their_plan(app, lines, name):
    """E1.10: schedule, plan time and scope, whether or not the handler takes its plan."""
    app.job("with", max_attempts=1)(_with_plan)
    app.job("without", max_attempts=1)(_without_plan)
    app.schedules.create("hourly", name, "@hourly", scopes=["tenant-7"])
    time = datetime(2026, 1, 1, tzinfo=UTC)
    app.schedules.backfill("hourly", time, time)
    run_once(app)
    for event in ("started", "failed"):
        ((_, fields),) = lines.named(event)
        plan = (fields["schedule"], datetime.fromisoformat(fields["plan"]), fields["scope"])
        assert plan == ("hourly", time, "tenant-7")


def _with_plan(plan: Plan) -> None:
    raise ValueError(plan.scope)


def _without_plan() -> None:
    raise ValueError


def test_successes_are_not_logged_by_default(app, lines):
    """A drain of small jobs pays nothing for its log."""
    logging.getLogger("holdfast.jobs").setLevel(logging.INFO)
    app.job("mail")(lambda: None)
    app.enqueue("mail")
    run_once(app)
    assert lines.events == []


def test_a_failure_says_whether_it_is_retried(app, lines):
    @app.job(max_attempts=2, retry=[0.01])
    def broken() -> None:
        raise ValueError("no good")

    broken.enqueue()
    with app.worker(poll=0.05):
        wait_until(lambda: lines.named("failed"))
    ((level, retried),), ((_, failed),) = lines.named("retried"), lines.named("failed")
    assert (level, retried["attempt"], failed["attempt"]) == ("warning", 1, 2)
    assert (retried["retry_in_s"] < 1, "retry_in_s" in failed) == (True, False)
    assert failed["duration_s"] >= 0


def test_a_take_over_is_logged_with_the_lost_worker(store, clock, lines, tmp_path):
    plan = Plan("hourly", datetime(2030, 1, 1, tzinfo=UTC), "tenant-7")
    put(store, plan=msgspec.json.encode(plan).decode())
    lease = take_one(store)
    lapse(clock)
    maintenance_of(store, tmp_path, heartbeat=0.0).tick()
    ((level, fields),) = lines.named("taken_over")
    assert (level, fields["job"], fields["worker"], fields["queue"]) == (
        "warning",
        lease.job_id,
        "worker-1",
        "default",
    )
    assert (fields["schedule"], fields["scope"]) == ("hourly", "tenant-7")


def test_a_release_is_a_line_of_json(real_database, tmp_path):
    """As the command line prints it."""
    with holdfast.Holdfast(real_database.url) as app:
        for kind in cli_jobs.app.kinds.values():
            app._registry.add(kind)
        ref = app.enqueue("obedient", {"path": str(tmp_path / "begun")})
    with program(
        *APP, "--grace", "1s", "--log-format", "json", "--log-level", "debug", url=real_database.url
    ) as worker:
        wait_until((tmp_path / "begun").exists)
        worker.send(signal.SIGTERM)
        printed = [json.loads(line) for line in worker.end()[1].splitlines()]
    events = {line["event"]: line for line in printed if line["logger"] == "holdfast.jobs"}
    assert list(events) == ["started", "released"]
    assert (events["released"]["job"], events["released"]["duration_s"] > 0) == (ref.id, True)

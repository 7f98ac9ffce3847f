"""The autoscaler on real workers, with a host that tests can set."""

from __future__ import annotations

import json
import os
import sys

import psutil
import pytest
from msgspec import structs

import holdfast
from holdfast import Selector, State
from holdfast.domain.autoscale import Bounds, Host
from holdfast.domain.command import COMMAND, Command
from holdfast.domain.job import OnLost
from holdfast.domain.request import NewJob
from tests.support.processes import gone, wait_until
from tests.support.workers import working

GB = 1 << 30
EASY = Host(total=100 * GB, used=10 * GB, cores=64, cpu_pressure=0.0, memory_pressure=0.0)
FULL, SPENT = structs.replace(EASY, used=94 * GB), structs.replace(EASY, used=97 * GB)
LONG = "600"


class Hosts:
    """The host that all workers of a test see."""

    def __init__(self):
        self.now = EASY


@pytest.fixture
def host():
    return Hosts()


@pytest.fixture
def app(real_database, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with holdfast.Holdfast(real_database.url) as app:
        assert app.store
        yield app


@pytest.fixture
def work(host, monkeypatch):
    """Make a worker in this process on the host of the test."""

    def work(app, **options):
        make = app.worker

        def made(**given):
            worker = make(**given)
            scaler = worker._autoscaler
            scaler._options = structs.replace(scaler._options, host=lambda: host.now)
            return worker

        monkeypatch.setattr(app, "worker", made)
        return working(app, **options)

    return work


def add(app, tmp_path, *words, label=None, on_lost=OnLost.RETRY, **options):
    command = Command(argv=words, cwd=str(tmp_path), env={"PATH": os.environ["PATH"]}, **options)
    request = NewJob(kind=COMMAND, payload=command.dumps(), label=label, on_lost=on_lost, max_attempts=3)
    return app.store.jobs.enqueue(request).id


def events(app, job_id):
    return [event.name for event in app.views.events(job_id)]


def test_programs_are_measured_and_what_can_never_fit_is_told(app, tmp_path, work):
    """Without a cap too: the profile of a label holds what its programs took. The rest of the line goes on."""
    app.store.scaling.set_bounds("default", Bounds(2, 4))
    hungry = "x = bytearray(80 << 20); import time; time.sleep(1.5)"
    huge = add(app, tmp_path, "true", memory=900 * GB)
    small = add(app, tmp_path, sys.executable, "-c", hungry, label="train/year=2020")
    quick = add(app, tmp_path, "true", label="quick")
    with work(app):
        wait_until(lambda: app.views.get(small).state.ended and app.views.get(quick).state.ended)
        wait_until(lambda: "can never begin" in app.views.why(huge)[0].text)
        wait_until(lambda: app.store.scaling.profiles(["quick"])["quick"].samples == 1)
        wait_until(lambda: app.store.scaling.profiles(["train"])["train"].samples == 1)
        wait_until(lambda: "blocked" in events(app, huge))
    assert app.views.get(small).state is State.DONE
    assert app.store.scaling.profiles(["train"])["train"].mean > 80 << 20
    assert json.loads(app.views.get(small).result)["peak_bytes"] > 80 << 20
    assert [each.action for each in app.store.scaling.decisions("default")][-1] == "never_fits"
    worker = app.worker(drain=True, poll=0.02)
    worker.run()  # does not wait for what can never begin
    assert app.views.get(huge).state is State.READY


def test_under_pressure_a_program_is_frozen_then_evicted_at_no_cost(tmp_path, host, work):
    """The one that has worked least of those that may run twice; with memory it goes on, and later begins anew."""
    app = holdfast.Holdfast(f"sqlite:///{tmp_path / 'jobs.db'}")
    program = f"open('pid', 'w').write(str(__import__('os').getpid())); __import__('time').sleep({LONG})"
    once = add(app, tmp_path, "sleep", LONG, memory=GB, on_lost=OnLost.HOLD)
    with work(app, slots=4):
        app.store.scaling.set_bounds("default", Bounds(2, 4))
        wait_until(lambda: app.views.get(once).state is State.RUNNING)
        again = add(app, tmp_path, sys.executable, "-c", program, memory=GB)
        wait_until((tmp_path / "pid").exists)
        wait_until((tmp_path / "pid").read_text)
        process = psutil.Process(int((tmp_path / "pid").read_text()))
        host.now = FULL
        wait_until(lambda: process.status() == psutil.STATUS_STOPPED)
        host.now = EASY
        wait_until(lambda: process.status() != psutil.STATUS_STOPPED)
        host.now = SPENT
        wait_until(lambda: app.views.get(again).state is State.READY)
        assert app.views.get(again).attempts == 0
        assert gone(process.pid)
        wait_until(lambda: {"frozen", "thawed", "evicted"} <= set(events(app, again)))
        wait_until(lambda: "its memory is spent" in app.views.why(again)[0].text)
        assert app.views.get(once).state is State.RUNNING
        host.now = EASY
        wait_until(lambda: app.views.get(again).state is State.RUNNING)
        app.control.cancel(Selector(ids=(once, again)), actor="ann")
        wait_until(lambda: app.views.get(again).state.ended and app.views.get(once).state.ended)
    app.close()


def test_queues_that_are_not_scaled_are_left_alone(app, tmp_path, work):
    """Their programs run as ever, and are not measured; other kinds of a scaled queue are claimed as ever."""

    @app.job()
    def double(n: int) -> int:
        return 2 * n

    app.store.scaling.set_bounds("default", Bounds(1, 1))
    command = Command(argv=("true",), cwd=str(tmp_path), env={"PATH": os.environ["PATH"]})
    plain = app.store.jobs.enqueue(NewJob(kind=COMMAND, payload=command.dumps(), queue="plain")).id
    scaled = add(app, tmp_path, "true")
    call = app.enqueue("double", {"n": 2}).id
    with work(app, queues=["default", "plain"]):
        wait_until(lambda: all(app.views.get(each).state.ended for each in (plain, scaled, call)))
    peaks = [json.loads(app.views.get(each).result).get("peak_bytes") for each in (plain, scaled)]
    assert peaks[0] is None
    assert peaks[1] > 0

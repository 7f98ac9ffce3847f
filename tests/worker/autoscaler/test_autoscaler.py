"""The autoscaler on real workers, with a fake host load."""

from __future__ import annotations

import json
import os
import socket
import sys

import psutil
import pytest
from msgspec import structs

import holdfast
from holdfast import Selector, State
from holdfast.domain.commands.command import COMMAND, Command
from holdfast.domain.fleet.autoscaler import HostLoad
from holdfast.domain.fleet.queue import Bounds
from holdfast.domain.jobs.job import OnLost, WorkerId
from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.jobs.verdict import Done
from holdfast.errors import StoreUnavailable
from holdfast.worker.autoscaler.autoscaler import Autoscaler
from holdfast.worker.commands.executor import command_kind
from holdfast.worker.options import AutoscalerOptions, WorkerOptions, WorkerSetup
from holdfast.worker.served_lanes import ServedLanes
from tests.support.jobs import claim_jobs
from tests.support.processes import gone, wait_until
from tests.support.workers import working

GB = 1 << 30
EASY = HostLoad(total=100 * GB, used=10 * GB, cores=64, cpu_pressure=0.0, memory_pressure=0.0)
FULL, SPENT = structs.replace(EASY, used=94 * GB), structs.replace(EASY, used=97 * GB)
LONG = "600"


class Hosts:
    """The load that all workers of a test read."""

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
    """Run a worker in this process with the host load of the test."""

    def work(app, **options):
        make = app.worker

        def made(**settings):
            worker = make(**settings)
            worker._autoscaler._host.read = lambda: host.now
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


@pytest.fixture
def tick(monkeypatch):
    """A clock that a test can set, in seconds."""

    class Clock:
        at = 1000.0

    monkeypatch.setattr("holdfast.worker.clock.now", lambda: Clock.at)
    return Clock


def scaler_of(app, worker, settings):
    options = WorkerOptions(queues=("default",), slots=8, autoscaler=settings)
    return Autoscaler(
        WorkerSetup(app.store, worker, ServedLanes({COMMAND: command_kind()}, options.queues), options),
        changed=lambda: None,
    )


def by_hand(app, host, **options):
    """An autoscaler that only the test ticks."""
    worker = WorkerId("w-1")
    app.store.workers.announce(worker, host=socket.gethostname(), pid=1, queues=["default"], kinds=[COMMAND])
    settings = AutoscalerOptions(host=lambda: host.now, **options)
    return scaler_of(app, worker, settings)


def test_slots_and_memory_decide_the_next_command(app, tmp_path, host, tick):
    """Slots grow one by one; then the forecast refuses a command, which is published and recorded."""
    app.store.autoscaler.set_bounds("default", Bounds(1, 3))
    jobs = [add(app, tmp_path, "true", label="train") for _ in range(3)]
    scaler = by_hand(app, host, memory_profiles={"tr*": 30 * GB})
    scaler.refresh()
    first = scaler.admit()
    assert (first.lease.job_id, first.lease.starts_recorded) == (jobs[0], True)
    assert scaler.admit() is None
    tick.at += 11
    scaler.tick()
    assert "autoscaler allows" not in app.views.why(jobs[1])[0].text
    assert scaler.admit().lease.job_id == jobs[1]
    tick.at += 11
    scaler.tick()
    assert "allows 2 (up to 3)" in app.views.why(jobs[2])[0].text
    app.store.autoscaler.set_bounds("default", Bounds(3, 3))
    tick.at += 1
    scaler.tick()
    assert scaler.admit() is None
    tick.at += 1
    scaler.tick()
    assert "2 commands are forecast to use 60 GiB of 76 GiB" in app.views.why(jobs[2])[0].text
    actions = [each.action for each in app.store.autoscaler.decisions("default")]
    assert actions == ["blocked", "step_up", "step_up"]
    first.peak = 5 * GB
    scaler.finished(first, Done())
    assert scaler.admit().lease.job_id == jobs[2]
    scaler.thaw_all()
    assert app.store.autoscaler.profiles(["train"])["train"].mean == 5 * GB


def test_memory_that_others_take_or_were_promised_is_not_ours(app, tmp_path, host, tick):
    """Memory that another worker has promised counts, and so does the rest of the host."""
    app.store.autoscaler.set_bounds("default", Bounds(4, 4))
    add(app, tmp_path, "true", memory=40 * GB)
    second = add(app, tmp_path, "true", memory=40 * GB)
    one = by_hand(app, host)
    one.refresh()
    assert one.admit() is not None
    tick.at += 11
    one.tick()
    other = scaler_of(app, WorkerId("w-2"), AutoscalerOptions(host=lambda: host.now))
    other.refresh()
    assert other.admit() is None
    one.thaw_all()
    app.store.autoscaler.report_status(WorkerId("w-1"), None)
    tick.at += 11
    other.tick()
    host.now = structs.replace(EASY, used=70 * GB)
    tick.at += 1
    other.tick()
    assert other.admit() is None
    host.now = EASY
    tick.at += 1
    other.tick()
    assert other.admit().lease.job_id == second


def test_earlier_runs_of_a_label_are_remembered(app, tmp_path, host):
    """If a cap measured them before the queue was autoscaled."""
    for peak in range(1, 7):
        add(app, tmp_path, "true", label="old")
        (lease,) = claim_jobs(app.store, WorkerId("w"), queues=["default"], kinds=[COMMAND])
        app.store.leases.settle(lease, Done(json.dumps({"peak_bytes": peak * GB} if peak < 6 else [])))
    app.store.autoscaler.set_bounds("default", Bounds(4, 4))
    for _ in range(2):
        add(app, tmp_path, "true", label="old")
    scaler = by_hand(app, host)
    scaler.refresh()
    assert [scaler.admit() is not None for _ in range(3)] == [True, True, False]
    assert app.store.autoscaler.profiles(["old"])["old"].mean == 3 * GB


def test_commands_are_measured_and_misfits_are_reported(app, tmp_path, work):
    """Without a cap too: the profile of a label contains its peaks. The rest of the line continues."""
    app.store.autoscaler.set_bounds("default", Bounds(2, 4))
    hungry = "x = bytearray(80 << 20); import time; time.sleep(1.5)"
    huge = add(app, tmp_path, "true", memory=900 * GB)
    small = add(app, tmp_path, sys.executable, "-c", hungry, label="train/year=2020")
    quick = add(app, tmp_path, "true", label="quick")
    with work(app):
        wait_until(lambda: app.views.get(small).state.finished and app.views.get(quick).state.finished)
        wait_until(lambda: "can never start" in app.views.why(huge)[0].text)
        wait_until(lambda: app.store.autoscaler.profiles(["quick"])["quick"].samples == 1)
        wait_until(lambda: app.store.autoscaler.profiles(["train"])["train"].samples == 1)
        wait_until(lambda: "blocked" in events(app, huge))
    assert app.views.get(small).state is State.DONE
    assert app.store.autoscaler.profiles(["train"])["train"].mean > 80 << 20
    assert json.loads(app.views.get(small).result)["peak_bytes"] > 80 << 20
    assert [each.action for each in app.store.autoscaler.decisions("default")][-1] == "never_fits"
    worker = app.worker(commands=True, drain=True, poll=0.02)
    worker.run()  # does not wait for what can never begin
    assert app.views.get(huge).state is State.READY


def test_under_pressure_a_command_is_frozen_then_evicted_at_no_cost(tmp_path, host, work):
    """The one with the least work of those that may run twice. It continues with enough memory, and reruns later."""
    app = holdfast.Holdfast(f"sqlite:///{tmp_path / 'jobs.db'}")
    code = f"open('pid', 'w').write(str(__import__('os').getpid())); __import__('time').sleep({LONG})"
    with work(app, slots=4):
        app.store.autoscaler.set_bounds("default", Bounds(2, 4))
        # A command that began before the worker read the bounds would not be autoscaled.
        wait_until(lambda: any(each.autoscaler for each in app.store.workers.list()))
        once = add(app, tmp_path, "sleep", LONG, memory=GB, on_lost=OnLost.HOLD)
        wait_until(lambda: app.views.get(once).state is State.RUNNING)
        again = add(app, tmp_path, sys.executable, "-c", code, memory=GB)
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
        wait_until(lambda: app.views.get(again).state.finished and app.views.get(once).state.finished)
    app.close()


def test_queues_that_are_not_scaled_are_left_alone(app, tmp_path, work):
    """Their commands run unmeasured as before; other kinds of an autoscaled queue are claimed as before."""

    @app.job()
    def double(n: int) -> int:
        return 2 * n

    app.store.autoscaler.set_bounds("default", Bounds(1, 1))
    command = Command(argv=("true",), cwd=str(tmp_path), env={"PATH": os.environ["PATH"]})
    plain = app.store.jobs.enqueue(NewJob(kind=COMMAND, payload=command.dumps(), queue="plain")).id
    scaled = add(app, tmp_path, "true")
    call = app.enqueue("double", {"n": 2}).id
    with work(app, queues=["default", "plain"]):
        wait_until(lambda: all(app.views.get(each).state.finished for each in (plain, scaled, call)))
    peaks = [json.loads(app.views.get(each).result).get("peak_bytes") for each in (plain, scaled)]
    assert peaks[0] is None
    assert peaks[1] > 0


def test_a_command_whose_start_cannot_be_recorded_frees_its_slot(app, work, tmp_path, monkeypatch):
    """S7: otherwise the autoscaler would count it for ever, and a queue of one slot would stand still."""
    app.store.autoscaler.set_bounds("default", Bounds(1, 1))
    leases, record, hiccups = app.store.leases, app.store.leases.start_command, ["unavailable", "locked"]

    def fail(lease, duration):
        match hiccups.pop() if hiccups else None:
            case "unavailable":
                raise StoreUnavailable("no answer")
            case "locked":
                return None
        return record(lease, duration)

    monkeypatch.setattr(leases, "start_command", fail)
    jobs = [add(app, tmp_path, "true") for _ in range(2)]
    with work(app, slots=2):
        wait_until(lambda: all(app.views.get(job).state is State.DONE for job in jobs))
    assert not hiccups
    assert [app.views.get(job).attempts for job in jobs] == [1, 1]

"""The worker's parts, one by one: time, fences, give-backs, ticks by hand."""

from __future__ import annotations

import threading

import pytest

import holdfast
from holdfast import State
from holdfast.domain.jobs.job import WorkerId
from holdfast.errors import InvalidInput
from holdfast.worker import watchdog
from holdfast.worker.active_runs import ActiveRuns, Run, StopReason
from holdfast.worker.service import ServiceThread, TickResult
from holdfast.worker.watchdog import Watchdog
from tests.support.processes import wait_until
from tests.support.workers import drain, working


@pytest.fixture
def app(real_database):
    with holdfast.Holdfast(real_database.url) as app:

        @app.job()
        def double(n: int) -> int:
            return n * 2

        yield app


@pytest.fixture
def run(app):
    """A run whose lease was dated a while ago, by a clock that a test can set."""
    app.enqueue("double", {"n": 1})
    (lease,) = app.store.leases.claim(WorkerId("w"), queues=["default"], kinds=["double"])
    kind = app.kinds["double"]
    return Run(lease, kind, dated=1000.0, lease_duration=kind.options.lease)


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        at = 1000.0

        def now(self):
            return self.at

    made = Clock()
    monkeypatch.setattr(watchdog, "clock", made)
    monkeypatch.setattr("holdfast.worker.active_runs.clock", made)
    return made


def test_a_worker_fences_itself_before_others_may_take_over(run, clock):
    """Told at 60 % of the lease, killed at 85 %, by its own clock."""
    held, killed = ActiveRuns(), []
    held.add([run])
    run.attach(kill=lambda: killed.append(True))
    keeper = Watchdog(held, obey=1000)
    for share, told, dead in (
        (0.59, None, []),
        (0.61, StopReason.LEASE_LOST, []),
        (0.86, StopReason.LEASE_LOST, [True]),
    ):
        clock.at = 1000.0 + share * 60
        keeper.tick()
        assert (run.stop_reason, killed) == (told, dead), share
    assert keeper.fenced


def test_a_renewal_lifts_the_fence(run, clock):
    """Unless the handler was told already."""
    held = ActiveRuns()
    held.add([run])
    keeper = Watchdog(held)
    clock.at = 1030.0
    run.date(1029.0)
    clock.at = 1060.0
    keeper.tick()
    assert run.stop_reason is None
    assert not keeper.fenced


def test_a_handler_that_does_not_obey_is_killed(run, clock):
    """Where that is possible, a while after it was told."""
    held, killed = ActiveRuns(), []
    held.add([run])
    run.attach(kill=lambda: killed.append(True))
    keeper = Watchdog(held, obey=5)
    run.stop(StopReason.CANCELLED)
    clock.at = 1004.0
    keeper.tick()
    assert killed == []
    clock.at = 1006.0
    keeper.tick()
    assert killed == [True]


def test_a_bad_tick_is_counted_and_survived():
    """It is tried again after a rest; it never overlaps itself."""
    told = []

    class Part:
        name = "bad"
        bell = threading.Event()
        failing = True

        def tick(self):
            if self.failing:
                raise ValueError
            assert thread.tick().skipped
            return TickResult(7.0)

    thread = ServiceThread(part := Part(), told=lambda name, result: told.append((name, result)))
    assert [thread.tick().rest for _ in range(3)] == [0.1, 0.2, 0.5]
    part.failing = False
    assert thread.tick().rest == 7.0
    assert told == [("bad", "error")] * 3 + [("bad", "skipped"), ("bad", "processed")]


def test_one_tick_by_hand_says_what_it_did(app):
    """For tests and admin (W11)."""
    refs = [app.enqueue("double", {"n": n}) for n in range(3)]
    worker = app.worker()
    ticked = worker.tick()
    assert (ticked.considered, ticked.processed, ticked.skipped) == (6, 6, False)
    assert [ref.state for ref in refs] == [State.DONE] * 3
    assert worker.tick().processed == 0


def test_a_worker_can_be_switched_off(app, monkeypatch):
    """In a process that embeds it (W11)."""
    monkeypatch.setenv("HOLDFAST_WORKER", "off")
    ref = app.enqueue("double", {"n": 1})
    drain(app)
    assert ref.state is State.READY


def test_a_second_start_does_nothing(app):
    worker = app.worker(poll=0.02)
    with worker:
        worker.start()
        assert app.enqueue("double", {"n": 2}).result(120) == 4
        assert len(app.store.workers.list()) == 1
    assert not app.store.workers.list(), "the end of the block waits for the worker"


def test_an_embedded_worker_keeps_the_lease_of_a_thread_that_does_not_end(app):
    """Nobody else may run the job while it does."""
    begun, free = threading.Event(), threading.Event()

    @app.job(lease=5)
    def deaf() -> str:
        begun.set()
        free.wait(30)
        return "late"

    ref = deaf.enqueue()
    with working(app, grace=0.1):
        assert begun.wait(120)
    first = ref.job().lease_expires_at
    wait_until(lambda: ref.job().lease_expires_at > first)
    assert ref.state is State.RUNNING
    free.set()
    assert ref.result(120) == "late"


def test_what_waits_behind_a_long_job_goes_back(app):
    """Another worker may be idle. The kind was known to be short, but this job was not."""
    begun, free = threading.Event(), threading.Event()

    @app.job()
    def surprise(n: int) -> None:
        if n == 0:
            begun.set()
            free.wait(30)

    worker = app.worker(slots=1, poll=0.02)
    worker._claimer.run_times.learn("surprise", 0.001)
    refs = surprise.enqueue_many([{"n": n} for n in range(20)])
    thread = threading.Thread(target=worker.run)
    thread.start()
    assert begun.wait(120)
    wait_until(lambda: sum(ref.state is State.READY for ref in refs) == 19)
    assert [ref.job().attempts for ref in refs[1:]] == [0] * 19
    free.set()
    worker.stop()
    thread.join(120)


@pytest.mark.parametrize("options", [{"queues": "default"}, {"slots": 0}, {"slots": "x"}, {"queues": [""]}])
def test_senseless_workers_are_refused(app, options):
    with pytest.raises(InvalidInput):
        app.worker(**options)

"""The heartbeat renews leases and brings requests; the watchdog fences a worker by its own clock."""

from __future__ import annotations

from datetime import timedelta
from unittest.mock import Mock

import pytest

import holdfast
from holdfast.domain.jobs.job import State, WorkerRequest
from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.kind_options import KindOptions
from holdfast.domain.jobs.verdict import Released
from holdfast.errors import StoreUnavailable
from holdfast.worker import clock as worker_clock
from holdfast.worker.active_runs import ActiveRuns, Handle, Run, StopReason
from holdfast.worker.heartbeat import MIN_INTERVAL_S, Heartbeat, RemoteControl
from holdfast.worker.watchdog import Watchdog
from tests.support.jobs import WORKER, only, put, take, take_one
from tests.support.processes import connect, wait_until

PATIENCE = 60


def _mail() -> None:
    """A handler that is never called."""


class KillCounter(Handle):
    """Counts the kills of a run."""

    def __init__(self):
        self.kills = 0

    def kill(self):
        self.kills += 1


@pytest.fixture
def run(store):
    """A run whose lease was claimed at 1000 s."""
    put(store)
    kind = Kind("mail", _mail, KindOptions())
    return Run(take_one(store), kind, renewed_at=1000.0, lease_duration=kind.options.lease)


@pytest.fixture
def active_runs(run):
    runs = ActiveRuns()
    runs.add([run])
    return runs


@pytest.fixture
def handle(run):
    handle = KillCounter()
    run.attach(handle)
    return handle


@pytest.fixture
def fake_clock(monkeypatch):
    class Clock:
        at = 1000.0

        def now(self):
            return self.at

    fake = Clock()
    for module in ("heartbeat", "watchdog", "active_runs"):
        monkeypatch.setattr(f"holdfast.worker.{module}.clock", fake)
    return fake


def test_a_notification_brings_requests_early(store, fake_clock):
    """Soon, but at most once per minimum interval, however many notifications arrive."""
    job_id, active_runs = put(store), ActiveRuns()
    beat = Heartbeat(store, WORKER, active_runs, interval=600, lost=lambda run: None)
    beat.on_notify()
    assert not beat.wake.is_set()
    run = Run(
        take_one(store), Kind("mail", _mail, KindOptions()), renewed_at=fake_clock.at, lease_duration=timedelta(hours=1)
    )
    active_runs.add([run])
    store.control.cancel(only(job_id), actor="ada")
    beat.on_notify()
    assert (beat.wake.is_set(), beat.tick().next_in, run.stop_reason) == (True, MIN_INTERVAL_S, None)
    fake_clock.at += MIN_INTERVAL_S
    assert (beat.tick().next_in, run.stop_reason) == (600, StopReason.CANCELLED)


def test_the_end_of_an_outage_is_logged_once(store, fake_clock, caplog, monkeypatch):
    caplog.set_level("INFO")
    heartbeat = Heartbeat(store, WORKER, ActiveRuns(), interval=10.0, lost=lambda _: None)
    heartbeat.tick()
    with monkeypatch.context() as cut:
        cut.setattr(store.workers, "heartbeat", Mock(side_effect=StoreUnavailable("gone")))
        for _ in range(19):
            heartbeat.tick()
            fake_clock.at += 1.0
    heartbeat.tick()
    heartbeat.tick()
    assert [record.getMessage() for record in caplog.records] == [
        "a heartbeat failed: gone",
        "the store answers again after 19 s",
    ]


def test_a_young_lease_is_read_and_not_renewed(store, clock, fake_clock, run, active_runs):
    """K65: a request costs one read per worker, not an update per running job. The start is recorded at once."""
    beat = Heartbeat(store, WORKER, active_runs, interval=10, lost=lambda run: None)
    job_id, first = run.lease.job_id, store.views.get(run.lease.job_id)
    run.begun_at = fake_clock.at
    for seconds, started, renewed in ((0.2, False, False), (0.6, True, True), (5, True, False), (10, True, True)):
        expires_at = store.views.get(job_id).lease_expires_at
        clock.advance(seconds=seconds)
        fake_clock.at = 1000.0 + seconds
        beat.tick()
        job = store.views.get(job_id)
        assert (job.started_at is not None, job.lease_expires_at > expires_at) == (started, renewed), seconds
    store.control.cancel(only(job_id), actor="ada")
    fake_clock.at += 1
    beat.tick()
    assert (run.stop_reason, store.views.get(job_id).token) == (StopReason.CANCELLED, first.token)


def test_a_young_lease_that_was_lost_is_noticed(store, fake_clock, run, active_runs, handle):
    """K65: a read tells as well as a renewal."""
    lost = []
    store.leases.settle(run.lease, Released())
    Heartbeat(store, WORKER, active_runs, interval=10, lost=lost.append).tick()
    assert (lost, run.stop_reason, handle.kills) == ([run], StopReason.LEASE_LOST, 1)


def test_a_request_is_applied_once():
    """A repeated request changes nothing; without a request the worker resumes."""
    stops = []
    control = RemoteControl(lambda: stops.append(1))
    for request, quiet in ((None, False), (WorkerRequest.QUIET, True), (WorkerRequest.QUIET, True), (None, False)):
        control.apply(request)
        assert control.quiet is quiet
    control.apply(WorkerRequest.STOP)
    control.apply(WorkerRequest.STOP)
    assert stops == [1]


def test_a_worker_applies_requests_at_its_heartbeat(real_database):
    """A quiet worker claims nothing and is not ready; then it resumes; then it stops."""
    with holdfast.Holdfast(real_database.url) as app:

        @app.job(lease="1s")
        def mail() -> None:
            """Nothing to do."""

        worker = app.worker(slots=3, poll=0.05)
        with worker:
            wait_until(app.store.workers.list)
            (announced,) = app.store.workers.list()
            assert announced.slots == 3
            app.store.workers.request(worker.id, WorkerRequest.QUIET)
            wait_until(lambda: not worker.ready)
            job = mail.enqueue()
            app.store.workers.request(worker.id, None)
            wait_until(lambda: app.views.get(job.id).state is State.DONE)
            app.store.workers.request(worker.id, WorkerRequest.STOP)
            worker.join(PATIENCE)
            assert not worker.ready
            assert app.store.workers.list() == []


def test_a_worker_fences_itself_before_others_may_take_over(run, active_runs, handle, fake_clock):
    """It asks handlers to stop at 60 % of the lease, and kills them at 85 %, by its own clock."""
    keeper = Watchdog(active_runs)
    run.stop_delay = 1000.0
    for share, reason, kills in (
        (0.59, None, 0),
        (0.61, StopReason.LEASE_LOST, 0),
        (0.86, StopReason.LEASE_LOST, 1),
        (0.87, StopReason.LEASE_LOST, 1),
    ):
        fake_clock.at = 1000.0 + share * 60
        keeper.tick()
        assert (run.stop_reason, handle.kills) == (reason, kills), share
    assert keeper.fenced


def test_a_locked_row_fences_its_run_and_not_the_worker(postgres_database):
    """K6: a skipped renewal proves that the store answers; only the run goes by its own renewal."""
    store, active_runs = postgres_database.open(), ActiveRuns()
    ids, kind = [put(store), put(store)], Kind("mail", _mail, KindOptions())
    claimed_at = worker_clock.now() - 0.7 * kind.options.lease.total_seconds()
    locked, free = (
        Run(lease, kind, renewed_at=claimed_at, lease_duration=kind.options.lease) for lease in take(store, 2)
    )
    active_runs.add([locked, free])
    with connect(postgres_database.url) as user:
        user.execute("SELECT FROM holdfast.live WHERE id = %s FOR UPDATE", (ids[0],))
        Heartbeat(store, WORKER, active_runs, interval=600, lost=lambda run: None).tick()
    watchdog = Watchdog(active_runs)
    watchdog.tick()
    assert (locked.renewed_at, free.renewed_at > claimed_at) == (claimed_at, True)
    assert (watchdog.fenced, locked.stop_reason, free.stop_reason) == (False, StopReason.LEASE_LOST, None)


def test_a_renewal_lifts_the_fence(run, active_runs, fake_clock):
    """Unless the handler was asked to stop before."""
    keeper = Watchdog(active_runs)
    fake_clock.at = 1030.0
    run.renewed(1029.0)
    fake_clock.at = 1060.0
    keeper.tick()
    assert run.stop_reason is None
    assert not keeper.fenced


def test_a_handler_that_does_not_stop_is_killed(run, active_runs, handle, fake_clock):
    """Where that is possible, after its stop delay: five seconds, unless it is a command."""
    keeper = Watchdog(active_runs)
    run.stop(StopReason.CANCELLED)
    fake_clock.at = 1004.0
    keeper.tick()
    assert handle.kills == 0
    fake_clock.at = 1006.0
    keeper.tick()
    assert handle.kills == 1


def test_a_thread_that_does_not_stop_is_named_once(run, active_runs, fake_clock, caplog):
    keeper = Watchdog(active_runs, worker="w")
    run.timeout, run.begun_at = 20.0, 1000.0
    for fake_clock.at in (1019.0, 1021.0, 1027.0, 1028.0):
        run.renewed(fake_clock.at)
        keeper.tick()
    (record,) = caplog.records
    assert record.getMessage() == (
        f"job {run.lease.job_id} (mail) has run for 27 s, past its timeout of 20 s; "
        "its thread cannot be stopped: holdfast ask w stop"
    )


def test_the_start_of_a_long_run_is_recorded_before_the_next_renewal(store, run, active_runs, fake_clock):
    """K15: the watchdog wakes the heartbeat after about a second; the lease is not renewed for that."""
    beat = Heartbeat(store, WORKER, active_runs, interval=10, lost=lambda run: None)
    watchdog = Watchdog(active_runs, on_long_run=beat.on_long_run)
    job_id, expires = run.lease.job_id, store.views.get(run.lease.job_id).lease_expires_at
    run.begun_at = 1000.0
    fake_clock.at += 0.9
    watchdog.tick()
    assert (beat.wake.is_set(), store.views.get(job_id).claimed) == (False, True)
    fake_clock.at += 0.2
    watchdog.tick()
    assert (beat.wake.is_set(), round(beat.tick().next_in, 1)) == (True, 8.9)
    job = store.views.get(job_id)
    assert (job.claimed, job.attempts, job.lease_expires_at, run.started) == (False, 1, expires, True)
    beat.wake.clear()
    watchdog.tick()
    assert not beat.wake.is_set()


def test_a_lost_lease_is_reported_once(store, run, active_runs, fake_clock):
    """K15: and a run that was released meanwhile has lost nothing."""
    lost = []
    beat = Heartbeat(store, WORKER, active_runs, interval=10, lost=lost.append)
    store.leases.release([run.lease])
    run.finished = True
    beat.tick()
    assert lost == []
    run.finished = False
    beat.tick()
    beat.tick()
    assert lost == [run]

"""The watchdog fences a worker by its own clock."""

from __future__ import annotations

import pytest

from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.kind_options import KindOptions
from holdfast.worker import watchdog
from holdfast.worker.active_runs import ActiveRuns, Handle, Run, StopReason
from holdfast.worker.watchdog import Watchdog
from tests.support.jobs import put, take_one


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
def clock(monkeypatch):
    class Clock:
        at = 1000.0

        def now(self):
            return self.at

    fake = Clock()
    monkeypatch.setattr(watchdog, "clock", fake)
    monkeypatch.setattr("holdfast.worker.active_runs.clock", fake)
    return fake


def test_a_worker_fences_itself_before_others_may_take_over(run, active_runs, handle, clock):
    """It asks handlers to stop at 60 % of the lease, and kills them at 85 %, by its own clock."""
    keeper = Watchdog(active_runs, kill_after=1000)
    for share, reason, kills in (
        (0.59, None, 0),
        (0.61, StopReason.LEASE_LOST, 0),
        (0.86, StopReason.LEASE_LOST, 1),
        (0.87, StopReason.LEASE_LOST, 1),
    ):
        clock.at = 1000.0 + share * 60
        keeper.tick()
        assert (run.stop_reason, handle.kills) == (reason, kills), share
    assert keeper.fenced


def test_a_renewal_lifts_the_fence(run, active_runs, clock):
    """Unless the handler was asked to stop before."""
    keeper = Watchdog(active_runs)
    clock.at = 1030.0
    run.renewed(1029.0)
    clock.at = 1060.0
    keeper.tick()
    assert run.stop_reason is None
    assert not keeper.fenced


def test_a_handler_that_does_not_stop_is_killed(run, active_runs, handle, clock):
    """Where that is possible, some seconds after the request."""
    keeper = Watchdog(active_runs, kill_after=5)
    run.stop(StopReason.CANCELLED)
    clock.at = 1004.0
    keeper.tick()
    assert handle.kills == 0
    clock.at = 1006.0
    keeper.tick()
    assert handle.kills == 1

"""Notifications bring the heartbeat forward, so requests of people take effect soon."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.kind_options import KindOptions
from holdfast.worker import heartbeat
from holdfast.worker.active_runs import ActiveRuns, Run, StopReason
from holdfast.worker.heartbeat import MIN_INTERVAL_S, Heartbeat
from tests.support.jobs import WORKER, only, put, take_one


def _mail() -> None:
    """A handler that is never called."""


@pytest.fixture
def timestamp(monkeypatch):
    class Clock:
        at = 1000.0

        def now(self):
            return self.at

    made = Clock()
    monkeypatch.setattr(heartbeat, "clock", made)
    return made


def test_a_notification_brings_requests_early(store, timestamp):
    """Soon, but at most once per minimum interval, however many notifications arrive."""
    job_id, active_runs = put(store), ActiveRuns()
    beat = Heartbeat(store, WORKER, active_runs, interval=600, lost=lambda run: None)
    beat.on_notify()
    assert not beat.wake.is_set()
    run = Run(
        take_one(store), Kind("mail", _mail, KindOptions()), renewed_at=timestamp.at, lease_duration=timedelta(hours=1)
    )
    active_runs.add([run])
    store.control.cancel(only(job_id), actor="ada")
    beat.on_notify()
    assert (beat.wake.is_set(), beat.tick().next_in, run.stop_reason) == (True, MIN_INTERVAL_S, None)
    timestamp.at += MIN_INTERVAL_S
    assert (beat.tick().next_in, run.stop_reason) == (600, StopReason.CANCELLED)

"""The heartbeat hears rings: what people want of a run does not wait for the next beat."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.kind_options import KindOptions
from holdfast.worker import heartbeat
from holdfast.worker.active_runs import ActiveRuns, Run, StopReason
from holdfast.worker.heartbeat import SOONEST, Heartbeat
from tests.support.jobs import WORKER, only, put, take_one


def _mail() -> None:
    """A handler that nobody calls."""


@pytest.fixture
def timestamp(monkeypatch):
    class Clock:
        at = 1000.0

        def now(self):
            return self.at

    made = Clock()
    monkeypatch.setattr(heartbeat, "clock", made)
    return made


def test_a_ring_brings_what_people_want(store, timestamp):
    """Soon, and however many rings there are no more than once in a while."""
    job_id, held = put(store), ActiveRuns()
    beat = Heartbeat(store, WORKER, held, interval=600, lost=lambda run: None)
    beat.rung()
    assert not beat.bell.is_set()
    run = Run(
        take_one(store), Kind("mail", _mail, KindOptions()), dated=timestamp.at, lease_duration=timedelta(hours=1)
    )
    held.add([run])
    store.control.cancel(only(job_id), actor="ada")
    beat.rung()
    assert (beat.bell.is_set(), beat.tick().rest, run.stop_reason) == (True, SOONEST, None)
    timestamp.at += SOONEST
    assert (beat.tick().rest, run.stop_reason) == (600, StopReason.CANCELLED)

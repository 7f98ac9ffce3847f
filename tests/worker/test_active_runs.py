"""Handles of runs, and the signal that wakes threads which wait for finished runs."""

from __future__ import annotations

import threading

import pytest

from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.kind_options import KindOptions
from holdfast.worker import clock
from holdfast.worker.active_runs import FinishSignal, Handle, Run, StopReason
from tests.support.jobs import put, take_one
from tests.support.processes import wait_until

PATIENCE = 60


def _mail() -> None:
    """A handler that is never called."""


@pytest.fixture
def run(store):
    put(store)
    kind = Kind("mail", _mail, KindOptions())
    return Run(take_one(store), kind, renewed_at=1000.0, lease_duration=kind.options.lease)


def test_a_job_waits_from_the_answer_to_its_claim_on(run):
    """A claim may take longer than a job may wait for a slot: then its jobs were released at once. The lease is older."""
    assert (run.renewed_at, clock.now() - run.claimed_at < PATIENCE) == (1000.0, True)


class Recorder(Handle):
    """Records the calls of a run."""

    def __init__(self):
        self.calls = []

    def interrupt(self):
        self.calls.append("interrupt")

    def kill(self):
        self.calls.append("kill")

    def renewed(self):
        self.calls.append("renewed")


def test_a_handle_receives_stops_kills_and_renewals(run):
    """One interrupt and one kill, however often they are requested; nothing after the end."""
    run.attach(handle := Recorder())
    for reason in (StopReason.CANCELLED, StopReason.SHUTDOWN):
        run.stop(reason)
    run.renewed(1010.0)
    run.kill()
    run.kill()
    run.detach()
    run.renewed(1020.0)
    assert handle.calls == ["interrupt", "renewed", "kill"]
    assert (run.stop_reason, run.lease_expires_at) == (StopReason.CANCELLED, 1080.0)


def test_a_handle_that_comes_after_the_stop_is_interrupted_at_once(run):
    """A kill before it is not remembered: nothing was there to be killed."""
    run.stop(StopReason.CANCELLED)
    run.kill()
    run.attach(handle := Recorder())
    assert handle.calls == ["interrupt"]
    run.kill()
    assert handle.calls == ["interrupt", "kill"]


def test_a_run_without_a_process_cannot_be_frozen(run):
    assert not run.freeze(frozen=True)
    run.attach(Handle())
    assert not run.freeze(frozen=True)
    assert run.resident == 0


def test_a_finish_wakes_the_thread_that_waits_for_it():
    """Nothing polls: the wait ends by the notification."""
    signal, finished, results = FinishSignal(), [], []
    deadline = clock.now() + PATIENCE
    waiter = threading.Thread(target=lambda: results.append(signal.wait_for(lambda: bool(finished), deadline=deadline)))
    waiter.start()
    wait_until(lambda: signal.watched, every=0.001)
    finished.append(1)
    signal.notify()
    waiter.join(PATIENCE)
    assert results == [True]
    assert not signal.watched


def test_a_wait_for_finished_runs_ends_at_its_deadline():
    assert not FinishSignal().wait_for(lambda: False, deadline=clock.now() + 0.01)

"""The counts of an executor with threads: waiting and running together never miss a run."""

from __future__ import annotations

import threading
from types import SimpleNamespace

from holdfast.domain.jobs.job import WorkerId
from holdfast.domain.jobs.verdict import Done
from holdfast.worker import clock
from holdfast.worker.active_runs import FinishSignal
from holdfast.worker.executors.threads import SlotExecutor
from holdfast.worker.run_log import RunLog
from holdfast.worker.served_lanes import ServedLanes
from tests.support.processes import wait_until

PATIENCE = 60
JOBS, SLOTS = 2000, 4


def make_run(claimed_at: float = 0.0) -> SimpleNamespace:
    return SimpleNamespace(lease=None, may_begin=lambda: True, begun_at=None, finished=False, claimed_at=claimed_at)


def make_executor(perform):
    """An executor, the runs that have finished on it, and its signal."""
    finished, signal = [], FinishSignal()
    lifecycle = SimpleNamespace(
        finished=lambda run, settlement, *, joins: finished.append(run),
        finish_signal=signal,
        slot_freed=lambda: None,
        log=RunLog(WorkerId("w"), ServedLanes({}, ())),
    )
    executor = SlotExecutor("test", SLOTS, make_slot=lambda: (perform, lambda: None), lifecycle=lifecycle)
    return executor, finished, signal


def test_an_executor_is_idle_only_when_all_runs_have_finished():
    """Waiting is read before running, as the pool does."""
    executor, finished, signal = make_executor(lambda run: Done())
    executor.submit([make_run() for _ in range(JOBS)])
    idle = signal.wait_for(lambda: not len(executor.waiting) + executor.running, deadline=clock.now() + PATIENCE)
    assert (idle, len(finished), executor.running) == (True, JOBS, 0)
    executor.close()


def test_runs_that_are_taken_back_count_neither_as_waiting_nor_as_running():
    release = threading.Event()
    executor, finished, signal = make_executor(lambda run: release.wait(PATIENCE) and Done())
    executor.submit([make_run(claimed_at=n) for n in range(10)])
    wait_until(lambda: executor.running == SLOTS, every=0.001)
    assert [run.claimed_at for run in executor.waiting.take_back(claimed_before=7)] == [4, 5, 6]
    assert (len(executor.waiting), executor.running) == (3, SLOTS)
    release.set()
    assert signal.wait_for(lambda: len(finished) == 7, deadline=clock.now() + PATIENCE)
    executor.close()

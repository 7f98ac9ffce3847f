"""The executor pool: all executors of a worker as one."""

from __future__ import annotations

from collections import Counter

from holdfast.domain.jobs.job import JobId
from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.kind_options import ExecutorName
from holdfast.worker import clock
from holdfast.worker.active_runs import Run
from holdfast.worker.executors.run_queue import SlotGate
from holdfast.worker.executors.threads import LoopExecutor, SlotExecutor, thread_executor
from holdfast.worker.options import WorkerSetup
from holdfast.worker.run_lifecycle import RunLifecycle
from holdfast.worker.shortage import is_shortage
from holdfast.worker.stats import SHORT_RUN_S

#: Runs start in the order of ``submit``, as slots become free. Running ones continue after ``close``.
Executor = SlotExecutor | LoopExecutor

#: A poison suspect counts as one until it has run this long.
SUSPECT_S = 2.0


class ExecutorPool:
    """Hands each run to the executor of its kind. Executors are created and imported on first use."""

    def __init__(self, setup: WorkerSetup, lifecycle: RunLifecycle) -> None:
        self._setup = setup
        self._active_runs = lifecycle.active_runs
        self.lifecycle = lifecycle
        self._executors: dict[ExecutorName, Executor] = {}
        #: Replaced, never changed: any thread may iterate over it.
        self._all: list[Executor] = []
        self._gate = SlotGate(setup.options.slots)

    def begin(self, runs: list[Run]) -> None:
        """Make runs active; they begin as slots become free."""
        if not runs:
            return
        self.hold(runs)
        groups: dict[ExecutorName, list[Run]] = {}
        for run in runs:
            groups.setdefault(run.kind.executor, []).append(run)
        for name, group in groups.items():
            try:
                self._executor(name).submit(group)
            except Exception as error:
                # Nothing would ever begin or release these runs, and the heartbeat would keep their leases.
                for run in group:
                    self.lifecycle.unbegun(run)
                if not is_shortage(error):
                    raise
                self.lifecycle.shortage.release(error)

    def hold(self, runs: list[Run]) -> None:
        """Make runs active without beginning them: their leases are renewed."""
        self._active_runs.add(runs)

    def release(self, *, claimed_before: float = float("inf")) -> int:
        """Release the runs that were claimed before a time and have not begun; returns their number."""
        unbegun = [run for each in self._all for run in each.waiting.take_back(claimed_before=claimed_before)]
        for run in unbegun:
            self.lifecycle.unbegun(run)
        return len(unbegun)

    @property
    def job_ids(self) -> list[JobId]:
        """The jobs whose leases this worker knows it has."""
        return [run.lease.job_id for run in self._active_runs.all()]

    def suspect_room(self) -> tuple[int, int]:
        """The number of poison suspects of level 2 and of level 3 that may begin now.

        A suspect of level 2 shares the worker with few others, one of level 3 with no other of its level. A run
        that has lasted longer than SUSPECT_S is no longer a suspect: its start is recorded, and its loss counts.
        """
        begun_after = clock.now() - SUSPECT_S
        levels = Counter(
            run.lease.losses
            for run in self._active_runs.unfinished
            if run.lease.losses > 1 and (run.begun_at is None or run.begun_at > begun_after)
        )
        return max(0, max(1, self._setup.options.slots // 4) - levels[2]), 1 - levels[3]

    @property
    def long_runs(self) -> int:
        """Number of runs that occupy a slot, or soon will, for longer than short jobs do."""
        begun_before, runs = clock.now() - SHORT_RUN_S, self._active_runs.unfinished
        is_short = self.lifecycle.run_times.is_short
        long = {name for name in {run.kind.name for run in runs} if not is_short(name)}
        return sum(
            [run.kind.name in long or (run.begun_at is not None and run.begun_at < begun_before) for run in runs]
        )

    @property
    def alive(self) -> bool:
        """Whether all executors can run handlers."""
        return all(executor.alive for executor in self._all)

    def is_blocked(self, kind: Kind) -> bool:
        """Whether no run of this kind could begin now, even in a free slot."""
        executor = self._executors.get(kind.executor)
        return executor is not None and executor.blocked

    @property
    def waiting(self) -> int:
        return sum(len(executor.waiting) for executor in self._all)

    @property
    def running(self) -> int:
        return sum(executor.running for executor in self._all)

    def wait_idle(self, deadline: float) -> bool:
        """Wait until no run is waiting or running; false when the clock passes *deadline* first."""
        # Waiting is read first: a run that begins in between is counted twice, never missed.
        return self.lifecycle.finish_signal.wait_for(lambda: not self.waiting + self.running, deadline=deadline)

    def wait_killed(self, deadline: float) -> bool:
        """Wait until no child process and no command runs; false when the clock passes *deadline* first."""
        names = (ExecutorName.PROCESS, ExecutorName.COMMAND)
        killable = [self._executors[name] for name in names if name in self._executors]
        signal = self.lifecycle.finish_signal
        return signal.wait_for(lambda: not any(executor.running for executor in killable), deadline=deadline)

    def close(self) -> None:
        for executor in self._all:
            executor.close()

    def _executor(self, name: ExecutorName) -> Executor:
        if name not in self._executors:
            executor = self._make(name)
            executor.gate = self._gate
            self._executors[name] = executor
            self._all = list(self._executors.values())
            self._gate.executors = [*self._all]
        return self._executors[name]

    def _make(self, name: ExecutorName) -> Executor:
        setup, options, lifecycle = self._setup, self._setup.options, self.lifecycle
        match name:
            case ExecutorName.THREAD:
                return thread_executor(options.slots, lifecycle=lifecycle)
            case ExecutorName.ASYNC:
                return LoopExecutor(options.slots, lifecycle=lifecycle)
            case ExecutorName.PROCESS:
                from holdfast.worker.executors.processes import ProcessExecutor

                return ProcessExecutor(setup, lifecycle=lifecycle)
            case ExecutorName.COMMAND:
                from holdfast.worker.commands.executor import CommandExecutor

                return CommandExecutor(setup, lifecycle=lifecycle)

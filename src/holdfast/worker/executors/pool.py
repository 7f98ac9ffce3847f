"""The crew: all executors of a worker as one."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.domain.jobs.job import JobId
from holdfast.domain.jobs.kind import ExecutorName
from holdfast.domain.jobs.verdict import Released
from holdfast.store.jobs.settlement import Settlement
from holdfast.worker import clock
from holdfast.worker.active_runs import ActiveRuns, Run
from holdfast.worker.executors import Executor
from holdfast.worker.run_times import SHORT, RunTimes
from holdfast.worker.settler import Settler


class ExecutorPool:
    """Hands each run to the executor of its kind. Executors are made when they are first needed."""

    def __init__(self, held: ActiveRuns, settler: Settler, make: Callable[[ExecutorName], Executor]) -> None:
        self._held = held
        self._settler = settler
        self._make = make
        self._executors: dict[ExecutorName, Executor] = {}
        self._all: list[Executor] = []

    def begin(self, runs: list[Run]) -> None:
        """Hold runs and have them begun as soon as there is room."""
        if not runs:
            return
        self._held.add(runs)
        groups: dict[ExecutorName, list[Run]] = {}
        for run in runs:
            groups.setdefault(run.kind.executor, []).append(run)
        for name, group in groups.items():
            if name not in self._executors:
                self._executors[name] = self._make(name)
                self._all = list(self._executors.values())
            self._executors[name].submit(group)

    def release(self, *, claimed_before: float = float("inf")) -> int:
        """Return to the store what was claimed before a moment and has not begun."""
        unbegun = [
            run.lease for executor in self._all for run in executor.waiting.take_back(claimed_before=claimed_before)
        ]
        for lease in unbegun:
            if lease.started:
                self._settler.put(Settlement(lease, Released()))
        self._settler.release([lease for lease in unbegun if not lease.started])
        return len(unbegun)

    def known(self) -> list[JobId]:
        """The jobs that this worker knows it holds."""
        return [run.lease.job_id for run in self._held.all()]

    @property
    def poison_suspects(self) -> int:
        """How many of them may have killed their last worker."""
        return sum(run.lease.poison_suspect for run in self._held.all())

    def long_runs(self, run_times: RunTimes) -> int:
        """How many runs occupy a slot, or soon will, for longer than short jobs do."""
        late = clock.now() - SHORT
        return sum(
            not run.finished
            and ((run.begun_at is not None and run.begun_at < late) or not run_times.is_short(run.kind.name))
            for run in self._held.all()
        )

    @property
    def waiting(self) -> int:
        return sum(len(executor.waiting) for executor in self._all)

    @property
    def running(self) -> int:
        return sum(executor.running for executor in self._all)

    @property
    def killable(self) -> int:
        """How many runs are under way that can be ended from outside."""
        ends = (self._executors.get(name) for name in (ExecutorName.PROCESS, ExecutorName.COMMAND))
        return sum(executor.running for executor in ends if executor is not None)

    def close(self) -> None:
        for executor in self._all:
            executor.close()

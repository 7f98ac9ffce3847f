"""Which executor runs which handlers. Each is loaded when the first job of its sort comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from holdfast.domain.jobs.context import Context
from holdfast.domain.jobs.job import WorkerId
from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.kind_options import ExecutorName
from holdfast.store import Store
from holdfast.worker.active_runs import Run
from holdfast.worker.context import Tell
from holdfast.worker.executors import Executor, Finish
from holdfast.worker.executors.threads import thread_executor
from holdfast.worker.options import WorkerOptions


class ExecutorFactory:
    """Makes the executors of a worker."""

    def __init__(
        self,
        store: Store,
        worker: WorkerId,
        kinds: Mapping[str, Kind],
        options: WorkerOptions,
        *,
        context: Callable[[Run], Context],
        tell: Callable[[Run], Tell],
        finish: Finish,
    ) -> None:
        self._store = store
        self._worker = worker
        self._kinds = kinds
        self._options = options
        self._context = context
        self._tell = tell
        self._finish = finish

    def make(self, name: ExecutorName) -> Executor:
        options, finish = self._options, self._finish
        slots = options.slots
        match name:
            case ExecutorName.THREAD:
                return thread_executor(slots, context=self._context, finish=finish)
            case ExecutorName.ASYNC:
                from holdfast.worker.executors.coroutines import LoopExecutor

                return LoopExecutor(slots, context=self._context, finish=finish)
            case ExecutorName.PROCESS:
                from holdfast.worker.executors.processes import ProcessExecutor

                children = options.children
                return ProcessExecutor(
                    self._kinds, slots, worker=self._worker, tell=self._tell, finish=finish, options=children
                )
            case ExecutorName.COMMAND:
                from holdfast.worker.commands.executor import CommandExecutor

                logs, echo = options.logs, options.echo
                return CommandExecutor(slots, logs=logs, echo=echo, store=self._store, finish=finish)

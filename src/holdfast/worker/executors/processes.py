"""Handlers in child processes, one per slot, reused between jobs. A child can be killed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

import msgspec

from holdfast.domain.jobs.handler_exceptions import Cancelled
from holdfast.domain.jobs.job import EndReason, Lease
from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.kind_options import ExecutorName
from holdfast.domain.jobs.verdict import Done, Failed, Lost, Outcome, Released, Stopped
from holdfast.errors import HoldfastError, InvalidKind, LeaseLost
from holdfast.worker import clock
from holdfast.worker.active_runs import Run
from holdfast.worker.commands.supervisor import ProcessExited
from holdfast.worker.context import Tell
from holdfast.worker.executors import Finish
from holdfast.worker.executors.channel import Channel
from holdfast.worker.executors.children import (
    BeginRun,
    ChildOptions,
    ChildReady,
    ChildSetup,
    FromChild,
    HandlerMessage,
    MessageReply,
    RunFinished,
    StopRun,
    SupervisorClient,
)
from holdfast.worker.executors.slots import SlotExecutor
from holdfast.worker.handler import outcome_of
from holdfast.worker.messages import Message

OUTCOMES: dict[str, type[Outcome]] = {kind.__name__: kind for kind in (Done, Failed, Released, Stopped)}


class ProcessExecutor(SlotExecutor):
    """Slots whose runs happen in children of one supervisor."""

    def __init__(
        self,
        kinds: Mapping[str, Kind],
        slots: int,
        *,
        worker: str,
        tell: Callable[[Run], Tell],
        finish: Finish,
        options: ChildOptions,
    ) -> None:
        self._supervised = SupervisorClient()
        hello = hello_for(kinds, worker=worker)

        def make_slot() -> tuple[Callable[[Run], Outcome], Callable[[], None]]:
            child = ProcessSlot(self._supervised, hello, options, tell=tell)
            return child.perform, child.close

        super().__init__("child", slots, make_slot=make_slot, finish=finish)

    def close(self) -> None:
        super().close()
        self._supervised.close()


class ProcessSlot:
    """The child of one slot: started when it is needed, replaced when it has grown old or has died."""

    def __init__(
        self,
        supervised: SupervisorClient,
        hello: ChildSetup,
        options: ChildOptions,
        *,
        tell: Callable[[Run], Tell],
    ) -> None:
        self._supervised = supervised
        self._hello = hello
        self._options = options
        self._tell = tell
        self._name = ""
        self._line: Channel[FromChild] | None = None
        self._jobs = 0

    def perform(self, run: Run) -> Outcome:
        """Have the run done by the child; whatever happens to the child is an outcome of this run alone."""
        try:
            line = self._started(run)
            run.attach(
                interrupt=lambda: self._interrupt(run),
                kill=lambda: self._supervised.kill(self._name),
                dated=lambda: self._limit(run),
            )
            line.send(BeginRun(run.lease))
            run.begun_at = clock.now()
        except OSError as error:
            self.close()
            return Failed(error=f"no child process could be started: {error}", reason=EndReason.CANNOT_START)
        try:
            return self._listen(run, line)
        finally:
            run.attach()
            self._supervised.limit(self._name)

    def close(self) -> None:
        """The child ends when its line does."""
        if self._line is not None:
            self._line.close()
            self._line = None
            self._jobs = 0

    def _started(self, run: Run) -> Channel[FromChild]:
        """A child that is up. Its start is no part of the run: what is lost meanwhile costs no attempt."""
        if self._line is None:
            self._name, line = self._supervised.start()
            self._line = Channel(line, FromChild)
            self._limit(run)
            self._line.send(self._hello)
            if not isinstance(self._line.receive(), ChildReady):
                raise OSError("it ended before it was ready")
        self._limit(run)
        return self._line

    def _listen(self, run: Run, line: Channel[FromChild]) -> Outcome:
        tell = self._tell(run)
        while (message := line.receive()) is not None:
            mine = not isinstance(message, ChildReady) and _is_of(message, run.lease)
            if isinstance(message, RunFinished) and mine:
                self._retire_if_old(message)
                return msgspec.convert(message.facts, OUTCOMES[message.outcome], strict=False)
            if isinstance(message, HandlerMessage):
                try:
                    line.send(_answered(tell, message.message) if mine else _refused(message))
                except OSError:
                    break
        self.close()
        return _after_exit(self._supervised.exit_of(self._name), run)

    def _retire_if_old(self, finished: RunFinished) -> None:
        self._jobs += 1
        if self._jobs >= self._options.jobs or finished.resident >= self._options.memory:
            self.close()

    def _limit(self, run: Run) -> None:
        self._supervised.limit(self._name, until=run.lease_expires_at, memory=run.kind.options.memory)

    def _interrupt(self, run: Run) -> None:
        line = self._line
        if line is not None and run.stop_reason is not None:
            try:
                line.send(StopRun(run.stop_reason))
            except OSError:
                return  # it has ended by itself


def _is_of(message: HandlerMessage | RunFinished, lease: Lease) -> bool:
    """Whether it comes from this run, and not from a thread or a fork that another one left behind."""
    return (message.job_id, message.token) == (lease.job_id, lease.token)


def _answered(tell: Tell, message: Message) -> MessageReply:
    try:
        return MessageReply(msgspec.to_builtins(tell(message)))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is raised in the handler, and nowhere else
        name = type(error).__name__ if isinstance(error, HoldfastError) else HoldfastError.__name__
        return MessageReply(error=name, message=str(error))


def _refused(said: HandlerMessage) -> MessageReply:
    error = LeaseLost.of(said.job_id, said.token)
    return MessageReply(error=type(error).__name__, message=str(error))


def _after_exit(exited: ProcessExited | None, run: Run) -> Outcome:
    """A child that died: because we ended it, or by its own doing."""
    if run.stop_reason is not None:
        return outcome_of(Cancelled(), run.stop_reason)
    if exited is None:
        return Lost(reason=EndReason.CRASHED, begun=True, error="the child process was lost with its supervisor")
    if exited.oom:
        cap = run.kind.options.memory or 0
        error = f"the child process took more than {cap / 1024**2:.0f} MiB of memory and was killed"
        return Lost(reason=EndReason.OOM, begun=True, error=error, exit_code=exited.status)
    if exited.status < 0:
        error = f"the child process was killed by signal {-exited.status}"
        return Lost(reason=f"signal_{-exited.status}", begun=True, error=error, exit_code=exited.status)
    error = f"the child process ended by itself with exit code {exited.status}"
    return Lost(reason=f"exit_{exited.status}", begun=True, error=error, exit_code=exited.status)


def hello_for(kinds: Mapping[str, Kind], *, worker: str) -> ChildSetup:
    """What a child has to know to run these kinds."""
    modules = {name: importable(kind) for name, kind in kinds.items() if kind.executor is ExecutorName.PROCESS}
    return ChildSetup(sys.path, _main_path(), worker, modules)


def importable(kind: Kind) -> str:
    """The module that registers a kind when it is imported.

    Raises:
        InvalidKind: No child could find the kind: it is defined inside a function, or typed in.
    """
    module = kind.function.__module__
    if "<locals>" in kind.function.__qualname__:
        raise InvalidKind(
            f"kind {kind.name!r}: a handler for processes has to be defined at the top of its module",
            hint="Children import the module and look for the kind there.",
        )
    if module == "__main__" and _main_path() is None:
        raise InvalidKind(
            f"kind {kind.name!r}: children cannot load a program that is typed in", hint="Run it from a file."
        )
    spec = getattr(sys.modules.get(module), "__spec__", None)
    return module if spec is None else str(spec.name)


def _main_path() -> str | None:
    """The program that a child has to load for kinds that are defined in it."""
    main = sys.modules.get("__main__")
    path = getattr(main, "__file__", None)
    return None if path is None else str(path)

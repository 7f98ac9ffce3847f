"""The executor of child processes: one child per slot, reused between jobs. A child can be killed."""

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
from holdfast.worker.active_runs import Handle, Run
from holdfast.worker.context import Message, SendMessage
from holdfast.worker.executors.channel import Channel, ProcessExited
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
from holdfast.worker.executors.threads import SlotExecutor
from holdfast.worker.handler import outcome_of
from holdfast.worker.lifecycle import RunLifecycle
from holdfast.worker.options import WorkerSetup

OUTCOMES: dict[str, type[Outcome]] = {kind.__name__: kind for kind in (Done, Failed, Released, Stopped)}


class ProcessExecutor(SlotExecutor):
    """Slots whose runs happen in children of one supervisor."""

    def __init__(self, setup: WorkerSetup, *, lifecycle: RunLifecycle) -> None:
        self._supervisor = SupervisorClient()
        for_child = child_setup(setup.kinds, worker=setup.worker)

        def make_slot() -> tuple[Callable[[Run], Outcome], Callable[[], None]]:
            child = ProcessSlot(self._supervisor, for_child, setup.options.children, reporter=lifecycle.reporter)
            return child.perform, child.close

        super().__init__("child", setup.options.slots, make_slot=make_slot, lifecycle=lifecycle)

    def close(self) -> None:
        super().close()
        self._supervisor.close()


class ProcessSlot(Handle):
    """The child of one slot: started on first use, replaced when it has died or reached its limits.

    It is also the handle of the run that the child executes.
    """

    def __init__(
        self,
        supervisor: SupervisorClient,
        setup: ChildSetup,
        options: ChildOptions,
        *,
        reporter: Callable[[Run], SendMessage],
    ) -> None:
        self._supervisor = supervisor
        self._setup = setup
        self._options = options
        self._reporter = reporter
        self._child = ""
        self._channel: Channel[FromChild] | None = None
        self._jobs = 0
        self._run: Run | None = None

    def perform(self, run: Run) -> Outcome:
        """Execute a run in the child. Every failure of the child is an outcome of this run alone."""
        self._run = run
        try:
            channel = self._started(run)
            run.attach(self)
            channel.send(BeginRun(run.lease))
            run.begun_at = clock.now()
        except OSError as error:
            self.close()
            return Failed(error=f"no child process could be started: {error}", reason=EndReason.CANNOT_START)
        try:
            return self._listen(run, channel)
        finally:
            run.detach()
            self._supervisor.limit(self._child)

    def close(self) -> None:
        """Close the channel; the child then ends by itself."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
            self._jobs = 0

    def interrupt(self) -> None:
        channel, run = self._channel, self._run
        if channel is not None and run is not None and run.stop_reason is not None:
            try:
                channel.send(StopRun(run.stop_reason))
            except OSError:
                return  # the child has ended by itself

    def kill(self) -> None:
        self._supervisor.kill(self._child)

    def renewed(self) -> None:
        if self._run is not None:
            self._limit(self._run)

    def _started(self, run: Run) -> Channel[FromChild]:
        """The channel to a child that is ready. Its start precedes the run, so a loss meanwhile costs no attempt."""
        if self._channel is None:
            self._child, connection = self._supervisor.start()
            self._channel = Channel(connection, FromChild)
            self._limit(run)
            self._channel.send(self._setup)
            if not isinstance(self._channel.receive(), ChildReady):
                raise OSError("it ended before it was ready")
        self._limit(run)
        return self._channel

    def _listen(self, run: Run, channel: Channel[FromChild]) -> Outcome:
        send = self._reporter(run)
        while (message := channel.receive()) is not None:
            own = not isinstance(message, ChildReady) and _is_of(message, run.lease)
            if isinstance(message, RunFinished) and own:
                self._retire_if_old(message)
                return msgspec.convert(message.fields, OUTCOMES[message.outcome], strict=False)
            if isinstance(message, HandlerMessage):
                try:
                    channel.send(_reply(send, message.message) if own else _refusal(message))
                except OSError:
                    break
        self.close()
        return _after_exit(self._supervisor.exit_of(self._child), run)

    def _retire_if_old(self, finished: RunFinished) -> None:
        self._jobs += 1
        if self._jobs >= self._options.jobs or finished.resident >= self._options.memory:
            self.close()

    def _limit(self, run: Run) -> None:
        self._supervisor.limit(self._child, until=run.lease_expires_at, memory=run.kind.options.memory)


def _is_of(message: HandlerMessage | RunFinished, lease: Lease) -> bool:
    """Whether a message comes from this run, and not from a thread or fork that an earlier run has left."""
    return (message.job_id, message.token) == (lease.job_id, lease.token)


def _reply(send: SendMessage, message: Message) -> MessageReply:
    try:
        return MessageReply(msgspec.to_builtins(send(message)))
    except Exception as error:  # noqa: BLE001 - the child raises it in the handler
        name = type(error).__name__ if isinstance(error, HoldfastError) else HoldfastError.__name__
        return MessageReply(error=name, message=str(error))


def _refusal(message: HandlerMessage) -> MessageReply:
    error = LeaseLost.of(message.job_id, message.token)
    return MessageReply(error=type(error).__name__, message=str(error))


def _after_exit(exited: ProcessExited | None, run: Run) -> Outcome:
    """The outcome of a run whose child has died: killed by us, or by itself."""
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


def child_setup(kinds: Mapping[str, Kind], *, worker: str) -> ChildSetup:
    """The setup of a child that runs these kinds."""
    modules = {name: module_of(kind) for name, kind in kinds.items() if kind.executor is ExecutorName.PROCESS}
    return ChildSetup(sys.path, _main_path(), worker, modules)


def module_of(kind: Kind) -> str:
    """The module that registers a kind when it is imported.

    Raises:
        InvalidKind: No child can import the kind: it is defined inside a function, or in an interactive session.
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
    """The main script, which a child loads for the kinds that it defines."""
    main = sys.modules.get("__main__")
    path = getattr(main, "__file__", None)
    return None if path is None else str(path)

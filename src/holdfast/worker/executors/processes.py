"""The executor of child processes: one child per slot, reused between jobs. A child can be killed."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress

import msgspec

from holdfast.domain.jobs.context import Cancelled
from holdfast.domain.jobs.job import EndReason
from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.kind_options import ExecutorName
from holdfast.domain.jobs.verdict import Done, Failed, Lost, Outcome, Released, Stopped, Unreadable
from holdfast.errors import HoldfastError, InvalidKind, LeaseLost
from holdfast.worker import clock
from holdfast.worker.active_runs import Handle, Run
from holdfast.worker.context import SendMessage
from holdfast.worker.executors import children
from holdfast.worker.executors.channel import Channel, ProcessExited
from holdfast.worker.executors.threads import SlotExecutor
from holdfast.worker.handler import outcome_of
from holdfast.worker.options import WorkerSetup
from holdfast.worker.run_lifecycle import RunLifecycle
from holdfast.worker.shortage import is_shortage

#: Longest wait for the report about a child that ended before it was ready.
EXIT_TIMEOUT_S = 1.0
OUTCOMES: dict[str, type[Outcome]] = {kind.__name__: kind for kind in (Done, Failed, Released, Stopped, Unreadable)}


class ProcessExecutor(SlotExecutor):
    """Slots whose runs happen in children of one supervisor."""

    def __init__(self, setup: WorkerSetup, *, lifecycle: RunLifecycle) -> None:
        self._supervisor = children.SupervisorClient()
        for_child = child_setup(setup.served.kinds, worker=setup.worker)

        def make_slot() -> tuple[Callable[[Run], Outcome], Callable[[], None]]:
            child = ProcessSlot(self._supervisor, for_child, setup.options.children, reporter=lifecycle.reporter)
            return child.perform, child.close

        super().__init__("child", setup.options.slots, make_slot=make_slot, lifecycle=lifecycle)

    def close(self) -> None:
        super().close()
        self._supervisor.close()


class ProcessSlot(Handle):
    """The child of one slot, and the handle of its run. A child that dies or reaches its limits is replaced."""

    def __init__(
        self,
        supervisor: children.SupervisorClient,
        setup: children.ChildSetup,
        options: children.ChildOptions,
        *,
        reporter: Callable[[Run], SendMessage],
    ) -> None:
        self._supervisor = supervisor
        self._setup = setup
        self._options = options
        self._reporter = reporter
        self._child = ""
        self._channel: Channel[children.FromChild] | None = None
        self._jobs = 0
        self._run: Run | None = None

    def perform(self, run: Run) -> Outcome:
        """Execute a run in the child. Every failure of the child is an outcome of this run alone."""
        self._run = run
        try:
            channel = self._started(run)
            run.attach(self)
            channel.send(children.BeginRun(run.lease))
            run.begun_at = clock.now()
        except OSError as error:
            self.close()
            if is_shortage(error):
                raise
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
            with suppress(OSError):  # the child has ended by itself
                channel.send(children.StopRun(run.stop_reason))

    def kill(self) -> None:
        self._supervisor.kill(self._child)

    def renewed(self) -> None:
        if self._run is not None:
            self._limit(self._run)

    def _started(self, run: Run) -> Channel[children.FromChild]:
        """The channel to a child that is ready. Its start precedes the run, so a loss meanwhile costs no attempt."""
        if self._channel is None:
            self._child, connection = self._supervisor.start()
            self._channel = Channel(connection, children.FromChild)
            self._limit(run)
            self._channel.send(self._setup)
            if not isinstance(self._channel.receive(), children.ChildReady):
                exited = self._supervisor.exit_of(self._child, timeout=EXIT_TIMEOUT_S)
                error = None if exited is None else exited.errno
                raise OSError(error or errno.EPIPE, "it ended before it was ready")
        self._limit(run)
        return self._channel

    def _listen(self, run: Run, channel: Channel[children.FromChild]) -> Outcome:
        send, lease = self._reporter(run), (run.lease.job_id, run.lease.token)
        while (message := channel.receive()) is not None:
            # A thread or fork that an earlier run has left may still send.
            own = not isinstance(message, children.ChildReady) and (message.job_id, message.token) == lease
            if isinstance(message, children.RunFinished) and own:
                self._jobs += 1
                if self._jobs >= self._options.jobs or message.resident >= self._options.memory:
                    self.close()
                return msgspec.convert(message.fields, OUTCOMES[message.outcome], strict=False)
            if isinstance(message, children.HandlerMessage):
                try:
                    channel.send(_reply(send, message, own=own))
                except OSError:
                    break
        self.close()
        return _after_exit(self._supervisor.exit_of(self._child), run)

    def _limit(self, run: Run) -> None:
        self._supervisor.limit(self._child, until=run.lease_expires_at, memory=run.kind.options.memory)


def _reply(send: SendMessage, message: children.HandlerMessage, *, own: bool) -> children.MessageReply:
    if not own:
        lost = LeaseLost.of(message.job_id, message.token)
        return children.MessageReply(error=type(lost).__name__, message=str(lost))
    try:
        return children.MessageReply(msgspec.to_builtins(send(message.message)))
    except Exception as error:  # noqa: BLE001 - the child raises it in the handler
        name = type(error).__name__ if isinstance(error, HoldfastError) else HoldfastError.__name__
        return children.MessageReply(error=name, message=str(error))


def _after_exit(exited: ProcessExited | None, run: Run) -> Outcome:
    """The outcome of a run whose child has died: killed by us, or by itself."""
    if run.stop_reason is not None:
        return outcome_of(Cancelled(), run.stop_reason)
    if exited is None:
        return Lost(reason=EndReason.CRASHED, begun=True, error="the child process was lost with its supervisor")
    if exited.oom:
        cap = run.kind.options.memory or 0
        reason = EndReason.OOM.value
        error = f"the child process took more than {cap / 1024**2:.0f} MiB of memory and was killed"
    elif exited.status < 0:
        reason, error = f"signal_{-exited.status}", f"the child process was killed by signal {-exited.status}"
    else:
        reason = f"exit_{exited.status}"
        error = f"the child process ended by itself with exit code {exited.status}"
    return Lost(reason=reason, begun=True, error=error, exit_code=exited.status)


def child_setup(kinds: Mapping[str, Kind], *, worker: str) -> children.ChildSetup:
    """The setup of a child that runs these kinds."""
    modules = {name: module_of(kind) for name, kind in kinds.items() if kind.executor is ExecutorName.PROCESS}
    return children.ChildSetup(sys.path, _main_path(), worker, modules)


def module_of(kind: Kind) -> str:
    """The module that registers a kind when it is imported; fails if no child can import it."""
    module = kind.function.__module__
    if "<locals>" in kind.function.__qualname__:
        error = f"kind {kind.name!r}: a handler for processes has to be defined at the top of its module"
        raise InvalidKind(error, hint="Children import the module and look for the kind there.")
    if module == "__main__" and _main_path() is None:
        error = f"kind {kind.name!r}: children cannot load a program that is typed in"
        raise InvalidKind(error, hint="Run it from a file.")
    spec = getattr(sys.modules.get(module), "__spec__", None)
    return module if spec is None else str(spec.name)


def _main_path() -> str | None:
    """The main script, which a child loads for the kinds that it defines."""
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    return None if path is None else str(path)

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
from holdfast.worker.active_runs import Handle, Run, StopReason
from holdfast.worker.context import SendMessage
from holdfast.worker.executors import children
from holdfast.worker.executors.channel import Channel, ProcessExited
from holdfast.worker.executors.threads import SlotExecutor
from holdfast.worker.handler_call import outcome_of
from holdfast.worker.options import WorkerSetup
from holdfast.worker.run_lifecycle import RunLifecycle
from holdfast.worker.shortage import WorkerShortage

#: Longest wait for the report about a child that ended before it was ready.
EXIT_TIMEOUT_S = 1.0
#: Children that may end before they begin a run, until the worker takes a pause.
CHILD_TRIES = 3
#: Time for a child to end by itself after its channel was closed.
CLOSE_GRACE_S = 5.0
OUTCOMES: dict[str, type[Outcome]] = {kind.__name__: kind for kind in (Done, Failed, Released, Stopped, Unreadable)}


class ProcessExecutor(SlotExecutor):
    """Slots whose runs happen in children of one supervisor."""

    def __init__(self, setup: WorkerSetup, *, lifecycle: RunLifecycle) -> None:
        self._supervisor = children.SupervisorClient()
        for_child = child_setup(setup.served.kinds, worker=setup.worker)

        def make_slot() -> tuple[Callable[[Run], Outcome], Callable[[], None]]:
            child = ProcessSlot(self._supervisor, for_child, setup.options.children, reporter=lifecycle.reporter)

            def perform(run: Run) -> Outcome:
                outcome = child.perform(run)
                lifecycle.shortage.recovered()
                return outcome

            return perform, child.close

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
        #: Why the child cannot go on, if it or this side has found out.
        self._failure: str | None = None

    def perform(self, run: Run) -> Outcome:
        """Execute a run in the child. A child that ends before it has begun the run costs nothing: another follows."""
        self._run = run
        for _ in range(CHILD_TRIES):
            channel = self._started(run)
            run.attach(self)
            try:
                outcome = self._try(run, channel)
            finally:
                run.detach()
                self._supervisor.limit(self._child)
            if outcome is not None:
                return outcome
            run.begun_at = None
            if not run.may_begin():
                return outcome_of(Cancelled(), run.stop_reason or StopReason.LEASE_LOST)
        raise WorkerShortage(errno.ECHILD, "child processes exit before they start a run")

    def close(self) -> None:
        """Close the channel; the child then ends by itself, or is killed soon."""
        if self._channel is not None:
            self._channel.shut()  # a fork may have a copy of the connection
            self._channel.close()
            self._channel = None
            self._jobs = 0
            self._supervisor.dismiss(self._child, until=clock.now() + CLOSE_GRACE_S)

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
            self._child, connection = self._supervisor.start(until=run.lease_expires_at)
            self._channel = Channel(connection, children.FromChild)
            try:
                self._channel.send(self._setup)
                is_ready = isinstance(self._channel.receive(), children.ChildReady)
            except OSError:
                is_ready = False
            if not is_ready:
                exited = self._supervisor.exit_of(self._child, timeout=EXIT_TIMEOUT_S)
                self.close()
                why = "it exited before it was ready" if exited is None or exited.error is None else exited.error
                number = None if exited is None else exited.errno
                raise WorkerShortage(number or errno.ECHILD, f"no child process could be started: {why}")
        self._limit(run)
        return self._channel

    def _try(self, run: Run, channel: Channel[children.FromChild]) -> Outcome | None:
        """Execute a run in this child; None: the child has ended before it began the run."""
        begun, outcome, self._failure = False, None, None
        with suppress(OSError):  # the child has ended
            channel.send(children.BeginRun(run.lease))
            run.begun_at = clock.now()
            self.interrupt()  # a stop that was requested before the child had the run
            begun, outcome = self._listen(run, channel)
        if outcome is not None:
            return outcome
        exited = self._supervisor.exit_of(self._child)
        self.close()
        if begun or run.stop_reason is not None or (exited is not None and exited.oom):
            return _after_exit(exited, run, self._failure)
        return None

    def _listen(self, run: Run, channel: Channel[children.FromChild]) -> tuple[bool, Outcome | None]:
        """Whether the child has begun the run, and the outcome; None: the child has ended without one."""
        send, lease, begun = self._reporter(run), (run.lease.job_id, run.lease.token), False
        while (message := self._receive(channel)) is not None:
            # A thread or fork that an earlier run has left may still send.
            named = None if isinstance(message, children.OfChild) else (message.job_id, message.token)
            own = named == lease
            begun = begun or own
            if isinstance(message, children.RunFinished) and own:
                self._jobs += 1
                if self._jobs >= self._options.jobs or message.resident >= self._options.memory:
                    self.close()
                return begun, msgspec.convert(message.fields, OUTCOMES[message.outcome], strict=False)
            if isinstance(message, children.HandlerMessage):
                try:
                    channel.send(_reply(send, message, own=own))
                except OSError:
                    break
        return begun, None

    def _receive(self, channel: Channel[children.FromChild]) -> children.FromChild | None:
        """The next message of a run; None: the child has ended, or sends what cannot be read and is killed."""
        try:
            message = channel.receive()
        except msgspec.MsgspecError as error:
            self._failure = f"a message of it cannot be read: {error}"
            self.kill()
            return None
        if isinstance(message, children.ChildFailed):
            self._failure = message.error
            return None
        return message

    def _limit(self, run: Run) -> None:
        self._supervisor.limit(self._child, until=run.lease_expires_at, memory=run.kind.options.memory)


def _reply(send: SendMessage, message: children.HandlerMessage, *, own: bool) -> children.MessageReply:
    if not own:
        lost = LeaseLost.of(message.job_id, message.token)
        return children.MessageReply(error=type(lost).__name__, message=str(lost), number=message.number)
    try:
        return children.MessageReply(msgspec.to_builtins(send(message.message)), number=message.number)
    except Exception as error:  # noqa: BLE001 - the child raises it in the handler
        name = type(error).__name__ if isinstance(error, HoldfastError) else HoldfastError.__name__
        return children.MessageReply(error=name, message=str(error), number=message.number)


def _after_exit(exited: ProcessExited | None, run: Run, failure: str | None) -> Outcome:
    """The outcome of a run whose child has died: killed by us, or by itself."""
    if run.stop_reason is not None:
        return outcome_of(Cancelled(), run.stop_reason)
    if exited is None:
        return Lost(reason=EndReason.CRASHED, begun=True, error="the child process was lost with its supervisor")
    if exited.oom:
        cap = run.kind.options.memory or 0
        reason = EndReason.OOM.value
        error = f"the child process used more than {cap / 1024**2:.0f} MiB of memory and was killed"
    elif exited.status < 0:
        reason, error = f"signal_{-exited.status}", f"the child process was killed by signal {-exited.status}"
    else:
        reason = f"exit_{exited.status}"
        error = f"the child process exited with code {exited.status}"
    if failure is not None:
        error = f"{error}: {failure}"
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
        raise InvalidKind(error, hint="Child processes import the module to find the kind.")
    if module == "__main__" and _main_path() is None:
        error = f"kind {kind.name!r}: children cannot load a program that is typed in"
        raise InvalidKind(error, hint="Run it from a file.")
    spec = getattr(sys.modules.get(module), "__spec__", None)
    return module if spec is None else str(spec.name)


def _main_path() -> str | None:
    """The main script, which a child loads for the kinds that it defines."""
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    return None if path is None else str(path)

"""A child process of a worker: runs handlers of the process executor, one at a time.

The supervisor starts it with the descriptor of its connection to the worker. The worker has the leases and
answers the handler's messages; a child opens no store.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import os
import queue
import signal
import socket
import sys
import threading
import types
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from holdfast import errors
from holdfast.domain.jobs.job import EndReason, Lease, WorkerId
from holdfast.domain.jobs.kind import APPLICATIONS, Application, Kind
from holdfast.domain.jobs.verdict import Failed, Outcome, Unreadable
from holdfast.domain.names import clean_text
from holdfast.store.engine.sockets import inherited_socket
from holdfast.store.jobs.leases import DEFAULT_LEASE
from holdfast.worker import clock
from holdfast.worker.active_runs import Run, StopReason
from holdfast.worker.commands.kernel import resident
from holdfast.worker.context import ANSWERS, Message, RunContext
from holdfast.worker.executors import children
from holdfast.worker.executors.channel import Channel, frame
from holdfast.worker.exit import exit_process
from holdfast.worker.handler_call import await_handler, describe_error, outcome_of, run_handler

#: The name under which a child loads the main script.
MAIN = "__holdfast_main__"
#: PR_SET_PDEATHSIG of prctl.
_DEATH_SIGNAL = 1


class ChildProcess:
    """Runs handlers in its main thread; another thread receives the worker's messages."""

    def __init__(self, connection: socket.socket, setup: children.ChildSetup) -> None:
        self._channel: Channel[children.ToChild] = Channel(connection, children.ToChild)
        self._setup = setup
        self._begins: queue.SimpleQueue[children.BeginRun | None] = queue.SimpleQueue()
        self._replies: queue.SimpleQueue[children.MessageReply | None] = queue.SimpleQueue()
        #: Encoded messages: a value that cannot be encoded is an error of the handler that sends it.
        self._messages: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._sending = threading.Lock()
        self._sent = 0
        self._run: Run | None = None
        #: The stop request for the newest run, which may not have begun yet.
        self._stop: StopReason | None = None
        self._pid = os.getpid()
        self._channel.send(children.ChildReady())
        for name, function in (("holdfast-line", self._receive), ("holdfast-messages", self._transmit)):
            threading.Thread(target=self._supervised, args=(function,), name=name, daemon=True).start()

    def serve(self) -> None:
        """Run jobs until the worker closes the channel."""
        self._supervised(self._serve)

    def _serve(self) -> None:
        while (begin := self._begins.get()) is not None:
            self._channel.send(children.RunBegun(begin.lease.token, begin.lease.job_id))
            outcome = self._outcome(begin)
            if os.getpid() != self._pid:
                exit_process(0, "a fork that the handler left behind ends here: it must not answer")
            self._channel.send_frame(_finished(begin.lease, outcome))

    def _outcome(self, begin: children.BeginRun) -> Outcome:
        try:
            kind, application = self._find(begin.lease.kind)
        except BaseException as error:  # noqa: BLE001 - a broken module fails only its own jobs
            return Failed(error=f"the handler cannot be loaded: {describe_error(error)}", reason=EndReason.CANNOT_START)
        self._run = run = Run(begin.lease, kind, renewed_at=clock.now(), lease_duration=DEFAULT_LEASE)
        run.begun_at = clock.now()
        if self._stop is not None:
            run.stop(self._stop)

        def context(run: Run) -> RunContext:
            send = partial(self._send, run.lease)
            return RunContext(run, send, WorkerId(self._setup.worker), application.request)

        if not kind.is_async:
            return run_handler(run, context)
        try:
            return asyncio.run(await_handler(run, context))
        except BaseException as error:  # noqa: BLE001 - sys.exit inside the coroutine ends its loop
            return outcome_of(error, run.stop_reason)

    def _find(self, name: str) -> tuple[Kind, Application]:
        """Find a kind by importing the module that registers it."""
        module = self._setup.modules[name]
        if module == "__main__" and self._setup.main is not None:
            if MAIN not in sys.modules:
                _load_main(self._setup.main)
        else:
            importlib.import_module(module)
        for application in list(APPLICATIONS):
            if (kind := application.find_kind(name)) is not None:
                return kind, application
        raise errors.UnknownKind(f"the module {module!r} registers no kind {name!r} when it is imported")

    def _send(self, lease: Lease, message: Message) -> Any:
        if os.getpid() != self._pid:
            raise errors.LeaseLost("a forked process does not hold its parent's lease")
        with self._sending:
            self._sent += 1
            sent = children.HandlerMessage(lease.token, lease.job_id, message, self._sent)
            self._messages.put(children.handler_frame(sent))
            # A signal handler of the user can end the wait with an exception, and leave its reply behind.
            while (reply := self._replies.get()) is not None and reply.number != self._sent:
                pass
        if reply is None:
            exit_process(1, "the worker is gone, and the lease with it: this child process ends")
        if reply.error is not None:
            raise getattr(errors, reply.error, errors.HoldfastError)(reply.message)
        return msgspec.convert(reply.value, ANSWERS[type(message)], strict=False)

    def _transmit(self) -> None:
        """Send messages in a thread, which no signal handler of the user can interrupt in the middle of one."""
        while True:
            self._channel.send_frame(self._messages.get())

    def _supervised(self, function: Callable[[], None]) -> None:
        """Run a thread of the child. The others would wait for ever after its end, so an error ends the process."""
        try:
            function()
        except ConnectionError:
            return  # the worker is gone, and the other thread receives that
        except BaseException as error:  # noqa: BLE001 - the worker reports it
            if os.getpid() == self._pid:  # a fork must not speak for its parent
                with suppress(BaseException):
                    self._channel.send(children.ChildFailed(describe_error(error)))
            exit_process(1, "a thread of this child process failed; it reported this to its worker, and ends")

    def _receive(self) -> None:
        while (message := self._channel.receive()) is not None:
            match message:
                case children.BeginRun():
                    self._stop = None
                    self._begins.put(message)
                case children.MessageReply():
                    self._replies.put(message)
                case children.StopRun():
                    self._stop = StopReason(message.reason)
                    if self._run is not None:
                        self._run.stop(self._stop)
        self._begins.put(None)
        self._replies.put(None)


def _finished(lease: Lease, outcome: Outcome) -> bytes:
    """The last message of a run."""
    if isinstance(outcome, Failed | Unreadable):
        outcome = msgspec.structs.replace(outcome, error=clean_text(outcome.error))
    try:
        name, fields = type(outcome).__name__, msgspec.to_builtins(outcome)
        return frame(children.RunFinished(lease.token, lease.job_id, name, fields, resident("self")))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        failed = Failed(error=f"the outcome cannot be sent to the worker: {clean_text(str(error))}")
        return _finished(lease, failed)


def _load_main(path: str) -> None:
    """Load the main script under another name, so that its ``if __name__ == "__main__"`` block does not run."""
    module = types.ModuleType(MAIN)
    module.__file__ = path
    sys.modules[MAIN] = module
    code = compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
    exec(code, vars(module))  # noqa: S102 - the script that started the worker


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        # The kernel kills this process when its supervisor dies; nothing else would in time.
        supervisor = os.getppid()
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != supervisor:
            exit_process(1, "the supervisor of child processes is gone: this one ends")
    connection = inherited_socket(int(sys.argv[1]))
    setup = Channel[children.ChildSetup](connection, children.ChildSetup).receive()
    if setup is None:
        return
    sys.path[:] = setup.path
    ChildProcess(connection, setup).serve()


if __name__ == "__main__":
    main()

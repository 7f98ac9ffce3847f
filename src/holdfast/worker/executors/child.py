"""A child of a worker: it runs handlers of the process executor, one at a time.

Started by the supervisor with the descriptor of its line to the worker. What a handler says goes
to the worker, which holds the leases; a child opens no store.
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
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from holdfast import errors
from holdfast.domain.jobs.job import EndReason, Lease, WorkerId
from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.verdict import Failed, Outcome
from holdfast.domain.names import clean_text
from holdfast.store.jobs.leases import DEFAULT_LEASE
from holdfast.worker import clock
from holdfast.worker.active_runs import Run, StopReason
from holdfast.worker.applications import APPLICATIONS, Application
from holdfast.worker.context import RunContext
from holdfast.worker.executors.channel import Channel
from holdfast.worker.executors.children import (
    BeginRun,
    ChildReady,
    ChildSetup,
    HandlerMessage,
    MessageReply,
    RunFinished,
    StopRun,
    ToChild,
)
from holdfast.worker.handler import await_handler, run_handler, say
from holdfast.worker.messages import ANSWERS, Message

MAIN = "__holdfast_main__"
_DEATH_SIGNAL = 1


class ChildProcess:
    """Runs what it is told to, in its main thread; another thread hears what the worker says meanwhile."""

    def __init__(self, line: socket.socket, hello: ChildSetup) -> None:
        self._line: Channel[ToChild] = Channel(line, ToChild)
        self._hello = hello
        self._begins: queue.SimpleQueue[BeginRun | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[MessageReply | None] = queue.SimpleQueue()
        self._asking = threading.Lock()
        self._run: Run | None = None
        self._pid = os.getpid()
        self._line.send(ChildReady())
        threading.Thread(target=self._hear, name="holdfast-line", daemon=True).start()

    def serve(self) -> None:
        """Until the worker hangs up."""
        while (begin := self._begins.get()) is not None:
            outcome = self._outcome(begin)
            if os.getpid() != self._pid:
                os._exit(0)  # a fork that a handler left behind: it has no say here
            if isinstance(outcome, Failed):
                outcome = msgspec.structs.replace(outcome, error=clean_text(outcome.error))
            lease, facts = begin.lease, msgspec.to_builtins(outcome)
            self._line.send(RunFinished(lease.token, lease.job_id, type(outcome).__name__, facts, _resident()))

    def _outcome(self, begin: BeginRun) -> Outcome:
        try:
            kind, application = self._find(begin.lease.kind)
        except BaseException as error:  # noqa: BLE001 - a module that cannot be imported hurts its own jobs alone
            return Failed(error=f"the handler cannot be loaded: {say(error)}", reason=EndReason.CANNOT_START)
        self._run = run = Run(begin.lease, kind, dated=clock.now(), lease_duration=DEFAULT_LEASE)
        run.begun_at = clock.now()

        def context(run: Run) -> RunContext:
            tell = partial(self._tell, run.lease)
            return RunContext(run, tell, WorkerId(self._hello.worker), application.request)

        return asyncio.run(await_handler(run, context)) if kind.is_async else run_handler(run, context)

    def _find(self, name: str) -> tuple[Kind, Application]:
        """The kind, from the module that registers it."""
        module = self._hello.modules[name]
        if module == "__main__" and self._hello.main is not None:
            if MAIN not in sys.modules:
                _load_main(self._hello.main)
        else:
            importlib.import_module(module)
        for application in list(APPLICATIONS):
            kind = application.find_kind(name)
            if kind is not None:
                return kind, application
        raise errors.UnknownKind(f"the module {module!r} registers no kind {name!r} when it is imported")

    def _tell(self, lease: Lease, message: Message) -> Any:
        if os.getpid() != self._pid:
            raise errors.LeaseLost("a forked process does not hold its parent's lease")
        with self._asking:
            self._line.send(HandlerMessage(lease.token, lease.job_id, message))
            answer = self._answers.get()
        if answer is None:
            os._exit(1)  # the worker is gone; so is the lease
        if answer.error is not None:
            raise getattr(errors, answer.error, errors.HoldfastError)(answer.message)
        return msgspec.convert(answer.value, ANSWERS[type(message)], strict=False)

    def _hear(self) -> None:
        while (message := self._line.receive()) is not None:
            match message:
                case BeginRun():
                    self._begins.put(message)
                case MessageReply():
                    self._answers.put(message)
                case StopRun():
                    if self._run is not None:
                        self._run.stop(StopReason(message.reason))
        self._begins.put(None)
        self._answers.put(None)


def _load_main(path: str) -> None:
    """Load the main program as a module that is not the main one: what stands behind its guard does not run."""
    module = types.ModuleType(MAIN)
    module.__file__ = path
    sys.modules[MAIN] = module
    code = compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
    exec(code, vars(module))  # noqa: S102 - the very program that started the worker


def _resident() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _die_with_supervisor() -> None:
    """Nobody else would end this process in time."""
    if sys.platform == "linux":
        supervisor = os.getppid()
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != supervisor:
            os._exit(1)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_with_supervisor()
    line = socket.socket(fileno=int(sys.argv[1]))
    hello = Channel[ChildSetup](line, ChildSetup).receive()
    if hello is None:
        return
    sys.path[:] = hello.path
    ChildProcess(line, hello).serve()


if __name__ == "__main__":
    main()

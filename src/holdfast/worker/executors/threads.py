"""Executors that use threads: one thread per slot, or one event loop for all coroutines."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import ParamSpec, TypeVar

from holdfast.domain.jobs.verdict import Outcome
from holdfast.store.jobs.settlement import Settlement
from holdfast.worker import clock
from holdfast.worker.active_runs import Handle, Run
from holdfast.worker.executors.run_queue import RunQueue, SlotGate
from holdfast.worker.exit import exit_process
from holdfast.worker.handler_call import await_handler, describe_error, outcome_of, run_handler
from holdfast.worker.run_lifecycle import RunLifecycle
from holdfast.worker.shortage import is_shortage

log = logging.getLogger("holdfast")

#: Threads for blocking calls of coroutines, besides one for each slot.
SPARE_THREADS = 32
#: A loop that has not taken new runs for this long is blocked: no more are claimed for it.
BLOCKED_AFTER_S = 0.1

P = ParamSpec("P")
T = TypeVar("T")

#: Returns None if the run must not begin.
Perform = Callable[[Run], Outcome | None]
#: Creates a slot: the function that performs its runs, and the function that closes it.
MakeSlot = Callable[[], tuple[Perform, Callable[[], None]]]


class SlotExecutor:
    """Runs in as many threads as slots. Threads start when they are first needed."""

    #: A thread takes every run at once.
    blocked = False
    #: Whether the start of a run writes the settlement of the last one, in one transaction.
    joins_settlements = False

    def __init__(self, name: str, slots: int, *, make_slot: MakeSlot, lifecycle: RunLifecycle) -> None:
        self.waiting = RunQueue()
        self.gate = SlotGate(slots)
        self._name = name
        self._slots = slots
        self._make_slot = make_slot
        self._lifecycle = lifecycle
        self._closed = False
        self._submitted = threading.Condition()
        #: Finished runs by slot; each is written by the thread of its slot alone.
        self._finished: list[int] = []

    def submit(self, runs: list[Run]) -> None:
        self.waiting.put(runs)
        with self._submitted:
            while len(self._finished) < self._slots and len(self.waiting) > len(self._finished) - self.running:
                slot = len(self._finished)
                self._finished.append(0)
                name = f"holdfast-{self._name}-{slot}"
                try:
                    threading.Thread(target=self._work, args=(slot,), name=name, daemon=True).start()
                except RuntimeError as error:
                    self._finished.pop()
                    self._lifecycle.shortage.release(error)  # the claimer releases runs that no thread takes
                    break
            self._submitted.notify(len(runs))

    @property
    def alive(self) -> bool:
        return True

    def wake(self) -> None:
        """A slot of the worker may be free."""
        with self._submitted:
            self._submitted.notify()

    @property
    def running(self) -> int:
        finished = sum(self._finished)  # read first: the difference is never too small
        return self.waiting.taken - finished

    def close(self) -> None:
        with self._submitted:
            self._closed = True
            self._submitted.notify_all()

    def _work(self, slot: int) -> None:
        perform, close = self._make_slot()
        lifecycle, signal = self._lifecycle, self._lifecycle.finish_signal
        try:
            while (run := self._next()) is not None:
                settlement = self._settlement(run, perform)
                lifecycle.finished(run, settlement, joins=self.joins_settlements and len(self.waiting) > 0)
                self._finished[slot] += 1
                self.gate.freed(self)
                if len(self.waiting) < self._slots:  # otherwise the claimer has nothing to do
                    lifecycle.slot_freed()
                if signal.watched:
                    signal.notify()
        finally:
            close()

    def _next(self) -> Run | None:
        run = self.gate.take(self)
        if run is None:
            if self.joins_settlements:
                self._lifecycle.settler.write_joining()
            with self._submitted:
                while not self._closed and (run := self.gate.take(self)) is None:
                    self._submitted.wait()
        return run

    def _settlement(self, run: Run, perform: Perform) -> Settlement | None:
        if not run.may_begin():
            return None
        try:
            self._lifecycle.log.started(run)
            outcome = perform(run)
        except BaseException as error:  # noqa: BLE001 - a slot survives every error of its runs
            if run.begun_at is None and is_shortage(error):
                outcome = self._lifecycle.shortage.release(error)
            else:
                outcome = outcome_of(error, run.stop_reason)
        if outcome is None:
            return None
        run.finished = True
        ran = None if run.begun_at is None else timedelta(seconds=clock.now() - run.begun_at)
        return Settlement(run.lease, outcome, ran)


def thread_executor(slots: int, *, lifecycle: RunLifecycle) -> SlotExecutor:
    """An executor whose threads call the handlers. A thread cannot be killed: it only receives stop requests."""

    def perform(run: Run) -> Outcome:
        run.begun_at = clock.now()
        return run_handler(run, lifecycle.context)

    return SlotExecutor("slot", slots, make_slot=lambda: (perform, lambda: None), lifecycle=lifecycle)


@dataclass(slots=True, eq=False)
class CoroutineHandle(Handle):
    """Cancels the coroutine of a run, from any thread."""

    _loop: asyncio.AbstractEventLoop
    _task: asyncio.Future[None]

    def interrupt(self) -> None:
        self._loop.call_soon_threadsafe(self._task.cancel)


class CallThreads(ThreadPoolExecutor):
    """Threads for the blocking calls of coroutines. A call has the context of its run, and leaves nothing to others."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return super().submit(partial(copy_context().run, fn, *args, **kwargs))


class LoopExecutor:
    """Runs as many coroutines at a time as there are slots."""

    def __init__(self, slots: int, *, lifecycle: RunLifecycle) -> None:
        self.waiting = RunQueue()
        self.gate = SlotGate(slots)
        self.running = 0
        #: When runs were submitted that the loop has not taken yet.
        self._submitted_at: float | None = None
        self._slots = slots
        self._lifecycle = lifecycle
        self._closed = False
        self._process = os.getpid()
        _LOOPS.add(self)
        self._tasks: set[asyncio.Future[None]] = set()
        self._loop = asyncio.new_event_loop()
        # Calls of the context wait in threads during an outage; the handlers' own threads must not wait for them.
        self._loop.set_default_executor(CallThreads(slots + SPARE_THREADS, "holdfast-loop-call"))
        #: Each run begins in a copy of it: the context of the loop's thread, as other runs in that of theirs.
        self._context = Context()
        self._thread = threading.Thread(target=self._serve, name="holdfast-loop", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self._loop.close()
            raise

    def submit(self, runs: list[Run]) -> None:
        self.waiting.put(runs)
        if self._submitted_at is None:
            self._submitted_at = clock.now()
        self.wake()

    def wake(self) -> None:
        """Begin waiting runs: some are new, or a slot of the worker may be free."""
        self._loop.call_soon_threadsafe(self._begin_waiting)

    @property
    def blocked(self) -> bool:
        """Whether a coroutine keeps the loop from beginning others: it makes a call that blocks."""
        submitted_at = self._submitted_at
        return submitted_at is not None and clock.now() - submitted_at > BLOCKED_AFTER_S

    @property
    def alive(self) -> bool:
        """Whether coroutines can run."""
        return self._thread.is_alive()

    def close(self) -> None:
        self._closed = True
        with suppress(RuntimeError):  # it has ended already
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=1)

    def _serve(self) -> None:
        """Run the loop until it is closed. ``sys.exit`` and ``loop.stop()`` in a coroutine end only one turn of it."""
        self._context = copy_context()
        while not self._closed:
            try:
                self._loop.run_forever()
            except BaseException as error:  # noqa: BLE001 - the coroutine has the error too, and its handler fails
                text = describe_error(error).partition("\n")[0]
                log.warning("a coroutine of a handler raised %s; the loop continues", text)
            if os.getpid() != self._process:
                # It must not run the coroutines of its parent.
                exit_process(0, "a fork that a coroutine left behind ends here")
        self._loop.close()

    def after_fork_in_child(self) -> None:
        """Stop the loop of a fork, before it runs coroutines of its parent."""
        if threading.current_thread() is self._thread:
            self._loop.stop()

    def _begin_waiting(self) -> None:
        was_blocked, self._submitted_at = self.blocked, None
        if was_blocked:
            self._lifecycle.slot_freed()
        while self.running < self._slots:
            self.running += 1  # before the take: a run always counts as waiting or running
            run = self.gate.take(self, counted=1)
            if run is None:
                self.running -= 1
                return
            # This may run at the end of a coroutine, whose context has the variables of its own run.
            coroutine = self._loop.create_task(self._run(run), context=self._context.copy())
            self._tasks.add(coroutine)
            coroutine.add_done_callback(partial(self._end, run))

    async def _run(self, run: Run) -> None:
        try:
            settlement = await self._settlement(run)
        except BaseException as error:  # noqa: BLE001 - the loop survives every error of its runs
            run.finished = True
            settlement = Settlement(run.lease, outcome_of(error, run.stop_reason))
        self._finish(run, settlement)

    def _end(self, run: Run, coroutine: asyncio.Future[None]) -> None:
        self._tasks.discard(coroutine)
        if coroutine.cancelled():  # code of a handler has cancelled it before its first step: it has not begun
            self._finish(run, None)

    def _finish(self, run: Run, settlement: Settlement | None) -> None:
        self._lifecycle.finished(run, settlement)
        self.running -= 1
        self._begin_waiting()
        self.gate.freed(self)
        self._lifecycle.slot_freed()
        self._lifecycle.finish_signal.notify()

    async def _settlement(self, run: Run) -> Settlement | None:
        if not run.may_begin():
            return None
        coroutine = asyncio.current_task()
        assert coroutine is not None
        run.attach(CoroutineHandle(self._loop, coroutine))
        run.begun_at = began = clock.now()
        self._lifecycle.log.started(run)
        outcome = await await_handler(run, self._lifecycle.context)
        run.finished = True
        run.detach()
        return Settlement(run.lease, outcome, timedelta(seconds=clock.now() - began))


_LOOPS: weakref.WeakSet[LoopExecutor] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for executor in list(_LOOPS):
        executor.after_fork_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)

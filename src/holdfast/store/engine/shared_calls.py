"""Calls of many threads that share one transaction."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from holdfast.errors import StoreUnavailable
from holdfast.store.engine.forks import ForkSafe, survive_forks

Q = TypeVar("Q")
A = TypeVar("A")

#: Calls that run side by side. With fewer threads than this, none waits for another.
LEADERS = 2
#: The most requests of one call.
MAX_GROUP = 100


class _Request(Generic[Q, A]):
    """A request and, when it is *ready*, its answers or its error. It may lead the next call instead."""

    #: Only a request that waits has one of its own.
    ready: threading.Event

    def __init__(self, value: Q) -> None:
        self.value = value
        self.leads = False
        self.answers: Sequence[A] | None = None
        self.error: BaseException | None = None


class SharedCalls(ForkSafe, Generic[Q, A]):
    """Performs the requests of many threads in few calls.

    While :data:`LEADERS` calls are under way, further requests wait. The thread of the first one then performs all that
    wait, and the others receive its answers.
    """

    def __init__(self, perform: Callable[[list[Q]], Sequence[A]]) -> None:
        self._perform = perform
        self._begin()
        survive_forks(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._waiting: deque[_Request[Q, A]] = deque()

    def after_fork_in_child(self) -> None:
        """The threads of other requests do not exist in the child."""
        self._begin()

    def call(self, value: Q) -> A:
        """Perform a request, alone or with those of other threads.

        An error of the store is raised for all requests of a call. After any other error, each is performed alone.
        """
        request: _Request[Q, A] = _Request(value)
        with self._lock:
            request.leads = self._running < LEADERS
            if request.leads:
                self._running += 1
            else:
                request.ready = threading.Event()
                self._waiting.append(request)
        group = [request]
        if not request.leads:
            group = self._wait(request)
        if group:
            self._lead(group)
        if request.error is not None:
            raise request.error
        return (request.answers or self._perform([value]))[0]

    def _wait(self, request: _Request[Q, A]) -> list[_Request[Q, A]]:
        """Wait for the answer; returns the requests to lead, if it is up to this thread."""
        try:
            request.ready.wait()
        except BaseException:  # a signal handler has raised
            self._leave(request)
            raise
        group = [request] if request.leads else []
        # The main thread may be interrupted in the middle: others would not know what has become of their requests.
        if group and threading.current_thread() is not threading.main_thread():
            with self._lock:
                group += [self._waiting.popleft() for _ in range(min(MAX_GROUP - 1, len(self._waiting)))]
        return group

    def _leave(self, request: _Request[Q, A]) -> None:
        with self._lock:
            if request in self._waiting:
                self._waiting.remove(request)
                return
        if request.leads:
            self._hand_over()

    def _lead(self, group: list[_Request[Q, A]]) -> None:
        try:
            answers = self._perform([each.value for each in group])
            for place, each in enumerate(group):
                each.answers = answers[place : place + 1]
        except BaseException as error:  # noqa: BLE001 - each thread raises it
            for each in group:
                if len(group) == 1 or not isinstance(error, Exception) or isinstance(error, StoreUnavailable):
                    each.error = error
        finally:
            self._hand_over()
            for each in group[1:]:
                each.ready.set()

    def _hand_over(self) -> None:
        """Let a waiting thread lead the next call."""
        with self._lock:
            if not self._waiting:
                self._running -= 1
                return
            request = self._waiting.popleft()
            request.leads = True
        request.ready.set()

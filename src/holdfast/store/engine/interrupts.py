"""Interrupts: exceptions of signal handlers, which Python raises in the main thread between any two instructions.

One that is raised while a lock is taken, or while a connection is lent, would leave it so for ever. So a handler waits
while the main thread is in a call to the store: until the call is over, or until it waits in :func:`deliver`. There it
holds no lock of its own, and an exception ends it as any error does.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the functions of the module signal convert to enums, which takes longer than the rest
import signal
import sys
import threading
from _thread import get_ident
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from types import FrameType, ModuleType
from typing import Any, TypeVar, cast

from holdfast.store.engine import forks
from holdfast.store.engine.forks import ForkSafe, survive_forks

#: The longest wait of the main thread until it delivers interrupts.
WINDOW_S = 0.1

_SIGNALS = tuple(int(number) for number in signal.valid_signals() if number not in (signal.SIGKILL, signal.SIGSTOP))
Handler = Callable[[int, FrameType | None], Any]
F = TypeVar("F", bound=Callable[..., Any])


class _Interrupts(ForkSafe):
    """Holds back the handlers of the program while the main thread is in a ``with`` block, which does not nest."""

    def __init__(self) -> None:
        self.main_thread = threading.main_thread().ident
        self.held = False
        #: The signals that came meanwhile, each once, and their handlers.
        self.pending: dict[int, Handler] = {}
        #: The handlers that are held back, by signal.
        self._handlers: dict[int, Handler] = {}
        #: The handlers of all signals when they were read last, and those of them that are functions.
        self._known: list[Any] = []
        self._functions: dict[int, Handler] = {}
        self._substitute = self._defer
        survive_forks(self)

    def __enter__(self) -> None:
        handlers = [*map(_signal.getsignal, _SIGNALS)]
        if handlers != self._known:
            self._read(handlers)
        try:
            for number, handler in self._functions.items():
                self._handlers[number] = handler
                _signal.signal(number, self._substitute)
            self.held = True
        except ValueError:  # a sub-interpreter has no signals
            self.main_thread = None
            self._handlers.clear()
        except BaseException:
            self._restore()
            raise

    def _read(self, handlers: list[Any]) -> None:
        functions = {number: handler for number, handler in zip(_SIGNALS, handlers, strict=True) if callable(handler)}
        for number, handler in functions.items():
            if handler is self._substitute:  # a handler that called the store came in the middle of the loop above
                functions[number] = self._functions[number]
        self._functions, self._known = functions, handlers

    def __exit__(self, *_: object) -> None:
        try:
            self._restore()
        finally:
            self._run_pending()

    def _defer(self, number: int, frame: FrameType | None) -> None:
        handler = self._functions[number]
        if self.held:
            self.pending[number] = handler
        else:  # it came while the handlers were being replaced or put back
            handler(number, frame)

    def _restore(self) -> None:
        """Put the handlers back. From the first one on, any of them may raise."""
        try:
            self.held = False
            for number, handler in [*self._handlers.items()]:
                if _signal.getsignal(number) is self._substitute:
                    _signal.signal(number, handler)
                self._handlers.pop(number, None)  # a handler that called the store has put all of them back
        finally:
            if self._handlers:
                self._restore()

    def _run_pending(self) -> None:
        if not self.pending:
            return
        number = next(iter(self.pending))
        handler = self.pending.pop(number)
        try:
            handler(number, sys._getframe())  # noqa: SLF001 - as the interpreter passes it
        finally:
            self._run_pending()

    def deliver(self) -> None:
        """Run the handlers that wait. They may raise, or call the store themselves."""
        try:
            self.__exit__()
        finally:
            self.__enter__()

    def after_fork_in_child(self) -> None:
        """The thread that forks is the main thread of the child. Signals that came before are those of the parent."""
        self.pending.clear()
        self.main_thread = threading.main_thread().ident
        self._restore()


_interrupts = _Interrupts()


def uninterrupted(function: F) -> F:
    """Hold back the handlers of signals during a call in the main thread."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if get_ident() != _interrupts.main_thread or _interrupts.held:
            return function(*args, **kwargs)
        with _interrupts:
            return function(*args, **kwargs)

    return cast("F", call)


@uninterrupted
def import_alone(name: str) -> ModuleType:
    """Import a module while no other thread forks: a child would wait for its lock for ever."""
    with forks.first_use:
        return import_module(name)


def waits_in_windows() -> bool:
    """Whether this thread has to call :func:`deliver` every :data:`WINDOW_S` while it waits."""
    return _interrupts.held and get_ident() == _interrupts.main_thread


def is_pending() -> bool:
    """Whether a signal came for this thread that :func:`deliver` would deliver."""
    return bool(_interrupts.pending) and waits_in_windows()


def deliver() -> None:
    """Run the handlers of signals that came since the call began. The caller holds no lock.

    An exception of a handler ends the call. A handler that calls the store does so beside this call.
    """
    if is_pending():
        _interrupts.deliver()

"""Providers: functions of the application that are asked for the scopes of a schedule."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.run import clock

#: Answers the scopes of a schedule; it may be a coroutine.
Provider = Callable[[], Iterable[str] | Awaitable[Iterable[str]]]

#: How many seconds a tick waits for an answer, and after how many a provider hangs.
PATIENCE, HANGS = 0.2, 60.0


class Providers:
    """Asks each provider in a thread of its own: one that takes long holds up its own schedules alone."""

    def __init__(self, functions: Mapping[str, Provider], *, patience: float = PATIENCE, hangs: float = HANGS) -> None:
        self._functions = dict(functions)
        self._patience = patience
        self._hangs = hangs
        self._calls: dict[str, _Call] = {}

    @property
    def names(self) -> Sequence[str]:
        return sorted(self._functions)

    def ask(self, name: str) -> list[str] | None:
        """The scopes; None: it is still at it. What it raises is raised here."""
        call = self._calls.get(name)
        if call is None:
            call = self._calls[name] = _Call(name, self._functions[name])
        if not call.ended.wait(self._patience):
            if clock.now() - call.begun_at > self._hangs:
                raise HoldfastError(f"the provider {name!r} has not answered for {self._hangs:.0f} s")
            return None
        del self._calls[name]
        return call.answer()


class _Call:
    """One call, under way or ended."""

    def __init__(self, name: str, function: Provider) -> None:
        self.begun_at = clock.now()
        self.ended = threading.Event()
        self._scopes: list[Any] = []
        self._error: BaseException | None = None
        threading.Thread(target=self._run, args=(function,), name=f"holdfast-scopes-{name}", daemon=True).start()

    def answer(self) -> list[str]:
        if isinstance(self._error, Exception):
            raise self._error
        if self._error is not None:
            raise HoldfastError(f"a provider must not raise {type(self._error).__name__}") from self._error
        return self._scopes

    def _run(self, function: Provider) -> None:
        try:
            answered = function()
            self._scopes = list(asyncio.run(_awaited(answered)) if inspect.isawaitable(answered) else answered)
        except BaseException as error:  # noqa: BLE001 - whatever it raises is told to who asked
            self._error = error
        finally:
            self.ended.set()


async def _awaited(answer: Awaitable[Iterable[str]]) -> Iterable[str]:
    return await answer

"""Providers: functions of the application that are asked for the scopes of a schedule."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from holdfast.errors import HoldfastError, InvalidInput
from holdfast.worker import clock

#: Answers the scopes of a schedule; it may be a coroutine.
Provider = Callable[[], Iterable[str] | Awaitable[Iterable[str]]]

#: After so many seconds a provider hangs; and so many are asked at a time.
HANGS, MOST_CALLS = 60.0, 32


class ScopeProviders:
    """Asks each provider in a thread of its own: one that takes long holds up its own schedules alone."""

    def __init__(self, functions: Mapping[str, Provider], *, hangs: float = HANGS) -> None:
        self._functions = dict(functions)
        self._hangs = hangs
        self._calls: dict[str, _Call] = {}

    @property
    def names(self) -> Sequence[str]:
        return sorted(self._functions)

    def ask(self, name: str, schedule: str, token: int, *, until: float) -> list[str] | None:
        """The scopes of a schedule as it is under this token; None: not known *until* then.

        What the provider raises is raised here.
        An answer that came too late for its plan, because another planner was faster, decides no other.
        """
        call = self._calls.get(schedule)
        if call is None or (call.token != token and call.finished.is_set()):
            if len(self._calls) >= MOST_CALLS and call is None:
                self._forget_ended()
                return None
            call = self._calls[schedule] = _Call(token, self._functions[name])
        if not call.finished.wait(max(0.0, until - clock.now())):
            if clock.now() - call.begun_at > self._hangs:
                raise HoldfastError(f"the provider {name!r} has not answered for {self._hangs:.0f} s")
            return None
        if call.token != token:
            return None  # asked again at the next look
        del self._calls[schedule]
        return call.answer()

    def _forget_ended(self) -> None:
        """Make room: answers that nobody waits for any more."""
        for schedule in [schedule for schedule, call in self._calls.items() if call.finished.is_set()]:
            del self._calls[schedule]


class _Call:
    """One call, under way or ended."""

    def __init__(self, token: int, function: Provider) -> None:
        self.token = token
        self.begun_at = clock.now()
        self.finished = threading.Event()
        self._scopes: list[Any] = []
        self._error: BaseException | None = None
        threading.Thread(target=self._run, args=(function,), name="holdfast-scopes", daemon=True).start()

    def answer(self) -> list[str]:
        if isinstance(self._error, Exception):
            raise self._error
        if self._error is not None:
            raise HoldfastError(f"a provider must not raise {type(self._error).__name__}") from self._error
        return self._scopes

    def _run(self, function: Provider) -> None:
        try:
            answered = function()
            found = asyncio.run(_awaited(answered)) if inspect.isawaitable(answered) else answered
            self._scopes = _listed(found)
        except BaseException as error:  # noqa: BLE001 - whatever it raises is told to who asked
            self._error = error
        finally:
            self.finished.set()


async def _awaited(answer: Awaitable[Iterable[str]]) -> Iterable[str]:
    return await answer


def _listed(found: Any) -> list[Any]:
    if isinstance(found, str | bytes) or not isinstance(found, Iterable):
        raise InvalidInput(f"a function for scopes answers a list of texts, not {found!r:.100}")
    return list(found)


def ask_now(function: Provider, *, patience: float = HANGS) -> list[str]:
    """The scopes, for somebody who waits for them.

    Raises:
        HoldfastError: It has not answered in time.
    """
    call = _Call(0, function)
    if not call.finished.wait(patience):
        raise HoldfastError(f"the function for scopes has not answered for {patience:.0f} s")
    return call.answer()

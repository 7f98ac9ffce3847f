"""Scope providers: functions of the application that return the scopes of a schedule."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from holdfast.errors import HoldfastError, InvalidInput
from holdfast.worker import clock

#: Returns the scopes of a schedule; it may be a coroutine function.
Provider = Callable[[], Iterable[str] | Awaitable[Iterable[str]]]

#: A provider that has not returned after this time counts as failed.
TIMEOUT_S = 60.0
MAX_CALLS = 32


class ScopeProviders:
    """Calls each provider in a thread of its own, so that a slow one delays only its own schedules."""

    def __init__(self, functions: Mapping[str, Provider], *, timeout: float = TIMEOUT_S) -> None:
        self._functions = dict(functions)
        self.names: Sequence[str] = sorted(functions)
        self._timeout = timeout
        self._calls: dict[str, _Call] = {}

    def read(self, name: str, schedule: str, token: int, *, until: float) -> list[str] | None:
        """Return the scopes of a schedule under this token; None: they are not known *until* then.

        Exceptions of the provider are raised here. An answer for an older token is discarded: another planner has
        decided that plan.
        """
        call = self._calls.get(schedule)
        if call is None or (call.token != token and call.finished.is_set()):
            if len(self._calls) >= MAX_CALLS and call is None:
                # Finished calls occupy slots if their schedules are no longer planned here.
                self._calls = {name: each for name, each in self._calls.items() if not each.finished.is_set()}
                return None
            call = self._calls[schedule] = _Call(token, self._functions[name])
        if not call.finished.wait(max(0.0, until - clock.now())):
            if clock.now() - call.begun_at > self._timeout:
                raise HoldfastError(f"the provider {name!r} has not answered for {self._timeout:.0f} s")
            return None
        if call.token != token:
            return None  # the next tick calls it again
        del self._calls[schedule]
        return call.answer()


class _Call:
    """One call of a provider, running or finished."""

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
            answer = function()
            self._scopes = _scope_list(asyncio.run(_await(answer)) if inspect.isawaitable(answer) else answer)
        except BaseException as error:  # noqa: BLE001 - answer() raises it in the caller's thread
            self._error = error
        finally:
            self.finished.set()


async def _await(answer: Awaitable[Iterable[str]]) -> Iterable[str]:
    return await answer


def _scope_list(scopes: Any) -> list[Any]:
    if isinstance(scopes, str | bytes) or not isinstance(scopes, Iterable):
        raise InvalidInput(f"a function for scopes answers a list of texts, not {scopes!r:.100}")
    return list(scopes)


def read_scopes(function: Provider, *, timeout: float = TIMEOUT_S) -> list[str]:
    """Call a provider and wait for its scopes."""
    call = _Call(0, function)
    if not call.finished.wait(timeout):
        raise HoldfastError(f"the function for scopes has not answered for {timeout:.0f} s")
    return call.answer()

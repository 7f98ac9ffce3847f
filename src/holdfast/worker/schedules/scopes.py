"""Scope providers: functions of the application that return the scopes of a schedule."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any

from holdfast.domain.names import class_name
from holdfast.domain.schedules.definition import takes_time
from holdfast.errors import HoldfastError, InvalidInput, StoreBusy, StoreUnavailable
from holdfast.store.schedules.schedules import DueSchedule
from holdfast.worker import clock

log = logging.getLogger("holdfast")

#: Returns the scopes of a schedule, of any plan or of the plan of a time; it may be a coroutine function.
Provider = (
    Callable[[], Iterable[str] | Awaitable[Iterable[str]]]
    | Callable[[datetime], Iterable[str] | Awaitable[Iterable[str]]]
)

#: A provider that has not returned after this time counts as failed.
TIMEOUT_S = 60.0
#: The most calls that have not returned, in this process and of one provider. Each of them occupies a thread.
MAX_CALLS, MAX_CALLS_OF_PROVIDER = 500, 250
#: At most this many calls are new at once, so that a provider is not flooded; a call is new for NEW_CALL_S.
MAX_NEW_CALLS, NEW_CALL_S = 32, 1.0
#: The most scopes of a schedule. A generator may have no end.
MAX_SCOPES = 100_000
FULL = "%d calls of scope functions have not returned; no more calls start until one of them returns"


class ScopeProviders:
    """Calls each provider in a thread of its own, at most once at a time for each of its schedules.

    A call that does not return hurts its own schedule only. Its thread is abandoned after *timeout* seconds, and ends
    with the process.
    """

    def __init__(self, functions: Mapping[str, Provider], *, timeout: float = TIMEOUT_S) -> None:
        #: Shared with the application, which may register others.
        self._functions = functions
        self._timeout = timeout
        #: By provider and schedule: a schedule that gets another provider does not wait for the first one.
        self._calls: dict[tuple[str, str], ProviderCall] = {}
        self._is_full = False
        #: Called by the thread of a call that has returned.
        self.on_answer: Callable[[], object] = lambda: None

    @property
    def busy(self) -> dict[str, list[str]]:
        """The schedules of each provider whose calls have not been taken yet: no other call is made for them."""
        busy: dict[str, list[str]] = {}
        for provider, schedule in self._calls:
            busy.setdefault(provider, []).append(schedule)
        return busy

    @property
    def free(self) -> list[str]:
        """The providers that may be called once more."""
        if len(self._calls) >= MAX_CALLS:
            if not self._is_full:
                log.error(FULL, len(self._calls))
            self._is_full = True
            return []
        self._is_full = False
        calls = Counter(call.provider for call in self._calls.values())
        return [name for name in tuple(self._functions) if calls[name] < MAX_CALLS_OF_PROVIDER]

    def counts(self) -> dict[str, int]:
        """Return the number of calls that have not returned, by whether a planner still waits for them."""
        states = Counter("abandoned" if call.abandoned else "waiting" for call in self._calls.values())
        return {state: states[state] for state in ("waiting", "abandoned")}

    def take_time(self, provider: str) -> bool:
        """Whether a provider answers for the time of one plan."""
        return provider in self._functions and takes_time(self._functions[provider])

    def call(self, provider: str, schedule: DueSchedule, time: datetime, *, now: datetime) -> bool:
        """Begin to read the scopes of a schedule for the plan of a time, by the decision of *now*.

        False: there are too many calls, or one for this schedule.
        """
        since = clock.now() - NEW_CALL_S
        new = sum(call.begun_at > since and not call.finished.is_set() for call in self._calls.values())
        if (provider, schedule.name) in self._calls or new >= MAX_NEW_CALLS or provider not in self.free:
            return False
        function = _bound(self._functions[provider], time)
        self._calls[provider, schedule.name] = ProviderCall(
            schedule, provider, function, self._answered, decided_at=now
        )
        return True

    def take(self, *, new_since: float, until: float) -> list[ProviderCall]:
        """Return the calls that have returned, each of them once.

        Waits *until* then for those that were made after *new_since*.
        """
        for call in self._calls.values():
            if call.begun_at >= new_since:
                call.finished.wait(max(0.0, until - clock.now()))
        returned = [call for call in self._calls.values() if call.finished.is_set()]
        for call in returned:
            del self._calls[call.provider, call.schedule.name]
        return returned

    def abandon(self) -> Iterator[tuple[DueSchedule, HoldfastError]]:
        """Yield the schedules whose calls have passed the timeout, each with its error, until they are handled."""
        for call in self._calls.values():
            if not call.abandoned and call.age >= self._timeout:
                text = f"the provider {call.provider!r} has not answered for {self._timeout:.0f} s"
                yield call.schedule, HoldfastError(f"{text}; it is called again when that call returns")
                call.abandoned = True

    @property
    def next_timeout(self) -> float | None:
        """Seconds until a call passes the timeout; None: no call is waited for."""
        ages = [call.age for call in self._calls.values() if not call.abandoned]
        return max(0.0, self._timeout - max(ages)) if ages else None

    def _answered(self) -> None:
        self.on_answer()


_Bound = Callable[[], Any]


def _bound(function: Provider, time: datetime) -> _Bound:
    """The call of a provider for the plan of a time."""
    return partial(function, time) if takes_time(function) else function  # type: ignore[return-value, call-arg]


class ProviderCall:
    """One call of a provider for a schedule, running or finished. *decided_at*: the store's time of its decision."""

    def __init__(
        self,
        schedule: DueSchedule,
        provider: str,
        function: _Bound,
        on_answer: Callable[[], object],
        *,
        decided_at: datetime,
    ) -> None:
        self.schedule = schedule
        self.decided_at = decided_at
        self.provider = provider
        self.begun_at = clock.now()
        self.abandoned = False
        self._call = _Call(function, on_answer)
        self.finished = self._call.finished
        self.answer = self._call.answer

    @property
    def age(self) -> float:
        """Seconds since it began."""
        return clock.now() - self.begun_at


class _Call:
    """A call of a provider in a thread, which does not keep the process from exiting."""

    def __init__(self, function: _Bound, on_answer: Callable[[], object] = lambda: None) -> None:
        self.finished = threading.Event()
        self._scopes: list[Any] = []
        self._error: BaseException | None = None
        self._on_answer = on_answer
        threading.Thread(target=self._run, args=(function,), name="holdfast-scopes", daemon=True).start()

    def answer(self) -> list[str]:
        match self._error:
            case None:
                return self._scopes
            case StoreUnavailable() | StoreBusy():  # about a store of its own: the planner's store answers
                raise HoldfastError(self._error.message) from self._error
            case Exception():
                raise self._error
        raise HoldfastError(f"a provider must not raise {class_name(self._error)}") from self._error

    def _run(self, function: _Bound) -> None:
        try:
            answer = function()
            self._scopes = _scope_list(asyncio.run(_await(answer)) if inspect.isawaitable(answer) else answer)
        except BaseException as error:  # noqa: BLE001 - answer() raises it in the caller's thread
            self._error = error
        finally:
            self.finished.set()
            self._on_answer()


async def _await(answer: Awaitable[Iterable[str]]) -> Iterable[str]:
    return await answer


def _scope_list(scopes: Any) -> list[Any]:
    if isinstance(scopes, str | bytes) or not isinstance(scopes, Iterable):
        raise InvalidInput(f"a function for scopes answers a list of texts, not {scopes!r:.100}")
    listed = list(islice(scopes, MAX_SCOPES + 1))
    if len(listed) > MAX_SCOPES:
        raise InvalidInput(f"a function for scopes answers at most {MAX_SCOPES:,} texts")
    return listed


#: The calls of read_scopes that have not returned.
_unfinished: list[_Call] = []


def read_scopes(function: Provider, time: datetime, *, timeout: float = TIMEOUT_S) -> list[str]:
    """Call a provider for the plan of a time, and wait for its scopes."""
    _unfinished[:] = [call for call in _unfinished if not call.finished.is_set()]
    if len(_unfinished) >= MAX_NEW_CALLS:
        raise HoldfastError(f"{len(_unfinished)} calls of scope functions have not returned")
    call = _Call(_bound(function, time))
    _unfinished.append(call)
    if not call.finished.wait(timeout):
        raise HoldfastError(f"the function for scopes has not answered for {timeout:.0f} s")
    return call.answer()

"""Unit functions: what is done once for each key of a batch."""

from __future__ import annotations

import hashlib
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar

import msgspec
from msgspec import Struct

from holdfast.domain.batches.unit import unit_key
from holdfast.domain.fleet.queue import DEFAULT_QUEUE
from holdfast.domain.jobs.json_values import to_json
from holdfast.domain.jobs.retry import Curve
from holdfast.errors import InvalidInput, InvalidKind
from holdfast.store import Store
from holdfast.store.jobs.leases import DEFAULT_LEASE
from holdfast.worker.batches.unit import Unit

P = ParamSpec("P")
R = TypeVar("R")

#: Tries of one unit follow each other by this curve: seconds, not minutes.
UNIT_CURVE = Curve(base=1.0, cap=30.0)


class UnitOptions(Struct, frozen=True, kw_only=True):
    """How the units of a function are to be run."""

    name: str
    retries: int = 0
    curve: Curve = UNIT_CURVE
    max_failures: int = 5
    on_lost: str = "retry"
    version: str | None = None
    operational: tuple[str, ...] = ()
    timeout: timedelta | None = None
    executor: str = "thread"
    memory: int | None = None
    queue: str = DEFAULT_QUEUE
    lease: timedelta = DEFAULT_LEASE
    rate: float | None = None
    conflicts: tuple[str, ...] = ()


class Hooks(Struct):
    """What is called beside the units: at the beginning of a run, for units that have ended, at its end."""

    begin: list[Callable[[Any], object]] = []
    unit: list[Callable[[Any], object]] = []
    end: list[Callable[[Any], object]] = []


class UnitFunction(Generic[P, R]):
    """A function that does one unit; call it as before, or :meth:`bind` its arguments and run it over many keys."""

    def __init__(
        self,
        function: Callable[P, R],
        options: UnitOptions,
        *,
        store: Callable[[], Store] | None = None,
        keys: Callable[[], Iterable[Any]] | None = None,
    ) -> None:
        if options.on_lost not in ("retry", "hold", "verify"):
            raise InvalidKind(f"on_lost is 'retry', 'hold' or 'verify', not {options.on_lost!r}")
        if options.executor not in ("thread", "process"):
            raise InvalidKind(f"executor is 'thread' or 'process', not {options.executor!r}")
        if options.memory is not None and options.executor != "process":
            raise InvalidKind("only a process can have a memory cap", hint='Add executor="process".')
        self.options = options
        self.function = function
        #: The store of its application, and all keys that there are.
        self.store = store
        self.keys = keys
        self._signature = inspect.signature(function)
        self._hints = typing.get_type_hints(function)
        self._names = [name for name in self._signature.parameters if self._hints.get(name) is not Unit]
        if not self._names:
            raise InvalidKind(f"{options.name!r} takes no key", hint="Its first parameter is the key of the unit.")
        self._wanting = next((name for name, hint in self._hints.items() if hint is Unit), None)
        if options.timeout is not None and options.executor == "thread" and self._wanting is None:
            raise InvalidKind(
                f"{options.name!r} cannot be told that its time is up",
                hint='Give it a parameter unit: holdfast.Unit and call unit.check(), or add executor="process".',
            )
        self.hooks = Hooks()
        #: Says whether the effect of a unit was made, where a lost run left that open.
        self.verifier: Callable[[Any], bool] | None = None
        self.__wrapped__ = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def bind(self, **arguments: Any) -> BoundFunction:
        """The function with its arguments: all of them belong to the batch's identity, but for operational ones.

        Raises:
            InvalidInput: There is no such parameter, or its value cannot be written as JSON.
        """
        for name in arguments:
            if name not in self._names[1:]:
                known = ", ".join(self._names[1:]) or "none"
                raise InvalidInput(f"{self.options.name!r} has no argument {name!r}", hint=f"It has: {known}.")
        self.typed(msgspec.json.decode(to_json(arguments, label="the arguments")))
        return BoundFunction(self, arguments)

    def typed(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Arguments that were JSON, as the function takes them.

        Raises:
            InvalidInput: One does not fit its annotation.
        """
        return {name: self._converted(name, value) for name, value in arguments.items()}

    def _converted(self, name: str, value: Any) -> Any:
        try:
            return msgspec.convert(value, self._hints.get(name, Any))
        except msgspec.ValidationError as error:
            raise InvalidInput(f"the argument {name!r} of {self.options.name!r} does not fit: {error}") from None
        except TypeError:
            return value  # a type that JSON knows nothing of: the function has to see to it

    def check_key(self, value: Any) -> None:
        """Raise InvalidInput if a key is none that the function takes."""
        try:
            self.decoder()(unit_key(value))
        except (ValueError, msgspec.MsgspecError) as error:
            name = self._names[0]
            raise InvalidInput(f"{value!r} is no {name} for {self.options.name!r}: {error}") from None

    def verify(self, verifier: Callable[[Any], bool]) -> Callable[[Any], bool]:
        """Ask *verifier*, with the key, before a unit is run again whose run was lost: true says that it is done.

        For ``on_lost="verify"``.
        """
        self.verifier = verifier
        return verifier

    def doubts(self) -> Callable[[Any], bool] | None:
        """What to ask about units of a lost run, if anything.

        Raises:
            InvalidKind: It should be asked, but nobody said what.
        """
        if self.options.on_lost != "verify":
            return None
        if self.verifier is None:
            name = self.options.name
            raise InvalidKind(
                f"{name!r} has on_lost='verify' and no verifier", hint=f"Decorate one with @{name}.verify."
            )
        return self.verifier

    def on_begin(self, hook: Callable[[Any], object]) -> Callable[[Any], object]:
        """Call *hook* with the batch before the first unit of a run, on workers whenever a shard begins.

        If it raises, the run stops.
        """
        self.hooks.begin.append(hook)
        return hook

    def on_unit(self, hook: Callable[[Any], object]) -> Callable[[Any], object]:
        """Call *hook* for each unit that has ended and is in the ledger: key, status, attempts, label, data, error."""
        self.hooks.unit.append(hook)
        return hook

    def on_end(self, hook: Callable[[Any], object]) -> Callable[[Any], object]:
        """Call *hook* with the summary when a run has ended; on workers once, when the batch has."""
        self.hooks.end.append(hook)
        return hook

    def caller(self, arguments: Mapping[str, Any]) -> Callable[[Unit], Any]:
        """A function of a unit alone."""
        function, wanting = self.function, self._wanting
        if wanting is not None:
            return lambda unit: function(unit.key, **arguments, **{wanting: unit})  # type: ignore[arg-type]
        return lambda unit: function(unit.key, **arguments)

    def plain(self, arguments: Mapping[str, Any]) -> Callable[[Any], Any] | None:
        """A function of the key alone, where it wants to know no more."""
        if self._wanting is not None:
            return None
        return partial(self.function, **arguments) if arguments else self.function

    def decoder(self) -> Callable[[str], Any]:
        """From a key in the ledger to what the function takes."""
        if self.key_type is int:
            return int
        return msgspec.json.Decoder(self.key_type).decode

    @property
    def key_type(self) -> Any:
        """What its first parameter is annotated with."""
        return self._hints.get(self._names[0], Any)

    @property
    def code(self) -> str | None:
        """A digest of the source, to tell when it was edited under an open run."""
        try:
            return hashlib.sha256(inspect.getsource(self.function).encode()).hexdigest()[:16]
        except (OSError, TypeError):
            return None


class BoundFunction(Struct, frozen=True):
    """A unit function with its arguments."""

    function: UnitFunction[Any, Any]
    arguments: dict[str, Any]

    @property
    def lasting(self) -> dict[str, Any]:
        """The arguments that make two runs the same."""
        return {name: value for name, value in self.arguments.items() if name not in self.function.options.operational}

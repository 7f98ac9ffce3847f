"""Unit functions: the functions that a batch calls once for each key."""

from __future__ import annotations

import hashlib
import inspect
import logging
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from tokenize import TokenError
from typing import Any, Generic, ParamSpec, TypeVar

import msgspec
from msgspec import Struct

from holdfast.client.batches.options import UnitOptions
from holdfast.client.batches.report import unit_line
from holdfast.domain.batches.batch import Batch, Summary
from holdfast.domain.batches.unit import UnitOutcome, unit_key
from holdfast.domain.batches.unit_function import PublishedUnit, function_kind, parameters_schema
from holdfast.domain.jobs.json_values import to_json
from holdfast.domain.jobs.kind_options import PublishedKind, dump_options
from holdfast.errors import HoldfastError, InvalidInput, InvalidKind
from holdfast.errors.frames import short_error
from holdfast.store import Store
from holdfast.worker.batches.unit import Unit

log = logging.getLogger("holdfast.batch")

Hook = Callable[[Any], object]


class Hooks(Struct):
    """Functions that are called at the start of a run, for each finished unit, and at the end of the run.

    Their exceptions are logged; no unit fails because of them.
    """

    on_begin: list[Hook] = []
    on_unit: list[Hook] = []
    on_end: list[Hook] = []

    def begin(self, batch: Batch) -> str | None:
        """Call the hooks of the start. Returns why the run cannot start; None: it can."""
        try:
            for hook in self.on_begin:
                hook(batch)
        except Exception as error:
            log.exception("the run cannot start")
            return f"the run could not start: {short_error(error)}"
        return None

    def units(self, outcomes: Sequence[UnitOutcome]) -> None:
        for hook in self.on_unit:
            _call(hook, map(unit_line, outcomes))

    def end(self, summary: Summary | None) -> None:
        for hook in self.on_end:
            _call(hook, [summary])


def _call(hook: Hook, arguments: Iterable[Any]) -> None:
    for argument in arguments:
        try:
            hook(argument)
        except Exception:
            log.exception("a hook failed")


P = ParamSpec("P")
R = TypeVar("R")


def _is_json(value: Any) -> bool:
    try:
        to_json(value, label="the default")
    except HoldfastError:
        return False
    return True


class UnitFunction(Generic[P, R]):
    """A function that does one unit of a batch.

    Call it as before, or run it over many keys with :meth:`holdfast.Holdfast.run`; :meth:`bind` fixes its other
    arguments.
    """

    def __init__(
        self,
        function: Callable[P, R],
        options: UnitOptions,
        *,
        store: Callable[[], Store] | None = None,
        origin: str | None = None,
    ) -> None:
        self.options = options
        #: Where the function lives; a module alone if its name is the author's choice, and survives renames.
        self.origin = origin
        self.function = function
        #: Opens the store of its application; None for a function without an application.
        self.store = store
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            hint = "Return a value, or a list; a coroutine function (async def without yield) is fine."
            raise InvalidKind(f"unit {options.name!r}: a generator cannot be a unit function", hint=hint)
        #: Whether the function is a coroutine function.
        self.is_async = inspect.iscoroutinefunction(function)
        self._signature = inspect.signature(function)
        self._hints = typing.get_type_hints(function)
        self._names = [name for name in self._signature.parameters if self._hints.get(name) is not Unit]
        if not self._names:
            raise InvalidKind(f"{options.name!r} has no parameter for the key", hint="Its first parameter is the key.")
        self._unit_parameter = next((name for name, hint in self._hints.items() if hint is Unit), None)
        cannot_stop = self._unit_parameter is None and not self.is_async
        if options.kind.timeout is not None and not options.in_process and cannot_stop:
            raise InvalidKind(
                f"{options.name!r} cannot be stopped by a timeout",
                hint='Give it a parameter unit: holdfast.Unit and call unit.check(), or add executor="process".',
            )
        self.hooks = Hooks()
        #: Returns whether a unit that a lost run left in flight took effect.
        self.verifier: Callable[[Any], bool] | None = None
        self.__wrapped__ = function
        #: The defaults of the arguments other than the key that can be part of the identity of a batch.
        self.defaults = self._json_defaults()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def bind(self, **arguments: Any) -> BoundFunction:
        """Fix the arguments other than the key.

        All arguments are part of the identity of a batch, except those that the decorator calls operational.

        Raises:
            InvalidInput: The function has no such parameter, or a value does not fit its annotation.
            InvalidPayload: A value cannot be written as JSON.
        """
        for name in arguments:
            if name not in self._names[1:]:
                known = ", ".join(self._names[1:]) or "none"
                raise InvalidInput(f"{self.options.name!r} has no argument {name!r}", hint=f"It has: {known}.")
        self.convert_arguments(msgspec.json.decode(to_json(arguments, label="the arguments")))
        return BoundFunction(self, arguments)

    def _json_defaults(self) -> dict[str, Any]:
        values = {name: self._signature.parameters[name].default for name in self._names[1:]}
        defaults = {name: value for name, value in values.items() if value is not inspect.Parameter.empty}
        return {name: value for name, value in defaults.items() if _is_json(value)}

    def convert_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Convert decoded JSON to the types of the function's annotations."""
        return {name: self._convert(name, value) for name, value in arguments.items()}

    def _convert(self, name: str, value: Any) -> Any:
        try:
            return msgspec.convert(value, self._hints.get(name, Any))
        except msgspec.ValidationError as error:
            raise InvalidInput(f"the argument {name!r} of {self.options.name!r} does not fit: {error}") from None
        except TypeError:
            return value  # msgspec does not know the type: the function converts it

    def check_key(self, value: Any) -> None:
        """Raise InvalidInput if the function cannot take this key."""
        try:
            self.decoder()(unit_key(value))
        except (ValueError, msgspec.MsgspecError) as error:
            raise InvalidInput(f"{value!r} is not a {self._names[0]} for {self.options.name!r}: {error}") from None

    def verify(self, verifier: Callable[[Any], bool]) -> Callable[[Any], bool]:
        """Register *verifier* for ``on_lost="verify"``; usable as a decorator.

        Units that were in flight when a run was lost are verified before they run again. The verifier gets the key
        and returns whether the unit is already done.
        """
        self.verifier = verifier
        return verifier

    def required_verifier(self) -> Callable[[Any], bool] | None:
        """The verifier, where ``on_lost="verify"`` requires one."""
        if self.options.on_lost != "verify":
            return None
        if self.verifier is None:
            hint = f"Decorate one with @{self.options.name}.verify."
            raise InvalidKind(f"{self.options.name!r} has on_lost='verify' and no verifier", hint=hint)
        return self.verifier

    def on_begin(self, hook: Hook) -> Hook:
        """Call *hook* with the batch before the first unit of a run; on workers, whenever a shard begins.

        The run stops if the hook raises. Usable as a decorator, like the other hooks.
        """
        self.hooks.on_begin.append(hook)
        return hook

    def on_unit(self, hook: Hook) -> Hook:
        """Call *hook* with each finished unit, once the unit is in the ledger.

        Its argument has the attributes ``key``, ``status``, ``attempts``, ``label``, ``data`` and ``error``.
        """
        self.hooks.on_unit.append(hook)
        return hook

    def on_end(self, hook: Hook) -> Hook:
        """Call *hook* with the summary at the end of a run; on workers once, at the end of the batch."""
        self.hooks.on_end.append(hook)
        return hook

    def caller(self, arguments: Mapping[str, Any]) -> Callable[[Unit], Any]:
        """The function with its arguments fixed, to be called with a unit."""
        function, parameter = self.function, self._unit_parameter
        if parameter is not None:
            return lambda unit: function(unit.key, **arguments, **{parameter: unit})  # type: ignore[arg-type]
        return lambda unit: function(unit.key, **arguments)

    def key_caller(self, arguments: Mapping[str, Any]) -> Callable[[Any], Any] | None:
        """The function with its arguments fixed, to be called with a key; None if it takes a :class:`Unit`."""
        if self._unit_parameter is not None:
            return None
        return partial(self.function, **arguments) if arguments else self.function

    def decoder(self) -> Callable[[str], Any]:
        """The conversion from a key in the ledger to the argument of the function."""
        return int if self.key_type is int else msgspec.json.Decoder(self.key_type).decode

    @cached_property
    def described(self) -> PublishedUnit:
        """The function as it is published: all that processes without it need to start batches."""
        return PublishedUnit(
            key=self._names[0],
            defaults=self.defaults,
            **{name: getattr(self.options, name) for name in ("operational", "version", "max_failures", "rate")},
            code=self.code,
            origin=self.origin,
            in_doubt_if_lost=self.options.on_lost == "hold",
            conflicts=self.options.conflicts,
        )

    @property
    def parameters(self) -> dict[str, tuple[Any, bool]]:
        """The key and the arguments: their types, and whether they are required."""
        known, empty = self._signature.parameters, inspect.Parameter.empty
        return {name: (self._hints.get(name, Any), known[name].default is empty) for name in self._names}

    @property
    def key_type(self) -> Any:
        """The annotation of the first parameter."""
        return self._hints.get(self._names[0], Any)

    @property
    def code(self) -> str | None:
        """A digest of the source code, which changes when the function is edited under an open run.

        None without source code, or if its file is another one by now: there may be any text at its lines.
        """
        try:
            return hashlib.sha256(inspect.getsource(self.function).encode()).hexdigest()[:16]
        except (OSError, TypeError, SyntaxError, TokenError):
            return None


class BoundFunction(Struct, frozen=True):
    """A unit function with fixed arguments."""

    function: UnitFunction[Any, Any]
    arguments: dict[str, Any]

    @property
    def identity_arguments(self) -> dict[str, Any]:
        """The arguments that are part of the identity of a batch: a default counts like the same value given."""
        return self.function.described.identity_arguments(self.arguments)


def published_kind(function: UnitFunction[Any, Any]) -> PublishedKind:
    """A unit function as other processes see it, with the schema of its key and its arguments."""
    options = dump_options(function.options.kind, unit=function.described)
    return PublishedKind(function_kind(function.options.name), options, parameters_schema(function.parameters))

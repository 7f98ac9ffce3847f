"""Kinds and units that raise exceptions whose own code raises, in each executor; children import this."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import holdfast
from holdfast.errors import InvalidPayload, StoreUnavailable


def _raise(*_: object) -> NoReturn:
    raise SystemExit("hostile")


def _keep(*_: object) -> None:
    """Ignore an assignment."""


def hostile(base: type[BaseException], *names: str, of_class: bool = False) -> Callable[[], BaseException]:
    """A class of exceptions whose attributes *names*, or those of its metaclass, raise."""

    def make() -> BaseException:
        body = {name: property(_raise, _keep) for name in names}
        if of_class:
            meta = type("Meta", (type,), body)
            return meta("Hostile", (base,), {})("text")  # type: ignore[no-any-return]
        kind = type("Hostile", (base,), body | {name: _raise for name in names if name in METHODS})
        return kind("text")

    return make


METHODS = {"__str__", "__repr__", "__hash__", "__eq__", "__bool__", "__del__", "__getattribute__"}


def cycle() -> BaseException:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    first.__context__, second.__context__ = second, first
    return first


def chain() -> BaseException:
    error = ValueError("0")
    for n in range(20_000):
        after = ValueError(str(n))
        after.__cause__, error = error, after
    return error


def own_cause() -> BaseException:
    error = ValueError("own")
    error.__cause__ = error
    return error


def group() -> BaseException:
    return BaseExceptionGroup("all", [hostile(BaseException, "__str__")(), cycle()])


ERRORS: dict[str, Callable[[], BaseException]] = {
    **{f"class {name}": hostile(Exception, name, of_class=True) for name in ("__name__", "__module__")},
    "class all": hostile(BaseException, "__name__", "__module__", "__str__", "__repr__", of_class=True),
    **{f"own {name}": hostile(Exception, name) for name in sorted(METHODS - {"__getattribute__", "__del__"})},
    **{
        f"own {name}": hostile(Exception, name)
        for name in ("__class__", "__traceback__", "__cause__", "__context__", "__notes__", "__dict__", "args")
    },
    "own getattribute": hostile(BaseException, "__getattribute__"),
    "syntax error": hostile(SyntaxError, "lineno", "filename", "text", "msg"),
    "retry": hostile(holdfast.Retry, "after", "__str__"),
    "fail": hostile(holdfast.Fail, "permanent", "__str__"),
    "release": hostile(holdfast.Release, "delay"),
    "skip": hostile(holdfast.Skip, "__str__"),
    "outage": hostile(StoreUnavailable, "__class__", "__str__"),
    "payload": hostile(InvalidPayload, "__class__", "__str__", "message"),
    "cycle": cycle,
    "chain": chain,
    "own cause": own_cause,
    "group": group,
}


def fail(name: str) -> NoReturn:
    error = ERRORS[name]()
    raise error


def in_thread(name: str) -> None:
    fail(name)


async def in_coroutine(name: str) -> None:
    fail(name)


def in_process(name: str) -> None:
    fail(name)


def unit_in_thread(name: str) -> None:
    fail(name)


def unit_in_process(name: str) -> None:
    fail(name)


def register(app: holdfast.Holdfast) -> dict[str, Any]:
    """Register all of them; returns the handlers and units by name."""
    once = {"max_attempts": 1, "max_crashes": 1, "timeout": 60}
    kinds: dict[str, Any] = {f.__name__: app.job(**once)(f) for f in (in_thread, in_coroutine)}
    kinds["in_process"] = app.job(**once, executor="process")(in_process)
    kinds["unit_in_thread"] = app.unit(max_failures=0)(unit_in_thread)
    kinds["unit_in_process"] = app.unit(max_failures=0, executor="process")(unit_in_process)
    return kinds


APP = holdfast.Holdfast("sqlite:///never-opened.db")
register(APP)

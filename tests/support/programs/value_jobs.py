"""Kinds that pass values of many classes to every call of their context, in each executor; children import this."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import Enum, IntEnum, StrEnum
from typing import Any, NamedTuple

import holdfast


class Text(str):
    """Like markupsafe.Markup, bs4.NavigableString, numpy.str_ and Django's SafeString."""

    __slots__ = ()


class Number(int):
    pass


class Fraction(float):
    pass


class Bytes(bytes):
    pass


class Table(dict[str, int]):
    pass


class Row(list[int]):
    pass


class Pair(NamedTuple):
    left: int
    right: int


class Word(StrEnum):
    X = "x"


class Mixed(str, Enum):  # noqa: UP042 - its __str__ is not its value
    Y = "y"


class One(IntEnum):
    ONE = 1


class Moment(datetime):
    """Like pandas.Timestamp, pendulum.DateTime and the one of freezegun."""


class Span(timedelta):
    """Like pandas.Timedelta."""


VALUES: dict[str, Any] = {
    "str": "v",
    "str subclass": Text("w"),
    "StrEnum": Word.X,
    "str and Enum": Mixed.Y,
    "half of a character": Text("\ud83d"),
    "int": 1,
    "int subclass": Number(1),
    "IntEnum": One.ONE,
    "bool": True,
    "large": Number(2**40),
    "float": 1.5,
    "float subclass": Fraction(1.5),
    "bytes subclass": Bytes(b"v"),
    "dict subclass": Table(a=1),
    "list subclass": Row([1]),
    "namedtuple": Pair(1, 2),
    "datetime subclass": Moment(2030, 1, 2, tzinfo=UTC),
    "timedelta subclass": Span(seconds=5),
    "object": object(),
}


def _option(name: str) -> Callable[[holdfast.Context, Any], object]:
    def enqueue(job: holdfast.Context, value: Any) -> object:
        return job.enqueue("sink", {"x": 1}, **{name: value}).id > 0

    return enqueue


OPTIONS = (
    *("queue", "label", "tags", "key", "priority", "max_attempts", "after", "delay", "run_at", "timeout", "retry"),
    *("hold", "actor", "on_conflict"),
)
CALLS: dict[str, Callable[[holdfast.Context, Any], object]] = {
    "step name": lambda job, value: job.step(value, lambda: 1),
    "step value": lambda job, value: job.step(f"step {next(_NUMBERS)}", lambda: value),
    "progress done": lambda job, value: job.progress(value),
    "progress total": lambda job, value: job.progress(1, value),
    "progress message": lambda job, value: job.progress(1, 2, value),
    "checkpoint": lambda job, value: job.checkpoint(value),
    "sleep": lambda job, value: job.sleep(value),
    "kind": lambda job, value: job.enqueue(value, {"x": 1}).id > 0,
    "payload": lambda job, value: job.enqueue("sink", {"x": value}).id > 0,
    "option after": lambda job, value: job.enqueue("sink", {"x": 1}, after=holdfast.After(labels=(value,))).id > 0,
    "tag": lambda job, value: job.enqueue("sink", {"x": 1}, tags=[value]).id > 0,
    **{name: _option(name) for name in OPTIONS},
}
_NUMBERS = iter(range(10**9))


def outcomes(call: str, job: holdfast.Context) -> list[str]:
    """What a call makes of each value: its answer, or its error."""
    found = []
    for value in VALUES.values():
        try:
            found.append(f"ok {CALLS[call](job, value)!r}")
        except Exception as error:  # noqa: BLE001 - the error is what is compared
            found.append(f"{type(error).__name__} {error}")
        except BaseException as error:  # noqa: BLE001 - a sleep
            found.append(type(error).__name__)
    return found


def sink(x: int) -> None:
    del x


def in_thread(call: str, job: holdfast.Context) -> list[str]:
    return outcomes(call, job)


async def in_coroutine(call: str, job: holdfast.Context) -> list[str]:
    return await asyncio.to_thread(outcomes, call, job)


def in_process(call: str, job: holdfast.Context) -> list[str]:
    return outcomes(call, job)


def result_of_thread(value: str) -> object:
    return VALUES[value]


async def result_of_coroutine(value: str) -> object:
    return VALUES[value]


def result_of_process(value: str) -> object:
    return VALUES[value]


def register(app: holdfast.Holdfast) -> None:
    app.job(queue="elsewhere")(sink)
    for function in (in_thread, in_coroutine, result_of_thread, result_of_coroutine):
        app.job(max_attempts=1, timeout=100)(function)
    for function in (in_process, result_of_process):
        app.job(max_attempts=1, timeout=100, executor="process")(function)


APP = holdfast.Holdfast("sqlite:///never-opened.db")
register(APP)

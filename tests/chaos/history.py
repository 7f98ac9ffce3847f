"""What clients and handlers saw: operations that were asked for, and how each was answered.

An operation is told when it is asked (``invoke``) and when its answer is known: ``ok``, ``fail`` (it certainly did
not happen) or ``unknown`` (perhaps it did). One that is never answered, since its process was killed, counts as
unknown. Facts of one moment are told as ``ok`` alone. The names that the checker knows, with their facts:

=============  ====================================================================================
``enqueue``    invoke: name, kind, key (parent, token: of the run that asks); ok: id, created
``run``        a run of a handler. invoke: job, token, kind, queue; ok or fail at its end, however it ends
``effect``     ok: job, token
``checkpoint`` invoke: job, token
``unit``       one run of a unit. invoke: unit (its idempotency key), batch, key; ok when its effect is made
``batch``      a run in the foreground. invoke: name; ok: id, exit_code
``pause``      ok: queue, seq (the newest move of the store once the pause was answered)
``resume``     invoke: queue, seq (the newest move before it was asked for)
``program``    invoke: name, pid; ok: the program has ended by itself
``beat``       ok: name, pid: the program is alive
=============  ====================================================================================
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError, StoreUnavailable


class Phase(StrEnum):
    """How far an operation is."""

    INVOKE = "invoke"
    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Op:
    """One line of the history. *number* ties the answer to what was asked, within one *process*."""

    name: str
    phase: Phase
    facts: dict[str, Any] = field(default_factory=dict)
    process: str = "test"
    number: int = 0
    #: Seconds by a clock that all processes of a host share and nobody steps.
    at: float = 0.0
    #: Seconds by the wall clock, to compare with the store's instants.
    wall: float = 0.0


@dataclass(frozen=True, slots=True)
class Asked:
    """An operation with its answer: *facts* are those of both. ``answered_at`` is None when no answer came."""

    name: str
    phase: Phase
    facts: dict[str, Any]
    asked_at: float
    asked_wall: float
    answered_at: float | None


class Recorder:
    """Tells the history of one process; threads may share it."""

    def __init__(self, process: str, put: Callable[[Op], None], now: Callable[[], float] = time.monotonic) -> None:
        self.process = process
        self._put = put
        self._now = now
        self._numbers = itertools.count(1)

    def tell(self, name: str, phase: Phase = Phase.OK, number: int | None = None, /, **facts: Any) -> int:
        """One line; answers the number of the operation."""
        number = next(self._numbers) if number is None else number
        self._put(Op(name, phase, facts, self.process, number, self._now(), time.time()))
        return number

    @contextmanager
    def asking(self, name: str, /, **facts: Any) -> Iterator[dict[str, Any]]:
        """Tell what is asked, and how it ends; the block fills in the facts of the answer. What it raises is raised."""
        number = self.tell(name, Phase.INVOKE, **facts)
        answer: dict[str, Any] = {}
        try:
            yield answer
        except BaseException as error:
            refused = isinstance(error, HoldfastError) and not isinstance(error, StoreUnavailable)
            self.tell(name, Phase.FAIL if refused else Phase.UNKNOWN, number, error=_said(error))
            raise
        self.tell(name, Phase.OK, number, **answer)

    @contextmanager
    def running(self, name: str, /, **facts: Any) -> Iterator[None]:
        """A run of a handler, a unit or a program: whatever it raises, its end is told."""
        number = self.tell(name, Phase.INVOKE, **facts)
        try:
            yield
        except BaseException as error:
            self.tell(name, Phase.FAIL, number, error=_said(error))
            raise
        self.tell(name, Phase.OK, number)


def to_file(folder: Path, process: str) -> Recorder:
    """A recorder with a file of its own. A line is one write, so that kill -9 loses at most its tail."""
    opened = os.open(folder / f"{process}.ndjson", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def put(op: Op) -> None:
        line = [op.name, op.phase, op.facts, op.number, op.at, op.wall]
        os.write(opened, json.dumps(line, default=str).encode() + b"\n")

    return Recorder(process, put)


def to_list(process: str, ops: list[Op], now: Callable[[], float] = time.monotonic) -> Recorder:
    """A recorder for tests and simulations in one process."""
    return Recorder(process, ops.append, now)


def read(folder: Path) -> list[Op]:
    """All that was told in a folder, in the order of time; half a line at the end of a file is left out."""
    found = [op for file in sorted(folder.glob("*.ndjson")) for op in _lines(file)]
    return sorted(found, key=lambda op: op.at)


def _lines(file: Path) -> Iterator[Op]:
    for line in file.read_bytes().split(b"\n"):
        try:
            name, phase, facts, number, at, wall = json.loads(line)
        except ValueError:
            continue
        yield Op(name, Phase(phase), facts, file.stem, number, at, wall)


class History:
    """The operations of all processes, answers beside what was asked."""

    def __init__(self, ops: Iterable[Op]) -> None:
        self.ops = sorted(ops, key=lambda op: op.at)
        answers = {(op.process, op.number): op for op in self.ops if op.phase is not Phase.INVOKE}
        self._asked: dict[str, list[Asked]] = {}
        for op in self.ops:
            if op.phase is Phase.INVOKE:
                self._asked.setdefault(op.name, []).append(_joined(op, answers.get((op.process, op.number))))

    def asked(self, name: str) -> list[Asked]:
        """Operations of that name, each with its answer."""
        return self._asked.get(name, [])

    def told(self, name: str) -> list[Op]:
        """Facts of one moment."""
        return [op for op in self.ops if op.name == name and op.phase is Phase.OK]


def _joined(asked: Op, answer: Op | None) -> Asked:
    if answer is None:
        return Asked(asked.name, Phase.UNKNOWN, asked.facts, asked.at, asked.wall, None)
    return Asked(asked.name, answer.phase, {**asked.facts, **answer.facts}, asked.at, asked.wall, answer.at)


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:300]

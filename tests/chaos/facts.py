"""What the store says at the end, as plain values, and the moves that triggers wrote down behind its back."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Step(StrEnum):
    """What a trigger saw: a job comes to life, moves among the live states, or ends."""

    IN = "in"
    MOVE = "move"
    END = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One change of a job, in the order in which the store made them."""

    seq: int
    step: Step
    job: int
    queue: str = "default"
    old: str | None = None
    state: str
    token: int
    kind: str = "quick"
    priority: int = 0
    #: Seconds of the wall clock.
    at: float = 0.0
    #: When others could see it; None where the store does not tell.
    committed: float | None = None

    @property
    def visible_at(self) -> float:
        """A transaction may be late with its commit: until then nobody can know of its moves."""
        return self.at if self.committed is None else self.committed


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as it stands at the end. JSON is decoded; instants are seconds."""

    id: int
    kind: str = "quick"
    queue: str = "default"
    state: str = "done"
    token: int = 1
    attempts: int = 1
    max_attempts: int | None = None
    crashes: int = 0
    max_crashes: int | None = None
    key: str | None = None
    payload: dict[str, Any] = field(default_factory=dict)
    parent: int | None = None
    actor: str = "client"
    finished_at: float | None = None
    reason: str | None = None
    result: Any = None
    checkpoint: Any = None
    dependencies: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A recorded attempt."""

    token: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch with its counters, and the count of its units made anew."""

    id: int
    kind: str = "unit"
    state: str = "done"
    total: int | None = None
    counters: dict[str, int] = field(default_factory=dict)
    recount: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A row of a ledger. *id* is its idempotency key; *tx*: its effect is a row in the same database."""

    batch: int
    key: str
    id: str
    state: str = "done"
    attempts: int = 1
    crashes: int = 0
    tx: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule on a grid of seconds: all its plans after *first* up to *cursor* must be in the ledger."""

    name: str
    every: int
    cursor: int | None
    scopes: tuple[str, ...] = ("global",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fired:
    """A plan that was fired as a job."""

    schedule: str
    time: int
    scope: str = "global"
    job: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A stretch of plans that were not fired, both ends included; an empty scope means all."""

    schedule: str
    first: int
    last: int
    scope: str = ""
    reason: str | None = "catch_up"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that the checker needs to know of a store after a quiet period."""

    jobs: dict[int, Job] = field(default_factory=dict)
    moves: list[Move] = field(default_factory=list)
    attempts: dict[int, list[Attempt]] = field(default_factory=dict)
    events: dict[int, list[str]] = field(default_factory=dict)
    batches: dict[int, Batch] = field(default_factory=dict)
    units: list[Unit] = field(default_factory=list)
    #: Effects of units in ``tx`` mode, by idempotency key.
    effects: Counter[str] = field(default_factory=Counter)
    #: States that a batch has had, one after the other.
    batch_states: dict[int, list[str]] = field(default_factory=dict)
    #: Batches as somebody saw them in one snapshot while the work went on.
    samples: list[Batch] = field(default_factory=list)
    schedules: list[Schedule] = field(default_factory=list)
    fired: list[Fired] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    limits: dict[str, int] = field(default_factory=dict)
    #: Jobs (by their ids) and other things that did not come to their end in the quiet period, and why, in words.
    stuck: dict[int | str, str] = field(default_factory=dict)
    #: Processes of jobs that are still there.
    survivors: list[str] = field(default_factory=list)
    #: The store's clock was stepped: its instants cannot be compared with anybody's.
    stepped: bool = False
    #: Slots of all workers together, where no nemesis ends a worker.
    slots: int | None = None
    #: Workers that ended though nobody ended them.
    fallen: list[str] = field(default_factory=list)

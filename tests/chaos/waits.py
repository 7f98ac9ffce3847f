"""Invariants about waiting: the order of claims, free slots, and workers that cannot claim.

They compare instants of several processes and transactions. A tolerance stands for everything that is under way at
such an instant: statements, commits and notifications on a loaded machine.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from holdfast.domain.batches.turns import SLICE_S
from tests.chaos.facts import Facts, Move, Step
from tests.chaos.history import Asked, History

#: A job that has been ready for this long could have been claimed by the statement that preferred another one.
VISIBLE_S = 2.0
#: Jobs of one claim are updated one after the other, in any order. Another claim may have locked a better job, and commit
#: this much later.
ONE_CLAIM_S = 1.0
#: A job waits no longer than this beside a free slot: lock timeouts, polls and maintenance on a loaded machine.
MAX_WAIT_S = 15.0
#: A worker notices within this time that it cannot claim.
MAX_UNNOTICED_S = 12.0
#: Queues that are not limited or paused. Drivers and shards have rules of their own.
PLAIN_QUEUE = "default"


@dataclass(slots=True)
class _Waiting:
    """The jobs that are ready, by the moves so far; *since* are seconds of the wall clock."""

    since: dict[int, float] = field(default_factory=dict)
    priority: dict[int, int] = field(default_factory=dict)

    def apply(self, move: Move) -> None:
        if move.state == "ready" and move.step is not Step.END:
            self.since.setdefault(move.job, move.visible_at)
            self.priority[move.job] = move.priority
        else:
            self.since.pop(move.job, None)
            self.priority.pop(move.job, None)


def better_jobs_come_first(history: History, facts: Facts) -> Iterator[str]:
    """I17: no claim takes a job while a more important one has been ready, and could have been claimed."""
    if facts.stepped:
        return
    waiting = _Waiting()
    excused = _Excuses(history)
    first_claims: dict[int, float] = {}
    for move in facts.moves:
        if _is_claim(move):
            first_claims.setdefault(move.job, move.at)
    for move in facts.moves:
        if not _is_plain(move):
            continue
        if _is_claim(move):
            for job, since in waiting.since.items():
                if (
                    waiting.priority[job] > move.priority
                    and move.at - since > VISIBLE_S
                    and first_claims.get(job, math.inf) > move.at + ONE_CLAIM_S
                    and not excused.is_locked(job, move.at)
                ):
                    yield (
                        f"job {move.job} of priority {move.priority} was claimed while job {job} of priority "
                        f"{waiting.priority[job]} had been ready for {move.at - since:.1f} s"
                    )
        # A job that was claimed before may be a poison suspect, which runs beside few others.
        if move.token == 0 or move.state != "ready":
            waiting.apply(move)


def free_slots_are_used(history: History, facts: Facts) -> Iterator[str]:
    """I18: no job waits longer than the bound while a slot is free, or beside a shard whose turn is over.

    No worker ends by itself.
    """
    yield from (f"{worker} ended, and nobody had ended it" for worker in facts.fallen)
    if facts.slots is None or facts.stepped:
        return
    waiting, running = _Waiting(), set[int]()
    shards: dict[int, Move] = {}
    excused = _Excuses(history)
    free_since = 0.0
    for move in facts.moves:
        if _is_claim(move) and _is_plain(move):
            yield from _beside_shards(move, waiting.since.get(move.job, move.at), shards, excused)
        _follow_shard(move, shards)
        if _is_claim(move) and _is_plain(move) and len(running) < facts.slots:
            since = max(waiting.since.get(move.job, move.at), free_since)
            if move.at - since > MAX_WAIT_S and not excused.covers(move.job, since, move.at):
                yield f"job {move.job} ({move.kind}) waited for {move.at - since:.1f} s beside a free slot"
        was_full = len(running) >= facts.slots
        (running.add if move.state == "running" else running.discard)(move.job)
        if was_full and len(running) < facts.slots:
            free_since = move.at
        if _is_plain(move):
            waiting.apply(move)


def _beside_shards(claim: Move, since: float, shards: dict[int, Move], excused: _Excuses) -> Iterator[str]:
    """A shard whose turn has been over for the bound still runs, and this job has waited all the time."""
    over_at = claim.at - MAX_WAIT_S
    for shard in shards.values():
        is_late = since < over_at and shard.at + SLICE_S < over_at and shard.priority <= claim.priority
        if is_late and not excused.covers(claim.job, since, claim.at):
            yield (
                f"job {claim.job} ({claim.kind}) waited for {claim.at - since:.1f} s beside shard {shard.job}, "
                f"whose turn had begun {claim.at - shard.at:.1f} s before"
            )


def _follow_shard(move: Move, shards: dict[int, Move]) -> None:
    if move.kind.startswith("shard:") and _is_claim(move):
        shards[move.job] = move
    elif move.state != "running":
        shards.pop(move.job, None)


def ready_is_honest(history: History, facts: Facts) -> Iterator[str]:
    """I20: a worker does not call itself ready during an outage that it must have noticed."""
    outages = [_wall(op) for op in history.asked("outage") if not op.facts.get("brief")]
    for op in history.told("ready"):
        for begin, end in outages:
            if op.facts["ready"] and begin + MAX_UNNOTICED_S < op.wall < end:
                yield f"worker {op.facts['worker']} was ready {op.wall - begin:.1f} s after the store had gone"


class _Excuses:
    """Stretches of time in which a job may wait: users hold its row, or the store cannot be reached."""

    def __init__(self, history: History) -> None:
        self._locked: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for op in history.asked("locked"):
            for job in op.facts["jobs"]:
                self._locked[job].append(_wall(op))
        self._outages = [_wall(op) for op in history.asked("outage")]

    def is_locked(self, job: int, at: float) -> bool:
        """Whether a user's transaction held the row of a job at that time."""
        return any(first - VISIBLE_S < at < last + VISIBLE_S for first, last in self._locked.get(job, ()))

    def covers(self, job: int, begin: float, end: float) -> bool:
        """Whether a lock or an outage overlaps the time from *begin* to *end*, or ended shortly before it."""
        stretches = [*self._outages, *self._locked.get(job, ())]
        return any(first < end and begin < last + MAX_WAIT_S for first, last in stretches)


def _wall(op: Asked) -> tuple[float, float]:
    """Begin and end of an operation by the wall clock; without an answer it ends at once."""
    lasted = 0.0 if op.answered_at is None else op.answered_at - op.asked_at
    return op.asked_wall, op.asked_wall + lasted


def _is_claim(move: Move) -> bool:
    return move.state == "running" and move.old == "ready"


def _is_plain(move: Move) -> bool:
    return move.queue == PLAIN_QUEUE and not move.kind.startswith(("holdfast.", "shard:", "command"))

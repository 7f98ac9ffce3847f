"""A queue that is autoscaled on this host: its slots, its admitted and its refused commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from holdfast.domain.commands.command import load_command
from holdfast.domain.fleet.admission import (
    Candidate,
    ExpectedMemory,
    MemoryRoom,
    Profile,
    Refusal,
    RunningCommand,
    choose,
    describe_refusal,
    expected_memory,
    profile_name,
)
from holdfast.domain.fleet.autoscaler import (
    AutoscalerAction,
    AutoscalerDecision,
    BlockedJob,
    QueueStatus,
    RunningLoad,
    Slots,
)
from holdfast.domain.fleet.queue import Bounds
from holdfast.domain.jobs.job import JobId, OnLost
from holdfast.errors import HoldfastError
from holdfast.store.fleet.autoscaler import ReadyCommand
from holdfast.worker import clock
from holdfast.worker.active_runs import Run

#: Number of commands in line that are considered, beside those that can never begin.
WINDOW = 50
#: Number of refusals in the published status.
MAX_REFUSALS = 20


class AdmittedCommand:
    """A command that the autoscaler has started."""

    def __init__(self, run: Run, queue: str, will_take: ExpectedMemory, *, on_lost: OnLost) -> None:
        self.run = run
        self.queue = queue
        self.expected = will_take
        self.evictable = on_lost is OnLost.RETRY
        self.frozen_at: float | None = None

    def load(self, now: float) -> RunningLoad:
        """Its work so far, which decides the next command to be frozen or evicted."""
        frozen = None if self.frozen_at is None else now - self.frozen_at
        worked = self.run.under_way_for(now) - (frozen or 0.0)
        return RunningLoad(self.run.lease.job_id, worked, evictable=self.evictable, frozen=frozen)


class ScaledQueue:
    """An autoscaled queue: its slots, the first command in line, and the refusals."""

    def __init__(self, queue: str, least: int) -> None:
        self.queue = queue
        self.paused = False
        self.admitted_at = 0.0
        self.bounds = Bounds(least, least)
        self.slots = Slots(least, clock.now())
        #: Jobs that can never begin here.
        self.stuck: frozenset[JobId] = frozenset()
        self._blocked: list[BlockedJob] = []
        #: The first command in line, and since when it is the first.
        self._head: tuple[JobId, float] | None = None
        self._reported: set[JobId] = set()
        self._decisions: list[AutoscalerDecision] = []

    @property
    def window(self) -> int:
        return WINDOW + len(self.stuck)

    def bound(self, bounds: Bounds, *, most: int) -> None:
        """Set the bounds, cut to the slots of the worker."""
        self.bounds = Bounds(min(bounds.least, most), min(bounds.most, most))

    def candidates(
        self,
        line: Sequence[ReadyCommand],
        profiles: Mapping[JobId, Profile],
        declared: Mapping[str, int],
        limit: int,
        *,
        poison_suspects: int,
    ) -> list[Candidate]:
        """The commands in line with their expected_memory memory. A second poison suspect waits for the first."""
        return [
            Candidate(
                command.job_id,
                expected_memory(profiles[command.job_id], cap=memory_cap(command), declared=declared, limit=limit),
            )
            for command in line
            if not (command.poison_suspect and poison_suspects)
        ]

    def choose(
        self, line: Sequence[Candidate], running: Sequence[RunningCommand], room: MemoryRoom
    ) -> Candidate | None:
        """The command that may begin, if any; the refusals of the others are kept for the status."""
        now = clock.now()
        waited = {} if self._head is None else {self._head[0]: now - self._head[1]}
        choice = choose(line, running, room, waited=waited)
        will_take = {candidate.job_id: candidate.expected for candidate in line}
        self._blocked = [
            BlockedJob(job_id, reason, describe_refusal(reason, will_take[job_id], running, room))
            for job_id, reason in choice.refused.items()
        ]
        self.stuck = frozenset(blocked.job_id for blocked in self._blocked if blocked.reason is Refusal.NEVER)
        head = next((blocked.job_id for blocked in self._blocked if blocked.reason is not Refusal.NEVER), None)
        if head is None:
            self._head = None
        elif self._head is None or self._head[0] != head:
            self._head = (head, now)
        self._record(head)
        return choice.chosen

    def _record(self, head: JobId | None) -> None:
        """Record refusals of the first in line and of those that can never begin, once each."""
        job_ids = {head, *self.stuck}
        refused = [blocked for blocked in self._blocked if blocked.job_id in job_ids]
        for blocked in refused:
            if blocked.job_id not in self._reported:
                action = AutoscalerAction.NEVER_FITS if blocked.reason is Refusal.NEVER else AutoscalerAction.BLOCKED
                self._decisions.append(AutoscalerDecision(self.queue, action, blocked.text, blocked.job_id))
        self._reported = {blocked.job_id for blocked in refused}

    def take_decisions(self) -> list[AutoscalerDecision]:
        """The decisions since the last call."""
        decisions, self._decisions = self._decisions, []
        return decisions

    def status(self, running: int) -> QueueStatus:
        full = running >= self.slots.count
        refused = [blocked for blocked in self._blocked if blocked.reason is Refusal.NEVER or not full]
        return QueueStatus(
            self.queue, self.bounds.least, self.bounds.most, self.slots.count, running, refused[:MAX_REFUSALS]
        )


def memory_cap(ready: ReadyCommand) -> int | None:
    """The memory cap of a command; an unreadable payload fails when it runs, not here."""
    try:
        return load_command(ready.payload).memory
    except (msgspec.DecodeError, HoldfastError):
        return None


def name_of(ready: ReadyCommand) -> str:
    """The name of the profile that a command belongs to."""
    try:
        return profile_name(ready.label, load_command(ready.payload).argv)
    except (msgspec.DecodeError, HoldfastError):
        return profile_name(ready.label, ("unreadable",))

"""A lane: one queue whose programs an autoscaler admits, as it stands on this host; and a program that it let begin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from holdfast.domain.commands.command import load_command
from holdfast.domain.fleet import autoscaler_state
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
from holdfast.domain.fleet.autoscaler import Bounds, RunningLoad, Slots
from holdfast.domain.fleet.autoscaler_state import AutoscalerAction, AutoscalerDecision, BlockedJob
from holdfast.domain.jobs.job import JobId, OnLost
from holdfast.errors import HoldfastError
from holdfast.store.fleet.autoscaler import ReadyCommand
from holdfast.worker import clock
from holdfast.worker.active_runs import Run

#: So many in line are looked at, beside those that can never begin.
WINDOW = 50
#: So many refusals are told to others.
SHOWN = 20


class AdmittedCommand:
    """A program that was let begin."""

    def __init__(self, run: Run, queue: str, will_take: ExpectedMemory, *, on_lost: OnLost) -> None:
        self.run = run
        self.queue = queue
        self.expected = will_take
        self.evictable = on_lost is OnLost.RETRY
        self.frozen_at: float | None = None

    def working(self, now: float) -> RunningLoad:
        """How much it has done, for who must give way."""
        frozen = None if self.frozen_at is None else now - self.frozen_at
        worked = self.run.under_way_for(now) - (frozen or 0.0)
        return RunningLoad(self.run.lease.job_id, worked, evictable=self.evictable, frozen=frozen)


class ScaledQueue:
    """A queue that is scaled: its slots, who is first in line, and who is refused."""

    def __init__(self, queue: str, least: int) -> None:
        self.queue = queue
        self.paused = False
        self.asked_at = 0.0
        self.bounds = Bounds(least, least)
        self.slots = Slots(least, clock.now())
        #: Jobs that can never begin here.
        self.stuck: frozenset[JobId] = frozenset()
        self._blocked: list[BlockedJob] = []
        self._head: tuple[JobId, float] | None = None
        self._told: set[JobId] = set()
        self._news: list[AutoscalerDecision] = []

    @property
    def window(self) -> int:
        return WINDOW + len(self.stuck)

    def bound(self, bounds: Bounds, *, most: int) -> None:
        """People's bounds, within the slots of the worker."""
        self.bounds = Bounds(min(bounds.least, most), min(bounds.most, most))

    def candidates(
        self,
        line: Sequence[ReadyCommand],
        known: Mapping[JobId, Profile],
        declared: Mapping[str, int],
        limit: int,
        *,
        poison_suspects: int,
    ) -> list[Candidate]:
        """Who is in line, with what each will take. A second suspect waits until the first has ended."""
        return [
            Candidate(
                each.job_id, expected_memory(known[each.job_id], cap=memory_cap(each), declared=declared, limit=limit)
            )
            for each in line
            if not (each.poison_suspect and poison_suspects)
        ]

    def choose(
        self, line: Sequence[Candidate], running: Sequence[RunningCommand], room: MemoryRoom
    ) -> Candidate | None:
        """Who may begin; who may not, and why, is kept for those who ask."""
        now = clock.now()
        waited = {} if self._head is None else {self._head[0]: now - self._head[1]}
        choice = choose(line, running, room, waited=waited)
        will_take = {each.job_id: each.expected for each in line}
        self._blocked = [
            BlockedJob(job_id, reason, describe_refusal(reason, will_take[job_id], running, room))
            for job_id, reason in choice.refused.items()
        ]
        self.stuck = frozenset(each.job_id for each in self._blocked if each.reason is Refusal.NEVER)
        head = next((each.job_id for each in self._blocked if each.reason is not Refusal.NEVER), None)
        if head is None:
            self._head = None
        elif self._head is None or self._head[0] != head:
            self._head = (head, now)
        self._note(head)
        return choice.chosen

    def _note(self, head: JobId | None) -> None:
        """The first in line, and those that can never begin, are written down, once each."""
        told = {head, *self.stuck}
        for each in self._blocked:
            if each.job_id in told and each.job_id not in self._told:
                action = AutoscalerAction.NEVER_FITS if each.reason is Refusal.NEVER else AutoscalerAction.BLOCKED
                self._news.append(AutoscalerDecision(self.queue, action, each.text, each.job_id))
        self._told = {each.job_id for each in self._blocked if each.job_id in told}

    def news(self) -> list[AutoscalerDecision]:
        """What was decided since the last call."""
        news, self._news = self._news, []
        return news

    def standing(self, running: int) -> autoscaler_state.QueueStatus:
        full = running >= self.slots.count
        blocked = [each for each in self._blocked if each.reason is Refusal.NEVER or not full][:SHOWN]
        return autoscaler_state.QueueStatus(
            self.queue, self.bounds.least, self.bounds.most, self.slots.count, running, blocked
        )


def memory_cap(ready: ReadyCommand) -> int | None:
    """The cap of a program; a payload that cannot be read fails when it runs, not here."""
    try:
        return load_command(ready.payload).memory
    except (msgspec.DecodeError, HoldfastError):
        return None


def name_of(ready: ReadyCommand) -> str:
    """Whose history a program shares."""
    try:
        return profile_name(ready.label, load_command(ready.payload).argv)
    except (msgspec.DecodeError, HoldfastError):
        return profile_name(ready.label, ("unreadable",))

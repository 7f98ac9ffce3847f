"""The store as a page of Python: no SQL, no locks, one dictionary. The real one must agree with it.

It uses ``judge`` and ``next_step``, which have tests of their own; everything else (order,
limits, keys, leases, times, dependencies) is told here a second time, as simply as possible.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from holdfast.domain.jobs.dependencies import DependencyStep, IfNot, When, next_step
from holdfast.domain.jobs.job import ControlRequest, JobId, OnLost, State, Token, WorkerId
from holdfast.domain.jobs.verdict import JobNumbers, Lost, Outcome, Released, judge
from tests.support.backends import START

ZERO = timedelta(0)
IDLE = (State.HELD, State.WAITING, State.SCHEDULED, State.READY)


@dataclass
class ModelJob:
    id: int
    kind: str
    queue: str
    priority: int
    due: datetime
    state: State
    key: str | None = None
    max_attempts: int = 3
    on_lost: OnLost = OnLost.RETRY
    dependencies: tuple[int, ...] = ()
    when: When = When.DONE
    attempts: int = 0
    crashes: int = 0
    token: int = 0
    losses: int = 0
    started: bool = False
    requested: ControlRequest | None = None
    worker: str | None = None
    lapses: datetime | None = None
    ends: int = 0

    @property
    def order(self) -> tuple[int, datetime, int]:
        return (-self.priority, self.due, self.id)

    @property
    def no_prefetch(self) -> bool:
        return self.on_lost is not OnLost.RETRY

    def leave(self) -> None:
        """Nobody holds it any more."""
        self.started, self.worker, self.lapses = False, None, None

    def seen(self) -> tuple[object, ...]:
        """What must agree with the store."""
        return (self.state, self.queue, self.priority, self.due, self.attempts, self.crashes, self.token,
                self.losses, self.requested, self.worker)  # fmt: skip


@dataclass(frozen=True)
class Room:
    """What a worker has room for: see ``Leases.claim``."""

    free: int
    ahead: int = 0
    short: tuple[str, ...] = ()
    few: int = 9
    alone: int = 9


@dataclass
class Model:
    now: datetime = START
    jobs: dict[int, ModelJob] = field(default_factory=dict)
    keys: dict[tuple[str, str], int] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)
    limits: dict[str, int] = field(default_factory=dict)

    # -- enqueue ---------------------------------------------------------------------------

    def holder_of(self, kind: str, key: str | None) -> ModelJob | None:
        """The live job that has the key."""
        job = self.jobs.get(self.keys.get((kind, key or ""), -1))
        return job if key and job and not job.state.finished else None

    def enqueue(self, job: ModelJob, delay: timedelta) -> None:
        job.due = self.now + delay
        if job.key:
            self.keys[job.kind, job.key] = job.id
        self.jobs[job.id] = job
        if job.state is not State.HELD:
            job.state = State.SCHEDULED if delay > ZERO else State.READY
            if job.dependencies:
                job.state = State.WAITING
                self.judge_waiting([job])

    # -- leases ----------------------------------------------------------------------------

    def claim(self, worker: str, kinds: Iterable[str], lease_duration: timedelta, *, room: Room) -> list[ModelJob]:
        """The first jobs in order for free slots, then a prefix of the others ahead of slots."""
        most = room.free + room.ahead
        slots = {queue: self._free(queue) for queue in self.limits}
        candidates: list[ModelJob] = []
        for job in sorted((j for j in self.jobs.values() if self._may_begin(j, kinds, room)), key=lambda j: j.order):
            if slots.get(job.queue, most) > 0 and len(candidates) < most:
                slots[job.queue] = slots.get(job.queue, most) - 1
                candidates.append(job)
        left = {2: room.few, 3: room.alone}
        taken: list[ModelJob] = []
        for job in candidates:
            if job.losses > 1:
                left[job.losses] -= 1
                if left[job.losses] < 0:
                    continue
            slot_only = job.no_prefetch or job.losses or job.kind not in room.short or job.queue in self.limits
            if len(taken) >= room.free and slot_only:
                break
            taken.append(job)
        for job in taken:
            job.state, job.worker, job.lapses = State.RUNNING, worker, self.now + lease_duration
            job.token += 1
            job.started = False
        return taken

    def _may_begin(self, job: ModelJob, kinds: Iterable[str], room: Room) -> bool:
        served = job.state is State.READY and job.kind in kinds and job.queue not in self.paused
        return served and {2: room.few, 3: room.alone}.get(job.losses, 1) > 0

    def _free(self, queue: str) -> int:
        return self.limits[queue] - sum(j.state is State.RUNNING and j.queue == queue for j in self.jobs.values())

    def holds(self, job_id: int, token: int) -> bool:
        job = self.jobs[job_id]
        return job.state is State.RUNNING and job.token == token

    def mark(self, job_id: int) -> None:
        job = self.jobs[job_id]
        job.attempts += not job.started
        job.started = True

    def release(self, job_id: int) -> None:
        job = self.jobs[job_id]
        if not job.started and job.requested:
            self.settle(job_id, Released())
        elif not job.started:
            job.state = State.READY
            job.leave()

    def settle(self, job_id: int, outcome: Outcome) -> None:
        job = self.jobs[job_id]
        verdict = judge(self._standing(job), outcome, chance=0.5)
        job.state, job.attempts, job.crashes, job.losses = (
            verdict.state,
            verdict.attempts,
            verdict.crashes,
            verdict.losses,
        )
        if verdict.delay is not None:
            job.due = self.now + verdict.delay
        job.ends += 1
        if verdict.state.finished:
            job.requested, job.started, job.lapses = None, False, None
            self.tell(job)
        else:
            job.requested = None
            job.leave()

    def take_over(self) -> set[int]:
        expired = [j for j in self.jobs.values() if j.lapses and j.lapses < self.now]
        for job in expired:
            job.token += 1
            self.settle(job.id, Lost())
        return {job.id for job in expired}

    def promote(self) -> None:
        for job in self.jobs.values():
            if job.state is State.SCHEDULED and job.due <= self.now:
                job.state = State.READY

    def _standing(self, job: ModelJob) -> JobNumbers:
        return JobNumbers(
            JobId(job.id), job.kind, job.queue, Token(job.token), job.attempts, job.max_attempts, job.crashes,
            job.losses, job.no_prefetch, 3, job.on_lost, None, job.started, job.requested, False, WorkerId(job.worker or ""), None, None,
        )  # fmt: skip

    # -- needs -----------------------------------------------------------------------------

    def tell(self, finished: ModelJob) -> None:
        self.judge_waiting([j for j in self.jobs.values() if finished.id in j.dependencies])

    def judge_waiting(self, jobs: Iterable[ModelJob], *, insist: bool = False) -> None:
        for job in jobs:
            if job.state is not State.WAITING:
                continue
            step = next_step(job.when, IfNot.CANCEL, [self.jobs[need].state for need in job.dependencies])
            if step is DependencyStep.START or (insist and step is DependencyStep.CANCEL):
                job.state = State.SCHEDULED if job.due > self.now else State.READY
            elif step is DependencyStep.CANCEL:
                job.state = State.CANCELLED
                self.tell(job)

    # -- people ----------------------------------------------------------------------------

    def cancel(self, job_id: int) -> None:
        job = self.jobs[job_id]
        if job.state is State.RUNNING:
            job.requested = ControlRequest.CANCEL
        elif job.state in IDLE:
            job.state, job.losses = State.CANCELLED, 0
            self.tell(job)

    def pause(self, job_id: int) -> None:
        job = self.jobs[job_id]
        if job.state is State.RUNNING:
            job.requested = job.requested or ControlRequest.PAUSE
        self.hold(job_id)

    def resume(self, job_id: int) -> None:
        job = self.jobs[job_id]
        if job.requested is ControlRequest.PAUSE:
            job.requested = None
        self.unhold(job_id)

    def hold(self, job_id: int) -> None:
        job = self.jobs[job_id]
        if job.state in (State.WAITING, State.SCHEDULED, State.READY):
            job.state = State.HELD

    def unhold(self, job_id: int) -> None:
        job = self.jobs[job_id]
        if job.state is State.HELD:
            job.attempts = 0 if job.attempts >= job.max_attempts else job.attempts
            job.crashes = 0 if job.crashes >= 3 else job.crashes
            job.state = State.WAITING if job.dependencies else State.SCHEDULED if job.due > self.now else State.READY
            self.judge_waiting([job], insist=True)

    def retry(self, job_id: int) -> None:
        job = self.jobs[job_id]
        holder = self.holder_of(job.kind, job.key)
        states = [self.jobs[need].state for need in job.dependencies]
        if job.state.finished and states and next_step(job.when, IfNot.CANCEL, states) is DependencyStep.CANCEL:
            return
        if job.state in (State.DEAD, State.CANCELLED) and (holder is None or holder is job):
            job.state, job.attempts, job.crashes, job.due, job.losses = State.READY, 0, 0, self.now, 0
            job.leave()
            if job.key:
                self.keys[job.kind, job.key] = job.id
            if job.dependencies:
                job.state = State.WAITING
                self.judge_waiting([job])
        elif job.state is State.SCHEDULED and job.attempts:
            job.state, job.due = State.READY, self.now

"""The referee of a simulation: knows only what was asked and answered, and says at once which answer cannot be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from holdfast.domain.jobs.job import ControlRequest, Lease
from holdfast.domain.jobs.new_job import Enqueued, NewJob
from holdfast.store.jobs.leases import Renewal
from holdfast.store.jobs.settlement import TakenOver
from tests.chaos.standing import Broken


@dataclass
class Known:
    """What has been told of one job."""

    request: NewJob
    token: int = 0
    #: Failures, and losses after a mark, since it was enqueued or a person began it anew.
    spent: int = 0
    crashes: int = 0
    done: bool = False
    #: A person has let it go, whatever its needs.
    insisted: bool = False


@dataclass
class Hold:
    """A lease as its holder knows it."""

    worker: str
    lease: Lease
    lapses: datetime
    started: bool
    #: A person wants it to end; the next renewal must say so.
    cancelled: bool = False


@dataclass
class Referee:
    """Compares each answer with those before it."""

    jobs: dict[int, Known] = field(default_factory=dict)
    holds: dict[int, Hold] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)
    limits: dict[str, int] = field(default_factory=dict)
    effects: Counter[object] = field(default_factory=Counter)

    def enqueued(self, request: NewJob, answer: Enqueued, live: bool) -> None:
        """*live*: whether the job of the answer was live just then."""
        if answer.created:
            if answer.id in self.jobs:
                raise Broken("I2", f"job {answer.id} was created twice")
            self.jobs[answer.id] = Known(request)
            return
        there = self.jobs.get(answer.id)
        if there is None or there.request.unique != request.unique or not live:
            raise Broken("I9", f"'already there' was answered with job {answer.id}, which is not under this key")

    def granted(
        self, worker: str, leases: Sequence[Lease], now: datetime, lease_duration: timedelta, *, started: bool
    ) -> None:
        for lease in leases:
            self._grant(worker, lease, now + lease_duration, started=started)
        for queue, limit in self.limits.items():
            running = sum(hold.lease.queue == queue for hold in self.holds.values())
            if running > limit and any(lease.queue == queue for lease in leases):
                raise Broken("I8", f"{running} jobs of queue {queue} run, {limit} may")

    def _grant(self, worker: str, lease: Lease, lapses: datetime, *, started: bool) -> None:
        job_id, known = lease.job_id, self.jobs.get(lease.job_id)
        if known is None:
            raise Broken("I2", f"job {job_id} was handed out, and nobody asked for it")
        if known.done:
            raise Broken("I3", f"job {job_id} was done, and is handed out again")
        if job_id in self.holds:
            raise Broken("I3", f"job {job_id} was handed to {worker} while {self.holds[job_id].worker} holds it")
        if lease.token <= known.token:
            raise Broken("I3", f"the token of job {job_id} went from {known.token} to {lease.token}")
        if lease.queue in self.paused:
            raise Broken("I12", f"job {job_id} was started from queue {lease.queue}, which is paused")
        self._may_start(lease, known)
        known.token = lease.token
        self.holds[job_id] = Hold(worker, lease, lapses, started)

    def _may_start(self, lease: Lease, known: Known) -> None:
        job_id = lease.job_id
        if known.request.after is not None and not known.insisted:
            for need in known.request.after.ids:
                if not self.jobs[need].done:
                    raise Broken("I13", f"job {job_id} was started before job {need}, which it needs")
        most, crashes = known.request.max_attempts, known.request.max_crashes
        if (most is not None and known.spent >= most) or (crashes is not None and known.crashes >= crashes):
            raise Broken("I10", f"job {job_id} is begun again after {known.spent} attempts, {known.crashes} crashes")
        if lease.attempt != known.spent + 1:
            raise Broken("I10", f"attempt {lease.attempt} of job {job_id} begins, and {known.spent} were spent")

    def holds_still(self, lease: Lease) -> bool:
        hold = self.holds.get(lease.job_id)
        return hold is not None and hold.lease.token == lease.token

    def wrote(self, lease: Lease, what: str, *, accepted: bool) -> bool:
        """A holder wrote: it must have been accepted if, and only if, the lease is still its own."""
        mine = self.holds_still(lease)
        if accepted and not mine:
            raise Broken("I4", f"{what} of job {lease.job_id} was accepted under the old token {lease.token}")
        if mine and not accepted:
            raise Broken("I4", f"{what} of job {lease.job_id} was refused, and nobody had taken it over")
        return accepted

    def renewed(
        self, leases: Iterable[Lease], answers: Sequence[Renewal], now: datetime, lease_duration: timedelta
    ) -> None:
        told = {answer.job_id: answer.requested for answer in answers}
        for lease in leases:
            if self.wrote(lease, "a renewal", accepted=lease.job_id in told):
                hold = self.holds[lease.job_id]
                hold.lapses = now + lease_duration
                if hold.cancelled and told[lease.job_id] is not ControlRequest.CANCEL:
                    raise Broken("J14", f"job {lease.job_id} is to be cancelled, and its holder was not told")

    def marked(self, lease: Lease) -> None:
        self.holds[lease.job_id].started = True

    def finished(self, lease: Lease, *, done: bool, failed: bool, lost: bool = False) -> None:
        known = self.jobs[lease.job_id]
        del self.holds[lease.job_id]
        known.done = known.done or done
        known.spent += failed or lost
        known.crashes += lost
        if done and not self.effects[lease.job_id]:
            raise Broken("I5", f"job {lease.job_id} is done, and had no effect")

    def taken_over(self, taken: Sequence[TakenOver], now: datetime) -> None:
        for each in taken:
            hold = self.holds.pop(each.job_id, None)
            if hold is None:
                raise Broken("I3", f"job {each.job_id} was taken over, and nobody held it")
            if hold.lapses >= now:
                raise Broken("I4", f"job {each.job_id} was taken over before its lease had lapsed")
            known = self.jobs[each.job_id]
            if each.token <= known.token:
                raise Broken("I3", f"the token of job {each.job_id} was not raised by the take-over")
            known.token = each.token
            if hold.started:
                known.spent += 1
                known.crashes += 1
        expired = [job_id for job_id, hold in self.holds.items() if hold.lapses < now]
        if expired:
            raise Broken("I11", f"the leases of jobs {expired} have lapsed, and nobody took them over")

    def cancelled(self, job_ids: Iterable[int]) -> None:
        for job_id in job_ids:
            if job_id in self.holds:
                self.holds[job_id].cancelled = True

    def resumed(self, job_ids: Iterable[int]) -> None:
        """A person has let held jobs go: one that is out of attempts has them all again."""
        for job_id in job_ids:
            known = self.jobs[job_id]
            known.insisted = True
            if job_id in self.holds:
                continue  # only a wish to pause was taken back
            most, crashes = known.request.max_attempts, known.request.max_crashes
            known.spent = 0 if most is not None and known.spent >= most else known.spent
            known.crashes = 0 if crashes is not None and known.crashes >= crashes else known.crashes

    def revived(self, job_ids: Iterable[int]) -> None:
        for job_id in job_ids:
            known = self.jobs[job_id]
            known.spent = known.crashes = 0
            known.insisted = True

    def check_end(self, there: set[int]) -> None:
        lost, strange = self.jobs.keys() - there, there - self.jobs.keys()
        if lost:
            raise Broken("I1", f"jobs {sorted(lost)} were answered for, and are lost")
        if strange:
            raise Broken("I2", f"nobody asked for jobs {sorted(strange)}")

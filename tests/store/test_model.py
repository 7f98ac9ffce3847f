"""Random operations, clock moves and crashes: the store does step by step what the model does."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from holdfast.domain.jobs.dependencies import After, When
from holdfast.domain.jobs.job import JobId, Lease, OnLost, State, WorkerId
from holdfast.domain.jobs.new_job import NewJob, Unique
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.verdict import Done, Failed, Outcome, Released, Stopped
from holdfast.errors import LeaseLost
from holdfast.store.jobs.leases import Leases
from holdfast.store.jobs.settlement import Settlement
from tests.store.model import Model, ModelJob, Room
from tests.support.backends import open_database
from tests.support.jobs import record_start

KINDS, QUEUES = ("a", "b"), ("q1", "q2")
ROOMS = st.builds(
    Room,
    free=st.integers(0, 4),
    ahead=st.integers(0, 4),
    short=st.sampled_from([(), ("a",), ("a", "b")]),
    few=st.integers(0, 2),
    alone=st.integers(0, 1),
)
WORKERS = st.sampled_from([WorkerId("w1"), WorkerId("w2")])
TERM = timedelta(seconds=60)
OUTCOMES: st.SearchStrategy[Outcome] = st.sampled_from(
    [
        Done(),
        Done('{"n":1}'),
        Failed(error="boom"),
        Failed(error="boom", permanent=True),
        Failed(error="boom", after=timedelta(0)),
        Released(),
        Released(delay=timedelta(seconds=30)),
        Released(interrupted=True),
        Stopped(),
    ]
)


class StoreMachine(RuleBasedStateMachine):
    """Two workers, two queues, two kinds, people, time, and everything that may go wrong."""

    backend_name = "sqlite"
    jobs = Bundle("jobs")
    leases = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self.exit = ExitStack()
        folder = Path(self.exit.enter_context(tempfile.TemporaryDirectory()))
        self.database = self.exit.enter_context(open_database(self.backend_name, folder))
        self.store = self.database.open()
        self.store.leases = Leases(self.store.backend, chance=lambda: 0.5)
        self.model = Model()
        self.settled: dict[tuple[int, int], Outcome] = {}

    def teardown(self) -> None:
        self.exit.close()

    # -- enqueue ---------------------------------------------------------------------------

    @rule(
        target=jobs,
        kind=st.sampled_from(KINDS),
        queue=st.sampled_from(QUEUES),
        priority=st.integers(-1, 1),
        key=st.sampled_from([None, None, "k"]),
        delay=st.sampled_from([timedelta(0), timedelta(0), timedelta(seconds=40)]),
        hold=st.booleans(),
        on_lost=st.sampled_from([OnLost.RETRY, OnLost.RETRY, OnLost.HOLD, OnLost.DEAD]),
        max_attempts=st.integers(1, 3),
        many=st.booleans(),
    )
    def enqueue(self, kind, queue, priority, key, delay, hold, on_lost, max_attempts, many):
        request = NewJob(
            kind=kind,
            queue=queue,
            priority=priority,
            delay=delay,
            hold=hold,
            on_lost=on_lost,
            max_attempts=max_attempts,
            unique=Unique(key) if key else None,
        )
        answer = self.store.jobs.enqueue_many([request])[0] if many else self.store.jobs.enqueue(request)
        there = self.model.holder_of(kind, key)
        assert answer.created is (there is None)
        if there is not None:
            assert answer.id == there.id
            return multiple()
        assert answer.id not in self.model.jobs
        job = ModelJob(
            answer.id, kind, queue, priority, self.model.now, State.HELD if hold else State.READY,
            key=key, max_attempts=max_attempts, on_lost=on_lost,
        )  # fmt: skip
        self.model.enqueue(job, delay)
        return answer.id

    @rule(target=jobs, dependencies=st.lists(jobs, min_size=1, max_size=3, unique=True), when=st.sampled_from(When))
    def enqueue_after(self, dependencies, when):
        request = NewJob(kind="a", queue="q1", after=After(ids=tuple(JobId(n) for n in dependencies), when=when))
        answer = self.store.jobs.enqueue(request)
        job = ModelJob(
            answer.id, "a", "q1", 0, self.model.now, State.WAITING, dependencies=tuple(dependencies), when=when
        )
        self.model.enqueue(job, timedelta(0))
        return answer.id

    # -- workers ---------------------------------------------------------------------------

    @rule(
        target=leases,
        worker=WORKERS,
        room=ROOMS,
        kinds=st.sampled_from([KINDS, ("a",)]),
        limits=st.booleans(),
    )
    def claim(self, worker, room, kinds, limits):
        limits = limits or bool(self.model.limits)
        leases = self.store.leases.claim(
            WorkerId(worker),
            queues=QUEUES,
            leases=dict.fromkeys(kinds, TERM),
            free=room.free,
            ahead=room.ahead,
            short=room.short,
            suspects=(room.few, room.alone),
            limits=limits,
        )
        expected = self.model.claim(worker, kinds, TERM, room=room)
        assert [(lease.job_id, lease.token, lease.losses) for lease in leases] == [
            (job.id, job.token, job.losses) for job in expected
        ]
        return multiple(*leases)

    @rule(held=st.lists(leases, max_size=4))
    def renew(self, held):
        renewed = {renewal.job_id for renewal in self.store.leases.renew(held, lease_duration=TERM)}
        mine = {lease.job_id for lease in held if self.model.holds(lease.job_id, lease.token)}
        assert renewed == mine
        for job_id in mine:
            self.model.jobs[job_id].lapses = self.model.now + TERM

    @rule(lease=leases)
    def mark(self, lease):
        if self.model.holds(lease.job_id, lease.token):
            self.model.mark(lease.job_id)
            assert record_start(self.store, lease) == self.model.jobs[lease.job_id].attempts
        else:
            with pytest.raises(LeaseLost):
                record_start(self.store, lease)

    @rule(lease=leases, outcome=OUTCOMES)
    def settle(self, lease, outcome):
        """By the holder, by one who comes late, or by one who sends it twice."""
        if self.model.holds(lease.job_id, lease.token):
            self.store.leases.settle(lease, outcome)
            self.model.settle(lease.job_id, outcome)
            self.settled[lease.job_id, lease.token] = outcome
        elif self._same_again(lease, outcome):
            self.store.leases.settle(lease, outcome)
        else:
            with pytest.raises(LeaseLost):
                self.store.leases.settle(lease, outcome)

    @rule(held=st.lists(leases, max_size=4, unique_by=lambda lease: lease.job_id), outcome=OUTCOMES)
    def settle_many(self, held, outcome):
        lost = self.store.leases.settle_many([Settlement(lease, outcome) for lease in held]).lost
        for lease in sorted(held, key=lambda lease: lease.job_id):
            if (lease.job_id, lease.token) in lost:
                assert not self.model.holds(lease.job_id, lease.token)
            elif self.model.holds(lease.job_id, lease.token):
                self.model.settle(lease.job_id, outcome)
                self.settled[lease.job_id, lease.token] = outcome
            else:
                assert self._same_again(lease, outcome)

    def _same_again(self, lease: Lease, outcome: Outcome) -> bool:
        """A settle sent again is a success when its outcome is the recorded one, and still on record."""
        before = self.settled.get((lease.job_id, lease.token))
        if before is None or type(before) is not type(outcome):
            return False
        job = self.model.jobs[lease.job_id]
        return not isinstance(outcome, Done) or (job.state is State.DONE and job.token == lease.token)

    @rule(held=st.lists(leases, max_size=4))
    def release(self, held):
        for lease in held:
            if self.model.holds(lease.job_id, lease.token):
                self.model.release(lease.job_id)
        self.store.leases.release(held)

    @rule(lease=leases)
    def report(self, lease):
        if self.model.holds(lease.job_id, lease.token):
            self.store.leases.report(lease, done=1)
        else:
            with pytest.raises(LeaseLost):
                self.store.leases.report(lease, done=1)

    @rule()
    def take_over(self):
        assert {taken.job_id for taken in self.store.leases.take_over()} == self.model.take_over()

    @rule()
    def promote(self):
        self.store.leases.promote()
        self.model.promote()

    @rule()
    def sweep(self):
        """Finds nothing to do: no news was lost."""
        self.store.leases.check_waiting()

    # -- people, time ----------------------------------------------------------------------

    @rule(job=jobs, action=st.sampled_from(["cancel", "pause", "resume", "hold", "unhold", "retry"]))
    def act(self, job, action):
        getattr(self.store.control, action)(Selector(ids=(JobId(job),)), actor="ada")
        getattr(self.model, action)(job)

    @rule(queue=st.sampled_from(QUEUES), pause=st.booleans())
    def switch(self, queue, pause):
        (self.store.queues.pause if pause else self.store.queues.resume)(queue)
        (self.model.paused.add if pause else self.model.paused.discard)(queue)

    @rule(queue=st.sampled_from(QUEUES), limit=st.sampled_from([None, 1, 2]))
    def limit(self, queue, limit):
        if limit is None:
            self.store.queues.set_limits(queue, limit=0, worker_limit=0)
            self.model.limits.pop(queue, None)
        else:
            self.store.queues.set_limits(queue, limit=limit)
            self.model.limits[queue] = limit

    @rule(seconds=st.sampled_from([1, 30, 61, 4000]))
    def wait(self, seconds):
        self.database.clock.advance(seconds=seconds)
        self.model.now += timedelta(seconds=seconds)

    @precondition(lambda self: self.model.jobs)
    @rule()
    def crash(self):
        """All processes die: what they held lapses, and another store takes up the work."""
        self.store = self.database.open()
        self.store.leases = Leases(self.store.backend, chance=lambda: 0.5)
        self.wait(61)
        self.take_over()

    # -- what must always hold -----------------------------------------------------------------

    @invariant()
    def store_and_model_agree(self):
        found = {job.id: job for job in self.store.views.all(Selector())}
        assert found.keys() == self.model.jobs.keys()
        for job_id, expected in self.model.jobs.items():
            job = found[job_id]
            seen = (job.state, job.queue, job.priority, job.due_at, job.attempts, job.crashes, job.token,
                    job.losses, job.requested, job.worker)  # fmt: skip
            requested = expected.seen()
            if job.state.finished and job.state is not State.DONE:
                seen, requested = seen[:-1], requested[:-1]  # who held it last is told by its attempts
            assert seen == requested, (job_id, seen, requested)

    @invariant()
    def limits_and_keys_hold(self):
        live = [job for job in self.model.jobs.values() if not job.state.finished]
        keyed = [(job.kind, job.key) for job in live if job.key]
        assert len(keyed) == len(set(keyed))


def test_the_store_does_what_the_model_does(backend_name):
    """Enqueue, claim, renew, settle, release, take over, pause, cancel, retry, needs, clock and crashes."""
    machine = type("Machine", (StoreMachine,), {"backend_name": backend_name})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=int(os.environ.get("HOLDFAST_MODEL_EXAMPLES", "40")),
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )

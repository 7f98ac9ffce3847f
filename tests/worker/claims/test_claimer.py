"""The claimer: what it claims for its slots, what it leaves, and when it claims again."""

from __future__ import annotations

import os
import sqlite3
import threading
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

import holdfast
from holdfast import State
from holdfast.domain.commands.command import COMMAND, Command
from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.jobs.verdict import Done
from holdfast.errors import StoreUnavailable
from holdfast.store.engine.changes import EVERYTHING, QUEUES, Change, earlier_jobs, jobs_in
from holdfast.store.jobs.enqueue import changes_of
from holdfast.worker import clock, stats
from holdfast.worker.active_runs import Run
from holdfast.worker.claims import strategy
from holdfast.worker.claims.unknown_leases import INTERVAL_S
from holdfast.worker.executors import pool
from holdfast.worker.executors.pool import SUSPECT_S, ExecutorPool
from tests.support.jobs import claim_jobs
from tests.support.listeners import Listener
from tests.support.processes import wait_until


@pytest.fixture
def app(real_database):
    with holdfast.Holdfast(real_database.url) as app:
        yield app


@pytest.fixture
def gate():
    """Handlers wait until it is open."""
    gate = threading.Event()
    yield gate
    gate.set()


class Hands:
    """A worker whose services are ticked by the test."""

    def __init__(self, app, **options):
        app.store  # noqa: B018 - publishes the kinds
        self.worker = app.worker(commands=True, **options)
        self.claimer = self.worker.services.claimer.service
        self.settler = self.worker.services.settler.service
        self.lifecycle = self.worker._lifecycle
        self.pool = self.worker._pool

    def claim(self):
        return self.claimer.tick()

    def finish(self, gate):
        gate.set()
        self.settle()

    def settle(self):
        assert self.pool.wait_idle(float("inf"))
        while len(self.settler):
            self.settler.tick()


def begun(app, refs) -> int:
    return sum(ref.state is State.RUNNING for ref in refs)


def lose(app, refs, times=1):
    """The holders of jobs are lost before any start is recorded."""
    for _ in range(times):
        claim_jobs(app.store, "dead", 1000, queues=["default"], kinds=list(app.kinds), lease_duration=timedelta(0))
        wait_until(lambda: app.store.leases.take_over(limit=1000) and all(ref.state is State.READY for ref in refs))


def test_no_slot_is_free_while_a_job_waits(app, gate):
    """I18, K3, K18: jobs of every sort begin side by side in one tick, as long as slots are free."""

    @app.job(lease="5m")
    def plain(n: int) -> None:
        gate.wait(60)

    @app.job(on_lost="hold")
    def careful(n: int) -> None:
        gate.wait(60)

    @app.job(queue="narrow")
    def limited(n: int) -> None:
        gate.wait(60)

    app.queues.set_limits("narrow", limit=2)
    suspects = plain.enqueue_many([{"n": n} for n in range(3)])
    lose(app, suspects)
    refs = [*suspects, *(kind.enqueue(n=1) for kind in (plain, careful, careful, limited, limited, limited))]
    hands = Hands(app, slots=8, queues=["default", "narrow"])
    hands.claim()
    assert begun(app, refs) == 8, "I18 is broken"
    wait_until(lambda: hands.pool.running == 8)
    assert [ref.job().losses for ref in suspects] == [1, 1, 1]
    hands.finish(gate)
    hands.claim()
    hands.settle()
    assert {(ref.state, ref.job().attempts) for ref in refs} == {(State.DONE, 1)}


def test_short_commands_are_claimed_ahead(app, tmp_path, monkeypatch):
    """K42, J13: few for each slot, and no start is recorded before they run. After a pause, they do not start."""
    for module in (pool, stats):
        monkeypatch.setattr(module, "SHORT_RUN_S", 60.0)
    wait = "until test -e open; do sleep 0.02; done"
    payload = Command(argv=("sh", "-c", wait), cwd=str(tmp_path), env={"PATH": os.environ["PATH"]}).dumps()
    jobs = [app.store.jobs.enqueue(NewJob(kind=COMMAND, payload=payload)).id for _ in range(40)]
    hands = Hands(app, slots=2)
    hands.lifecycle.run_times.learn(COMMAND, 0.001)
    assert [hands.claim().processed for _ in range(4)] == [2, 8, 8, 0]
    started = wait_until(lambda: [job for job in jobs if app.views.get(job).attempts] == jobs[:2] and jobs[:2])
    leases = [(job.lease_expires_at - job.claimed_at) > timedelta(seconds=90) for job in map(app.views.get, jobs[:18])]
    assert leases == [True] * 2 + [False] * 16  # those that wait come back soon after a kill
    app.queues.pause("default", note="maintenance")
    (tmp_path / "open").touch()
    hands.settle()
    assert [app.views.get(job).state for job in started] == [State.DONE] * 2
    assert {(job.state, job.attempts) for job in map(app.views.get, jobs[2:])} == {(State.READY, 0)}, "K42 is broken"


def test_a_second_signal_starts_no_command_that_waits(app, tmp_path, monkeypatch):
    """K42: a command that is killed frees its slot, and the next one must not begin there."""
    for module in (pool, stats):
        monkeypatch.setattr(module, "SHORT_RUN_S", 60.0)
    payload = Command(argv=("sleep", "5"), cwd=str(tmp_path), env={"PATH": os.environ["PATH"]}).dumps()
    jobs = [app.store.jobs.enqueue(NewJob(kind=COMMAND, payload=payload)).id for _ in range(9)]
    hands = Hands(app, slots=1)
    hands.lifecycle.run_times.learn(COMMAND, 0.001)
    assert [hands.claim().processed for _ in range(2)] == [1, 4]
    wait_until(lambda: app.views.get(jobs[0]).attempts)
    release, started = hands.lifecycle.release, []

    def release_late(runs):
        wait_until(lambda: not hands.pool.waiting or app.views.get(jobs[1]).attempts)
        started.extend(job for job in jobs[1:] if app.views.get(job).attempts)
        release(runs)

    monkeypatch.setattr(hands.lifecycle, "release", release_late)
    hands.worker._shutdown.abandon()
    assert started == [], "K42 is broken"


def test_the_start_of_careful_work_is_recorded_before_it_begins(app, gate):
    """K21: by the worker that begins it, not by the claim."""
    seen = []

    @app.job(on_lost="dead")
    def careful(me: holdfast.Context) -> None:
        job = app.views.get(me.id)
        seen.append((job.attempts, job.claimed))

    careful.enqueue()
    hands = Hands(app, slots=1)
    hands.claim()
    hands.settle()
    assert seen == [(1, False)]


def nothing_claimed(*args, **options):
    return []


def replace_claims(monkeypatch, app, claim):
    """Let *claim* take the place of both statements that a worker claims by from the start of its lanes."""

    def few(worker, **options):
        return claim(worker, **options), False

    monkeypatch.setattr(app.store.leases, "claim", claim)
    monkeypatch.setattr(app.store.leases, "claim_few", few)


@pytest.mark.parametrize("late", [False, True])
def test_a_lost_answer_costs_nothing(app, monkeypatch, late):
    """K21: the claim was committed, also late; its jobs go back as if nothing had happened, whatever on_lost says."""

    @app.job(on_lost="dead")
    def careful() -> None: ...

    ref = careful.enqueue()
    hands = Hands(app, slots=1)
    claim, fake = app.store.leases.claim, _Clock(monkeypatch)

    def fail(*args, **options):
        if not late:
            claim(*args, **options)
        raise StoreUnavailable("no answer")

    replace_claims(monkeypatch, app, fail)
    with pytest.raises(StoreUnavailable):
        hands.claim()
    if late:
        with pytest.raises(StoreUnavailable):
            hands.claim()
        claim(hands.worker.id, queues=["default"], leases={"careful": careful.kind.options.lease})
        fake.at += INTERVAL_S
    assert ref.state is State.RUNNING
    replace_claims(monkeypatch, app, nothing_claimed)
    hands.claim()
    job = ref.job()
    assert (job.state, job.attempts, job.crashes, job.losses) == (State.READY, 0, 0, 0)
    assert app.views.attempts(ref.id) == []


def test_a_lost_answer_is_looked_for_after_a_pause(app, monkeypatch):
    """S16: a worker that is fenced or quiet for minutes releases the leases of the lost claim afterwards."""

    @app.job(lease="1h")
    def careful() -> None: ...

    ref = careful.enqueue()
    hands = Hands(app, slots=1)
    claim, fake = app.store.leases.claim, _Clock(monkeypatch)

    def lose(*args, **options):
        claim(*args, **options)
        raise StoreUnavailable("no answer")

    replace_claims(monkeypatch, app, lose)
    with pytest.raises(StoreUnavailable):
        hands.claim()
    hands.worker._remote_control.quiet = True
    for _ in range(20):
        fake.at += INTERVAL_S
        hands.claim()
    assert ref.state is State.RUNNING
    hands.worker._remote_control.quiet = False
    replace_claims(monkeypatch, app, nothing_claimed)
    hands.claim()
    assert ref.state is State.READY, "S16 is broken"


class _Clock:
    def __init__(self, monkeypatch):
        self.at = 1000.0
        monkeypatch.setattr("holdfast.worker.claims.unknown_leases.clock", self)

    def now(self):
        return self.at


def test_nothing_is_claimed_ahead_of_long_runs(app, gate):
    """K15: with every slot held by a long run, a short job stays for other workers; its token does not grow."""

    @app.job()
    def report() -> None:
        gate.wait(60)

    @app.job()
    def quick() -> None: ...

    hands = Hands(app, slots=2)
    hands.lifecycle.run_times.learn("quick", 0.001)
    reports = [report.enqueue() for _ in range(2)]
    hands.claim()
    wait_until(lambda: hands.pool.running == 2)
    ref = quick.enqueue()
    for _ in range(3):
        hands.claimer.on_notify()
        hands.claim()
    assert (ref.state, ref.job().token, begun(app, reports)) == (State.READY, 0, 2), "K15 is broken"
    hands.finish(gate)
    hands.claim()
    hands.settle()
    assert (ref.state, ref.job().token) == (State.DONE, 1)


def test_jobs_run_in_the_order_of_their_priorities(app):
    """K61: one kind is short and fetched ahead, the other is not: the order is the same."""
    ran = []

    @app.job()
    def short(n: int) -> None:
        ran.append(n)

    @app.job()
    def other(n: int) -> None:
        ran.append(n)

    hands = Hands(app, slots=1)
    for n in (0, 5, 2, 9, 4, 7, 6, 3, 8, 1):
        (short if n % 2 else other).options(priority=n).enqueue(n=n)
    while len(ran) < 10:
        hands.lifecycle.run_times.learn("short", 0.0001)
        hands.lifecycle.run_times.learn("other", 9.0)
        hands.claim()
        hands.settle()
    assert ran == sorted(range(10), reverse=True)


def test_large_payloads_bound_what_is_claimed_ahead(app):
    """K34: about a mebibyte waits for slots, however short the runs are."""

    @app.job()
    def work(text: str) -> None: ...

    hands = Hands(app, slots=1)
    work.enqueue(text="x" * 20_000)
    hands.claim()
    hands.settle()
    run_times = hands.lifecycle.run_times
    run_times.learn("work", 0.0)
    assert 40 < run_times.ahead(["work"], 8) < 60


def test_nothing_begins_on_an_old_lease(app):
    """K51: a worker that was stopped in the meantime releases what it had claimed and not begun."""
    ran = []

    @app.job()
    def work() -> None:
        ran.append(1)

    ref = work.enqueue()
    hands = Hands(app, slots=1)
    (lease,) = claim_jobs(app.store, hands.worker.id, queues=["default"], kinds=["work"])
    duration = work.kind.options.lease
    old = clock.now() - duration.total_seconds()
    hands.pool.begin([Run(lease, work.kind, renewed_at=old, lease_duration=duration)])
    hands.settle()
    assert (ran, ref.state, ref.job().attempts) == ([], State.READY, 0)
    assert app.views.attempts(ref.id) == []


def test_a_settlement_frees_the_slot_of_a_limit(app, gate):
    """K62: the claimer is woken when the settlement is written, not before."""

    @app.job()
    def work() -> None:
        gate.wait(60)

    app.queues.set_limits("default", limit=1)
    refs = [work.enqueue() for _ in range(2)]
    hands = Hands(app, slots=2)
    hands.claim()
    assert hands.claim().processed == 0
    hands.claimer.wake.clear()
    gate.set()
    assert hands.pool.wait_idle(float("inf"))
    assert not hands.claimer.wake.is_set(), "the limit is still used"
    hands.settle()
    assert hands.claimer.wake.is_set()
    assert hands.claim().processed == 1
    hands.settle()
    assert [ref.state for ref in refs] == [State.DONE] * 2


def test_few_claims_find_nothing(app):
    """K88: after a claim that left slots free, neither the next tick nor the end of the run claims at once."""

    @app.job()
    def work() -> None: ...

    hands = Hands(app, slots=8)
    work.enqueue()
    ticked = hands.claim()
    assert (ticked.processed, ticked.next_in > 0.02) == (1, True)
    hands.claimer.wake.clear()
    hands.settle()
    assert not hands.claimer.wake.is_set()
    hands.claimer.on_notify()
    assert hands.claimer.wake.is_set()


def test_a_full_claim_is_followed_by_another(app, gate):
    """When the slots are full, the end of a run claims at once."""

    @app.job()
    def work() -> None:
        gate.wait(60)

    for _ in range(3):
        work.enqueue()
    hands = Hands(app, slots=2)
    assert [hands.claim().processed, hands.claim().processed] == [2, 0]
    hands.claimer.wake.clear()
    gate.set()
    hands.settle()
    assert hands.claimer.wake.is_set()


def test_no_claim_is_sent_while_the_next_job_needs_a_slot(app, gate, monkeypatch):
    """Commands are never claimed ahead: without a free slot, a claim would find nothing."""

    @app.job(on_lost="dead")
    def careful() -> None:
        gate.wait(60)

    careful.enqueue()
    careful.enqueue()
    hands = Hands(app, slots=1)
    hands.lifecycle.run_times.learn("careful", 0.001)
    assert hands.claim().processed == 1
    with monkeypatch.context() as patch:
        patch.setattr(hands.claimer, "_make", lambda *_: pytest.fail("a claim was sent"))
        assert hands.claim().processed == 0
    hands.finish(gate)
    assert hands.claim().processed == 1
    hands.settle()


@pytest.mark.one_backend
def test_the_next_claim_is_under_way_while_the_slots_work_on_the_last(app, gate, monkeypatch):
    """Half of the jobs that should wait are claimed at a time, and the other half at once after it."""
    monkeypatch.setattr("holdfast.worker.stats.MAX_AHEAD", 10)
    monkeypatch.setattr(ExecutorPool, "long_runs", 0)  # however slowly this test runs

    @app.job()
    def work() -> None:
        gate.wait(60)

    work.enqueue_many([{}] * 30)
    hands = Hands(app, slots=2)
    hands.claimer._run_times.learn("work", 0.001)
    assert [hands.claim().processed for _ in range(3)] == [2 + 5, 5, 0]


@pytest.mark.parametrize("earlier", [{"priority": 3}, {"run_at": datetime(2001, 1, 1, tzinfo=UTC)}, {"queue": "other"}])
def test_an_idle_worker_claims_an_earlier_job_at_its_notification(app, earlier):
    """At once, and not at the next full claim, which may come a second later."""

    @app.job()
    def work() -> None: ...

    hands = Hands(app, slots=8, queues=["default", "other"])
    work.enqueue()
    hands.claim()
    hands.settle()
    for request in ({}, earlier):
        new = NewJob(kind="work", **request)
        app.store.jobs.enqueue(new)
        hands.claimer.on_notify(changes_of([new], at_once=True))
    assert hands.claim().processed == 2, "W8 is broken"
    hands.settle()


def test_a_dependent_from_before_a_backlog_begins_before_it(app):
    """D7, I17: a job keeps its due time when it becomes ready, and so its place among jobs of its priority."""
    began = []

    @app.job()
    def step(n: int) -> None:
        began.append(n)

    first = step.enqueue(0)
    dependent = step.options(after=[first]).enqueue(1)
    due_at = dependent.job().due_at
    step.enqueue_many([{"n": n} for n in range(2, 30)])
    hands = Hands(app, slots=1)
    hands.claim()
    hands.settle()
    assert dependent.job().due_at == due_at, "D7 is broken"
    hands.claimer.on_notify()
    hands.claim()
    hands.settle()
    assert began[:2] == [0, 1], "I17 is broken"


@pytest.mark.parametrize("how", ["waits", "commits late", "is released"])
def test_a_busy_worker_turns_back_for_a_job_that_becomes_ready(app, how, monkeypatch):
    """D7, I17: its notification names its place, and the next claim begins there."""
    monkeypatch.setattr(strategy, "FULL_INTERVAL_S", 3600.0)

    @app.job(on_lost="hold")  # nothing is claimed ahead
    def step(n: int) -> None: ...

    def become_ready():
        """Enqueue a job; returns what makes it ready, after others have begun."""
        if how == "commits late":
            return enqueue_late(app, step)
        ref = step.options(priority=5).enqueue(1)
        leases = claim_jobs(app.store, "other", 1, queues=["default"], kinds=["step"])
        if how == "is released":
            return ref, lambda: app.store.leases.release(leases)
        dependent = step.options(priority=5, after=[ref]).enqueue(2)
        return dependent, lambda: app.store.leases.settle(leases[0], Done(result="null"))

    ref, make_ready = become_ready()
    step.options(priority=5).enqueue_many([{"n": n} for n in range(2)])
    step.enqueue_many([{"n": n} for n in range(200)])
    hands = Hands(app, slots=2)
    hands.claimer.on_notify()
    for _ in range(2):
        hands.claim()
        hands.settle()
    listener = Listener(app.store)
    listener.settle()
    make_ready()
    named = earlier_jobs if app.store.backend.name == "postgres" else bool
    wait_until(lambda: named(frozenset(listener.changes)))
    listener.listener.close()
    hands.claimer.on_notify(frozenset(listener.changes) - {Change.JOBS})  # a full claim would find it, too
    hands.claim()
    assert ref.job().token > 0, "I17 is broken"
    hands.settle()


def enqueue_late(app, step):
    """A job, and what commits its enqueue."""
    backend = app.store.backend
    if backend.single_writer:  # no other writer could begin a job meanwhile
        ref = step.options(priority=5, delay=0.001).enqueue(1)
        return ref, lambda: wait_until(app.store.leases.promote)
    connection = psycopg.connect(backend.url)
    ref = step.options(priority=5, connection=connection).enqueue(1)
    return ref, lambda: (connection.commit(), connection.close())


def test_a_job_in_a_known_queue_costs_no_read_of_all_queues(app, monkeypatch):
    """With ``*``, only a notification of another queue, or of any, reads their names again."""

    @app.job()
    def work() -> None: ...

    reads = []
    names = app.store.queues.with_ready_jobs
    monkeypatch.setattr(type(app.store.queues), "with_ready_jobs", lambda _: reads.append(1) or names())
    hands = Hands(app, slots=2, queues=["*"], poll=3600)
    work.enqueue()
    hands.claim()
    for changes, expected in ((jobs_in(["default"]), 1), (jobs_in(["other"]), 2), (QUEUES, 3), (EVERYTHING, 4)):
        hands.claimer.on_notify(changes)
        hands.claim()
        assert len(reads) == expected


def test_a_queue_that_gets_a_job_while_all_are_read_is_not_missed(app, monkeypatch):
    """With ``*``: the notification comes after the answer was made, and before it has arrived."""

    @app.job()
    def work() -> None: ...

    hands = Hands(app, slots=2, queues=["*"], poll=3600)
    work.enqueue()
    hands.claim()
    names = app.store.queues.with_ready_jobs

    def late(_):
        found = names()
        hands.claimer.on_notify(jobs_in(["default"]))
        return found

    monkeypatch.setattr(type(app.store.queues), "with_ready_jobs", late)
    hands.claimer.on_notify()
    hands.claim()
    assert hands.worker.served.queues == []
    monkeypatch.undo()
    work.enqueue()
    assert hands.claim().processed == 1


def test_a_claim_that_is_too_large_is_made_smaller(tmp_path):
    """SQLite returns a claim as one text, which has a limit; so does memory."""
    with holdfast.Holdfast(f"sqlite:///{tmp_path}/jobs.db") as app:

        @app.job()
        def work(text: str) -> None: ...

        refs = work.enqueue_many([{"text": "x" * 100_000}] * 20)
        hands = Hands(app, slots=8)
        app.store.backend._writer.connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 350_000)
        while any(ref.state is not State.DONE for ref in refs):
            hands.worker.services.claimer.tick()
            hands.settle()
        assert hands.claimer._most >= 2


def test_a_new_limit_is_noticed_without_a_notification(app, monkeypatch):
    """D9: behind a pooler none arrives."""

    @app.job()
    def work() -> None: ...

    hands, now = Hands(app, slots=4), clock.now()
    hands.claim()
    app.queues.set_limits("default", limit=1)
    refs = [work.enqueue() for _ in range(3)]
    assert hands.claim().processed == 0
    monkeypatch.setattr(clock, "now", lambda: now + 5.0)
    assert hands.claim().processed == 1, "I18 is broken"
    hands.settle()
    assert sum(ref.state is State.DONE for ref in refs) == 1


def test_a_new_limit_is_noticed(app):
    """I8: a claim that does not know of it leaves the queue out; the next one serves it within the limit."""

    @app.job()
    def work() -> None: ...

    hands = Hands(app, slots=4)
    hands.claim()
    app.queues.set_limits("default", limit=1)
    refs = [work.enqueue() for _ in range(3)]
    assert hands.claim().processed == 0
    hands.claimer._limits_read_at -= 2
    hands.claimer.on_notify()
    assert hands.claim().processed == 1
    hands.settle()
    assert sum(ref.state is State.DONE for ref in refs) == 1


@pytest.mark.parametrize("noticed", [True, False])
def test_a_job_is_not_begun_beside_its_own_lost_run(app, gate, real_database, noticed):
    """K52: a thread that has lost its lease goes on; its worker leaves the job to others until it has finished.

    Also when no heartbeat has noticed the loss: the lease has expired by the clock of the worker.
    """
    runs = []

    @app.job(retry=["0s"], lease=5)
    def work(me: holdfast.Context) -> None:
        runs.append(me.token)
        gate.wait(60)

    ref = work.enqueue()
    hands = Hands(app, slots=2)
    hands.claim()
    wait_until(lambda: runs)
    past = "SET lease_expires_at = lease_expires_at - " + (
        "60000000" if real_database.name == "sqlite" else "interval '1 minute'"
    )
    real_database.execute(f"UPDATE holdfast.live {past} WHERE id = {ref.id}")
    app.store.leases.take_over()
    if noticed:
        hands.worker.services.heartbeat.service.tick()
    for run in hands.lifecycle.active_runs.all():
        run.renewed_at -= 60
    assert (ref.state, hands.claim().processed, runs) == (State.READY, 0, [1]), "K52 is broken"
    hands.finish(gate)
    assert hands.claim().processed == 1
    hands.settle()
    assert (ref.state, len(runs)) == (State.DONE, 2)


def test_a_store_that_forgot_a_claim_starts_no_second_run(app, gate, real_database):
    """CORE2 E1: a failover has lost the claim. The run of the first one is dropped, and the job is left to others."""
    runs, dropped = [], []

    @app.job(retry=["0s"])
    def work(me: holdfast.Context) -> None:
        runs.append(me.id)
        gate.wait(60)
        dropped.append(me.stopping.is_set())

    ref = work.enqueue()
    hands = Hands(app, slots=2)
    hands.claim()
    wait_until(lambda: runs)
    forgotten = "worker = NULL, claimed_at = NULL, started_at = NULL, lease_expires_at = NULL"
    real_database.execute(f"UPDATE holdfast.live SET state = 'ready', token = 70, {forgotten} WHERE id = {ref.id}")
    hands.claim()
    while len(hands.settler):
        hands.settler.tick()
    assert (ref.state, runs) == (State.READY, [ref.id]), "I3 is broken"
    assert hands.claim().processed == 0
    hands.finish(gate)
    hands.settle()
    assert (ref.state, dropped) == (State.READY, [True]), "I4 is broken"
    assert hands.claim().processed == 1
    hands.settle()
    assert (ref.state, len(runs)) == (State.DONE, 2)


def test_suspects_have_room_by_their_level(app, gate):
    """K18: level 2 has a quarter of the slots, level 3 one; a suspect that has run for some time is none any more."""

    @app.job()
    def work(n: int) -> None:
        gate.wait(60)

    hands = Hands(app, slots=8)
    assert hands.pool.suspect_room() == (2, 1)
    refs = work.enqueue_many([{"n": n} for n in range(5)])
    lose(app, refs, 2)
    other = work.enqueue(n=9)
    while hands.claim().next_in == 0.0:
        pass
    wait_until(lambda: hands.pool.running == 3)
    assert (begun(app, refs), other.state, hands.pool.suspect_room()) == (2, State.RUNNING, (0, 1))
    for run in hands.worker._active_runs.all():
        run.begun_at -= SUSPECT_S
    assert hands.pool.suspect_room() == (2, 1)
    hands.finish(gate)


def test_a_suspect_of_the_highest_level_starts_durably(app, gate):
    """K18: one at a time, its start recorded before it begins, so that it pays if it kills its worker."""

    @app.job()
    def work(n: int) -> None:
        gate.wait(60)

    refs = work.enqueue_many([{"n": n} for n in range(2)])
    lose(app, refs, 3)
    hands = Hands(app, slots=8)
    hands.claim()
    hands.claim()
    wait_until(lambda: hands.pool.running == 1)
    assert [(ref.state, ref.job().attempts) for ref in refs] == [(State.RUNNING, 1), (State.READY, 0)]
    hands.finish(gate)
    hands.claim()
    hands.settle()
    assert {(ref.state, ref.job().attempts) for ref in refs} == {(State.DONE, 1)}

"""The worker on a real store, in real time."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

import holdfast
from holdfast import Selector, State
from holdfast.domain.jobs.new_job import NewJob
from holdfast.errors import StoreUnavailable
from tests.support.processes import wait_until
from tests.support.workers import drain, working


@dataclasses.dataclass
class Picky:
    n: int

    def __post_init__(self) -> None:
        if self.n > 1:
            raise LookupError("too many")


@pytest.fixture
def app(real_database):
    with holdfast.Holdfast(real_database.url) as app:
        yield app


def count(app, *states: State) -> int:
    return app.views.count(Selector(states=states), cap=100_000).count


def test_a_thousand_jobs_are_done(app):
    """Each once, their results kept."""

    @app.job()
    def double(n: int) -> int:
        return n * 2

    refs = double.enqueue_many([{"n": n} for n in range(1000)])
    worker = drain(app)
    assert worker.counts.results == {"done": 1000}
    assert [ref.result() for ref in refs[:5]] == [0, 2, 4, 6, 8]
    assert count(app, State.DONE) == 1000


def test_coroutines_run_on_one_loop(app):
    """All at once, in one thread."""
    threads = set()

    @app.job()
    async def rest(n: int) -> int:
        threads.add(threading.current_thread().name)
        await asyncio.sleep(0.01)
        return n

    refs = rest.enqueue_many([{"n": n} for n in range(50)])
    drain(app)
    assert [ref.result() for ref in refs] == list(range(50))
    assert threads == {"holdfast-loop"}


@pytest.mark.parametrize("colour", ["thread", "async"])
def test_bad_handlers_hurt_only_themselves(app, colour):
    """SystemExit, an unreadable error, an odd result: other jobs continue."""

    class Awful(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def result_of(n: int) -> object:
        if n == 0:
            raise SystemExit(3)
        if n == 1:
            raise Awful
        if n == 2:
            return object()
        return "x" * (10 << 20) if n == 3 else n

    if colour == "thread":

        @app.job(max_attempts=1)
        def job(n: int) -> object:
            return result_of(n)
    else:

        @app.job(max_attempts=1)
        async def job(n: int) -> object:
            return result_of(n)

    refs = job.enqueue_many([{"n": n} for n in range(5)])
    odd = app.store.jobs.enqueue(NewJob(kind="job", payload='{"n": "not a number"}')).id
    drain(app)
    assert [ref.state for ref in refs] == [State.DEAD, State.DEAD, State.DONE, State.DONE, State.DONE]
    errors = [ref.job().error for ref in refs[:2]]
    assert "SystemExit: 3" in errors[0]
    assert "Awful: <exception str() failed>" in errors[1]
    assert "cannot be written as JSON" in refs[2].job().error
    assert "10,485,762 bytes" in refs[3].job().error
    assert (app.get(odd).state, "$.n" in app.get(odd).job().note) == (State.HELD, True)


def test_a_handler_decides_about_its_retry(app):
    """Retry, fail for good, release, snooze."""

    @app.job(max_attempts=3)
    def decide(choice: str, me: holdfast.Context) -> str:
        if choice == "retry" and me.attempt == 1:
            raise holdfast.Retry("again", after=0)
        if choice == "fail":
            raise holdfast.Fail("never")
        if choice == "snooze" and me.token == 1:
            raise holdfast.Snooze(0.01)
        return f"attempt {me.attempt}"

    refs = {choice: decide.enqueue(choice) for choice in ("retry", "fail", "snooze")}
    with working(app):
        ends = {choice: ref.wait(120) for choice, ref in refs.items()}
    assert (ends["retry"].result, ends["retry"].attempts) == ('"attempt 2"', 2)
    assert (ends["fail"].state, ends["fail"].attempts) == (State.DEAD, 1)
    assert (ends["snooze"].result, ends["snooze"].attempts) == ('"attempt 1"', 1)


def test_a_checkpoint_reaches_the_next_attempt(app):
    """The second attempt continues where the first stopped."""

    @app.job(retry=["0s"])
    def count_up(me: holdfast.Context) -> list[int]:
        begin = me.checkpointed or 0
        for n in range(begin, 10):
            me.checkpoint(n + 1)
            me.progress(n + 1, 10)
            if n == 4 and me.attempt == 1:
                raise ConnectionError
        return [begin]

    ref = count_up.enqueue()
    with working(app):
        assert ref.result(120) == [5]
    job = ref.job()
    assert (job.progress_done, job.progress_total) == (10, 10)


def test_children_are_enqueued_under_the_parents_token(app):
    """They name their parent."""

    @app.job()
    def parent(me: holdfast.Context) -> int:
        return me.enqueue("child", {"n": 1}, label="kids").id

    @app.job()
    def child(n: int) -> int:
        return n

    ref = parent.enqueue()
    drain(app)
    kid = app.get(ref.result())
    assert (kid.job().parent_id, kid.result()) == (ref.id, 1)


def test_a_cancel_reaches_the_handler(app):
    """A thread's stop event is set, a coroutine is cancelled (W4)."""
    begun = threading.Barrier(3)

    @app.job()
    def busy(me: holdfast.Context) -> None:
        begun.wait(120)
        me.stopping.wait(20)
        me.check()

    @app.job()
    async def idle() -> None:
        await asyncio.to_thread(begun.wait, 20)
        await asyncio.sleep(60)

    refs = [busy.enqueue(), idle.enqueue()]
    with working(app):
        begun.wait(120)
        app.control.cancel(Selector(ids=tuple(ref.id for ref in refs)), actor="ada")
        assert [ref.wait(120).state for ref in refs] == [State.CANCELLED, State.CANCELLED]


def test_a_paused_job_stops_and_goes_on_where_it_was(app):
    """The handler stops within a heartbeat; the next run gets the checkpoint at no cost."""
    begun = threading.Event()

    @app.job()
    def long(me: holdfast.Context) -> object:
        if me.checkpointed:
            return [me.attempt, me.checkpointed]
        me.checkpoint("half")
        begun.set()
        me.stopping.wait(20)
        me.check()
        return "too far"

    ref = long.enqueue()
    with working(app):
        begun.wait(120)
        app.control.pause(Selector(ids=(ref.id,)), actor="ada")
        assert wait_until(lambda: ref.state is State.HELD)
        app.control.resume(Selector(ids=(ref.id,)), actor="ada")
        assert ref.wait(120).state is State.DONE
    assert ref.result() == [1, "half"]


def test_a_job_has_its_own_timeout_and_attempts(app):
    """E9.4: they replace those of its kind; 0 means no limit."""

    @app.job(timeout=0.05, max_attempts=3, retry=["1h"])
    def wait(ctx: holdfast.Context, seconds: float) -> object:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            ctx.check()
            threading.Event().wait(0.01)
        return None if ctx.deadline is None else (ctx.deadline - datetime.now(UTC)).total_seconds()

    long = wait.options(timeout="1h").enqueue(0.3)
    unlimited = wait.options(timeout=0).enqueue(0.3)
    short = wait.options(max_attempts=1).enqueue(60)
    again = wait.options(max_attempts=2, retry=["10ms"]).enqueue(60)
    with app.worker(poll=0.05):
        assert 3000 < long.result(120) < 3600
        assert unlimited.result(120) is None
        assert (short.wait(120).reason, short.job().attempts) == ("run_timeout", 1)
        assert (again.wait(120).reason, again.job().attempts) == ("run_timeout", 2)


def test_a_run_that_returns_after_its_timeout_is_overdue(app, caplog, capsys):
    """Y13: it was done without a word. The mark is no outcome: the job is done, with its result."""

    @app.job(timeout=0.05, max_attempts=1)
    def late(job: holdfast.Context) -> int:
        job.stopping.wait(60)
        return 7

    @app.job(timeout=60)
    def early() -> int:
        return 8

    with working(app):
        refs = late.enqueue(), early.enqueue()
        jobs = [ref.wait(120) for ref in refs]
    assert [(job.state, ref.result()) for job, ref in zip(jobs, refs, strict=True)] == [
        (State.DONE, 7),
        (State.DONE, 8),
    ]
    assert jobs[1].overdue is None
    assert (jobs[0].overdue or "").endswith("past its timeout of 0.05 s"), "Y13 is broken"
    (line,) = [record for record in caplog.records if getattr(record, "event", "") == "overdue"]
    assert (line.job, jobs[0].overdue in line.getMessage()) == (refs[0].id, True)
    done = [event for event in app.views.events(refs[0].id) if event.name == "done"]
    assert [jobs[0].overdue in event.detail for event in done] == [True]


def test_a_run_has_a_timeout(app):
    """The handler is asked to stop; its job fails with the reason."""

    @app.job(timeout=0.05, max_attempts=1)
    def slow(me: holdfast.Context) -> None:
        me.stopping.wait(20)
        me.check()

    @app.job(timeout=0.05, max_attempts=1)
    async def asleep() -> None:
        await asyncio.sleep(60)

    refs = [slow.enqueue(), asleep.enqueue()]
    with working(app):
        assert [ref.wait(120).reason for ref in refs] == ["run_timeout", "run_timeout"]


def test_a_shutdown_refunds_the_attempt(app):
    """Runs may finish within the grace period; the others are released at no cost (SPEC 8.11)."""
    begun = threading.Event()

    @app.job()
    def endless(me: holdfast.Context) -> None:
        begun.set()
        me.stopping.wait(30)
        me.check()

    refs = endless.enqueue_many([{}] * 3)
    with working(app, slots=1, grace=0.05):
        assert begun.wait(120)
    assert [(ref.state, ref.job().attempts) for ref in refs] == [(State.READY, 0)] * 3


def test_jobs_claimed_ahead_are_released(app):
    """At shutdown, without a trace."""
    begun = threading.Event()

    @app.job()
    def quick(n: int, me: holdfast.Context) -> None:
        if n == 0:
            begun.set()
            me.stopping.wait(30)

    worker = app.worker(slots=1, grace=0, poll=0.02)
    worker._lifecycle.run_times.learn("quick", 0.0001)
    refs = quick.enqueue_many([{"n": n} for n in range(50)])
    thread = threading.Thread(target=worker.run)
    thread.start()
    assert begun.wait(120)
    worker.stop()
    thread.join(120)
    jobs = [ref.job() for ref in refs[1:]]
    assert all((job.state, job.attempts) == (State.READY, 0) for job in jobs if job.state is not State.DONE)
    assert sum(job.token == 1 for job in jobs) > 1, "nothing was claimed ahead: the test shows nothing"


def test_long_jobs_are_not_hoarded(app):
    """A worker claims as many as it has slots; the others stay for other workers."""
    begun = threading.Event()
    free = threading.Event()

    @app.job()
    def long(n: int) -> None:
        begun.set()
        free.wait(30)

    long.enqueue_many([{"n": n} for n in range(10)])
    with working(app, slots=2):
        assert begun.wait(120)
        assert count(app, State.RUNNING) == 2
        assert count(app, State.READY) == 8
        free.set()


def test_a_lost_lease_stops_the_handler_and_drops_its_outcome(app, real_database):
    """The zombie writes nothing (SPEC 8.2)."""
    begun, seen = threading.Event(), threading.Event()

    @app.job(lease=5, max_attempts=5, retry=["0s"])
    def taken_over(me: holdfast.Context) -> str:
        if me.token > 1:
            return "second"
        begun.set()
        me.stopping.wait(30)
        seen.set()
        return "first"

    ref = taken_over.enqueue()
    with working(app, heartbeat=0.2) as worker:
        assert begun.wait(120)
        real_database.execute(f"UPDATE holdfast.live SET token = token + 7 WHERE id = {ref.id}")
        assert seen.wait(120)
        wait_until(lambda: worker.counts.lost == 1)
        job = ref.wait(120)
    assert (job.result, job.token > 7) == ('"second"', True)


def test_heartbeats_keep_a_long_job(app):
    """A handler that never yields loses no lease."""

    @app.job(lease=5)
    def spin() -> int:
        import time

        end = time.monotonic() + 7
        n = 0
        while time.monotonic() < end:
            n += 1
        return n

    ref = spin.enqueue()
    with working(app, heartbeat=0.3):
        assert ref.wait(120).token == 1


def test_an_async_job_and_a_thread_job_share_the_slots_of_their_own_kind(app):
    """Neither starves the other."""

    @app.job()
    def plain(n: int) -> int:
        return n

    @app.job()
    async def coroutine(n: int) -> int:
        return n

    refs = [make.enqueue(n) for n in range(20) for make in (plain, coroutine)]
    drain(app, slots=2)
    assert all(ref.state is State.DONE for ref in refs)


def test_draining_waits_for_jobs_that_an_outage_interrupted(app, monkeypatch):
    """The worker itself has scheduled them, for a few seconds later; one that left would leave them behind.

    The worker asks whether it has drained the store while the settler still counts what it has written.
    """
    monkeypatch.setattr("holdfast.worker.handler_call.OUTAGE_DELAY", timedelta(milliseconds=300))
    tries, asked = [], threading.Event()

    @app.job(name="fragile")
    def fragile() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise StoreUnavailable("the store has gone")

    ref = fragile.enqueue()
    worker = app.worker(drain=True, poll=0.02)
    settler, drained = worker._lifecycle.settler, worker._drained
    settled = settler._settled

    def ask() -> bool:
        answer = drained()
        if tries and not len(worker._active_runs):
            asked.set()
        return answer

    def count_late(*written) -> None:
        asked.wait(60)
        settled(*written)

    monkeypatch.setattr(worker, "_drained", ask)
    monkeypatch.setattr(settler, "_settled", count_late)
    worker.run()
    assert (ref.state, len(tries)) == (State.DONE, 2), "I11 is broken: it is left behind"


def test_a_drain_ends_with_its_last_settlement(app, monkeypatch):
    """No poll has to find that out: it could take a second."""
    for name in ("worker.MIN_DRAIN_INTERVAL_S", "worker.DRAIN_INTERVAL_S", "claims.claimer.FIRST_INTERVAL_S"):
        monkeypatch.setattr(f"holdfast.worker.{name}", 600.0)
    begun, proceed = threading.Event(), threading.Event()

    @app.job()
    def slow() -> None:
        begun.set()
        proceed.wait(60)

    slow.enqueue()
    worker = app.worker(drain=True, poll=600.0)
    worker.start()
    assert begun.wait(60)
    proceed.set()
    worker.join(60)
    assert not worker.working, "I18 is broken: it waits for its next poll"


def test_draining_leaves_scheduled_jobs(app):
    """Scheduled jobs do not count."""

    @app.job()
    def job(n: int) -> None: ...

    job.options(delay="1h").enqueue(1)
    job.enqueue(2)
    drain(app)
    assert (count(app, State.SCHEDULED), count(app, State.DONE)) == (1, 1)


def test_a_backlog_of_short_jobs_does_not_starve_the_others(app):
    """A job of an unknown kind waits for its turn, but not longer."""
    begun = []

    @app.job()
    def short(n: int) -> None:
        begun.append(n)

    @app.job()
    def other() -> None:
        begun.append("other")

    worker = app.worker(slots=2, drain=True, poll=0.02)
    worker._lifecycle.run_times.learn("short", 0.0001)
    short.enqueue_many([{"n": n} for n in range(500)])
    other.enqueue()
    short.enqueue_many([{"n": n} for n in range(500, 3000)])
    worker.run()
    assert begun.index("other") < 2000


def test_every_slot_is_used(app):
    """Even by jobs that arrive one by one while others run."""
    together = threading.Barrier(4)

    @app.job()
    def meet() -> None:
        together.wait(20)

    with working(app, slots=4) as worker:
        refs = []
        for n in range(4):
            refs.append(meet.enqueue())
            wait_until(lambda n=n: worker.running > n or together.n_waiting == 0)
        assert [ref.wait(120).state for ref in refs] == [State.DONE] * 4


def test_a_hostile_result_stays_a_success(app):
    """Its own code may raise anything during encoding."""

    class Hostile:
        __slots__ = ()

        @property
        def __dict__(self):
            raise MemoryError

    @dataclasses.dataclass
    class Odd:
        @property
        def n(self) -> int:
            raise LookupError

    @app.job()
    def hostile(n: int) -> object:
        return [Hostile(), Odd(), {Hostile(): 1}, b"\xff", float("nan")][n]

    refs = [hostile.enqueue(n) for n in range(5)]
    drain(app)
    assert [ref.state for ref in refs] == [State.DONE] * 5


def test_a_payload_whose_own_type_raises_is_unreadable(app):
    """K13: it does not end the slot; the job is held with the reason."""

    @app.job()
    def pick(picky: Picky) -> int:
        return picky.n

    good = pick.enqueue({"n": 1})
    odd = app.store.jobs.enqueue(NewJob(kind="pick", payload='{"picky": {"n": 2}}')).id
    drain(app, slots=1)
    assert good.result(120) == 1
    assert (app.get(odd).state, "LookupError: too many" in app.get(odd).job().note) == (State.HELD, True)


def test_a_coroutine_that_cancels_itself_has_failed(app):
    """Without a request to cancel."""

    @app.job(max_attempts=1)
    async def confused() -> None:
        raise asyncio.CancelledError

    ref = confused.enqueue()
    drain(app)
    assert (ref.state, ref.job().reason) == (State.DEAD, "handler_error")

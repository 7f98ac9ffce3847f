"""Batches on workers: the same ledger, output and exit codes as in this process."""

from __future__ import annotations

import json
import threading
from collections import Counter
from contextlib import suppress
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry, generate_latest

import holdfast
from holdfast import Unit
from holdfast.domain.batches import turns as domain_turns
from holdfast.domain.batches.batch import BatchState, sharding_of
from holdfast.domain.fleet.stop_switch import StopMode
from holdfast.domain.jobs.job import State
from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.jobs.selector import Selector
from holdfast.errors import BatchHeld, HoldfastError, InputFailed, InvalidInput
from holdfast.worker import maintenance
from holdfast.worker.batches import turns
from holdfast.worker.metrics import WorkerCollector
from tests.support.processes import wait_until


@pytest.fixture
def app(real_database):
    with holdfast.Holdfast(real_database.url) as app:
        yield app


@pytest.fixture
def work(app):
    """A unit function that records its calls."""
    made: list[int] = []

    @app.unit(max_failures=3)
    def work(key: int, *, bad: int = 0, unit: Unit) -> int:
        if key < bad:
            raise ValueError(key)
        made.append(key)
        return key

    work.made = made
    return work


def worker(app, **options):
    return app.worker(**{"slots": 8, "poll": 0.1, "heartbeat": 0.5, **options})


def test_the_workers_run_it(app, work):
    """Submit returns at once; every unit runs once; three at a time by default."""
    batch = app.submit(work, range(100))
    assert (batch.state, batch.total, work.made) == (BatchState.RUNNING, 100, [])
    with worker(app):
        wait_until(lambda: app.store.batches.get(batch.id).state is BatchState.DONE)
    assert Counter(work.made) == dict.fromkeys(range(100), 1)
    assert app.store.batches.counters(batch.id).done == 100


@pytest.mark.parametrize(("bad", "code", "state"), [(0, 0, "done"), (2, 6, "partial"), (50, 8, "stopped")])
def test_watching_a_batch_is_like_running_it(app, work, bad, code, state):
    """The same exit codes; a breaker that trips in one shard stops them all."""
    with worker(app):
        result = app.run(work.bind(bad=bad), range(100), where="workers", output="none")
    assert (result.exit_code, str(result.batch.state)) == (code, state)
    assert result.summary.failed == (2 if code == 6 else 0)


def test_a_stopped_store_begins_no_unit(app):
    """K9: the shards go back to their queue, and the batch goes on by itself after the stop."""
    begun, go = threading.Semaphore(0), threading.Event()

    @app.unit()
    def slow(key: int) -> None:
        begun.release()
        go.wait(60)

    with worker(app):
        batch = app.submit(slow, range(20), shards=1)
        assert begun.acquire(timeout=60)
        app.store.stop_switch.set(StopMode.DRAIN, actor="ada")
        go.set()
        running = Selector(states=(State.RUNNING,))
        wait_until(lambda: app.views.count(running).count == 0)
        assert app.store.batches.get(batch.id).state is BatchState.RUNNING
        assert app.store.batches.counters(batch.id).done < 20
        app.store.stop_switch.clear()
        wait_until(lambda: app.store.batches.get(batch.id).state is BatchState.DONE)


def test_a_stopped_store_stops_runs_here(app):
    """K9: a run in this process ends with exit 7, a new one is refused with exit 11, and both go on afterwards."""

    @app.unit()
    def step(key: int) -> None:
        if key == 3:
            app.store.stop_switch.set(StopMode.DRAIN, actor="ada", note="disk full")

    result = app.run(step, range(5000), output="none")
    assert (result.exit_code, result.summary.aborted_by) == (7, "stop_switch")
    assert result.summary.succeeded < 5000
    refused = app.run(step, range(5000), output="none")
    assert (refused.exit_code, refused.error.code) == (11, "E_STOPPED")
    app.store.stop_switch.clear()
    assert app.run(step, range(4, 5000), output="none", name="rest").exit_code == 0


def test_the_same_call_resumes_the_batch(app, work):
    with worker(app):
        assert app.run(work.bind(bad=2), range(20), where="workers", output="none").exit_code == 6
        before = Counter(work.made)
        result = app.run(work.bind(bad=2), range(20), where="workers", output="none", max_failures=0)
    assert (result.exit_code, result.batch.run_number, result.batch.generation) == (6, 2, 1)
    assert Counter(work.made) == before


def test_a_submission_that_fails_halfway_can_be_repeated_at_once(app, work):
    """When the keys raise, no run holds the batch, and the same call plans all of them."""

    def keys():
        yield from range(1500)
        raise ConnectionError

    with pytest.raises(InputFailed, match="after 1,500: ConnectionError"):
        app.submit(work, keys())
    batch = app.submit(work, list(range(1501)))
    assert (batch.state, batch.total, batch.generation) == (BatchState.RUNNING, 1501, 1)
    assert app.store.batches.recount(batch.id) == {"pending": 1501}


def test_a_batch_on_the_workers_is_a_conflict(app, work):
    """SPEC 8.18 on workers: exit 9; a run that joins watches."""
    app.submit(work, range(5))
    with pytest.raises(BatchHeld):
        app.submit(work, range(5))
    assert app.run(work, range(5), output="none").exit_code == 9
    assert app.run(work, range(5), where="workers", output="none").exit_code == 9
    with worker(app):
        joined = app.run(work, range(5), where="workers", allow_concurrent=True, output="none")
    assert (joined.exit_code, sorted(work.made)) == (0, [*range(5)])


@pytest.fixture
def short_turns(monkeypatch):
    """Turns of a fraction of a second, checked as often."""
    monkeypatch.setattr(domain_turns, "SLICE_S", 0.1)
    monkeypatch.setattr(turns, "CHECK_INTERVAL_S", 0.05)


@pytest.mark.usefixtures("short_turns")
def test_batches_advance_side_by_side(app):
    """K83: with one slot for three batches, all advance by turns: a released shard goes behind the others."""
    begun, all_begun = set[str](), threading.Event()

    @app.unit()
    def nap(key: int, *, name: str, unit: Unit) -> None:
        begun.add(name)
        if len(begun) == 3:
            all_begun.set()
        all_begun.wait(0.05)

    batches = [app.submit(nap.bind(name=name), range(300), shards=1) for name in "abc"]
    with worker(app, slots=1):
        assert all_begun.wait(60)
        assert min(app.store.batches.counters(batch.id).done for batch in batches[:2]) < 300
        wait_until(lambda: all(app.store.batches.get(batch.id).state is BatchState.DONE for batch in batches))


@pytest.mark.usefixtures("short_turns")
def test_a_job_of_another_queue_gets_its_turn(app):
    """K83: shards that fill all slots make room for a job of any queue and kind that the worker serves."""
    stop = threading.Event()

    @app.unit(queue="b")
    def nap(key: int) -> None:
        stop.wait(0.02)

    @app.job(queue="online")
    def ping() -> int:
        return 1

    batches = [app.submit(nap, range(5000), shards=2, name="one")]
    with worker(app, slots=2):
        wait_until(lambda: len(app.store.batches.holders(batches[0].id)) == 2)
        ref = ping.enqueue()
        with suppress(HoldfastError):
            ref.result(timeout=20)
        assert ref.state is State.DONE, "K83 is broken"
        batches.append(app.submit(nap, range(5000), shards=2, name="two"))
        wait_until(lambda: app.store.batches.counters(batches[1].id).done > 0)
        assert app.store.batches.get(batches[0].id).state is BatchState.RUNNING
        for batch in batches:
            app.store.batches.cancel(batch.id)
        stop.set()


@pytest.mark.usefixtures("short_turns")
def test_shards_make_no_room_for_a_job_of_an_unknown_kind(app):
    """To check: no worker here can run it, so a release would help nobody."""
    app.store.jobs.enqueue(NewJob(kind="unknown"))
    stop = threading.Event()

    @app.unit()
    def nap(key: int) -> None:
        stop.wait(0.01)

    batch = app.submit(nap, range(5000), shards=1)
    with worker(app, slots=1):
        wait_until(lambda: app.store.batches.counters(batch.id).done > 40)
        (shard,) = app.views.all(Selector(kinds=("shard:nap",)))
        assert shard.token == 1
        app.store.batches.cancel(batch.id)
        stop.set()


@pytest.mark.usefixtures("short_turns")
def test_a_paused_queue_stops_its_shards(app):
    """U8: after their units in hand; they go on when the queue is resumed."""
    stop = threading.Event()

    @app.unit(queue="b")
    def nap(key: int) -> None:
        stop.wait(0.01)

    batch = app.submit(nap, range(5000), shards=2)
    running = Selector(states=(State.RUNNING,))
    with worker(app):
        wait_until(lambda: app.store.batches.counters(batch.id).done > 0)
        app.store.queues.pause("b")
        wait_until(lambda: app.views.count(running).count == 0)
        seen = app.store.batches.counters(batch.id).done
        assert (app.store.batches.get(batch.id).state, seen < 5000) == (BatchState.RUNNING, True)
        app.store.queues.resume("b")
        wait_until(lambda: app.store.batches.counters(batch.id).done > seen)
        app.store.batches.cancel(batch.id)
        stop.set()


def test_a_worker_that_stops_releases_its_shards(app):
    """Units in flight finish; none is repeated, and another worker goes on."""
    made, begun = [], threading.Event()

    @app.unit()
    def slow(key: int, unit: Unit) -> None:
        begun.set()
        made.append(key)
        unit.stopping.wait(0.02)

    batch = app.submit(slow, range(200), shards=2)
    with worker(app):
        assert begun.wait(120)
    seen = len(made)
    assert 0 < seen < 200
    counted = app.store.batches.counters(batch.id)
    assert (counted.done, app.store.batches.get(batch.id).state) == (seen, BatchState.RUNNING)
    with worker(app):
        wait_until(lambda: app.store.batches.get(batch.id).state is BatchState.DONE)
    assert Counter(made) == dict.fromkeys(range(200), 1)


def test_people_control_it(app):
    """Pause, resume, cancel from anywhere, within about a second."""

    @app.unit()
    def slow(key: int, unit: Unit) -> None:
        unit.stopping.wait(0.02)

    batch = app.submit(slow, range(1000))
    batches = app.store.batches
    with worker(app):
        wait_until(lambda: batches.counters(batch.id).done > 3)
        batches.pause(batch.id)
        wait_until(lambda: batches.get(batch.id).state is BatchState.PAUSED)
        seen = batches.counters(batch.id).done
        batches.resume(batch.id)
        wait_until(lambda: batches.counters(batch.id).done > seen + 3)
        batches.cancel(batch.id)
        wait_until(lambda: batches.get(batch.id).state is BatchState.CANCELLED)
    counted = batches.counters(batch.id)
    assert counted.done + counted.cancelled == 1000


def test_a_pause_that_is_withdrawn_is_forgotten(app, monkeypatch):
    """B12: the only shard has obeyed, and its unit takes long. It continues after that, without maintenance."""
    monkeypatch.setattr(maintenance, "BATCHES_INTERVAL_S", 3600.0)
    begun, stopped, go = threading.Event(), threading.Event(), threading.Event()

    @app.unit()
    def slow(key: int, unit: Unit) -> None:
        if key == 0:
            begun.set()
            assert unit.stopping.wait(60)
            stopped.set()
            go.wait(60)

    batch, batches = app.submit(slow, range(20), shards=1), app.store.batches
    with worker(app):
        assert begun.wait(60)
        assert batches.pause(batch.id)
        assert stopped.wait(60)
        assert batches.resume(batch.id)
        go.set()
        wait_until(lambda: batches.get(batch.id).state is BatchState.DONE)


def test_a_deadline_holds_on_workers_too(app):
    @app.unit()
    def slow(key: int, unit: Unit) -> None:
        unit.stopping.wait(0.05)

    with worker(app):
        result = app.run(slow, range(1000), where="workers", deadline=0.5, output="none")
    assert (result.exit_code, str(result.summary.aborted_by)) == (10, "deadline")


def test_a_deadline_is_a_time_of_the_store(database, clock):
    """The clocks of hosts differ: here the store's is years behind, and a worker begins before the deadline."""
    clock.advance(days=-3650)
    with holdfast.Holdfast(database.url) as app:
        app.use(database.url, database.open())

        @app.unit()
        def work(key: int) -> None: ...

        batch = app.submit(work, range(3), deadline="1h")
        assert sharding_of(batch).until == clock.now() + timedelta(hours=1)
        with worker(app):
            wait_until(lambda: app.store.batches.get(batch.id).state is not BatchState.RUNNING)
        assert app.store.batches.get(batch.id).state is BatchState.DONE, "B3 is broken: a host's clock ends the batch"


def test_no_worker_is_told_and_the_deadline_holds(app, work, capsys):
    """U8: without a worker, text and JSON say so, and the run ends at its deadline with exit 10."""
    result = app.run(work, range(5), where="workers", deadline=0.3, output="json")
    assert (result.exit_code, str(result.batch.state)) == (10, "stopped"), "U8 is broken"
    told = capsys.readouterr()
    assert "no live worker runs 'work' from the queue 'default'" in told.err
    assert "no live worker" in json.loads(told.out)["data"]["note"]


def test_no_unit_is_the_last_one_on_workers(app, capsys):
    """E3: shards run units side by side; the answer has no last_key, in place of one that is null."""

    @app.unit()
    def work(key: int) -> None:
        if key > 3:
            raise ValueError("no")

    with worker(app):
        result = app.run(work, range(20), where="workers", max_failures=2, output="json")
    document = json.loads(capsys.readouterr().out)
    assert (result.exit_code, "last_key" in document["data"]) == (8, False)
    assert "the last finished unit" not in document["error"]["message"]


def test_a_batch_that_its_deadline_stopped_can_be_resumed(app, work):
    """A resume began a shard that met the old deadline and stopped at once, again and again."""
    batch = app.run(work, range(5), where="workers", deadline=0.1, output="none").batch
    assert batch.state is BatchState.STOPPED
    with worker(app):
        assert app.store.batches.resume(batch.id)
        wait_until(lambda: app.store.batches.get(batch.id).state is not BatchState.RUNNING)
    assert app.store.batches.get(batch.id).state is BatchState.DONE, "I19 is broken: a resume makes no progress"


def test_failed_units_beside_an_inbox_run_again_at_once(app):
    """U8: the batch runs on while a result waits for its consumer; nobody waits for maintenance."""
    tried = []

    @app.unit(max_failures=0)
    def work(key: int, unit: Unit) -> None:
        tried.append(key)
        if key == 0:
            unit.hand_over(1, inbox="box")
        elif tried.count(key) == 1:
            raise ValueError(key)

    with worker(app):
        batch = app.submit(work, range(3), shards=1)
        wait_until(lambda: app.store.batches.counters(batch.id).failed == 2)
        wait_until(lambda: not app.store.batches.holders(batch.id))
    assert app.store.batches.get(batch.id).state is BatchState.RUNNING
    assert app.views.count(Selector(kinds=("shard:work",), states=(State.READY,))).count == 0
    assert app.store.batches.retry_failed(batch.id) == 2
    assert app.views.count(Selector(kinds=("shard:work",), states=(State.READY,))).count == 1, "U8 is broken"
    with worker(app):
        wait_until(lambda: app.store.batches.counters(batch.id).done == 2)


@pytest.mark.parametrize(
    "options",
    [
        {"shards": 0},
        {"shards": "3"},
        {"limit": 3},
        {"jobs": 2},
        {"only": [1]},
        {"resume_from": 2},
        {"where": "there"},
        {"rate": 0},
    ],
)
def test_options_for_local_runs_are_refused(app, work, options):
    with pytest.raises(InvalidInput):
        app.run(work, range(3), output="none", **{"where": "workers", **options})


def test_hooks_are_called_on_workers(app, work):
    """Begin for each shard, unit for each unit, end once."""
    begun, units, ends = [], [], []
    work.on_begin(lambda batch: begun.append(batch.id))
    work.on_unit(lambda unit: units.append(unit.key))
    work.on_end(ends.append)
    with worker(app):
        result = app.run(work, range(30), where="workers", shards=2, output="none")
    assert set(begun) == {result.batch.id}
    assert sorted(units) == [*range(30)]
    assert [summary.succeeded for summary in ends] == [30]


def test_units_and_batches_are_metrics(app, work):
    """W10: by outcome, and with durations."""
    registry = CollectorRegistry(auto_describe=False)
    with worker(app) as serving:
        app.run(work.bind(bad=2), range(30), where="workers", output="none")
    registry.register(WorkerCollector(serving, app.store))
    text = generate_latest(registry).decode()
    assert 'holdfast_units_total{kind="work",result="done"} 28.0' in text
    assert 'holdfast_units_total{kind="work",result="failed"} 2.0' in text
    assert 'holdfast_unit_seconds_count{kind="work"} 30.0' in text
    assert 'holdfast_batches_completed_total{result="partial"} 1.0' in text


def test_a_unit_that_hands_over_is_not_counted_as_running(app):
    """E1.11: its consumer finishes it, in any process; labels are counted."""

    @app.unit()
    def deliver(key: int, unit: holdfast.Unit) -> None:
        unit.done("sent")
        unit.hand_over(key)

    registry = CollectorRegistry(auto_describe=False)
    with worker(app) as serving:
        app.run(deliver, range(3), where="workers", output="none")
    registry.register(WorkerCollector(serving, app.store))
    text = generate_latest(registry).decode()
    assert 'holdfast_units_total{kind="deliver",result="handed_over"} 3.0' in text
    assert 'holdfast_unit_labels_total{kind="deliver",label="sent"} 3.0' in text
    assert 'result="running"' not in text


def test_a_unit_on_a_worker_names_the_worker(app, work):
    """E4: each unit of the ledger has the time and the worker of its last attempt, and its earlier errors."""

    @app.unit(retries=2, retry=[0.01, 0.01])
    def fragile(key: int) -> None:
        raise ValueError(f"no {key}")

    with worker(app) as serving:
        result = app.run(fragile, range(1), where="workers", output="none")
    (unit,) = app.store.batches.units(result.batch.id)
    assert (unit.worker, unit.attempts, unit.attempted_at is None) == (serving.id, 3, False)
    errors = json.loads(unit.earlier_errors)
    assert [error.partition("\n")[0] for error in errors] == ["ValueError: no 0"] * 2


def test_a_worker_serves_the_queue_of_its_units(app):
    @app.unit(queue="heavy")
    def work(key: int) -> None: ...

    with app.worker(poll=0.1) as serving:
        assert serving.queues == ["heavy"]
        assert app.run(work, range(3), where="workers", output="none").exit_code == 0


def test_shards_write_at_the_checkpoint_too(app, work):
    """E9.3: the option is stored with the batch, so that every worker knows it."""
    batch = app.submit(work, range(20), checkpoint="each", output="none")
    sharding = sharding_of(batch)
    assert sharding is not None
    assert sharding.checkpoint.units == 1
    with app.worker(poll=0.1):
        assert wait_until(lambda: app.store.batches.get(batch.id).state is BatchState.DONE)

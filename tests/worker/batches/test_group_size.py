"""The size of a group of units: it grows while units are short, and a run keeps no slow units behind others."""

from __future__ import annotations

import threading

import msgspec
import pytest

import holdfast
from holdfast.domain.batches.checkpoint import MAX_UNWRITTEN, CheckpointInterval
from holdfast.domain.batches.new_units import HeldUnits
from holdfast.store.batches.batches import Batches
from holdfast.store.engine.operation import query
from holdfast.worker import clock
from holdfast.worker.batches.group_size import GroupSize
from tests.client.batches.test_local import run
from tests.support.processes import wait_until

GROWS = CheckpointInterval(grows=True)


@pytest.fixture
def app(real_database):
    with holdfast.Holdfast(real_database.url) as app:
        yield app


@pytest.fixture
def flushes(monkeypatch):
    """The outcomes of each write of the ledger."""
    written, real = [], Batches.flush

    def flush(batches, opened, outcomes=(), *args, **options):
        written.append(len(outcomes))
        return real(batches, opened, outcomes, *args, **options)

    monkeypatch.setattr(Batches, "flush", flush)
    return written


class Time:
    """A clock that groups move."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(clock, "now", lambda: self.now)

    def groups(self, size, *seconds):
        """Run a group of the present size for each of these times; returns the sizes after them."""
        sizes = []
        for took in seconds:
            size.begin(size.units)
            self.now += took
            size.finish()
            sizes.append(size.units)
        size.begin(size.units)
        return [*sizes[1:], size.units]


@pytest.mark.parametrize(
    ("interval", "shards", "expected"),
    [
        (GROWS, None, [100, 200, 400, 800, 1000, 1000]),
        (GROWS, 2, [2, 4, 8, 16, 32, 64]),
        (CheckpointInterval(), None, [50] * 6),
        (CheckpointInterval(), 10, [2, 4, 5, 5, 5, 5]),
        (CheckpointInterval(units=7), None, [7] * 6),
    ],
)
def test_groups_of_short_units_grow(monkeypatch, interval, shards, expected):
    """Up to 1,000 over all shards, and only if the interval may grow."""
    time = Time(monkeypatch)
    assert time.groups(GroupSize(interval, shards=shards), *[0.01] * 6) == expected


def test_groups_of_slow_units_are_those_of_the_interval(monkeypatch):
    """A slow group ends the growth at once."""
    time = Time(monkeypatch)
    assert time.groups(GroupSize(GROWS), 0.01, 0.01, 0.07, 0.2, 0.2, 5.0) == [100, 200, 200, 50, 50, 50]
    assert time.groups(GroupSize(GROWS, shards=10), *[0.2] * 4, 2.0) == [2, 4, 5, 5, 2]


def test_a_small_group_does_not_make_a_large_one(monkeypatch):
    """A poison suspect runs alone: that one was short says nothing about a hundred."""
    time, size = Time(monkeypatch), GroupSize(GROWS)
    for _ in range(5):
        size.begin(1)
        time.now += 0.001
        size.finish()
    assert size.units == MAX_UNWRITTEN


@pytest.mark.parametrize("where", ["here", "workers"])
def test_short_units_need_few_writes(app, flushes, where):
    work = app.unit(name="work")(lambda key: None)
    with app.worker(slots=1, poll=0.1):
        result = run(app, work, range(3000), where=where, checkpoint="auto")
    assert (result.exit_code, sum(flushes)) == (0, 3000)
    assert max(flushes) > 2 * MAX_UNWRITTEN


@pytest.mark.parametrize(("checkpoint", "most"), [(20, 20), (None, MAX_UNWRITTEN)])
@pytest.mark.parametrize("where", ["here", "workers"])
def test_other_intervals_are_kept(app, flushes, where, checkpoint, most):
    """The default too: a kill repeats at most 50 units."""
    work = app.unit(name="work")(lambda key: None)
    with app.worker(slots=1, poll=0.1):
        assert run(app, work, range(300), where=where, checkpoint=checkpoint).exit_code == 0
    assert max(flushes) <= most


def in_flight(app):
    """The number of units that the holders of the first batch have taken."""
    rows = app.store.backend.fetch(query("list_in_flight", batch_id=1, job_id=0))
    return sum(len(msgspec.json.decode(units, type=HeldUnits).placed()) for (units,) in rows)


@pytest.mark.parametrize("where", ["here", "workers"])
@pytest.mark.parametrize("jobs", [1, 3])
def test_a_slow_unit_keeps_no_others_waiting(app, where, jobs):
    """U2: after many short units. The run returns those that it has taken ahead, to other shards or to its input."""
    done = []
    lock = threading.Lock()

    @app.unit()
    def work(key: int) -> None:
        if key == 2000:
            wait_until(lambda: in_flight(app) <= 3 * MAX_UNWRITTEN, seconds=20)
        with lock:
            done.append(key)

    options = {"shards": jobs} if where == "workers" else {"jobs": jobs}
    with app.worker(slots=3, poll=0.1):
        result = run(app, work, range(4000), where=where, checkpoint="auto", **options)
    assert (result.exit_code, len(done)) == (0, 4000), "U2 is broken: units wait behind a slow one"
    assert sorted(done) == [*range(4000)]
    counters = app.store.batches.counters(result.batch.id)
    assert (counters.done, app.store.batches.recount(result.batch.id)) == (4000, {"done": 4000})


def test_a_limit_counts_returned_units_once(app):
    """A unit that was taken, returned and taken again is one unit."""
    did = []

    @app.unit()
    def work(key: int) -> None:
        if key == 2000:
            wait_until(lambda: in_flight(app) <= MAX_UNWRITTEN, seconds=20)
        did.append(key)

    assert run(app, work, range(9000), limit=3000, checkpoint="auto").summary.succeeded == 3000
    assert did == [*range(3000)]

"""Batches: one test per promise of store/batches/batches.py."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from msgspec import structs

from holdfast.domain.batches.batch import AbortedBy, BatchState, Sharding
from holdfast.domain.batches.batch_filter import BatchFilter
from holdfast.domain.batches.new_units import NewUnits
from holdfast.domain.batches.unit import MAX_LABELS, HandedResult, UnitOutcome, UnitState, row_of, unit_key
from holdfast.domain.jobs.context import AlreadyFinished
from holdfast.domain.jobs.job import State, WorkerId
from holdfast.domain.jobs.selector import Glob, Selector
from holdfast.domain.jobs.verdict import Done
from holdfast.errors import BatchHeld, BatchPaused, Drift, LeaseLost, NoSuchBatch
from holdfast.store.batches.runs import RunRequest
from holdfast.store.batches.state import MAX_CRASHES
from holdfast.store.batches.unit_choice import NextUnits
from tests.support.jobs import claim_jobs, lapse, put
from tests.support.processes import connect

WORKER = WorkerId("w")


def begin(store, identity="i", **options):
    values = {"kind": "resync", "arguments": "{}", "source": "range", "actor": "ada", "owner": "{}"}
    opening = RunRequest(identity=identity, **{**values, **options})
    return store.batches.open(opening, worker=WORKER)


def keys(*values):
    return [(unit_key(value), place) for place, value in enumerate(values)]


def take(store, run, *values, in_hand=(), **options):
    return store.batches.flush(
        run, next_units=NextUnits(candidates=keys(*values), in_hand=in_hand, limit=100, **options)
    )


def taken(flushed):
    return [int(row_of(unit).key) for unit in flushed.taken]


def done(unit, state=UnitState.DONE, **facts):
    unit = row_of(unit)
    return UnitOutcome(key=unit.key, position=unit.position, state=state, attempts=unit.attempts + 1, **facts)


def finish(store, run, *values, state=UnitState.DONE, **facts):
    """Take these units and end them."""
    found = take(store, run, *values).taken
    store.batches.flush(run, [done(unit, state, **facts) for unit in found])
    return found


def leave(store, run, aborted_by=None, total=3, *, complete=True):
    """End a run, and its job."""
    batch, counted = store.batches.end(run, aborted_by, total, complete=complete)
    store.leases.settle(run.lease, Done())
    return batch, counted


def check(store, batch_id):
    """The counters are those of a recount."""
    counted, rows = store.batches.counters(batch_id), store.batches.recount(batch_id)
    for state in ("done", "failed", "skipped", "cancelled", "in_doubt"):
        assert getattr(counted, state) == rows.get(state, 0), f"I6 is broken: {state}"
    return counted


def test_a_run_takes_units_and_ends_them(store):
    run = begin(store)
    assert (run.created, run.batch.generation, run.batch.state) == (True, 1, BatchState.RUNNING)
    assert taken(take(store, run, 1, 2, 3)) == [1, 2, 3]
    found = take(store, run, 1, 2, 3).taken
    ends = [done(found[0], label="new"), done(found[1], UnitState.FAILED, error="boom"), done(found[2], warning="odd")]
    store.batches.flush(run, ends)
    batch, counted = leave(store, run)
    assert (batch.state, batch.total) == (BatchState.PARTIAL, 3)
    assert (counted.done, counted.failed, counted.warned, counted.labels) == (2, 1, 1, {"new": 1})
    check(store, batch.id)


def test_a_unit_that_is_over_is_not_taken_again(store):
    """Whatever the order of keys, in this run or the next."""
    run = begin(store)
    finish(store, run, 3, 1)
    flushed = take(store, run, 1, 2, 3)
    assert (taken(flushed), flushed.examined) == ([2], 3)
    leave(store, run, AbortedBy.SIGNAL, complete=False)
    again = begin(store)
    assert (again.created, again.batch.id, again.batch.run_number) == (False, run.batch.id, 2)
    assert taken(take(store, again, 1, 2, 3)) == [2]


def test_a_failed_unit_runs_again_in_the_next_run_only(store):
    run = begin(store)
    finish(store, run, 1, state=UnitState.FAILED, error="x")
    assert taken(take(store, run, 1)) == []
    batch, _ = leave(store, run, total=1)
    assert batch.state is BatchState.FAILED
    again = begin(store)
    assert taken(take(store, again, 1, retry_failed=False)) == []
    (unit,) = take(store, again, 1).taken
    assert (unit.state, unit.attempts) == (UnitState.FAILED, 1)
    store.batches.flush(again, [done(unit)])
    batch, counted = leave(store, again, total=1)
    assert (batch.state, counted.done, counted.failed) == (BatchState.DONE, 1, 0)
    check(store, batch.id)


def test_what_ended_clean_is_followed_by_a_new_generation(store):
    run = begin(store)
    finish(store, run, 1)
    leave(store, run, total=1)
    again = begin(store)
    assert (again.created, again.batch.generation) == (True, 2)
    assert taken(take(store, again, 1)) == [1]


def test_fresh_begins_anew(store):
    run = begin(store)
    leave(store, run, AbortedBy.SIGNAL, complete=False)
    assert begin(store, fresh=True).batch.generation == 2


def test_other_flags_have_another_ledger(store):
    """SPEC 8.19."""
    first, second = begin(store, "one"), begin(store, "two")
    finish(store, first, 1)
    assert taken(take(store, second, 1)) == [1]


def test_a_second_run_is_a_conflict(store):
    """SPEC 8.18: the owner is told."""
    run = begin(store)
    with pytest.raises(BatchHeld) as caught:
        begin(store)
    assert caught.value.context["batch_id"] == run.batch.id
    leave(store, run, AbortedBy.SIGNAL, complete=False)
    assert begin(store).batch.id == run.batch.id


def test_one_that_joins_takes_what_the_other_has_not(store):
    run = begin(store)
    take(store, run, 1, 2)
    joined = begin(store, join=True)
    assert (joined.batch.id, joined.batch.run_number) == (run.batch.id, run.batch.run_number)
    assert taken(take(store, joined, 1, 2, 3)) == [3]
    batch, _ = leave(store, run, AbortedBy.SIGNAL, complete=False)
    assert batch.state is BatchState.RUNNING, "the other is still at it"


def test_a_run_notices_that_another_has_been_there(store):
    """Though it is gone again: a run that takes all keys for new ones must not repeat what the other did."""
    run = begin(store)
    joined = begin(store, join=True)
    finish(store, joined, 1)
    leave(store, joined, AbortedBy.SIGNAL, complete=False)
    flushed = store.batches.flush(run, next_units=NextUnits(candidates=keys(1, 2), limit=9, fresh=True))
    assert taken(flushed) == [2]


def test_a_range_run_meets_the_rows_of_a_dead_joiner(store, clock):
    """K30: the joiner died with units in hand and without a result; the run looks them up and goes on."""
    run = begin(store, total=30)
    first = take(store, run, *range(10), fresh=True).taken
    joined = begin(store, join=True)
    assert taken(take(store, joined, *range(10, 20))) == [*range(10, 20)]
    clock.advance(seconds=50)
    store.leases.renew([run.lease])
    clock.advance(seconds=20)
    assert [lost.job_id for lost in store.leases.take_over()] == [joined.lease.job_id]
    store.batches.flush(run, [done(unit) for unit in first])
    met = []
    while units := [row_of(unit) for unit in take(store, run, *range(10, 20), fresh=True).taken]:
        met += [int(unit.key) for unit in units]
        assert all(unit.poison_suspect for unit in units), "K30 is broken"
        store.batches.flush(run, [done(unit) for unit in units], NextUnits(fresh=True))
    assert met == [*range(10, 20)]
    assert check(store, run.batch.id).done == 20


def test_a_fresh_run_looks_nothing_up(store):
    """Where every key is new, its units are simply appended; the counters are as ever."""
    run = begin(store)
    flushed = store.batches.flush(run, next_units=NextUnits(candidates=keys(1, 2, 3), limit=2, fresh=True))
    assert (taken(flushed), flushed.examined) == ([1, 2], 2)
    store.batches.flush(run, [done(unit) for unit in flushed.taken], NextUnits(fresh=True))
    assert check(store, run.batch.id).done == 2


@pytest.mark.parametrize("write", ["flush", "plan", "end", "launch"])
def test_the_run_of_another_worker_writes_nothing(store, write):
    """CORE2 E1: after a failover another worker may hold the job of a run under the same token."""
    run = begin(store)
    lost = structs.replace(run, lease=structs.replace(run.lease, worker=WorkerId("lost with the old primary")))
    before = store.batches.get(run.batch.id)
    writes = {
        "flush": lambda: store.batches.flush(lost, next_units=NextUnits(candidates=keys("a"), limit=1)),
        "plan": lambda: store.batches.plan(lost, keys("a")),
        "end": lambda: store.batches.end(lost, None, 0, complete=True),
        "launch": lambda: store.batches.launch(lost, Sharding(kind="s", shards=1, queue="default")),
    }
    with pytest.raises(LeaseLost):
        writes[write]()
    assert store.batches.get(run.batch.id) == before, "I4 is broken"
    store.batches.flush(run, next_units=NextUnits(candidates=keys("a"), limit=1))


def test_a_dead_owner_is_replaced_at_once(store):
    """Its lease has not lapsed, but the caller knows that it is gone; what it had in hand is suspect."""
    run = begin(store)
    take(store, run, 1, 2)
    again = begin(store, dead=(run.lease.job_id,))
    assert again.batch.id == run.batch.id
    with pytest.raises(LeaseLost):
        store.batches.flush(run)
    assert taken(take(store, again, 1, 2)) == [1], "a suspect runs alone"
    assert store.views.get(run.lease.job_id).state is State.CANCELLED


def test_a_lapsed_owner_is_replaced(store, clock):
    run = begin(store)
    take(store, run, 1)
    lapse(clock)
    assert begin(store).batch.id == run.batch.id


@pytest.mark.parametrize("candidates", [keys(1, 2), NewUnits.of(range(1, 3), 0)])
def test_a_take_over_returns_what_was_in_hand(store, clock, candidates):
    """In the same transaction that takes the lease over; counters do not change."""
    run = begin(store)
    store.batches.flush(run, next_units=NextUnits(candidates=candidates, limit=100, fresh=True))
    lapse(clock)
    assert [each.job_id for each in store.leases.take_over()] == [run.lease.job_id]
    units = store.batches.units(run.batch.id)
    assert [(unit.key, unit.position, unit.state, unit.poison_suspect, unit.attempts) for unit in units] == [
        ("1", 0, UnitState.PENDING, True, 0),
        ("2", 1, UnitState.PENDING, True, 0),
    ]
    check(store, run.batch.id)
    assert begin(store).batch.id == run.batch.id


def test_a_unit_that_kills_its_process_is_set_aside(store):
    """It runs alone, is counted, and its neighbours lose nothing; then it fails and is not run again by itself."""
    dead = ()
    for crashes in range(MAX_CRASHES + 1):
        run = begin(store, dead=dead)
        flushed = take(store, run, 666, 1)
        assert taken(flushed) == ([666, 1] if crashes == 0 else [666])
        dead = (run.lease.job_id,)
    last = begin(store, dead=dead)
    assert taken(take(store, last, 666, 1)) == [1]
    (killer,) = store.batches.units(last.batch.id, state=UnitState.FAILED)
    assert (killer.key, killer.label, killer.crashes) == ("666", "crashed", MAX_CRASHES)
    assert "died 3 times" in killer.error
    assert check(store, last.batch.id).failed == 1
    finish(store, last, 1)
    leave(store, last, total=2)
    again = begin(store)
    assert taken(take(store, again, 666)) == []
    assert store.batches.retry_failed(again.batch.id) == 1
    assert taken(take(store, again, 666)) == [666]


def test_units_in_doubt_wait_for_a_person(store):
    """Where the effect of a lost run must not be made twice."""
    run = begin(store)
    take(store, run, 1, in_doubt_if_lost=True)
    again = begin(store, dead=(run.lease.job_id,))
    assert taken(take(store, again, 1)) == []
    assert check(store, run.batch.id).in_doubt == 1
    assert store.batches.retry_failed(run.batch.id) == 1
    assert check(store, run.batch.id).in_doubt == 0
    assert taken(take(store, again, 1)) == [1]


def test_a_paused_batch_starts_nothing(store):
    run = begin(store)
    (unit,) = take(store, run, 1).taken
    assert store.batches.pause(run.batch.id)
    assert not store.batches.pause(run.batch.id)
    flushed = store.batches.flush(run, [done(unit)], NextUnits(candidates=keys(2), limit=1))
    assert (flushed.taken, flushed.stop) == ([], AbortedBy.PAUSE)
    batch, _ = leave(store, run, AbortedBy.PAUSE, complete=False)
    assert batch.state is BatchState.PAUSED
    with pytest.raises(BatchPaused):
        begin(store)
    assert store.batches.resume(batch.id)
    assert begin(store).batch.id == batch.id


def test_a_pause_that_nobody_obeyed_can_be_taken_back(store):
    run = begin(store)
    store.batches.pause(run.batch.id)
    assert store.batches.resume(run.batch.id)
    assert taken(take(store, run, 1)) == [1]


@pytest.mark.parametrize("stand", ["running", "stopped", "paused"])
def test_cancel_ends_every_unit(store, stand):
    """SPEC 8.13: also of a batch that nobody runs; one under way may finish, and its outcome counts."""
    run = begin(store)
    store.batches.plan(run, keys(1, 2, 3))
    (unit,) = store.batches.flush(run, next_units=NextUnits(limit=1)).taken
    if stand != "running":
        store.batches.flush(run)
        leave(store, run, AbortedBy.PAUSE if stand == "paused" else AbortedBy.SIGNAL, complete=False)
    assert store.batches.cancel(run.batch.id) == (2 if stand == "running" else 3)
    if stand == "running":
        assert store.batches.flush(run, [done(unit)], NextUnits(limit=1)).stop is AbortedBy.CANCEL
        leave(store, run, AbortedBy.CANCEL, complete=False)
    batch, counted = store.batches.get(run.batch.id), check(store, run.batch.id)
    assert batch.state is BatchState.CANCELLED
    assert (counted.done, counted.cancelled) == ((1, 2) if stand == "running" else (0, 3))
    assert batch.total == 3
    assert store.batches.retry_failed(batch.id) == 0
    assert begin(store).batch.generation == 2


def test_retry_failed_opens_the_batch_again(store):
    run = begin(store)
    finish(store, run, 1, 2, state=UnitState.FAILED, error="x")
    leave(store, run, total=2)
    assert store.batches.retry_failed(run.batch.id) == 2
    assert store.batches.get(run.batch.id).state is BatchState.STOPPED
    assert check(store, run.batch.id).failed == 0


def test_units_that_vanished_are_skipped(store):
    """A changed key set is never drift: what waited and is not asked for any more is gone."""
    run = begin(store)
    take(store, run, 1, 2)
    again = begin(store, dead=(run.lease.job_id,))
    finish(store, again, 2)
    batch, counted = leave(store, again, total=1)
    assert (batch.state, counted.done, counted.skipped) == (BatchState.DONE, 1, 1)
    (gone,) = store.batches.units(batch.id, state=UnitState.SKIPPED)
    assert (gone.key, gone.label) == ("1", "gone")
    check(store, batch.id)


@pytest.mark.parametrize("changed", [{"version": "2"}, {"inputs": '{"a": "y"}'}])
def test_drift_under_an_open_run_is_refused(store, changed):
    run = begin(store, version="1", inputs='{"a": "x"}')
    leave(store, run, AbortedBy.SIGNAL, complete=False)
    now = {"version": "1", "inputs": '{"a": "x"}', **changed}
    with pytest.raises(Drift):
        begin(store, **now)
    accepted = begin(store, accept_drift=True, **now)
    leave(store, accepted, AbortedBy.SIGNAL, complete=False)
    assert not begin(store, **now).edited


def test_edited_code_is_told(store):
    run = begin(store, code="a")
    leave(store, run, AbortedBy.SIGNAL, complete=False)
    again = begin(store, code="b")
    assert again.edited


def test_a_lost_run_writes_nothing(store, clock):
    """Not a flush, not a plan, not its end (I4)."""
    run = begin(store)
    (unit,) = take(store, run, 1).taken
    lapse(clock)
    store.leases.take_over()
    for write in (
        lambda: store.batches.flush(run, [done(unit)]),
        lambda: store.batches.plan(run, keys(5)),
        lambda: store.batches.end(run, None, 1, complete=True),
    ):
        with pytest.raises(LeaseLost):
            write()
    assert [unit.key for unit in store.batches.units(run.batch.id)] == ["1"]
    assert check(store, run.batch.id).done == 0


def test_a_unit_ends_in_the_callers_transaction(real_database):
    """Effect and ledger together, or neither."""
    store = real_database.open()
    run = begin(store)
    first, second = take(store, run, 1, 2).taken
    connection = connect(real_database.url)
    store.batches.end_on(connection, run, done(first))
    connection.rollback()
    assert store.batches.units(run.batch.id) == []
    store.batches.end_on(connection, run, done(second))
    connection.commit()
    connection.close()
    assert [unit.key for unit in store.batches.units(run.batch.id)] == ["2"]
    check(store, run.batch.id)


def test_an_effect_is_not_made_twice_by_two_holders(real_database):
    """The second one is told, and its transaction keeps nothing."""
    store = real_database.open()
    run = begin(store)
    store.batches.plan(run, keys(1))
    (unit,) = store.batches.flush(run, next_units=NextUnits(limit=1)).taken
    with connect(real_database.url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS effect")
        connection.execute("CREATE TABLE effect (n INTEGER)")
    other = begin(store, join=True)
    with store.batches.unit_transaction(run, lambda: done(unit)) as connection:
        connection.execute("INSERT INTO effect VALUES (1)")
    with pytest.raises(AlreadyFinished), store.batches.unit_transaction(other, lambda: done(unit)) as connection:
        connection.execute("INSERT INTO effect VALUES (1)")
    with connect(real_database.url, autocommit=True) as connection:
        assert connection.execute("SELECT count(*) FROM effect").fetchone() == (1,)
        connection.execute("DROP TABLE effect")
    check(store, run.batch.id)


@pytest.mark.parametrize("state", [UnitState.DONE, UnitState.SKIPPED])
def test_what_has_ended_stays_so(store, state):
    """A late word about a unit changes neither its row nor the counters."""
    run = begin(store)
    (unit,) = finish(store, run, 1, state=state)
    store.batches.flush(run, [done(unit, UnitState.FAILED, error="late")])
    (row,) = store.batches.units(run.batch.id)
    assert (row.state, row.error) == (state, None)
    counted = check(store, run.batch.id)
    assert (getattr(counted, state), counted.failed) == (1, 0)


def test_a_result_that_waits_is_not_handed_over_twice(store):
    """The unit of a result that waits for its consumer has turned; a late word about it hands nothing over."""
    run = begin(store)
    (unit,) = take(store, run, 1).taken
    handed = done(unit, UnitState.RUNNING, handed=HandedResult("box", "1"))
    store.batches.flush(run, [handed])
    store.batches.flush(run, [handed])
    assert store.inbox.size("box") == 1
    assert check(store, run.batch.id).in_inbox == 1


def test_planned_units_are_taken_in_their_order(store):
    run = begin(store)
    store.batches.plan(run, keys(30, 4, 100))
    store.batches.plan(run, keys(30, 4, 100))
    flushed = store.batches.flush(run, next_units=NextUnits(limit=2))
    assert taken(flushed) == [30, 4]
    mine = [(unit.key, unit.position) for unit in flushed.taken]
    assert taken(store.batches.flush(run, next_units=NextUnits(limit=2, in_hand=mine))) == [100]


def test_a_batch_can_be_removed_when_nobody_runs_it(store):
    run = begin(store)
    finish(store, run, 1)
    with pytest.raises(BatchHeld):
        store.batches.delete(run.batch.id)
    leave(store, run, total=1)
    store.batches.delete(run.batch.id)
    with pytest.raises(NoSuchBatch):
        store.batches.get(run.batch.id)
    assert store.batches.units(run.batch.id) == []
    assert begin(store).batch.id != run.batch.id, "its id is not given again"


def test_batches_are_listed(store):
    first, second = begin(store, "a"), begin(store, "b")
    page = store.batches.page()
    assert ([batch.id for batch in page.batches], page.next) == ([second.batch.id, first.batch.id], None)
    assert [batch.id for batch in store.batches.page(before=second.batch.id).batches] == [first.batch.id]
    assert [batch.id for batch in store.batches.all(limit=1)] == [second.batch.id, first.batch.id]


def test_batches_are_chosen_by_every_condition(store):
    """E4: by state, function, name or source, owner and times; * stands for anything."""
    one = begin(store, "a", name="spring 100%").batch
    leave(store, begin(store, "b"), total=0)
    began = store.batches.get(one.id).created_at

    def ids(states=None, **conditions):
        globs = {name: Glob(value) if isinstance(value, str) else value for name, value in conditions.items()}
        return [batch.id for batch in store.batches.all(BatchFilter(states=states, **globs))]

    assert ids(states=(BatchState.DONE,)) == [2]
    assert ids(states=(BatchState.DONE, BatchState.RUNNING)) == [2, 1]
    assert (ids(function="resync"), ids(function="re*"), ids(function="sync")) == ([2, 1], [2, 1], [])
    assert (ids(name="spring 100%"), ids(name="*100%"), ids(name="range"), ids(name="SPRING*")) == ([1], [1], [2], [])
    assert (ids(owner="ada"), ids(owner="bob")) == ([2, 1], [])
    hour = timedelta(hours=1)
    assert (ids(since=began - hour), ids(since=began + hour), ids(until=began - hour)) == ([2, 1], [], [])
    assert (ids(older_than=began + hour), ids(older_than=began - hour)) == ([2, 1], [])
    assert ids(states=(BatchState.RUNNING,), name="range") == []


def accept_the_result(store, run):
    (result,) = store.inbox.take("box")
    store.inbox.accept(result)


def settle_the_result(store, run):
    (result,) = store.inbox.take("box")
    store.inbox.settle({result.id: result.token}, "no")


def accept_in_a_transaction(store, run):
    (result,) = store.inbox.take("box")
    with store.inbox.result_transaction(result):
        pass


@pytest.mark.parametrize(
    ("end", "result"),
    [
        (accept_the_result, "done"),
        (settle_the_result, "failed"),
        (accept_in_a_transaction, "done"),
        (lambda store, run: store.batches.cancel(run.batch.id), "cancelled"),
        (lambda store, run: store.batches.pause(run.batch.id), "paused"),
    ],
    ids=["accept", "settle", "transaction", "cancel", "pause"],
)
def test_an_end_is_counted_wherever_it_happens(store, end, result):
    """OPS 1.44: once, in its own transaction: not by the worker whose shard was the last."""
    run = begin(store)
    (unit,) = take(store, run, 1).taken
    store.batches.flush(run, [done(unit, UnitState.RUNNING, handed=HandedResult("box", "1"))])
    assert store.ledger.count_ends() == {}
    leave(store, run)
    assert store.ledger.count_ends() == {}, "a result waits for its consumer"
    end(store, run)
    assert store.ledger.count_ends() == {result: 1}, f"I6 is broken: the end as {result} is not counted"


def test_a_batch_that_ends_again_is_counted_again(store):
    run = begin(store)
    finish(store, run, 1, state=UnitState.FAILED)
    leave(store, run)
    store.batches.retry_failed(run.batch.id)
    again = begin(store)
    finish(store, again, 1)
    leave(store, again)
    store.batches.delete(run.batch.id)
    store.pruner.prune()
    assert store.ledger.count_ends() == {"failed": 1, "done": 1}, "also when the batch is gone"


def test_counted_ends_are_added_up(store, monkeypatch):
    """The rows of many ends become one for each result; the sums stay."""
    monkeypatch.setattr("holdfast.store.batches.events.FEWEST_TALLIES", 5)
    for n in range(5):
        finish(store, run := begin(store, f"i{n}"), 1, state=UnitState.DONE if n % 2 else UnitState.FAILED)
        leave(store, run)
        assert store.pruner.prune()["ends of batches"] == (5 if n == 4 else 0)
    assert store.pruner.prune()["ends of batches"] == 0, "two rows are few"
    assert store.ledger.count_ends() == {"done": 2, "failed": 3}


def test_a_filter_examines_a_window_of_batches(store, monkeypatch):
    """E4: no page of many batches takes long; a short page says where to go on."""
    monkeypatch.setattr("holdfast.store.batches.batches.WINDOW_SIZE", 2)
    for name in "abcde":
        begin(store, name, name=name)
    chosen = BatchFilter(name=Glob("a"))
    page = store.batches.page(chosen, limit=2)
    assert (page.batches, page.next) == ([], 4)
    assert [batch.name for batch in store.batches.all(chosen, limit=2)] == ["a"]


def test_the_history_says_who_did_what_and_why_a_batch_stopped(store):
    """E4: runs, requests of people, reasons."""
    run = begin(store)
    take(store, run, 1, 2)
    assert store.batches.pause(run.batch.id, actor="eve")
    leave(store, run, AbortedBy.PAUSE, complete=False)
    assert store.batches.resume(run.batch.id, actor="bob")
    again = begin(store)
    finish(store, again, 1, 2, state=UnitState.FAILED, error="boom")
    take(store, again, abort=AbortedBy.MAX_FAILURES, failures='[{"count":2,"error":"boom","key":"1"}]')
    leave(store, again, AbortedBy.MAX_FAILURES)
    assert store.batches.retry_failed(run.batch.id, actor="eve") == 2
    store.batches.cancel(run.batch.id, actor="bob")
    events = store.ledger.history(run.batch.id)
    assert [(event.name, event.actor, event.run_number) for event in reversed(events)] == [
        ("started", "ada", 1),
        ("pause_requested", "eve", 1),
        ("paused", None, 1),
        ("resumed", "bob", 1),
        ("started", "ada", 2),
        ("stopped", None, 2),
        ("retried", "eve", 2),
        ("cancelled", "bob", 2),
    ]
    stopped = next(event for event in events if event.name == "stopped")
    assert json.loads(stopped.detail) == {
        "aborted_by": "max_failures",
        "failures": [{"count": 2, "error": "boom", "key": "1"}],
    }
    older = store.ledger.history(run.batch.id, before=events[1].id, limit=2)
    assert [event.id for event in older] == [events[2].id, events[3].id]
    store.batches.delete(run.batch.id)
    assert store.ledger.history(run.batch.id) == []


def test_the_history_names_a_lost_holder(store):
    """E4: a run that died is in the history, with the units that it had in hand."""
    run = begin(store)
    take(store, run, 1, 2, 3)
    begin(store, dead=(run.lease.job_id,))
    lost = [event for event in store.ledger.history(run.batch.id) if event.name == "lost"]
    assert [(event.run_number, json.loads(event.detail)) for event in lost] == [(1, {"units": 3})]


def test_the_drivers_job_is_no_workers(store):
    """It is seen among the jobs, and never claimed."""
    run = begin(store)
    (job,) = store.views.page(Selector(labels=(f"batch-{run.batch.id}",))).jobs
    assert (job.id, job.state) == (run.lease.job_id, State.RUNNING)
    leave(store, run, AbortedBy.SIGNAL, complete=False)
    assert store.views.get(job.id).state is State.DONE


def test_the_drivers_job_takes_no_place_of_a_limited_queue(store):
    """K28: it belongs to no queue that workers serve, so a job of ``default`` begins beside it."""
    store.queues.set_limits("default", limit=1)
    run = begin(store)
    put(store)
    assert len(claim_jobs(store, "w", queues=["default"], kinds=["mail"])) == 1, "K28 is broken"
    assert store.views.count(Selector(queues=("default",), states=(State.RUNNING,))).count == 1
    assert store.views.get(run.lease.job_id).queue == "holdfast.foreground"


def test_renewal_keeps_a_run(store, clock):
    run = begin(store)
    clock.advance(timedelta(seconds=50))
    assert store.leases.renew([run.lease])
    clock.advance(timedelta(seconds=50))
    assert store.leases.take_over() == []
    assert taken(take(store, run, 1)) == [1]


def test_failed_units_that_run_again_are_not_reopened_beside(store):
    """A run has a failed unit in hand when a person retries what failed: it is counted once."""
    first = begin(store)
    finish(store, first, 1, state=UnitState.FAILED, error="boom")
    leave(store, first, AbortedBy.SIGNAL, complete=False)
    second = begin(store)
    (unit,) = take(store, second, 1).taken
    assert store.batches.retry_failed(second.batch.id) == 0
    check(store, second.batch.id)
    store.batches.flush(second, [done(unit)])
    assert check(store, second.batch.id).failed == 0


def test_a_cancel_that_a_run_did_not_hear_of_holds(store):
    """It came after the last unit was taken: the run ends, and the batch is cancelled, never done."""
    run = begin(store)
    (unit,) = take(store, run, 1).taken
    store.batches.cancel(run.batch.id)
    store.batches.flush(run, [done(unit)])
    batch, counted = leave(store, run, total=1)
    assert (batch.state, batch.aborted_by, counted.done) == (BatchState.CANCELLED, AbortedBy.CANCEL, 1)
    check(store, batch.id)


def test_labels_beyond_the_largest_hundred_are_counted_without_their_names(store):
    """K93: there may be one label for each unit, and no answer about a batch may grow with them."""
    run, others = begin(store), begin(store, "other")
    for other in (run, others):
        units = [unit for span in (range(100), range(100, 130)) for unit in take(store, other, *span).taken]
        named = [done(unit, label="often" if n < 10 else f"label {n:03}") for n, unit in enumerate(units)]
        store.batches.flush(other, named)
    for counted in (store.batches.counters(run.batch.id), *_counters(store, run.batch.id, others.batch.id)):
        assert (len(counted.labels), counted.other_labels, counted.done) == (MAX_LABELS, 21, 130), "K93 is broken"
        assert counted.labels["often"] == 10
        assert counted.labels["label 010"] == 1
        assert "label 129" not in counted.labels
    totals = {total.name: total.count for total in store.ledger.count_units()}
    assert (totals["done"], totals["label:often"], totals["label:other"]) == (260, 20, 42)
    assert len(totals) == 1 + MAX_LABELS + 1, "K93 is broken"


def _counters(store, *batch_ids):
    return [status.counters for status in store.ledger.statuses(batch_ids).values()]

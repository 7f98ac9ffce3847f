"""Inboxes: one test per promise of store/batches/inbox.py."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.domain.batches.batch import BatchState
from holdfast.domain.batches.unit import HandedResult, UnitOutcome, UnitState
from holdfast.errors import ResultLost
from holdfast.store.batches.inbox import RESULT_LEASE
from holdfast.store.batches.ledger import RESULT_RETENTION
from tests.store.batches.test_batches import begin, check, finish, leave
from tests.store.batches.test_batches import take as take_units
from tests.support.processes import connect

BOX = "articles"


def hand_over(store, *values):
    """A run of a batch whose units hand their results over."""
    run = begin(store)
    units = take_units(store, run, *values).taken
    ends = [
        UnitOutcome(
            key=unit.key,
            position=unit.position,
            state=UnitState.RUNNING,
            handed=HandedResult(BOX, f'{{"n":{unit.key}}}'),
        )
        for unit in units
    ]
    store.batches.flush(run, ends)
    return run


def use_and_fail(connection):
    connection.execute("INSERT INTO used VALUES (1)")
    raise ZeroDivisionError


def state_of(store, run):
    return store.batches.get(run.batch.id).state


def test_a_result_of_a_lost_run_does_not_finish_its_batch(store, clock):
    """I6: the run was killed before the end of its input. A new run would have begun all units anew."""
    run = hand_over(store, 1)
    take_units(store, run, 2)
    clock.advance(timedelta(seconds=61))
    store.leases.take_over()
    (result,) = store.inbox.take(BOX)
    store.inbox.accept(result)
    assert state_of(store, run) is BatchState.RUNNING, "I6 is broken: the batch is over, and a unit is pending"
    again = begin(store)
    assert (again.batch.id, [unit.key for unit in take_units(store, again, 1, 2).taken]) == (run.batch.id, ["2"])


def test_a_unit_is_done_when_its_result_is_accepted(store):
    """The run ends before; the batch when nothing waits any more."""
    run = hand_over(store, 1, 2)
    batch, counted = leave(store, run)
    assert (batch.state, counted.in_inbox, counted.over) == (BatchState.RUNNING, 2, 0)
    one, two = store.inbox.take(BOX, limit=10)
    assert (one.key, one.data) == ("1", '{"n":1}')
    store.inbox.accept(one)
    assert state_of(store, run) is BatchState.RUNNING
    store.inbox.accept(two)
    assert (state_of(store, run), store.inbox.size(BOX)) == (BatchState.DONE, 0)
    assert store.batches.counters(batch.id).done == 2
    check(store, batch.id)


def test_each_result_is_with_one_consumer(store, clock):
    """What is not accepted in its term is taken by another, and the first is refused."""
    hand_over(store, 1)
    (mine,) = store.inbox.take(BOX)
    assert store.inbox.take(BOX) == []
    assert store.inbox.take("other") == []
    clock.advance(RESULT_LEASE + timedelta(seconds=1))
    (theirs,) = store.inbox.take(BOX)
    with pytest.raises(ResultLost):
        store.inbox.accept(mine)
    store.inbox.accept(theirs)
    with pytest.raises(ResultLost):
        store.inbox.accept(theirs)


def test_an_expired_inbox_row_ends_its_unit(store, clock):
    """SPEC 8.14: it has failed, is counted, and runs again with the next run."""
    run = hand_over(store, 1)
    leave(store, run)
    assert store.inbox.expire() == {}
    clock.advance(RESULT_RETENTION + timedelta(seconds=1))
    assert store.inbox.take(BOX) == []
    assert store.inbox.expire() == {BOX: 1}
    failed, expired, *_ = store.ledger.history(run.batch.id)
    assert (failed.name, expired.name, expired.detail) == ("failed", "expired", '{"inbox":"articles","results":1}')
    (unit,) = store.batches.units(run.batch.id)
    assert (unit.state, unit.error) == (UnitState.FAILED, "its result expired before a consumer accepted it")
    counted = store.batches.counters(run.batch.id)
    assert (counted.failed, counted.in_inbox, state_of(store, run)) == (1, 0, BatchState.FAILED)
    check(store, run.batch.id)
    again = begin(store)
    assert [unit.key for unit in take_units(store, again, 1).taken] == ["1"]


def test_expired_results_are_told_by_inbox_and_by_batch(store, clock):
    """OPS 1.21: one event in each batch and inbox for each step; a result that was accepted meanwhile is in none."""
    runs = [begin(store, identity) for identity in "ab"]
    for run, boxes in zip(runs, (("x", "x", "y"), ("y",)), strict=True):
        units = take_units(store, run, *range(len(boxes))).taken
        ends = [
            UnitOutcome(key=unit.key, position=unit.position, state=UnitState.RUNNING, handed=HandedResult(box, "1"))
            for unit, box in zip(units, boxes, strict=True)
        ]
        store.batches.flush(run, ends)
        leave(store, run)
    taken = store.inbox.take("y", limit=1)
    clock.advance(RESULT_RETENTION + timedelta(seconds=1))
    store.inbox.accept(taken[0])
    assert store.inbox.expire() == {"x": 2, "y": 1}
    told = [(event.name, event.detail) for run in runs for event in store.ledger.history(run.batch.id)]
    details = [detail for name, detail in told if name == "expired"]
    assert sorted(details) == ['{"inbox":"x","results":2}', '{"inbox":"y","results":1}']


def test_a_result_that_is_refused_fails_its_unit(store):
    run = hand_over(store, 1)
    finish(store, run, 2)
    leave(store, run)
    (result,) = store.inbox.take(BOX)
    store.inbox.refuse(result, "no headline")
    (failed,) = store.batches.units(run.batch.id, state=UnitState.FAILED)
    assert (failed.error, state_of(store, run)) == ("no headline", BatchState.PARTIAL)


def test_labels_and_warnings_count_while_the_result_may_be_of_use(store):
    """Refused, expired or cancelled, they are taken back."""
    run = begin(store)
    units = take_units(store, run, 1, 2, 3).taken
    facts = {"state": UnitState.RUNNING, "handed": HandedResult(BOX, "1"), "label": "saved", "warning": "odd"}
    store.batches.flush(run, [UnitOutcome(key=unit.key, position=unit.position, **facts) for unit in units])
    leave(store, run)

    def counts():
        counted = store.batches.counters(run.batch.id)
        return counted.labels.get("saved", 0), counted.warned, counted.in_inbox

    assert counts() == (3, 3, 3)
    one, two, _ = store.inbox.take(BOX, limit=3)
    store.inbox.accept(one)
    assert counts() == (3, 3, 2)
    store.inbox.refuse(two, "no")
    assert counts() == (2, 2, 1)
    store.batches.cancel(run.batch.id)
    assert counts() == (1, 1, 0)


def test_cancel_takes_results_back(store):
    run = hand_over(store, 1, 2)
    leave(store, run)
    (one, _) = store.inbox.take(BOX, limit=2)
    store.inbox.accept(one)
    assert store.batches.cancel(run.batch.id) == 1
    counted = store.batches.counters(run.batch.id)
    assert (counted.done, counted.cancelled, counted.in_inbox, store.inbox.size(BOX)) == (1, 1, 0, 0)
    assert state_of(store, run) is BatchState.CANCELLED
    check(store, run.batch.id)


def test_a_result_in_an_inbox_is_not_made_again(store):
    """Nor does the batch begin a new generation while one waits."""
    run = hand_over(store, 1)
    leave(store, run)
    again = begin(store)
    assert (again.batch.id, again.created) == (run.batch.id, False)
    assert take_units(store, again, 1).taken == []


def test_it_is_used_and_accepted_in_one_transaction(real_database):
    """Where the consumer's data is in the same database, a result is used exactly once."""
    store = real_database.open()
    hand_over(store, 1)
    with connect(real_database.url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS used")
        connection.execute("CREATE TABLE used (n INTEGER)")
    (result,) = store.inbox.take(BOX)
    with pytest.raises(ZeroDivisionError), store.inbox.result_transaction(result) as transaction:
        use_and_fail(transaction)
    with store.inbox.result_transaction(result) as transaction:
        transaction.execute("INSERT INTO used VALUES (1)")
    with pytest.raises(ResultLost), store.inbox.result_transaction(result) as transaction:
        transaction.execute("INSERT INTO used VALUES (1)")
    with connect(real_database.url, autocommit=True) as connection:
        assert connection.execute("SELECT count(*) FROM used").fetchone() == (1,)
        connection.execute("DROP TABLE used")


def test_a_removed_batch_leaves_nothing_in_an_inbox(store):
    run = hand_over(store, 1)
    leave(store, run)
    store.batches.delete(run.batch.id)
    assert store.inbox.size(BOX) == 0


def test_results_are_settled_by_receipt(store):
    """E4: a consumer in another process has only id and token. A stale token settles nothing."""
    run = hand_over(store, 1, 2, 3)
    leave(store, run)
    one, two, three = store.inbox.take(BOX, limit=3)
    assert store.inbox.settle({one.id: one.token, two.id: two.token - 1}, None) == [one.id]
    assert store.inbox.settle({one.id: one.token}, None) == []
    assert store.inbox.settle({two.id: two.token, three.id: three.token}, "no") == [two.id, three.id]
    counted = check(store, run.batch.id)
    assert (counted.done, counted.failed, state_of(store, run)) == (1, 2, BatchState.PARTIAL)
    assert store.ledger.history(run.batch.id)[0].name == "partial"


def test_an_inbox_settles_its_own_results_only(store):
    """OPS 1.55: a receipt of another inbox settles nothing."""
    leave(store, hand_over(store, 1))
    (one,) = store.inbox.take(BOX)
    assert store.inbox.settle({one.id: one.token}, None, inbox="other") == []
    assert store.inbox.settle({one.id: one.token}, None, inbox=BOX) == [one.id]


def test_inboxes_and_their_results_are_listed(store, clock):
    """E4: the depth of each inbox, and its results; listing takes none."""
    assert store.inbox.depths() == []
    hand_over(store, 1, 2, 3)
    store.inbox.take(BOX)
    (depth,) = store.inbox.depths()
    assert (depth.inbox, depth.results, depth.taken, depth.free_since is None) == (BOX, 3, 1, False)
    assert store.inbox.depths(cap=2)[0].results == 2
    assert [(result.key, result.taken) for result in store.inbox.results(BOX)] == [
        ("2", False),
        ("3", False),
        ("1", True),
    ]
    clock.advance(RESULT_LEASE + timedelta(seconds=1))
    assert store.inbox.depths()[0].taken == 0

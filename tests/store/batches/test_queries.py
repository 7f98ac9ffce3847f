"""Looks into the ledger of a batch: one test per promise of store/batches/queries.py."""

from __future__ import annotations

from holdfast.admin.views.batches import BatchReader
from holdfast.domain.batches.batch import BatchState
from holdfast.domain.batches.unit import UnitState, unit_key
from tests.store.batches.test_batches import begin, finish, keys, leave


def failing(store, count=3):
    """A batch that has ended: *count* units failed, one is done."""
    run = begin(store)
    finish(store, run, 100, label="kept")
    for n in range(count):
        finish(store, run, n, state=UnitState.FAILED, error=f"row {n} is bad" if n else "no network")
    leave(store, run, total=count + 1)
    return run.batch.id


def test_units_by_state_in_pages(store):
    batch_id = failing(store, 5)
    page = store.ledger.page(batch_id, state=UnitState.FAILED, limit=3)
    rest = store.ledger.page(batch_id, state=UnitState.FAILED, limit=3, after=page.next)
    assert [unit.key for unit in page.units + rest.units] == ["0", "1", "2", "3", "4"]
    assert rest.next is None
    assert [unit.key for unit in store.ledger.page(batch_id, state=UnitState.DONE).units] == ["100"]
    assert len(store.ledger.page(batch_id).units) == 6


def test_pending_units_come_in_their_order(store):
    run = begin(store)
    store.batches.plan(run, keys(30, 4, 100))
    page = store.ledger.page(run.batch.id, state=UnitState.PENDING, limit=2)
    rest = store.ledger.page(run.batch.id, state=UnitState.PENDING, limit=2, after=page.next)
    assert [unit.key for unit in page.units + rest.units] == ["30", "4", "100"]


def test_units_by_label_and_text(store):
    batch_id = failing(store)
    assert [unit.key for unit in store.ledger.page(batch_id, label="kept").units] == ["100"]
    assert [unit.key for unit in store.ledger.page(batch_id, text="NETWORK").units] == ["0"]
    assert [unit.key for unit in store.ledger.page(batch_id, state=UnitState.FAILED, text="row").units] == ["1", "2"]


def test_a_filter_looks_at_a_window_and_says_where_to_go_on(store, monkeypatch):
    """So that no page of a million units takes long."""
    monkeypatch.setattr("holdfast.store.batches.queries.WINDOW_SIZE", 2)
    batch_id = failing(store)
    page = store.ledger.page(batch_id, text="row 2", limit=10)
    found, looks = list(page.units), 1
    while page.next is not None:
        page = store.ledger.page(batch_id, text="row 2", limit=10, after=page.next)
        found += page.units
        looks += 1
    assert [unit.key for unit in found] == ["2"]
    assert looks == 3


def test_standings_of_several_batches(store):
    """Counters and holders, in one statement; as the batch itself tells them."""
    first = failing(store)
    run = begin(store, "other")
    standings = store.ledger.statuses([first, run.batch.id])
    assert standings[first].counters == store.batches.counters(first)
    assert standings[first].holders == []
    assert [holder.job_id for holder in standings[run.batch.id].holders] == [run.lease.job_id]
    facts = BatchReader(store, first).view
    assert (facts.summary.failed, facts.summary.succeeded, facts.summary.labels) == (3, 1, {"kept": 1})


def test_errors_of_units_are_clustered(store):
    batch_id = failing(store)
    rows, network = BatchReader(store, batch_id).clusters()
    assert (rows.count, rows.pattern, network.count) == (2, "row <n> is bad", 1)


def test_some_units_are_retried(store):
    """Counters stay equal to a recount, and an ended batch is open again."""
    batch_id = failing(store)
    assert store.ledger.retry(batch_id, [unit_key(1), unit_key(2), unit_key(100), unit_key(7)]) == 2
    assert store.batches.get(batch_id).state is BatchState.STOPPED
    assert store.batches.counters(batch_id).failed == store.batches.recount(batch_id)["failed"] == 1
    assert store.batches.recount(batch_id)["pending"] == 2


def test_some_units_are_given_up(store):
    """When nothing is failed any more, the batch is done."""
    batch_id = failing(store)
    assert store.ledger.skip(batch_id, [unit_key(1), unit_key(2)]) == 2
    assert store.batches.get(batch_id).state is BatchState.PARTIAL
    assert store.ledger.skip(batch_id, [unit_key(0)]) == 1
    assert store.batches.get(batch_id).state is BatchState.DONE
    counted = store.batches.counters(batch_id)
    assert (counted.failed, counted.skipped, counted.labels["skipped"]) == (0, 3, 3)
    assert store.batches.recount(batch_id)["skipped"] == 3


def test_units_of_a_cancelled_batch_stay(store):
    batch_id = failing(store)
    store.batches.retry_failed(batch_id)
    store.batches.cancel(batch_id)
    assert store.ledger.retry(batch_id, [unit_key(1)]) == 0

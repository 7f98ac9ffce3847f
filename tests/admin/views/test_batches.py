"""One batch, read part by part."""

from __future__ import annotations

import base64

import pytest

from holdfast.admin.views.batches import BatchReader
from holdfast.domain.batches.unit import UnitState
from holdfast.errors import InvalidInput
from tests.store.batches.test_batches import begin, finish
from tests.store.batches.test_runs import launch


def pages(batch, **query):
    """All pages of units, and the cursors between them."""
    page = batch.units(limit=2, **query)
    listed, cursors = [page], []
    while page.next is not None:
        cursors.append(page.next)
        page = batch.units(limit=2, after=page.next, **query)
        listed.append(page)
    return [unit.key for page in listed for unit in page.units], cursors


@pytest.mark.parametrize("query", [{}, {"state": UnitState.FAILED}, {"text": "no"}])
def test_a_cursor_does_not_show_the_key(store, query):
    """E1.1: pages follow each other without gaps, and no client can read a key in a cursor."""
    run, keys = begin(store), [f"ada-{n}@example.com" for n in range(5)]
    for key in keys:
        finish(store, run, key, state=UnitState.FAILED, error="no network")
    listed, cursors = pages(BatchReader(store, run.batch.id), **query)
    assert listed == keys
    assert len(cursors) == 2
    for cursor in cursors:
        assert "ada" not in cursor
        assert b"ada" not in base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))


def test_pending_units_are_listed_page_by_page(store):
    launch(store, *range(5))
    (batch,) = store.batches.page().batches
    assert pages(BatchReader(store, batch.id), state=UnitState.PENDING)[0] == list(range(5))


def test_a_cursor_belongs_to_its_batch(store, make_store):
    """Every server takes it; another batch does not, and nobody can make one."""
    first, second = begin(store), begin(store, "other")
    for run in (first, second):
        for key in ("a", "b", "c"):
            finish(store, run, key)
    cursor = BatchReader(store, first.batch.id).units(limit=2).next
    assert [unit.key for unit in BatchReader(make_store(), first.batch.id).units(after=cursor).units] == ["c"]
    with pytest.raises(InvalidInput, match="not a cursor of this list"):
        BatchReader(store, second.batch.id).units(after=cursor)
    for text in ('"a"', "é", cursor[:-1], "A" + cursor):
        with pytest.raises(InvalidInput):
            BatchReader(store, first.batch.id).units(after=text)

"""Saved filters: one test per promise of store/access/saved_filters.py."""

from __future__ import annotations

import pytest

from holdfast.errors import InvalidInput, NotFound


def test_filters_are_kept_by_name(store):
    """One of the same name is replaced; one that cannot be read is refused."""
    store.saved_filters.save("trouble", "state=dead", actor="ada")
    store.saved_filters.save("trouble", "state=dead since=1h", actor="bob")
    (kept,) = store.saved_filters.list()
    assert (kept.name, kept.filter, kept.actor) == ("trouble", "state=dead since=1h", "bob")
    with pytest.raises(InvalidInput):
        store.saved_filters.save("odd", "colour=red", actor="ada")
    store.saved_filters.delete("trouble")
    with pytest.raises(NotFound):
        store.saved_filters.delete("trouble")

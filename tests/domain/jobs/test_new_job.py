"""Unique keys."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.domain.fleet.queue import Usage, free_slots
from holdfast.domain.jobs.job import JobId
from holdfast.domain.jobs.new_job import KeyHolder, KeyScope, Unique, is_free, key_json
from holdfast.domain.names import MAX_KEY
from holdfast.errors import InvalidInput


@pytest.mark.parametrize(
    ("scope", "expired", "free"),
    [
        (KeyScope.LIVE, False, True),
        (KeyScope.PERIOD, False, False),
        (KeyScope.PERIOD, True, True),
        (KeyScope.FOREVER, False, False),
    ],
)
def test_a_key_frees_by_its_scope(scope, expired, free):
    """After its job has ended; while the job is live no key is ever free."""
    holder = KeyHolder("k", "key", JobId(1), scope, None, expired)
    assert is_free(holder, live=False) is free
    assert is_free(holder, live=True) is False


def test_a_senseless_key_is_refused():
    """An empty key, and a period without its scope."""
    for make in (
        lambda: Unique(""),
        lambda: Unique("k", KeyScope.PERIOD),
        lambda: Unique("k", KeyScope.LIVE, timedelta(1)),
    ):
        with pytest.raises(InvalidInput):
            make()


@pytest.mark.parametrize(
    ("usage", "free"),
    [
        (Usage("q", 3, None, 1, 1), 2),
        (Usage("q", 3, 1, 2, 1), 0),
        (Usage("q", None, 4, 9, 1), 3),
        (Usage("q", 1, None, 5, 0), 0),
    ],
)
def test_free_slots_respect_both_limits(usage, free):
    """The tighter limit rules, and a lowered limit never gives a negative count."""
    assert free_slots(usage) == free


def test_equal_values_give_equal_keys():
    """K27: the order of names, the spelling of numbers and the order of a set do not matter."""
    assert key_json([5.0, {"b": 1, "a": 2}]) == key_json([5, {"a": 2, "b": 1}]) == '[5,{"a":2,"b":1}]'
    assert key_json([1e23, 1e-7, -0.0, 2.5]) == "[100000000000000000000000,0.0000001,0,2.5]"
    assert key_json([{"x", "y", "z"}]) == '[["x","y","z"]]'


def test_a_long_key_ends_in_its_digest():
    """K57: kinds whose unique fields are long have keys of the longest length that is allowed."""
    one, two = key_json(["x" * 900 + "1"]), key_json(["x" * 900 + "2"])
    assert len(one) == len(two) == MAX_KEY
    assert one != two

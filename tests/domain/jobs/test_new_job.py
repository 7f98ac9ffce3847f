"""Unique keys."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.domain.fleet.queue import Usage, free_slots
from holdfast.domain.jobs.job import JobId
from holdfast.domain.jobs.new_job import KeyHolder, KeyScope, Unique, is_free
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

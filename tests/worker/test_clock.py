"""Waits of the worker's clock, on a clock that the test moves."""

from __future__ import annotations

import pytest

from holdfast.worker import clock


@pytest.fixture
def sleeps(monkeypatch):
    """The sleeps so far; each moves the clock."""
    slept: list[float] = []
    monkeypatch.setattr(clock, "now", lambda: sum(slept))
    monkeypatch.setattr(clock, "sleep", slept.append)
    return slept


def test_a_wait_ends_when_its_condition_holds(sleeps):
    assert clock.wait_until(lambda: len(sleeps) == 3, every=0.5)
    assert sleeps == [0.5] * 3


def test_a_wait_ends_at_its_deadline(sleeps):
    assert not clock.wait_until(lambda: False, every=0.5, deadline=1.0)
    assert sleeps == [0.5] * 2


def test_a_condition_that_holds_ends_the_wait_without_a_sleep(sleeps):
    assert clock.wait_until(lambda: True, every=0.5, deadline=0.0)
    assert sleeps == []

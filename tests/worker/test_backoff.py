"""Pauses after slow statements."""

from __future__ import annotations

import pytest

from holdfast.worker import clock
from holdfast.worker.backoff import EXCESS_FACTOR, QUICK_S, Backoff


@pytest.fixture
def seconds(monkeypatch):
    """The clock of the worker: a test moves it."""
    now = [0.0]
    monkeypatch.setattr(clock, "now", lambda: now[0])
    return now


def slow_calls(backoff: Backoff, seconds: list[float], *, count: int, each: float) -> None:
    for _ in range(count):
        with backoff.measured():
            seconds[0] += each


def test_one_slow_call_causes_no_pause(seconds):
    backoff = Backoff(600.0)
    slow_calls(backoff, seconds, count=1, each=5.0)
    assert backoff.is_over


def test_two_slow_calls_are_followed_by_a_pause(seconds):
    backoff = Backoff(600.0)
    slow_calls(backoff, seconds, count=2, each=QUICK_S + 1.0)
    seconds[0] += EXCESS_FACTOR - 0.1
    assert not backoff.is_over
    seconds[0] += 0.2
    assert backoff.is_over


def test_a_pause_has_a_limit(seconds):
    """A worker of every queue searches for queues with jobs: a job in a new one must not wait for minutes."""
    backoff = Backoff(longest=10.0)
    slow_calls(backoff, seconds, count=2, each=30.0)
    seconds[0] += 9.9
    assert not backoff.is_over
    seconds[0] += 0.2
    assert backoff.is_over, "I18 is broken"

"""Calls of many threads that share one transaction."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.errors import InvalidInput, StoreUnavailable
from holdfast.store.engine.shared_calls import LEADERS, MAX_GROUP, SharedCalls
from tests.support.processes import wait_until


class Doubling:
    """Doubles numbers; the first calls wait until the gate is open."""

    def __init__(self):
        self.groups = []
        self.gate = threading.Event()
        self.error = None
        self.calls = SharedCalls(self.perform)
        self.pool = ThreadPoolExecutor(200)

    def perform(self, numbers):
        self.groups.append(list(numbers))
        self.gate.wait(60)
        if self.error is not None and 13 in numbers:
            raise self.error
        return [2 * number for number in numbers]

    def start(self, *numbers):
        """Start a call for each number, in this order."""
        futures = []
        for number in numbers:
            before = len(self.groups) + len(self.calls._waiting)
            futures.append(self.pool.submit(self.calls.call, number))
            wait_until(lambda before=before: len(self.groups) + len(self.calls._waiting) > before)
        return futures


@pytest.fixture
def doubling():
    doubling = Doubling()
    yield doubling
    doubling.gate.set()
    doubling.pool.shutdown()


def test_calls_that_come_meanwhile_are_one_call(doubling):
    futures = doubling.start(*range(20))
    assert doubling.groups == [[n] for n in range(LEADERS)]
    doubling.gate.set()
    assert [future.result(60) for future in futures] == [2 * n for n in range(20)]
    assert sorted(n for group in doubling.groups for n in group) == list(range(20))
    assert len(doubling.groups) <= 2 * LEADERS
    assert doubling.calls.call(50) == 100


def test_groups_are_bounded(doubling):
    futures = doubling.start(*range(LEADERS + MAX_GROUP + 1))
    doubling.gate.set()
    assert [future.result(60) for future in futures] == [2 * n for n in range(LEADERS + MAX_GROUP + 1)]
    assert sum(map(len, doubling.groups)) == LEADERS + MAX_GROUP + 1
    assert max(map(len, doubling.groups)) <= MAX_GROUP


def test_an_error_of_one_request_concerns_no_other(doubling):
    doubling.error = InvalidInput("13 cannot be stored")
    futures = doubling.start(*range(10, 16))
    doubling.gate.set()
    assert [future.exception(60) for future in futures] == [None, None, None, doubling.error, None, None]
    assert [future.result() for future in futures if not future.exception()] == [20, 22, 24, 28, 30]


def test_an_outage_concerns_all(doubling):
    """Whether the transaction was committed may be unknown: none of its requests may be sent again."""
    doubling.error = StoreUnavailable("no answer")
    futures = doubling.start(*range(10, 16))
    doubling.gate.set()
    failed = [number for number, future in enumerate(futures, 10) if future.exception(60) is doubling.error]
    (group,) = [group for group in doubling.groups if 13 in group]
    assert sorted(group) == failed
    assert sorted(n for group in doubling.groups for n in group) == list(range(10, 16))


@pytest.mark.parametrize("leads", [False, True])
def test_an_interrupted_wait_stops_no_other(doubling, monkeypatch, leads):
    """Also if the interrupted thread was to make the next call."""
    first = doubling.start(*range(LEADERS))
    wait = threading.Event.wait

    def interrupt(event, timeout=None):
        if timeout is None and event is not doubling.gate:
            monkeypatch.setattr(threading.Event, "wait", wait)
            if leads:
                doubling.gate.set()
                wait(event, 60)
            raise KeyboardInterrupt
        return wait(event, timeout)

    monkeypatch.setattr(threading.Event, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        doubling.calls.call(7)
    later = [doubling.pool.submit(doubling.calls.call, n) for n in (8, 9)]
    doubling.gate.set()
    assert [future.result(60) for future in (*first, *later)] == [0, 2, 16, 18]
    assert [7] not in doubling.groups
    assert doubling.calls._running == 0


def test_a_forked_child_waits_for_no_thread_of_its_parent(doubling):
    futures = doubling.start(*range(LEADERS + 1))
    child = os.fork()
    if child == 0:
        doubling.gate = threading.Event()
        doubling.gate.set()
        os._exit(0 if doubling.calls.call(4) == 8 else 1)
    assert os.waitpid(child, 0)[1] == 0
    doubling.gate.set()
    assert [future.result(60) for future in futures] == [0, 2, 4]

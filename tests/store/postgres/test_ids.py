"""Ids of new jobs, drawn in blocks."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.store.postgres.ids import IdSource


def test_no_thread_waits_for_the_tries_of_others():
    """S5: while the database does not answer, each enqueue waits for itself alone, not for all that came before."""
    threads = 4
    together = threading.Barrier(threads)

    def draw(_count):
        together.wait(timeout=5)
        raise StoreUnavailable("it does not answer")

    ids = IdSource(draw)
    with ThreadPoolExecutor(threads) as pool:
        draws = [pool.submit(ids.draw, 1) for _ in range(threads)]
    assert [type(each.exception()) for each in draws] == [StoreUnavailable] * threads


@pytest.mark.parametrize("counts", [[1] * 50, [3, 1, 7, 2, 2000, 1, 5]])
def test_blocks_grow_and_no_id_is_given_twice(counts):
    numbers, calls = itertools.count(1), []

    def draw(count):
        calls.append(count)
        return [next(numbers) for _ in range(count)]

    ids = IdSource(draw)
    drawn = [ids.draw(count) for count in counts]
    assert [len(each) for each in drawn] == counts
    assert len({job_id for each in drawn for job_id in each}) == sum(counts)
    assert len(calls) <= 7

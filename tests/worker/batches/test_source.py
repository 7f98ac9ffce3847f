"""Sources of units, and the queue between them and the threads."""

from __future__ import annotations

from collections import deque

from holdfast.domain.batches.unit import UnitRow
from holdfast.worker.batches.source import pop_last


def test_the_last_units_of_a_queue_are_put_back_in_their_order():
    """Threads may have taken the others in the meantime."""
    waiting = deque([("1", 0), UnitRow("2", 1), ("3", 2)])
    assert pop_last(waiting, 2) == [("2", 1), ("3", 2)]
    assert pop_last(waiting, 2) == [("1", 0)]
    assert pop_last(waiting, 2) == []

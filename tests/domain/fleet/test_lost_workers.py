"""Lost workers: a later one of the same queues replaces one of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec import Struct

from holdfast.domain.fleet.lost_workers import unreplaced

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


class Seen(Struct):
    name: str
    started_at: datetime
    seen_at: datetime
    queues: list[str]


def worker(name, *, started=0, seen=60, queues="a"):
    at = [NOON + timedelta(minutes=minutes) for minutes in (started, seen)]
    return Seen(name, at[0], at[1], list(queues))


@pytest.mark.parametrize(
    ("lost", "alive", "missing"),
    [
        ([], [], ""),
        ([worker("x")], [], "x"),
        ([worker("x")], [worker("y", started=1)], "x"),
        ([worker("x")], [worker("y", started=61)], ""),
        ([worker("x")], [worker("y", started=61, queues="b")], "x"),
        ([worker("x", seen=50), worker("z", seen=55)], [worker("y", started=61)], "x"),
        ([worker("x", seen=50), worker("z", seen=55)], [worker("y", started=52)], "z"),
        ([worker("x", seen=50), worker("z", seen=55)], [worker("y", started=52), worker("v", started=56)], ""),
    ],
)
def test_each_later_worker_replaces_one(lost, alive, missing):
    """O5: a live worker replaces a lost one only if it has started since."""
    assert "".join(each.name for each in unreplaced(lost, alive)) == missing, "O5 is broken"

"""What changed, told to open pages. No test here waits for a clock."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.store.fleet.dashboard import ChangeCounters
from holdfast.web.stream import LiveUpdates, differing
from tests.support.jobs import put

QUIET = ChangeCounters("a", "b", "c", "d", "e", "f")
LONG = 60.0


def test_words(store):
    """A change of the store is told by the part that it is in, and nothing else."""
    live = LiveUpdates(store.dashboard.change_counters)

    async def look() -> list[set[str]]:
        told = [await live.tick()]
        put(store)
        told.append(await live.tick())
        store.queues.pause("default", note="x")
        told.append(await live.tick())
        told.append(await live.tick())
        return told

    first, second, third, fourth = asyncio.run(look())
    assert first == set()
    assert second == {"jobs"}
    assert "queues" in third
    assert fourth == set()


@pytest.mark.one_backend
def test_differing():
    """Two looks are compared part by part."""
    assert differing(QUIET, QUIET) == set()
    assert differing(QUIET, ChangeCounters("x", "b", "c", "d", "e", "y")) == {"jobs", "acts"}


async def lines_of(live: LiveUpdates, may_stay, count: int) -> list[str]:
    found = []
    async for line in live.lines(may_stay):
        found.append(line)
        if len(found) >= count:
            break
    return found


def test_one_look_for_all():
    """However many pages are open, the store is looked at once; each is told."""
    looks = []

    def look() -> ChangeCounters:
        looks.append(1)
        return ChangeCounters(str(len(looks)), "b", "c", "d", "e", "f")

    async def many() -> list[list[str]]:
        live = LiveUpdates(look, every=0.001, alive=LONG)
        return await asyncio.wait_for(asyncio.gather(*(lines_of(live, lambda: True, 2) for _ in range(20))), LONG)

    told = asyncio.run(many())
    assert all(lines == ["retry: 2000\n\n", "event: changed\ndata: jobs\n\n"] for lines in told)
    assert len(looks) < 20


def test_revoked():
    """A stream ends, and tells nothing more, when its reader may no longer look."""

    async def read() -> list[str]:
        live = LiveUpdates(lambda: QUIET, every=0.001, alive=0.001)
        allowed = iter([True, True, False])
        return [line async for line in live.lines(lambda: next(allowed))]

    assert asyncio.run(read()) == ["retry: 2000\n\n", ": still here\n\n", ": still here\n\n"]


def test_closed():
    """All streams end when the server stops."""

    async def read() -> list[str]:
        live = LiveUpdates(lambda: QUIET, every=0.001, alive=LONG)
        found = []
        async for line in live.lines(lambda: True):
            found.append(line)
            live.close()
        return found

    assert asyncio.run(asyncio.wait_for(read(), LONG)) == ["retry: 2000\n\n"]


def test_a_store_that_is_away():
    """While the store does not answer, open pages hear of nothing, and no stream breaks."""

    def look() -> ChangeCounters:
        raise StoreUnavailable("gone")

    live = LiveUpdates(look)
    assert asyncio.run(live.tick()) == set()


def test_nobody_looks():
    """When no page is open, the store is left alone."""

    async def read() -> LiveUpdates:
        live = LiveUpdates(lambda: QUIET, every=0.001, alive=0.001)
        await lines_of(live, lambda: True, 2)
        await asyncio.wait_for(live._looking, LONG)
        return live

    live = asyncio.run(read())
    assert not live.readers

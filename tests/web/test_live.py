"""Live updates of open pages. No test here waits for a clock."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.domain.access.roles import Role
from holdfast.errors import StoreUnavailable
from holdfast.store.fleet.dashboard import ChangeCounters
from holdfast.web.live import LiveUpdates, changed_parts
from holdfast.web.security.authentication import Caller
from tests.support.jobs import put

QUIET = ChangeCounters("a", "b", "c", "d", "e", "f")
LONG = 60.0
ADA = Caller("ada", Role.VIEWER)


def test_words(store):
    """A change names its part of the store, and no other."""
    live = LiveUpdates(store.dashboard.change_counters, set)

    async def read() -> list[set[str]]:
        changes = [await live.tick()]
        put(store)
        changes.append(await live.tick())
        store.queues.pause("default", note="x")
        changes.append(await live.tick())
        changes.append(await live.tick())
        return changes

    first, second, third, fourth = asyncio.run(read())
    assert first == set()
    assert second == {"jobs"}
    assert "queues" in third
    assert fourth == set()


@pytest.mark.one_backend
def test_changed_parts():
    """Two polls are compared part by part."""
    assert changed_parts(QUIET, QUIET) == set()
    assert changed_parts(QUIET, ChangeCounters("x", "b", "c", "d", "e", "y")) == {"jobs", "audit"}


async def lines_of(live: LiveUpdates, count: int) -> list[str]:
    lines = []
    async for line in live.lines(ADA):
        lines.append(line)
        if len(lines) >= count:
            break
    return lines


def test_one_poll_for_all():
    """The store is polled once for all open pages; each receives the change."""
    polls = []

    def read() -> ChangeCounters:
        polls.append(1)
        return ChangeCounters(str(len(polls)), "b", "c", "d", "e", "f")

    async def many() -> list[list[str]]:
        live = LiveUpdates(read, set, interval_s=0.001, keep_alive_s=LONG)
        return await asyncio.wait_for(asyncio.gather(*(lines_of(live, 2) for _ in range(20))), LONG)

    changes = asyncio.run(many())
    assert all(lines == ["retry: 2000\n\n", "event: changed\ndata: jobs\n\n"] for lines in changes)
    assert len(polls) < 20


def test_revoked():
    """A stream ends without a further event when its caller loses access."""

    polls: list[ChangeCounters] = []

    def read() -> ChangeCounters:
        polls.append(ChangeCounters(str(len(polls)), "b", "c", "d", "e", "f"))
        return polls[-1]

    async def listen() -> list[str]:
        live = LiveUpdates(read, lambda callers: callers if len(polls) < 2 else (), interval_s=0.001, keep_alive_s=LONG)
        return [line async for line in live.lines(ADA)]

    assert asyncio.run(asyncio.wait_for(listen(), LONG)) == ["retry: 2000\n\n"]


def test_closed():
    """All streams end when the server stops."""

    async def read() -> list[str]:
        live = LiveUpdates(lambda: QUIET, set, interval_s=0.001, keep_alive_s=LONG)
        lines = []
        async for line in live.lines(ADA):
            lines.append(line)
            live.close()
        return lines

    assert asyncio.run(asyncio.wait_for(read(), LONG)) == ["retry: 2000\n\n"]


def test_a_store_that_is_away():
    """A store that does not answer causes no events and breaks no stream."""

    def read() -> ChangeCounters:
        raise StoreUnavailable("gone")

    live = LiveUpdates(read, set)
    assert asyncio.run(live.tick()) == set()


def test_no_poll_without_pages():
    """Without open pages the store is not polled."""

    async def read() -> LiveUpdates:
        live = LiveUpdates(lambda: QUIET, set, interval_s=0.001, keep_alive_s=0.001)
        await lines_of(live, 2)
        await asyncio.wait_for(live._poller, LONG)
        return live

    live = asyncio.run(read())
    assert not live.subscribers

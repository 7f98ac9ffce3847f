"""Requests: reads do not wait for actions."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing

import httpx2
import pytest

from holdfast.domain.access.roles import Role
from holdfast.web.security.request_slots import MAX_CALLER_REQUESTS
from tests.web.conftest import HOST, Client

#: Access does not depend on the backend.
pytestmark = pytest.mark.one_backend


def test_a_read_does_not_queue_behind_actions(site, tokens, real_database):
    """Actions have threads of their own."""

    async def crowd(release):
        who = {"authorization": f"Bearer {tokens[Role.OPERATOR]}"}
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(site), base_url=HOST, headers=who) as client:
            job = {"kind": "mail", "payload": {"to": 1}}
            actions = [
                asyncio.create_task(client.post("/api/v1/jobs", json=job, timeout=None))
                for _ in range(MAX_CALLER_REQUESTS - 1)
            ]
            finished, _ = await asyncio.wait(actions, timeout=0.5)
            assert not finished
            looked = await client.get("/api/v1/jobs", timeout=None)
            assert (looked.status_code, looked.json()["data"]["jobs"]) == (200, [])
            release()
            return {answer.status_code for answer in await asyncio.gather(*actions)}

    with closing(sqlite3.connect(real_database.path, isolation_level=None, check_same_thread=False)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        assert asyncio.run(crowd(lambda: writer.execute("ROLLBACK"))) == {201}


def test_the_pages_of_a_moved_store_say_so(app, site, tokens):
    """E1.9: the old store looked healthy."""
    client = Client(site, tokens[Role.VIEWER])
    assert "was copied to" not in client.get("/queues").text
    app.store.database.tools.close_for("postgresql://there")
    assert "was copied to postgresql://there" in client.get("/queues").text

"""A drill on a primary and its standby: in each fault of operation doctor, status, workers and the alerts tell the truth.

An operator looks with the least rights, by the URL of the guide: several hosts, no ports.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack, closing
from urllib.parse import quote

import psycopg
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from holdfast.domain.jobs.job import WorkerId
from holdfast.errors import StoreFull
from holdfast.store import open_store
from holdfast.worker.store_metrics import StoreMetrics
from tests.chaos.sites import fill_disk, small_disk
from tests.chaos.standby import SETTINGS
from tests.support.alerts import firing
from tests.support.jobs import put
from tests.support.postgres import PostgresServer, bundled_programs, running

pytestmark = [
    pytest.mark.usefixtures("patient_scrapes"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk"),
    pytest.mark.skipif(shutil.which("promtool") is None, reason="make services installs promtool"),
]


class Watch:
    """What an operator sees."""

    def __init__(self, url, folder):
        self.url, self.folder = url, folder

    def doctor(self):
        """The findings that are not in order, by name of the check, and those that could not be examined."""
        checks = self._ask("doctor")["checks"]
        texts = {}
        for check in checks:
            if check["level"] != "ok":
                texts.setdefault(check["name"], []).append(check["message"])
        return {name: " ".join(messages) for name, messages in texts.items()}

    def workers(self):
        return {worker["id"]: worker["heartbeat"] for worker in self._ask("workers")["workers"]}

    def status(self):
        return self._run("status").stderr

    def alerts(self):
        """The alerts that fire if this lasts."""
        registry = CollectorRegistry(auto_describe=False)
        with closing(open_store(self.url)) as store:
            registry.register(StoreMetrics(lambda: store))
            return firing(self.folder, generate_latest(registry).decode())

    def _ask(self, *command):
        return json.loads(self._run(*command, "-o", "json").stdout)["data"]

    def _run(self, *command):
        line = [sys.executable, "-m", "holdfast", *command, "--url", self.url]
        return subprocess.run(line, cwd=self.folder, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def servers():
    """A primary on a disk of its own, which can be filled, and its standby."""
    with ExitStack() as stack:
        disk = stack.enter_context(small_disk(400))
        primary = stack.enter_context(running(bundled_programs(), settings=SETTINGS, root=disk))
        with closing(open_store(primary.url())) as store:
            store.database.tools.apply([*store.database.tools.roles()])
            store.database.tools.apply(["CREATE ROLE ops_user LOGIN IN ROLE holdfast_operator"])
        standby = PostgresServer(bundled_programs(), settings=SETTINGS, copy_of=primary)
        stack.callback(standby.close)
        standby.start()
        yield disk, primary, standby


def put_much(store):
    """More than any page has room for."""
    for _ in range(10_000):
        put(store, payload=json.dumps({"text": "x" * 10_000}))


def test_every_view_tells_the_truth(servers, tmp_path, monkeypatch):
    """Issue 37: doctor said "ok" with a full disk, a lost worker, and a former primary that takes writes."""
    monkeypatch.setattr("holdfast.worker.store_metrics.SERVER_INTERVAL_S", 0.0)
    disk, primary, standby = servers
    homes = ",".join(quote(str(server.home), safe="") for server in (primary, standby))
    watch = Watch(f"postgresql://ops_user@{homes}/postgres", tmp_path)
    with closing(open_store(primary.url())) as owner:
        for name in ("first", "second"):
            owner.workers.announce(WorkerId(name), host="h", pid=1, queues=["default"], kinds=["mail"], version=None)
        owner.database.tools.apply(["UPDATE holdfast.worker SET started_at = now() - interval '1 hour'"])
        put(owner)

        # All is well, but for what such a user cannot see: that is said.
        assert watch.doctor().keys() <= {"vacuum", "clock"}
        assert watch.doctor()["vacuum"].startswith("not checked: database user ops_user")
        assert "2 workers of this store are alive" in watch.status()
        assert watch.alerts() == set()

        # A worker is lost, and the other one lives.
        owner.database.tools.apply(
            ["UPDATE holdfast.worker SET seen_at = seen_at - interval '2 minutes' WHERE id = 'second'"]
        )
        assert "second" in watch.doctor()["workers"]
        assert watch.workers() == {"first": "fresh", "second": "lost"}
        assert "1 worker of this store is alive" in watch.status()
        assert watch.alerts() == {"HoldfastWorkerDown"}
        owner.database.tools.apply(["UPDATE holdfast.worker SET seen_at = now() WHERE id = 'second'"])

        # The database is near its limit of connections.
        owner.database.tools.apply(["ALTER ROLE ops_user CONNECTION LIMIT 20"])
        with ExitStack() as others:
            for _ in range(16):
                others.enter_context(psycopg.connect(f"{primary.url()}&user=ops_user"))
            assert "of the user's 20 connections are in use" in watch.doctor()["connections"]
            assert watch.alerts() == {"HoldfastConnectionsNearLimit"}
        owner.database.tools.apply(["ALTER ROLE ops_user CONNECTION LIMIT -1"])

        # The disk of the server is full.
        filling = fill_disk(disk)
        assert "the disk of the database is full" in watch.doctor()["disk"]
        assert "HoldfastStoreFull" in watch.alerts()
        with pytest.raises(StoreFull):
            put_much(owner)
        filling.unlink()

    # The standby becomes the primary, and the old one returns: it takes writes, and none of ours.
    primary.stop()
    standby.promote()
    assert f"{primary.home}:5432 is out of reach" in watch.doctor()["hosts"]
    with closing(open_store(watch.url)) as store:
        assert store.backend.run  # it has met the new primary
    primary.start()
    assert f"{primary.home}:5432 is a former primary and takes writes" in watch.doctor()["hosts"]
    assert watch.alerts() == set()

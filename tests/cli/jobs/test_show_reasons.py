"""``why``, ``show``, the page and the API give the same reasons for the state of a job (E1.2)."""

from __future__ import annotations

import html
import json
import re
from datetime import timedelta
from types import SimpleNamespace

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from holdfast.cli.main import main
from holdfast.domain.access.roles import Role
from holdfast.domain.commands.command import COMMAND, Command
from holdfast.domain.fleet.stop_switch import StopMode
from holdfast.domain.jobs.dependencies import After
from holdfast.domain.jobs.job import WorkerId, WorkerRequest
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.verdict import Done, Failed, Unreadable
from holdfast.domain.jobs.why import Because
from holdfast.web.api import router
from holdfast.web.pages import routes
from holdfast.web.security.authentication import Caller
from tests.support.jobs import claim_jobs, lapse, put, take_one
from tests.support.open_site import OpenSite

HOUR = timedelta(hours=1)
STATUS = {
    "total": 16 * 2**30, "used": 0, "limit": 12 * 2**30, "room": 4 * 2**30, "resident": 0, "forecast": 0,
    "cores": 8.0, "load": 2.5, "cpu_pressure": 0.1, "memory_pressure": 0.0, "strain": "low", "frozen": [],
}  # fmt: skip


def serve(store, *, slots=4, kinds=("mail",), queues=("default",), name="w", **options):
    store.workers.announce(
        WorkerId(name), host="h", pid=1, queues=list(queues), kinds=list(kinds), slots=slots, **options
    )


def busy(store):
    serve(store, slots=1)
    running = put(store)
    claim_jobs(store, "w", queues=["default"], kinds=["mail"], started=True)
    return running


def next_one(store, clock):
    serve(store)
    return put(store)


def in_line(store, clock):
    serve(store)
    put(store)
    put(store)
    return put(store)


def all_slots_busy(store, clock):
    busy(store)
    return put(store)


def busy_and_in_line(store, clock):
    busy(store)
    put(store)
    return put(store)


def quieted(store, clock):
    serve(store)
    store.workers.request(WorkerId("w"), WorkerRequest.QUIET)
    return put(store)


def no_worker(store, clock):
    return put(store)


def lost_worker(store, clock):
    serve(store)
    clock.advance(minutes=5)
    return put(store)


def other_kinds(store, clock):
    serve(store, kinds=["other"])
    return put(store)


def queue_paused(store, clock):
    serve(store)
    store.queues.pause("default", note="the database moves")
    return put(store)


def limit_full(store, clock):
    store.queues.set_limits("default", limit=1)
    serve(store, slots=8)
    put(store)
    claim_jobs(store, "w", queues=["default"], kinds=["mail"], started=True)
    return put(store)


def store_drained(store, clock):
    serve(store)
    store.stop_switch.set(StopMode.DRAIN, actor="ada", note="a deploy")
    return put(store)


def held(store, clock):
    job_id = put(store)
    store.control.hold(Selector(ids=(job_id,)), actor="ada", note="not before Monday")
    return job_id


def not_due(store, clock):
    serve(store)
    return put(store, delay=HOUR)


def waits_for_its_retry(store, clock):
    serve(store)
    job_id = put(store, max_attempts=3)
    store.leases.settle(take_one(store), Failed(error="OSError: disk full", after=HOUR))
    return job_id


def depends(store, clock):
    serve(store)
    return put(store, after=After(ids=(put(store),)))


def suspect(store, clock):
    job_id = put(store)
    for _ in range(2):
        take_one(store)
        lapse(clock)
        store.leases.take_over()
    serve(store)
    return job_id


def claimed(store, clock):
    serve(store)
    job_id = put(store)
    claim_jobs(store, "w", queues=["default"], kinds=["mail"])
    return job_id


def running(store, clock):
    return busy(store)


def expired(store, clock):
    job_id = busy(store)
    lapse(clock)
    return job_id


def late_holder(store, clock):
    job_id = busy(store)
    clock.advance(seconds=31)
    serve(store, name="other")
    return job_id


def refused_by_the_autoscaler(store, clock):
    job_id = put(store, COMMAND, payload=Command(argv=("make",), cwd="/").dumps())
    serve(store, kinds=[COMMAND])
    blocked = [{"job_id": job_id, "reason": "memory", "text": "it needs 8 GB, and 4 GB are free"}]
    lanes = [{"queue": "default", "least": 1, "most": 8, "slots": 3, "running": 1, "blocked": blocked}]
    store.autoscaler.report_status("w", json.dumps({**STATUS, "lanes": lanes}))
    return job_id


def unreadable(store, clock):
    serve(store, name="old", build="old")
    job_id = put(store)
    store.leases.settle(take_one(store), Unreadable(error="no field 'to'", build="old"))
    return job_id


def done(store, clock):
    job_id = put(store)
    store.leases.settle(take_one(store), Done())
    return job_id


def dead(store, clock):
    job_id = put(store)
    store.leases.settle(take_one(store), Failed(error="boom\nand more", permanent=True))
    return job_id


def cancelled(store, clock):
    job_id = put(store)
    store.control.cancel(Selector(ids=(job_id,)), actor="ada")
    return job_id


SITUATIONS = {
    next_one: [Because.NEXT],
    in_line: [Because.IN_LINE],
    all_slots_busy: [Because.BUSY],
    busy_and_in_line: [Because.BUSY, Because.IN_LINE],
    quieted: [Because.QUIETED],
    no_worker: [Because.NO_WORKER],
    lost_worker: [Because.NO_WORKER],
    other_kinds: [Because.NO_WORKER],
    queue_paused: [Because.QUEUE_PAUSED],
    limit_full: [Because.LIMIT_FULL],
    store_drained: [Because.STORE_STOPPED],
    held: [Because.HELD],
    not_due: [Because.NOT_DUE],
    waits_for_its_retry: [Because.NOT_DUE],
    depends: [Because.DEPENDENCIES],
    suspect: [Because.SUSPECT],
    claimed: [Because.CLAIMED],
    running: [Because.RUNNING],
    late_holder: [Because.LATE_WORKER],
    expired: [Because.EXPIRED, Because.NO_WORKER],
    refused_by_the_autoscaler: [Because.NOT_ADMITTED],
    unreadable: [Because.UNREADABLE],
    done: [Because.FINISHED],
    dead: [Because.FINISHED],
    cancelled: [Because.FINISHED],
}
#: Reasons after which there is nothing to do.
NO_COMMAND = {Because.NEXT, Because.RUNNING, Because.DEPENDENCIES, Because.NOT_DUE, Because.FINISHED}


@pytest.fixture
def client(store):
    site = OpenSite(SimpleNamespace(store=store, url="sqlite:///none.db"), Role.VIEWER)
    inner = Starlette(routes=[*router.routes(site), *routes.routes(site)])

    async def authenticated(scope, receive, send):
        await inner({**scope, "state": {**scope.get("state", {}), "caller": Caller("ada", site.role)}}, receive, send)

    return TestClient(authenticated, base_url="http://127.0.0.1")


@pytest.fixture
def answer(database, monkeypatch, capsys):
    """Calls a command with -o json or as text, on the store and the clock of the test."""
    monkeypatch.setattr("holdfast.store.open_store", lambda *_, **__: database.open())

    def call(*words):
        capsys.readouterr()
        with pytest.raises(SystemExit):
            main([*map(str, words), "--url", "sqlite:///none.db"])
        return capsys.readouterr().out

    return call


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda situation: situation.__name__)
def test_the_same_reasons_everywhere(store, clock, client, answer, situation):
    """E1.2: with their numbers, and with the command that helps."""
    job_id = situation(store, clock)
    reasons = json.loads(answer("why", job_id, "-o", "json"))["data"]["reasons"]
    assert [reason["because"] for reason in reasons] == SITUATIONS[situation]
    assert all(reason["command"] or reason["because"] in NO_COMMAND for reason in reasons)
    assert json.loads(answer("show", job_id, "-o", "json"))["data"]["why"] == reasons
    assert client.get(f"/api/v1/jobs/{job_id}").json()["data"]["why"] == reasons
    page = html.unescape(re.sub(r"<[^>]+>", "", client.get(f"/jobs/{job_id}").text))
    lines = answer("show", job_id), answer("why", job_id)
    for reason in reasons:
        assert reason["text"] in page
        assert (reason["command"] or "") in page
        assert all(reason["text"] in text and (reason["command"] or "") in text for text in lines)

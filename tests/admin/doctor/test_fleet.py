"""The doctor on workers and queues: who is alive, and what no worker serves."""

from __future__ import annotations

import os
import socket
import subprocess
from datetime import timedelta

import pytest

from holdfast.admin.doctor import checks as doctor
from holdfast.admin.views.overview import overview
from holdfast.domain.health_check import Level
from holdfast.domain.jobs.job import WorkerId
from holdfast.domain.jobs.verdict import Failed
from tests.admin.doctor.test_checks import alive, messages
from tests.support.jobs import claim_jobs, put, take


def test_ready_jobs_without_a_worker(store):
    put(store)
    assert messages(doctor.check_store(store))["workers"] == "no worker is alive, and 1 job waits"
    alive(store)
    assert messages(doctor.check_store(store)) == {}


def test_a_queue_that_nobody_serves(store):
    put(store, queue="other")
    alive(store)
    assert messages(doctor.check_store(store))["queue"] == "1 job waits in 'other', which no worker serves"


def test_workers_with_different_code(store):
    alive(store, "a", version="1")
    alive(store, "b", version="2")
    assert messages(doctor.check_store(store))["versions"] == "workers run different code: 1, 2"


@pytest.mark.one_backend
def test_a_queue_to_serve_is_quoted(store):
    put(store, queue="a; b")
    alive(store)
    (check,) = [check for check in doctor.check_store(store) if check.level is Level.WARN]
    assert "--queue='a; b'," in check.fix


def test_a_kind_that_nobody_runs(store):
    """E1.6: the queue is served, the kind is not."""
    put(store, kind="post")
    put(store, kind="mail")
    alive(store)
    (warning,) = messages(doctor.check_store(store)).items()
    assert warning == ("kind", "1 job waits in 'default', and no worker there runs kind 'post'")
    alive(store, "x", queues=["*"], kinds=["post"])
    assert messages(doctor.check_store(store)) == {}


@pytest.mark.parametrize("retry", [True, False])
def test_a_scheduled_job_waits_for_a_worker_too(store, retry):
    """D15: a retry, or a delayed job, of a kind that no worker runs: doctor and overview report it as why does."""
    if retry:
        job = put(store, kind="post", max_attempts=3)
        store.leases.settle(take(store, kinds=("post",))[0], Failed(error="ConnectionError"))
    else:
        job = put(store, kind="post", delay=timedelta(hours=2))

    def reasons():
        why = [reason.because for reason in store.views.why(job) if reason.because == "no_worker"]
        workers = messages(doctor.check_store(store))
        return (
            bool(why),
            [each.text for each in overview(store).attention if each.category == "no_worker"],
            [workers[name] for name in ("workers", "queue", "kind") if name in workers],
        )

    attention = ["no worker runs post in queue default; 1 job is scheduled"]
    assert reasons() == (True, attention, ["no worker is alive, and 1 job is scheduled"])
    alive(store, "elsewhere", queues=["other"], kinds=["post"])
    assert reasons() == (True, attention, ["1 job is scheduled in 'default', which no worker serves"])
    alive(store, "without", kinds=["mail"])
    put(store, kind="post")
    both = "1 job waits, 1 is scheduled"
    assert reasons() == (
        True,
        [f"no worker runs post in queue default; {both}"],
        [f"{both} in 'default', and no worker there runs kind 'post'"],
    )
    alive(store, "able", kinds=["post"])
    assert reasons() == (False, [], [])


def test_a_killed_worker_is_not_alive(store):
    """E1.6: its last heartbeat is seconds old."""
    child = subprocess.Popen(["true"])
    child.wait()
    put(store)
    for name, pid in (("killed", child.pid), ("mine", os.getpid())):
        store.workers.announce(
            WorkerId(name), host=socket.gethostname(), pid=pid, queues=["default"], kinds=["mail"], version=None
        )
    checks = list(doctor.check_store(store))
    assert f"killed (pid {child.pid}) was killed" in messages(checks)["workers"]
    assert [check.message for check in checks if check.name == "workers" and check.level is Level.OK] == ["1 alive"]


def test_a_worker_that_is_late_is_not_alive(store, clock):
    put(store)
    alive(store)
    clock.advance(seconds=31)
    texts = [check.message for check in doctor.check_store(store) if check.name == "workers"]
    assert texts == [
        "w on h is late; last heartbeat 31 s ago",
        "no worker is alive, and 1 job waits",
    ]


def test_a_lost_worker_is_named_until_another_replaces_it(store, clock):
    """O5: with another one alive, and no job left on it, doctor printed "ok"."""
    alive(store)
    clock.advance(seconds=61)
    alive(store, "other", queues=["other"])
    assert messages(doctor.check_store(store)) == {"workers": "w (pid 1 on h) is lost; last heartbeat 61 s ago"}
    alive(store, "again")
    assert messages(doctor.check_store(store)) == {}


def test_many_lost_workers_are_counted(store, clock):
    for number in range(13):
        alive(store, f"w{number:02}")
    clock.advance(seconds=61)
    texts = [check.message for check in doctor.check_store(store) if check.name == "workers"]
    assert (len(texts), texts[10]) == (12, "3 more workers are lost")
    clock.advance(hours=1)
    assert messages(doctor.check_store(store)) == {}


@pytest.mark.one_backend
def test_the_number_of_waiting_jobs_stops_at_the_cap(store, monkeypatch):
    """O13: "10,001 jobs wait", for 100,000."""
    for module in ("checks", "fleet"):
        monkeypatch.setattr(f"holdfast.admin.doctor.{module}.TERMINAL_CAP", 3)
    alive(store)
    for _ in range(3):
        put(store, queue="flood")
    assert messages(doctor.check_store(store))["queue"].startswith("3 jobs wait in 'flood'")
    put(store, queue="flood")
    put(store, queue="flood")
    assert messages(doctor.check_store(store))["queue"].startswith("3+ jobs wait in 'flood'")


def test_a_lost_worker_that_holds_jobs(store, clock):
    """The warning about a late worker fell silent when the worker was lost, and jobs waited for their leases."""
    alive(store)
    ids = [put(store), put(store)]
    claim_jobs(store, "w", 2, queues=["default"], kinds=["mail"], lease_duration=timedelta(seconds=90))
    clock.advance(seconds=61)
    lost, none = [check for check in doctor.check_store(store) if check.name == "workers"]
    text = f"w (pid 1 on h) is lost, and holds jobs {ids[0]}, {ids[1]}"
    text += "; their last lease ends at 2030-01-01 12:01:30 UTC"
    assert (lost.level, lost.message) == (Level.WARN, text)
    assert (none.level, none.message) == (Level.WARN, "no worker is alive, and 2 jobs have lost theirs")
    clock.advance(seconds=30)
    found = messages(doctor.check_store(store))
    assert (found["workers"], "leases" in found) == (none.message, True)
    alive(store, "other")
    store.leases.take_over()
    assert messages(doctor.check_store(store)) == {}

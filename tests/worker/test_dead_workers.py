"""Workers of this host that have ended: whose leases end at once, and whose stay."""

from __future__ import annotations

import os
import subprocess
from datetime import timedelta

import pytest
from msgspec import structs

from holdfast.domain.fleet.queue import WORKER_SILENCE
from holdfast.domain.jobs.job import State, WorkerId
from holdfast.worker import dead_workers
from holdfast.worker.commands.identity import CHILD_VARIABLE, ChildId, ProcessId, pid_namespace
from holdfast.worker.commands.lifeline import own_life
from holdfast.worker.dead_workers import take_over_from_dead
from tests.support.jobs import put, state, take_one
from tests.support.processes import gone, wait_until

HOST = "h"


@pytest.fixture
def ended():
    """The life of a process that has ended, in the space of this one."""
    process = subprocess.Popen(["true"])
    number = ProcessId.of(process.pid)
    process.wait()
    return structs.replace(own_life(), process=number, lifeline="nobody-holds-it")


def announce(store, worker, life, *, host=HOST):
    process = None if life is None else life.encode()
    store.workers.announce(WorkerId(worker), host=host, pid=1, process=process, queues=["default"], kinds=["mail"])


def taken_over(store, host=HOST):
    return [each.job_id for taken in take_over_from_dead(store, host) for each in taken]


def test_only_the_leases_of_dead_workers_of_this_host_end(store, ended):
    """Y7: of a worker that lives, of one without a proof and of one elsewhere they stay."""
    announce(store, "ended", ended)
    announce(store, "lives", own_life())
    announce(store, "unknown", None)
    announce(store, "elsewhere", ended, host="other")
    jobs = {}
    for worker in ("ended", "lives", "unknown", "elsewhere"):
        jobs[worker] = put(store)
        take_one(store, worker=WorkerId(worker))
    assert taken_over(store) == [jobs["ended"]], "Y7 is broken"
    assert {worker: state(store, job) for worker, job in jobs.items() if worker != "ended"} == dict.fromkeys(
        ("lives", "unknown", "elsewhere"), State.RUNNING
    )
    assert taken_over(store) == []


def test_a_claim_that_is_granted_after_the_end_is_found(store, clock, ended):
    """Y7: the server may execute what a worker sent before it was killed. After a minute nobody looks any more."""
    announce(store, "ended", ended)
    assert taken_over(store) == []
    late = put(store)
    take_one(store, worker=WorkerId("ended"))
    assert taken_over(store) == [late], "Y7 is broken"
    clock.advance(WORKER_SILENCE + timedelta(seconds=1))
    assert [worker.id for worker in store.workers.on_host(HOST)] == ["ended"]
    assert taken_over(store) == []
    assert store.workers.on_host(HOST) == []


def test_programs_are_killed_before_their_leases_end(store, ended, monkeypatch):
    """I16: their supervisor was killed with their worker, and another host may run the job at once."""
    announce(store, "ended", ended)
    job = put(store)
    take_one(store, worker=WorkerId("ended"))
    variable = str(ChildId(ended.process, pid_namespace(), "x"))
    program = subprocess.Popen(["sleep", "600"], env={**os.environ, CHILD_VARIABLE: variable})
    with monkeypatch.context() as patch:
        patch.setattr(dead_workers, "kill_abandoned", lambda: False)  # some cannot be killed
        assert taken_over(store) == [], "I16 is broken"
    assert state(store, job) is State.RUNNING
    assert taken_over(store) == [job]
    dead = gone(program.pid) or wait_until(lambda: gone(program.pid))
    program.wait()
    assert dead

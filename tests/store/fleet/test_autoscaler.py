"""Autoscaling in the store: who is in line, who begins, what was learned and decided."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.domain.commands.command import COMMAND, Command, load_command
from holdfast.domain.fleet.admission import Profile, Refusal
from holdfast.domain.fleet.autoscaler import (
    AutoscalerAction,
    AutoscalerDecision,
    AutoscalerStatus,
    BlockedJob,
    Bounds,
    QueueStatus,
)
from holdfast.domain.jobs.job import HIGHEST_PRIORITY, OnLost, State, WorkerId
from holdfast.domain.jobs.verdict import Failed
from holdfast.domain.jobs.why import Because
from holdfast.domain.retention import Retention
from holdfast.errors import InvalidInput
from holdfast.store.jobs.leases import DEFAULT_LEASE
from tests.support.jobs import WORKER, only, prune, put, state

PROGRAM = Command(argv=("true",), cwd="/").dumps()
OTHER = WorkerId("worker-2")


def scaling(*blocked, strain="easy", slots=2, running=1):
    lane = QueueStatus("default", 1, 4, slots, running, list(blocked))
    figures = dict.fromkeys(("total", "used", "limit", "room", "resident", "forecast"), 1 << 30)
    pressures = {"cpu_pressure": None, "memory_pressure": 0.5}
    return AutoscalerStatus(**figures, **pressures, cores=8.0, load=1.5, strain=strain, frozen=[], lanes=[lane])


def announce(store, worker=WORKER, told=None):
    store.workers.announce(worker, host=f"host-of-{worker}", pid=1, queues=["default"], kinds=[COMMAND])
    if told is not None:
        store.autoscaler.report_status(worker, told.dumps())


def test_the_line_is_the_order_of_claims(store):
    """By priority, due time and id; other queues and kinds are not in it."""
    first = put(store, COMMAND, payload=PROGRAM, label="a", on_lost=OnLost.HOLD)
    urgent = put(store, COMMAND, payload=PROGRAM, priority=5)
    put(store, COMMAND, payload=PROGRAM, queue="other")
    put(store, "mail")
    line = store.autoscaler.queue_line("default", COMMAND, limit=10)
    assert [each.job_id for each in line] == [urgent, first]
    assert (line[1].label, line[1].on_lost, line[1].payload) == ("a", OnLost.HOLD, PROGRAM)
    assert len(store.autoscaler.queue_line("default", COMMAND, limit=1)) == 1


def test_one_that_was_chosen_is_claimed(store):
    """Its start is recorded before it begins, and nobody else gets it."""
    put(store, COMMAND, payload=PROGRAM)
    chosen = put(store, COMMAND, payload=PROGRAM)
    lease = store.autoscaler.claim(WORKER, chosen, queue="default", lease_duration=DEFAULT_LEASE)
    assert (lease.job_id, lease.starts_recorded, lease.attempt, lease.payload) == (chosen, True, 1, PROGRAM)
    assert state(store, chosen) is State.RUNNING
    assert store.autoscaler.claim(OTHER, chosen, queue="default", lease_duration=DEFAULT_LEASE) is None


def test_a_paused_queue_gives_nothing(store):
    job_id = put(store, COMMAND, payload=PROGRAM)
    store.queues.pause("default")
    assert store.autoscaler.claim(WORKER, job_id, queue="default", lease_duration=DEFAULT_LEASE) is None
    assert store.autoscaler.claim(WORKER, job_id, queue="other", lease_duration=DEFAULT_LEASE) is None
    callback = put(store, COMMAND, payload=PROGRAM, priority=HIGHEST_PRIORITY)
    assert store.autoscaler.claim(WORKER, callback, queue="default", lease_duration=DEFAULT_LEASE) is not None


@pytest.mark.parametrize("limits", [{"limit": 1}, {"worker_limit": 1}])
def test_limits_are_kept(store, limits):
    """Those over all hosts by everybody, those per worker by each."""
    jobs = [put(store, COMMAND, payload=PROGRAM) for _ in range(3)]
    store.queues.set_limits("default", **limits)
    assert store.autoscaler.claim(WORKER, jobs[0], queue="default", lease_duration=DEFAULT_LEASE) is not None
    assert store.autoscaler.claim(WORKER, jobs[1], queue="default", lease_duration=DEFAULT_LEASE) is None
    other = store.autoscaler.claim(OTHER, jobs[2], queue="default", lease_duration=DEFAULT_LEASE)
    assert (other is None) == ("limit" in limits)


def test_profiles_are_learned(store):
    """Each by its name, in the order of the runs."""
    store.autoscaler.learn([("a", 10), ("b", 7), ("a", 20)])
    store.autoscaler.learn([("a", 30)])
    store.autoscaler.learn([])
    found = store.autoscaler.profiles(["a", "b", "c"])
    assert (found["a"].samples, found["a"].mean, found["a"].largest) == (3, 20, 30)
    assert (found["b"].samples, found["c"]) == (1, Profile("c"))


def test_bounds_of_a_queue(store):
    """They come and go without touching its limits."""
    store.queues.set_limits("default", limit=3)
    store.autoscaler.set_bounds("default", Bounds(1, 8))
    queue = store.queues.get("default")
    assert (queue.limit, queue.bounds) == (3, Bounds(1, 8))
    store.autoscaler.set_bounds("default", None)
    assert store.queues.get("default").bounds is None
    assert store.queues.list()[0].limit == 3
    with pytest.raises(InvalidInput):
        store.autoscaler.set_bounds(" ", Bounds(1, 2))


def test_decisions_are_kept_and_told_to_their_jobs(store):
    """The newest first; the history of a job has those about it."""
    job_id = put(store, COMMAND, payload=PROGRAM)
    decisions = [
        AutoscalerDecision("default", AutoscalerAction.STEP_UP, "the host has room", slots=2),
        AutoscalerDecision("default", AutoscalerAction.BLOCKED, "no room", job_id),
        AutoscalerDecision("other", AutoscalerAction.STRAIN, "tight"),
    ]
    store.autoscaler.record_decisions(WORKER, "here", decisions)
    store.autoscaler.record_decisions(WORKER, "here", [])
    found = store.autoscaler.decisions("default")
    told = [(each.action, each.job_id, each.slots, each.text, each.host) for each in found]
    assert told == [("blocked", job_id, None, "no room", "here"), ("step_up", None, 2, "the host has room", "here")]
    assert "no room" in next(event.detail for event in store.views.events(job_id) if event.name == "blocked")


def test_what_was_decided_and_learned_is_forgotten_in_time(store, clock):
    """As long as done jobs are kept; for ever where these are."""
    store.autoscaler.learn([("old", 1)])
    store.autoscaler.record_decisions(WORKER, "here", [AutoscalerDecision("default", AutoscalerAction.STRAIN, "tight")])
    clock.advance(days=31)
    store.autoscaler.learn([("new", 1)])
    assert prune(store, "decisions", "memory profiles", retention=Retention(done=timedelta(0))) == 0
    assert prune(store, "decisions", "memory profiles") == 2
    assert store.autoscaler.decisions("default") == []
    profiles = store.autoscaler.profiles(["old", "new"])
    assert (profiles["old"].samples, profiles["new"].samples) == (0, 1)


def test_why_tells_what_autoscalers_say(store):
    """The refusal of each host; nothing where one would let it begin."""
    job_id = put(store, COMMAND, payload=PROGRAM)
    announce(store, told=scaling(BlockedJob(job_id, Refusal.NEVER, "it can never begin")))
    assert [(r.because, r.text) for r in store.views.why(job_id)] == [
        (Because.NOT_ADMITTED, "host host-of-worker-1 does not start it: it can never begin")
    ]
    store.autoscaler.report_status(WORKER, scaling(strain="full").dumps())
    assert "its memory is full" in store.views.why(job_id)[0].text
    store.autoscaler.report_status(WORKER, scaling(running=2).dumps())
    assert "runs 2 commands of the queue; the autoscaler allows 2 (up to 4)" in store.views.why(job_id)[0].text
    announce(store, OTHER, told=scaling())
    assert store.views.why(job_id)[0].because is Because.NEXT
    store.autoscaler.report_status(WORKER, None)
    assert store.views.why(job_id)[0].because is Because.NEXT


def test_a_cap_can_be_raised_where_nothing_runs(store):
    """A program that was killed for its memory gets more; what runs, and what is no program, stays as it is."""
    dead, running, idle = (put(store, COMMAND, payload=PROGRAM) for _ in range(3))
    mail = put(store, "mail")
    lease = store.autoscaler.claim(WORKER, dead, queue="default", lease_duration=DEFAULT_LEASE)
    store.leases.settle(lease, Failed(error="too much", reason="oom", permanent=True))
    store.autoscaler.claim(WORKER, running, queue="default", lease_duration=DEFAULT_LEASE)
    changed = store.control.set_memory(only(dead, running, idle, mail), 1 << 30, actor="ann")
    assert sorted(changed) == [dead, idle]
    caps = [load_command(store.views.get(job_id).payload).memory for job_id in (dead, running, idle)]
    assert caps == [1 << 30, None, 1 << 30]
    assert "capped" in [event.name for event in store.views.events(dead)]
    with pytest.raises(InvalidInput):
        store.control.set_memory(only(idle), 0, actor="ann")

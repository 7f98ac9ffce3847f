"""The stop switch: one test per promise of store/fleet/stop_switch.py."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from holdfast.domain.batches.batch import AbortedBy, BatchState
from holdfast.domain.commands.command import COMMAND, Command
from holdfast.domain.fleet.stop_switch import StopMode, StopSwitch
from holdfast.domain.jobs.job import State
from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.jobs.why import Because
from holdfast.domain.schedules.definition import Definition
from holdfast.errors import StoreStopped
from holdfast.store.batches.unit_choice import NextUnits
from holdfast.store.jobs.leases import DEFAULT_LEASE
from tests.store.batches.test_batches import begin, finish, leave
from tests.store.batches.test_batches import take as take_units
from tests.store.batches.test_runs import launch, part, shard
from tests.store.schedules.test_plans import due, fire, step
from tests.support.backends import START, available, open_database
from tests.support.jobs import BOOM, WORKER, only, put, state, take
from tests.support.processes import connect, wait_until

POSTGRES = [name for name in available() if name != "sqlite"]
MINUTE = timedelta(minutes=1)


def stop(store, mode=StopMode.DRAIN, note=None):
    return store.stop_switch.set(mode, actor="ada", note=note)


def test_no_claim_starts_a_job_of_any_queue(store, clock):
    """K9: delayed, retried and new jobs wait too, also in queues that were unknown when the store was stopped."""
    put(store, queue="mail", delay=MINUTE)
    retried = put(store, queue="retries", max_attempts=3)
    (lease,) = take(store, queues=("retries",))
    store.leases.settle(lease, BOOM)
    store.queues.set_limits("limited", limit=1)
    stop(store)
    put(store, queue="new")
    put(store, queue="limited")
    clock.advance(timedelta(hours=1))
    store.leases.promote()
    queues = ("mail", "retries", "new", "limited")
    begun = [take(store, queues=(queue,), limits=limits) for queue in queues for limits in (False, True)]
    assert begun == [[]] * 8, "I12 is broken: a stopped store starts jobs"
    assert take(store, 10, queues=queues) == [], "I12 is broken: a stopped store starts jobs"
    assert state(store, retried) is State.READY
    assert store.stop_switch.clear() is not None
    assert len(take(store, 10, queues=queues)) == 4


def test_an_autoscaler_claims_nothing(store):
    job = put(store, COMMAND, payload=Command(argv=("true",), cwd="/").dumps())
    stop(store)
    claim = {"queue": "default", "lease_duration": DEFAULT_LEASE}
    assert store.autoscaler.claim(WORKER, job, **claim) is None
    store.stop_switch.clear()
    assert store.autoscaler.claim(WORKER, job, **claim).job_id == job


def test_planners_fire_nothing_and_skip_nothing(store, clock):
    """The plans of a stopped store are decided by the catch-up rule of their schedule, when it goes on."""
    store.schedules.create("five", Definition(kind="mail", cron="*/5 * * * *"), actor="ada")
    five = due(store)["five"]
    stop(store)
    assert store.schedules.due(providers=(), limit=10).schedules == []
    assert store.schedules.due(providers=(), limit=10).next_in is None
    assert store.plans.advance([step(five, fire(0))]).moved == []
    store.stop_switch.clear()
    assert store.plans.advance([step(due(store)["five"], fire(0))]).fired == 1


def test_no_foreground_run_begins(store):
    """A batch may be submitted to the workers: it starts nothing."""
    stop(store, note="disk full")
    with pytest.raises(StoreStopped, match="drained by ada: disk full"):
        begin(store)
    batch = launch(store, 1, submits=True)
    assert batch.state is BatchState.RUNNING
    assert take(store, kinds=("shard:resync",)) == []


@pytest.mark.parametrize("mode", StopMode)
def test_runs_take_no_more_units(store, mode):
    """A unit in hand may end. The run can be resumed."""
    run = begin(store)
    finish(store, run, 1)
    stop(store, mode)
    flushed = take_units(store, run, 2, 3)
    assert (flushed.taken, flushed.stop) == ([], AbortedBy.STOP_SWITCH)
    leave(store, run, AbortedBy.STOP_SWITCH, complete=False)
    assert store.batches.get(run.batch.id).state is BatchState.STOPPED
    store.stop_switch.clear()
    assert begin(store).batch.id == run.batch.id


def test_shards_take_no_more_units_and_the_batch_goes_on(store):
    batch = launch(store, 1, 2)
    run = shard(store, batch)
    stop(store)
    flushed = store.batches.flush(run, next_units=NextUnits(limit=1))
    assert (flushed.taken, flushed.stop) == ([], AbortedBy.STOP_SWITCH)
    assert part(store, run, AbortedBy.STOP_SWITCH).state is BatchState.RUNNING


def test_the_switch_says_who_stopped_the_store_and_why(store):
    assert store.stop_switch.get() is None
    store.stop_switch.check()
    switch = stop(store, StopMode.STOP, "fire")
    assert store.stop_switch.get() == switch == StopSwitch(StopMode.STOP, "ada", "fire", START)
    assert switch.text == f"the store is stopped (emergency stop by ada: fire) since {START:%Y-%m-%d %H:%M:%S} UTC"
    with pytest.raises(StoreStopped, match="emergency stop by ada"):
        store.stop_switch.check()


def test_a_drain_does_not_weaken_an_emergency_stop(store):
    stop(store, StopMode.STOP, "fire")
    assert stop(store, StopMode.DRAIN).mode is StopMode.STOP
    store.stop_switch.clear()
    stop(store, StopMode.DRAIN)
    assert stop(store, StopMode.STOP).mode is StopMode.STOP


def test_clearing_twice_is_harmless_and_wakes_workers(store, listen):
    listener = listen()
    stop(store)
    assert store.stop_switch.clear().actor == "ada"
    assert listener.hears()
    assert store.stop_switch.clear() is None


def test_why_names_the_switch(store):
    jobs = [put(store), put(store, delay=MINUTE), put(store)]
    store.control.hold(only(jobs[2]), actor="ada")
    stop(store, note="deploy")
    for job in jobs:
        reasons = {reason.because: reason.text for reason in store.views.why(job)}
        assert "drained by ada: deploy" in reasons[Because.STORE_STOPPED]
        assert Because.STORE_STOPPED in {reason.because for reason in store.dashboard.job_record(job).why}


def test_the_jobs_of_an_emergency_stop_are_known(store):
    """Held ones, and those whose holder has not read the request; jobs that people hold are not among them."""
    first, second = put(store), put(store)
    leases = take(store, 2)
    switch = stop(store, StopMode.STOP)
    store.control.pause(only(first, second), actor="ada", note=switch.reason)
    store.leases.release([lease for lease in leases if lease.job_id == first])
    other = store.jobs.enqueue(NewJob(kind="mail")).id
    store.control.hold(only(other), actor="ada", note="mine")
    assert sorted(store.stop_switch.stopped_jobs()) == [first, second]


@pytest.mark.parametrize("name", POSTGRES)
def test_a_stop_waits_for_claims_under_way(name, tmp_path):
    """K9: a claim whose snapshot is older than the switch commits before the stop returns, so that it is seen."""
    with open_database(name, tmp_path) as database:
        store = database.open()
        put(store)
        with connect(database.url) as claim, connect(database.url, autocommit=True) as witness:
            claim.execute("SELECT FROM holdfast.stop_switch")  # as a claim does, with its snapshot
            stopping = threading.Thread(target=lambda: stop(store))
            stopping.start()
            waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'holdfast.stop_switch'::regclass"
            wait_until(lambda: witness.execute(waiting).fetchone() == (1,))
            assert stopping.is_alive()
            claim.commit()
            stopping.join(30)
            assert not stopping.is_alive()


@pytest.mark.parametrize("name", POSTGRES)
def test_a_long_transaction_does_not_keep_the_store_from_being_stopped(name, tmp_path):
    """A dump holds locks for hours: the stop is in force although it cannot wait for it."""
    with open_database(name, tmp_path) as database:
        store = database.open()
        put(store)
        with connect(database.url) as dump:
            dump.execute("SELECT FROM holdfast.stop_switch")
            stop(store)
            assert take(store) == []

"""Queues: one test per promise of store/fleet/registry.py."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.domain.fleet.queue import Queue
from holdfast.domain.jobs.job import WorkerId
from holdfast.domain.jobs.kind_options import KindOptions
from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.verdict import Done
from holdfast.domain.schedules.definition import Definition
from holdfast.errors import InvalidInput
from holdfast.store import open_store
from holdfast.store.fleet.registry import Depth
from tests.support.jobs import lapse, only, put, take, take_one
from tests.support.proxy import proxy_to

OTHER = WorkerId("worker-2")


def test_a_limit_holds_over_all_workers(make_store):
    """However much a worker asks for."""
    first, second = make_store(), make_store()
    first.queues.set_limits("default", limit=2)
    for _ in range(5):
        put(first)
    assert len(take(first, 1)) == 1
    assert len(take(second, 9, worker=OTHER)) == 1
    assert take(second, 9, worker=OTHER) == []


def test_a_slot_frees_when_a_run_ends_or_is_lost(store, clock):
    """Also by a crash."""
    store.queues.set_limits("default", limit=1)
    for _ in range(3):
        put(store)
    store.leases.settle(take_one(store), Done())
    take_one(store)
    assert take(store) == []
    lapse(clock)
    store.leases.take_over()
    assert len(take(store)) == 1


def test_a_limit_per_worker_holds_for_each(store):
    """Another worker has slots of its own."""
    store.queues.set_limits("default", worker_limit=1)
    for _ in range(5):
        put(store)
    assert len(take(store, 9)) == 1
    assert take(store, 9) == []
    assert len(take(store, 9, worker=OTHER)) == 1


def test_a_limit_counts_all_kinds_of_the_queue(store):
    """The most urgent of all kinds get the slots."""
    store.queues.set_limits("default", limit=2)
    put(store, kind="a")
    put(store, kind="a")
    urgent = put(store, kind="b", priority=1)
    leases = take(store, 9, kinds=("a", "b"))
    assert [lease.job_id for lease in leases] == [urgent, 1]


def test_limited_and_free_queues_are_claimed_together(store):
    """One call serves both, the most urgent first."""
    store.queues.set_limits("tight", limit=1)
    tight = [put(store, queue="tight") for _ in range(3)]
    free = [put(store) for _ in range(2)]
    leases = take(store, 9, queues=("default", "tight"))
    assert [lease.job_id for lease in leases] == [tight[0], *free]


def test_urgency_holds_across_limited_and_free_queues(store):
    """A free queue's urgent job comes before a limited queue's idle one."""
    store.queues.set_limits("tight", limit=5)
    put(store, queue="tight", priority=-9)
    urgent = put(store, priority=9)
    assert take_one(store, queues=("default", "tight")).job_id == urgent


def test_limits_change_live(store):
    """From the next claim on; a lowered limit takes nothing away from those who run."""
    for _ in range(6):
        put(store)
    store.queues.set_limits("default", limit=3)
    assert len(take(store, 9)) == 3
    store.queues.set_limits("default", limit=1)
    assert take(store, 9) == []
    store.queues.set_limits("default", limit=4)
    assert len(take(store, 9)) == 1
    store.queues.set_limits("default", limit=0, worker_limit=0)
    assert len(take(store, 9)) == 2


def test_a_paused_limited_queue_starts_nothing(store):
    """Pause rules over limits."""
    store.queues.set_limits("default", limit=1)
    store.queues.pause("default")
    put(store)
    assert take(store) == []


def test_settings_can_be_read(store):
    """A queue that was never set has none; pausing keeps the limits."""
    assert store.queues.get("new") == Queue("new")
    store.queues.set_limits("b", limit=2, worker_limit=1)
    store.queues.set_limits("b", limit=3)
    store.queues.pause("b", note="why")
    store.queues.pause("a")
    assert store.queues.get("b") == Queue("b", 3, 1, True, "why")
    assert [queue.name for queue in store.queues.list()] == ["a", "b"]
    store.queues.resume("b")
    assert store.queues.get("b") == Queue("b", 3, 1, False, None)


@pytest.mark.parametrize("limit", [-1])
def test_a_senseless_limit_is_refused(store, limit):
    """To stop a queue, pause it."""
    with pytest.raises(InvalidInput):
        store.queues.set_limits("default", limit=limit)


def test_a_running_job_cannot_change_its_queue(store):
    """It counts where it was claimed."""
    job_id = put(store)
    take_one(store)
    assert store.control.move(only(job_id), "other", actor="ada") == []
    assert store.views.get(job_id).queue == "default"


def test_how_full_queues_are(store, clock):
    """Ready, running and lapsed, counted up to a cap."""
    for _ in range(4):
        put(store)
    take(store, 2)
    put(store, queue="other", hold=True)
    clock.advance(minutes=2)
    assert store.queues.depths(["default", "other"], cap=10) == [Depth("default", 2, 2, 2), Depth("other", 0, 0, 0)]
    assert store.queues.depths(["default"], cap=1) == [Depth("default", 1, 1, 1)]


def test_the_oldest_ready_job_is_searched_at_both_ends_of_the_priorities(store, clock):
    """K55: a kind can have as many priorities as jobs; those in the middle are not read."""
    ages = {125: 3, 249: 2, 0: 1}  # the priority, and its age in hours
    for priority in sorted(ages, key=ages.get, reverse=True):
        put(store, priority=priority)
        clock.advance(hours=1)
    store.jobs.enqueue_many([NewJob(kind="mail", priority=n) for n in range(250) if n not in ages])
    assert store.queues.oldest_ready(["default"], ["mail"]) == {"default": timedelta(hours=2)}
    store.jobs.enqueue(NewJob(kind="few", priority=7))
    assert store.queues.oldest_ready(["default"], ["few"]) == {"default": timedelta(0)}


def test_how_long_the_oldest_ready_job_has_waited(store, clock):
    """Whatever its kind and its priority."""
    put(store, priority=-5)
    clock.advance(minutes=1)
    put(store, priority=5)
    put(store, kind="later")
    clock.advance(minutes=1)
    ages = store.queues.oldest_ready(["default", "empty"], ["mail", "later"])
    assert ages == {"default": timedelta(minutes=2)}
    assert store.queues.oldest_ready(["default"], ["later"]) == {"default": timedelta(minutes=1)}


@pytest.mark.parametrize("part", ["DELETE FROM holdfast.queue", "COMMIT"])
def test_a_lost_answer_to_a_deletion_is_still_its_answer(postgres_database, part):
    """S9: the second run would report that the queue had no settings."""
    postgres_database.open().queues.set_limits("mails", limit=1)
    with proxy_to(postgres_database.url) as proxy:
        store = open_store(proxy.uri)
        proxy.lose_answer(part)
        assert store.queues.delete("mails"), "S9 is broken"
        assert proxy.cuts == 1
        assert not store.queues.delete("mails")
        store.close()


@pytest.mark.parametrize(
    "use",
    [
        lambda store: put(store, queue="*"),
        lambda store: KindOptions(queue="*"),
        lambda store: store.queues.pause("*"),
        lambda store: store.queues.resume("*"),
        lambda store: store.queues.set_limits("*", limit=1),
        lambda store: Definition(kind="mail", queue="*", cron="@daily"),
        lambda store: store.control.move(Selector(ids=(1,)), "*", actor="ada"),
    ],
)
def test_no_queue_has_the_name_of_all_queues(store, use):
    """D16: a worker with --queue '*' serves all of them, so such a queue could not be served alone."""
    with pytest.raises(InvalidInput, match="it stands for all queues"):
        use(store)
    assert store.dashboard.queues() == []

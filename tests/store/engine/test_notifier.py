"""Waking workers: rings arrive, across processes and restarts; where they cannot, that is known."""

from __future__ import annotations

import re
import socket
import threading
from datetime import UTC, datetime, timedelta

import pytest
from msgspec import structs

from holdfast.domain.jobs.lane_position import EarlierJobs
from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.verdict import Done, Failed
from holdfast.domain.schedules.definition import Definition
from holdfast.store.engine.changes import (
    JOBS,
    Change,
    decode,
    earlier_jobs,
    encode,
    jobs_at,
    jobs_in,
    may_be_ready,
    queues_of,
)
from holdfast.store.sqlite.notifier import SqliteListener, SqliteNotifier
from tests.support.jobs import put, take, take_one
from tests.support.listeners import Listener

PAST = datetime(2001, 1, 1, tzinfo=UTC)


def test_an_enqueue_wakes_all_who_listen(store, listen):
    listeners = [listen(), listen()]
    put(store)
    assert all(listener.hears() for listener in listeners)


def test_a_bulk_enqueue_rings(store, listen):
    listener = listen()
    store.jobs.enqueue_many([NewJob(kind="mail")] * 3)
    assert listener.hears()


@pytest.mark.parametrize(
    "act",
    [
        lambda store, job: store.control.unhold(Selector(ids=(job,)), actor="ada"),
        lambda store, job: store.queues.resume("default"),
        lambda store, job: store.queues.set_limits("default", limit=3),
        lambda store, job: store.queues.set_limits("default", limit=0),
    ],
    ids=["unhold", "resume", "set_limits", "clear_limits"],
)
def test_what_people_do_rings(store, listen, act):
    """Whatever may let a job start."""
    job = put(store, hold=True)
    listener = listen()
    act(store, job)
    assert listener.hears()


def test_a_job_that_comes_back_rings(store, listen, clock):
    """Released, failed and tried again, promoted, taken over, or woken by its need."""
    put(store)
    lease = take_one(store)
    listener = listen()
    store.leases.settle(lease, Failed(error="x", after=timedelta(seconds=1)))
    assert listener.hears()
    listener.settle()
    clock.advance(seconds=2)
    assert store.leases.promote() == 1
    assert listener.hears()
    listener.settle()
    take_one(store)
    clock.advance(minutes=5)
    assert store.leases.take_over()
    assert listener.hears()


def test_a_plain_success_rings_nobody(store, listen):
    """The common end makes nothing ready."""
    put(store)
    lease = take_one(store)
    listener = listen()
    store.leases.settle(lease, Done())
    assert not listener.hears(within=0.1)


def test_a_closed_ear_hears_nothing_and_leaves_nothing_behind(store, make_store, database, tmp_path):
    listener = Listener(make_store())
    listener.settle()
    listener.listener.close()
    listener.listener.close()
    put(store)
    assert not listener.hears(within=0.1)
    assert list(tmp_path.rglob("*-notify/*")) == []


def test_a_long_path_needs_no_short_socket(tmp_path):
    """Sockets have short names; directories need not."""
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    woken = threading.Event()
    notifier = SqliteNotifier(deep / "jobs.db")
    listener = SqliteListener(notifier, wake=lambda _: woken.set())
    notifier.notify(JOBS)
    assert woken.wait(120)
    listener.close()
    notifier.close()


def test_a_socket_that_nobody_reads_is_removed(tmp_path):
    """A killed worker leaves its socket behind."""
    notifier = SqliteNotifier(tmp_path / "jobs.db")
    notifier.directory.mkdir()
    dead = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    dead.bind(str(notifier.directory / "dead"))
    dead.close()
    notifier.notify(JOBS)
    assert list(notifier.directory.iterdir()) == []
    notifier.close()


def in_one_transaction(store):
    """A worker may have claimed jobs that are due later when this one is committed."""
    with store.single_transaction() as inside:
        put(inside, queue="post")


@pytest.mark.parametrize(
    ("act", "changes"),
    [
        (lambda store: put(store, queue="post"), {"jobs:post"}),
        (lambda store: put(store, queue="post", priority=-1), {"jobs:post", 'earlier:["post","mail",-1,null,null]'}),
        (lambda store: put(store, queue="post", run_at=PAST), {"jobs:post", "delayed", "earlier"}),
        (lambda store: put(store, queue="post", delay=timedelta(hours=1)), {"delayed"}),
        (in_one_transaction, {"jobs:post", "earlier"}),
        (lambda store: store.leases.release(take(store)), {"jobs:default", "earlier:["}),
        (lambda store: store.queues.resume("post"), {"queues"}),
        (lambda store: store.control.cancel(Selector(ids=(1,)), actor="ada"), {"jobs", "delayed", "requests"}),
        (lambda store: store.schedules.create("s", Definition(kind="k", cron="0 0 * * *"), actor="ada"), {"schedules"}),
    ],
    ids=["enqueue", "priority", "past", "delayed", "transaction", "release", "queue", "cancel", "schedule"],
)
def test_a_notification_says_what_has_changed(store, listen, act, changes):
    """K50, K65, K66: so that it wakes only those who have to know."""
    put(store)
    listener = listen()
    act(store)
    assert listener.hears()
    # The time of a place depends on the clock of the store.
    assert {text if "null" in text else re.sub(r"\[.*", "[", text) for text in listener.changes} == changes


START = datetime(2030, 1, 1, tzinfo=UTC)


def place(queue="default", priority=0, *, seconds=0):
    due = START + timedelta(seconds=seconds, microseconds=7)
    return EarlierJobs(queue, "a kind\n", priority, due, due)


def test_a_notification_names_the_places_of_jobs():
    """D7: to the microsecond, whatever their names are."""
    places = [place(), place("a queue", -(2**31)), EarlierJobs("post", "mail", 2**31 - 1)]
    changes = decode(encode(jobs_at(places)))
    assert sorted(earlier_jobs(changes), key=repr) == sorted(places, key=repr)
    assert queues_of(changes) == {"default", "a queue", "post"}


def test_many_places_of_a_lane_become_one():
    """D7: the text of a notification is short."""
    changes = frozenset().union(*(jobs_at([place(seconds=n)]) for n in range(1000)))
    assert earlier_jobs(decode(encode(changes))) == [structs.replace(place(), newest=place(seconds=999).newest)]


def test_places_in_many_lanes_become_somewhere():
    """D7: then the next claim reads its lanes from their start."""
    changes = decode(encode(jobs_at(place(priority=n) for n in range(1000))))
    assert changes == {Change.EARLIER, "jobs:default"}


@pytest.mark.parametrize(
    "text",
    [
        'earlier:["q","k",2147483648,1,1]',
        "earlier:",
        "earlier:[1]",
        "earlier:{}",
        'earlier:["q","k",0,1e99,1]',
        "earlier:[",
    ],
)
def test_a_place_that_nobody_can_read_is_none(text):
    """Any program may notify on the channel."""
    assert earlier_jobs(frozenset({text})) == []


def test_a_long_list_of_queues_becomes_any_queue():
    """K66: a notification is short."""
    queues = [f"queue-{n:04}" for n in range(1000)]
    changes = decode(encode(jobs_in(queues) | {Change.DELAYED}))
    assert changes == JOBS
    assert may_be_ready(changes, ["queue-0001"])


def test_an_empty_notification_may_mean_anything():
    """Your own NOTIFY on the channel wakes everybody."""
    assert set(Change) <= decode("")


def test_a_queue_with_a_line_break_is_any_queue():
    assert may_be_ready(decode(encode(jobs_in(["a\nb"]))), ["a\nb"])


def test_a_listener_that_fails_listens_again(tmp_path, caplog):
    """Issue 36, D2: whatever ended it, it still counted as working, and nothing was logged."""
    received, failing = threading.Event(), threading.Event()

    def wake(_):
        if failing.is_set():
            failing.clear()
            raise ValueError("a defect")
        received.set()

    notifier = SqliteNotifier(tmp_path / "jobs.db")
    listener = SqliteListener(notifier, wake=wake)
    try:
        for fail in (failing.set, lambda: listener._socket.shutdown(socket.SHUT_RDWR)):
            fail()
            notifier.notify(JOBS)
            assert received.wait(30), "D2 is broken: anything may have changed while it did not listen"
            assert listener.works
            received.clear()
            notifier.notify(JOBS)
            assert received.wait(30)
            received.clear()
    finally:
        listener.close()
    assert next(record.message for record in caplog.records if "has failed" in record.message).endswith(
        "has failed (a defect); the worker listens again"
    )
    assert len(caplog.records) == 2
    notifier.close()
    assert not list(notifier.directory.iterdir())

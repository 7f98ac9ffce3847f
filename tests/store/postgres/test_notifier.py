"""Waking workers on PostgreSQL: connections break, callers commit later, SQL enqueues."""

from __future__ import annotations

import threading
from contextlib import closing
from datetime import timedelta
from functools import partial

import psycopg
import pytest
from msgspec import structs

import holdfast
from holdfast.domain.jobs.dependencies import After
from holdfast.domain.jobs.lane_position import EarlierJobs
from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.jobs.verdict import Done
from holdfast.errors import StoreUnavailable
from holdfast.store import open_store
from holdfast.store.engine.changes import QUEUES, REQUESTS, SCHEDULES, earlier_jobs, queues_of
from holdfast.store.postgres.notifier import PostgresListener, PostgresNotifier
from tests.support.backends import available, open_database
from tests.support.jobs import put, take, take_one
from tests.support.listeners import Listener
from tests.support.postgres import QUICK, bundled_programs, running
from tests.support.processes import wait_until


@pytest.fixture(params=[name for name in available() if name != "sqlite"])
def database(request, tmp_path):
    with open_database(request.param, tmp_path) as database:
        yield database


def test_a_lost_connection_is_made_anew_and_then_read(store, listen, database):
    """Listen first, then read: whatever came meanwhile was told to nobody. SPEC 8.25."""
    listener = listen()
    with psycopg.connect(database.url, autocommit=True) as killer:
        killer.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE query LIKE 'LISTEN%' AND datname = current_database()"
        )
    assert listener.hears()
    listener.settle()
    put(store)
    assert listener.hears()


def test_a_callers_commit_rings(store, listen, database):
    """With the commit, not before."""
    listener = listen()
    with psycopg.connect(database.url) as connection:
        store.jobs.enqueue_on(connection, [NewJob(kind="mail")])
        assert not listener.hears(within=0.05)
    assert listener.hears()


def test_a_callers_ring_can_be_switched_off(store, listen, database):
    listener = listen()
    with psycopg.connect(database.url) as connection:
        connection.execute("SET holdfast.notify = off")
        store.jobs.enqueue_on(connection, [NewJob(kind="mail")])
    assert not listener.hears(within=0.1)


@pytest.fixture(scope="module")
def two_phase():
    """A store on a server that prepares transactions, and its URL."""
    settings = {**QUICK, "max_prepared_transactions": "2"}
    with running(bundled_programs(), settings=settings) as server, holdfast.Holdfast(server.url()) as app:

        @app.job()
        def mail() -> None: ...

        yield app.store, server.url()


@pytest.mark.parametrize("notify", ["on", "off"])
@pytest.mark.parametrize("path", ["client", "sql"])
def test_a_prepared_transaction_enqueues_without_a_notification(two_phase, path, notify):
    """Two-phase commit: PostgreSQL prepares no transaction that has notified. The setting switches it off."""
    store, url = two_phase
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"SET holdfast.notify = {notify}".encode())
        connection.execute("BEGIN")
        if path == "client":
            store.jobs.enqueue_on(connection, [NewJob(kind="mail")])
        else:
            connection.execute('SELECT holdfast.enqueue(\'{"kind": "mail"}\')')
        if notify == "on":
            with pytest.raises(psycopg.errors.FeatureNotSupported, match="NOTIFY"):
                connection.execute("PREPARE TRANSACTION 'enqueue'")
            return
        connection.execute("PREPARE TRANSACTION 'enqueue'")
        assert take(store) == []
        connection.execute("COMMIT PREPARED 'enqueue'")
    assert take_one(store).kind == "mail"


def test_an_enqueue_in_sql_rings(store, listen, database):
    with holdfast.Holdfast(database.url) as app:

        @app.job()
        def mail() -> None: ...

        assert app.store

    listener = listen()
    database.execute('SELECT holdfast.enqueue(\'{"kind": "mail"}\')')
    assert listener.hears()
    places = [EarlierJobs("default", "mail", 0, *[store.jobs.now()] * 2)]
    assert earlier_jobs(listener.changes) == places, "the caller may commit later"
    assert queues_of(listener.changes) == {"default"}
    listener.settle()
    database.execute('SELECT holdfast.enqueue(\'{"kind": "mail", "delay": "1h"}\')')
    assert listener.hears()
    assert listener.changes == {"delayed"}


def test_a_listener_reads_the_encoding_of_its_connection(database):
    """And a text that it cannot read means that anything may have changed."""
    with closing(open_store(f"{database.url}&client_encoding=latin1")) as store:
        listener = Listener(store)
        try:
            listener.settle()
            put(store, queue="größe")
            assert listener.hears()
            assert listener.changes == {"jobs:größe"}
            listener.settle()
            listener.listener._wake = None  # it fails once, and listens again
            put(store, queue="other")
            wait_until(lambda: listener.listener._thread.is_alive() and not listener.listener.works)
            listener.listener._wake = listener._receive
            wait_until(lambda: listener.listener.works)
        finally:
            listener.listener.close()


def test_a_lock_timeout_of_the_user_does_not_count_for_a_commit_that_notifies(store, monkeypatch):
    """Such commits wait for each other: only its own transaction waits without a limit."""
    sent, run = [], store.backend.run
    monkeypatch.setattr(store.backend, "run", lambda statement, **options: sent.append(statement) or run(statement))
    put(store)
    (insert,) = [statement for statement in sent if statement.name == "insert_job"]
    assert insert.parameters["notification"] == "jobs:default"
    again = structs.replace(insert, parameters={**insert.parameters, "id": 10**9})
    with store.backend.transaction() as connection:
        connection.execute("SET lock_timeout = '50ms'")
        with connection.transaction():
            assert store.backend.statements.perform(connection, again)
            assert connection.execute("SHOW lock_timeout").fetchone() == ("0",)
            raise psycopg.Rollback
        assert connection.execute("SHOW lock_timeout").fetchone() == ("50ms",)


def test_a_busy_channel_makes_no_listener_deaf(store, database):
    """K38: the test of a new listener reads on until its own notification comes."""
    backend = store.backend
    with psycopg.connect(database.url, autocommit=True) as other:

        def send(text):
            for _ in range(3):
                other.execute("SELECT pg_notify(%s, 'jobs:default')", (backend._channel,))
            backend._notifier.send(text)

        heard = threading.Event()
        listener = PostgresListener(
            lambda: backend.connect(autocommit=True), backend._channel, send=send, wake=lambda _: heard.set()
        )
        try:
            assert heard.wait(120)
            assert (listener.works, listener._failed_tests) == (True, 0)
        finally:
            listener.close()


def test_the_test_of_a_new_listener_wakes_nobody(store, listen):
    """K66: a fleet that starts does not wake itself once per worker."""
    first = listen()
    listen()
    assert all(change.startswith("test:") for change in first.changes)


def test_the_first_job_for_a_while_notifies_with_its_own_commit(store, listen):
    """No other thread and no second transaction delays it."""
    listener = listen()
    put(store, queue="post")
    assert listener.hears()
    assert listener.changes == {"jobs:post"}
    assert store.backend._notifier._thread is None


def test_of_many_jobs_only_the_first_notifies_with_its_own_commit(store, listen, monkeypatch):
    """Notifying commits wait for each other: a busy process must not slow down all others."""
    monkeypatch.setattr("holdfast.store.postgres.notifier.COALESCE_WINDOW_S", 3600)
    listener = listen()
    put(store, queue="first")
    assert listener.hears()
    listener.settle()
    for queue in ("second", "third"):
        put(store, queue=queue)
    assert not listener.hears(within=0.1)
    store.backend._notifier.close()  # it does not wait for the end of the pause
    assert listener.hears()
    assert listener.changes == {"jobs:second", "jobs:third"}


def test_slow_commits_notify_seldom(monkeypatch):
    """They wait for each other, those of all processes: each process takes a small share of the time."""
    now = 100.0
    monkeypatch.setattr("holdfast.store.postgres.notifier.time.monotonic", lambda: now)
    notifier = PostgresNotifier("holdfast.ready", lambda *_: None)
    first = notifier.notification(QUEUES)
    assert first.text == "queues"
    now += 0.105
    assert notifier.notification(QUEUES).text is None  # the first has not committed yet
    first.committed()
    now += 4.9
    assert notifier.notification(QUEUES).text is None
    now += 0.2
    assert notifier.notification(QUEUES).text == "queues"
    now += 0.9
    assert notifier.notification(QUEUES).text is None
    now += 0.2  # that commit has failed
    assert notifier.notification(QUEUES).text == "queues"


def test_a_slow_disk_is_no_wait_for_others(monkeypatch):
    """A commit that notified is compared with the last one that did not."""
    now = 100.0
    monkeypatch.setattr("holdfast.store.postgres.notifier.time.monotonic", lambda: now)
    notifier = PostgresNotifier("holdfast.ready", lambda *_: None)
    monkeypatch.setattr(notifier, "notify", lambda changes: None)
    notifier.notification(QUEUES).committed()
    usual = notifier.notification(QUEUES)
    assert usual.text is None
    now += 0.01
    usual.committed()
    notifying = notifier.notification(QUEUES)
    assert notifying.text == "queues"
    now += 0.02  # twice as long
    notifying.committed()
    assert notifier.notification(QUEUES).text == "queues"


@pytest.fixture
def patient(monkeypatch):
    """The thread never sends, and no commit is slow. Returns a function that sets the pause between notifications."""
    for name in ("PATIENCE_S", "QUICK_COMMIT_S"):
        monkeypatch.setattr(f"holdfast.store.postgres.notifier.{name}", 3600)
    pause = partial(monkeypatch.setattr, "holdfast.store.postgres.notifier.COALESCE_WINDOW_S")
    pause(3600)
    return pause


def test_a_busy_process_notifies_with_its_commits(store, listen, patient):
    """The next commit after the pause takes along what waits for the thread, which sends nothing."""
    listener = listen()
    put(store, queue="first")
    put(store, queue="second")
    patient(0)
    put(store, queue="third")
    wait_until(lambda: listener.changes == {"jobs:first", "jobs:second", "jobs:third"})
    notifier = store.backend._notifier
    assert not notifier._pending | notifier._taken


def test_what_a_failed_enqueue_has_taken_along_is_sent_later(store, listen, patient, monkeypatch):
    """By the thread."""
    listener = listen()
    put(store, queue="first")
    put(store, queue="second")
    wait_until(lambda: listener.changes == {"jobs:first"})
    patient(0)
    monkeypatch.setattr(store.backend, "run", refuse)
    with pytest.raises(StoreUnavailable):
        put(store, queue="third")
    store.backend._notifier.close()
    wait_until(lambda: listener.changes == {"jobs:first", "jobs:second"})


def refuse(*_arguments, **_options):
    raise StoreUnavailable("no")


def test_a_commit_that_takes_long_delays_no_notification_of_others(patient, monkeypatch):
    """The thread sends what it has taken along."""
    patient(0)
    monkeypatch.setattr("holdfast.store.postgres.notifier.PATIENCE_S", 0)
    sent, told = [], threading.Event()

    def run(_statement, parameters):
        sent.append(parameters[1])
        told.set()

    notifier = PostgresNotifier("holdfast.ready", run)
    notifier.notification(REQUESTS).committed()
    with monkeypatch.context() as busy:
        busy.setattr(notifier, "_start", lambda: None)
        notifier.notify(QUEUES)
    slow = notifier.notification(SCHEDULES)
    assert slow.text == "queues\nschedules"
    notifier.notify(frozenset({"jobs"}))
    assert told.wait(120)
    assert sent == ["jobs\nqueues"]
    slow.committed()
    notifier.close()
    assert sent == ["jobs\nqueues"]


def test_an_enqueue_that_changes_nothing_now_notifies_nobody(store, listen):
    listener = listen()
    put(store, hold=True)
    assert not listener.hears(within=0.1)


def test_the_last_change_is_sent_before_the_end():
    """K54: also when it comes within the pause after the one before."""
    sent, pause = [], threading.Event()

    def run(_statement, parameters):
        sent.append(parameters[1])
        pause.set()

    notifier = PostgresNotifier("holdfast.ready", run)
    notifier.notify(QUEUES)
    assert pause.wait(120)
    notifier.notify(SCHEDULES)
    notifier.close()
    assert sent == ["queues", "schedules"]


def test_a_notification_that_fails_is_not_the_last_one():
    """S15: the thread goes on after every error, also after one of the driver."""
    sent, called = [], threading.Event()

    def run(_statement, parameters):
        called.set()
        if not sent:
            sent.append("failed")
            raise psycopg.InternalError("the server is confused")
        sent.append(parameters[1])

    notifier = PostgresNotifier("holdfast.ready", run)
    notifier.notify(QUEUES)
    assert called.wait(30)
    notifier.notify(SCHEDULES)
    notifier.close()
    assert sent == ["failed", "schedules"]


def in_a_transaction_of_the_caller(store, database):
    with psycopg.connect(database.url) as connection:
        (answer,) = store.jobs.enqueue_on(connection, [NewJob(kind="mail", priority=5)])
    return answer.id


def in_a_transaction_of_many_jobs(store, database):
    answers = store.jobs.enqueue_many([NewJob(kind="mail", priority=5), NewJob(kind="mail", hold=True)])
    return answers[0].id


def behind_a_dependency(store, database):
    first = put(store, "post")
    job = put(store, priority=5, after=After(ids=(first,)))
    store.leases.settle(take_one(store, kinds=("post",)), Done())
    return job


def after_a_delay(store, database):
    job = put(store, priority=5, delay=timedelta(seconds=1))
    database.execute("UPDATE holdfast.live SET due_at = due_at - interval '1 hour' WHERE state = 'scheduled'")
    assert store.leases.promote() == 1
    return job


def after_a_release(store, database):
    job = put(store, priority=5)
    store.leases.release([take_one(store)])
    return job


@pytest.mark.parametrize(
    "make",
    [
        in_a_transaction_of_the_caller,
        in_a_transaction_of_many_jobs,
        behind_a_dependency,
        after_a_delay,
        after_a_release,
    ],
)
def test_a_job_that_becomes_ready_is_notified_of_with_its_place(store, database, listen, make):
    """D7: so workers that have passed its place begin there. Its due time stays."""
    listener = listen()
    job = make(store, database)
    due_at = store.views.get(job).due_at
    wait_until(lambda: EarlierJobs("default", "mail", 5, due_at, due_at) in earlier_jobs(listener.changes))

"""Finished jobs in ranges of ids: how ranges begin, and how retention drops them."""

from __future__ import annotations

import random
import secrets
import threading
from datetime import timedelta

import psycopg
import pytest

from holdfast.domain.jobs.dependencies import After
from holdfast.domain.jobs.job import JobId, State
from holdfast.domain.jobs.new_job import KeyScope, NewJob, Unique
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.verdict import Done, Failed
from holdfast.domain.retention import Retention
from holdfast.errors import HoldfastError
from holdfast.store import Store
from holdfast.store.engine.database import Database
from tests.support.backends import START, PostgresDatabase, available, open_database, postgres_url
from tests.support.jobs import only, prune, put, state, states, take, take_one

WIDTH = 40
DEAD = Failed(error="boom", permanent=True)
MONTH = timedelta(days=30)
KEPT = Retention(done=MONTH, cancelled=MONTH, dead=3 * MONTH)
SERVERS = [name for name in available() if name.startswith("postgres")]


@pytest.fixture(params=SERVERS)
def database(request):
    """A database of its own: its ranges are not those of other tests."""
    url, name = postgres_url(request.param), f"ranges_{secrets.token_hex(4)}"
    if not run(url, "SELECT FROM pg_database WHERE datname = 'ranges'"):
        run(url, "CREATE DATABASE ranges")
        first = PostgresDatabase(psycopg.conninfo.make_conninfo(url, dbname="ranges"))
        split(first, WIDTH)
        close(first)
    run(url, f"CREATE DATABASE {name} TEMPLATE ranges")
    created = PostgresDatabase(psycopg.conninfo.make_conninfo(url, dbname=name))
    yield created
    close(created)
    run(url, f"DROP DATABASE {name} WITH (FORCE)")


def run(url: str, statement: str) -> list[tuple]:
    with psycopg.connect(url, autocommit=True) as server:
        cursor = server.execute(statement.encode())
        return cursor.fetchall() if cursor.description is not None else []


def close(database) -> None:
    database.close()
    database._connection.close()


@pytest.fixture
def store(database):
    return opened(database)


@pytest.fixture
def user(database):
    """A user's own connection."""
    with psycopg.connect(database.url) as connection:
        yield connection


def opened(database) -> Store:
    store = database.open()
    store.pruner.range_width = WIDTH
    return store


def split(database, width: int) -> None:
    """Let the first range end after *width* ids."""
    database.execute("DROP TABLE holdfast.finished_before_10000000, holdfast.finished_from_10000000")
    make = "CREATE TABLE holdfast.{} PARTITION OF holdfast.finished_done FOR VALUES FROM ({}) TO ({})"
    database.execute(make.format("first", "MINVALUE", width))
    database.execute(make.format("last", width, "MAXVALUE"))


def ranges(database) -> list[tuple[int | None, int | None]]:
    return database.execute("SELECT first_id, next_id FROM holdfast.done_ranges()")


def maintain(store) -> None:
    """A minute of maintenance: every rule once."""
    store.pruner.prune(KEPT)


def finish(store, count: int, outcome=None) -> list[JobId]:
    """Enqueue and finish jobs, with a minute of maintenance between them, as ranges need it."""
    ids = []
    for n in range(count):
        ids.append(put(store, max_attempts=1))
        store.leases.settle(take_one(store), outcome or Done())
        if n % 5 == 0:
            maintain(store)
    return ids


def rows(database, table: str, column: str = "id") -> set[int]:
    return {row[0] for row in database.execute(f"SELECT {column} FROM holdfast.{table}")}


def consistent(store) -> bool:
    return all(finding.ok for finding in Database(store.backend).check())


# -- how ranges begin and end -----------------------------------------------------------------


def test_ranges_begin_ahead_and_have_no_gap(database, store):
    finish(store, 200)
    bounds = ranges(database)
    assert len(bounds) >= 5
    assert bounds[0][0] is None
    assert bounds[-1][1] is None
    assert [end for _, end in bounds[:-1]] == [first for first, _ in bounds[1:]]
    assert bounds[-1][0] > 200
    assert database.execute("SELECT count(*) FROM ONLY holdfast.last") != [(0,)]
    assert consistent(store)


def test_a_row_beyond_the_next_range_does_not_end_the_round(database, store):
    """A restore has set the sequence back. The next range begins above the rows that exist."""
    finish(store, 60)
    database.execute("SELECT setval('holdfast.job_id', 300)")
    far = put(opened(database))
    store.leases.settle(take_one(store), Done())
    first = ranges(database)[-1][0]
    database.execute("SELECT setval('holdfast.job_id', %s)", (first,))
    maintain(store)
    assert ranges(database)[-1][0] > far
    assert consistent(store)


def test_an_id_far_ahead_finds_its_range(database, store):
    """No maintenance has run: the last range takes every id, and the next one begins above it."""
    database.execute("SELECT setval('holdfast.job_id', 1000000)")
    job = put(store)
    store.leases.settle(take_one(store), Done())
    maintain(store)
    assert state(store, job) is State.DONE
    assert ranges(database)[-1][0] > job


def test_an_expired_range_is_dropped_with_its_requests(database, store):
    finish(store, 120)
    database.clock.advance(MONTH + timedelta(days=1))
    recent = finish(store, 10)
    for _ in range(5):
        maintain(store)
    assert ranges(database)[0][1] >= 80
    assert states(store) == dict.fromkeys(recent, State.DONE)
    assert rows(database, "job") == set(recent)
    assert rows(database, "expired_range", "first_id") == set()


def test_what_is_not_expired_survives_the_range(database, store):
    finish(store, WIDTH + 5)
    dead = finish(store, 1, DEAD)
    needed = finish(store, 1)[0]
    put(store, kind="later", after=After(ids=(needed, put(store, kind="later", hold=True))))
    slow, retried = put(store, kind="slow"), finish(store, 1, DEAD)[0]
    finish(store, 80)
    database.clock.advance(MONTH - timedelta(days=1))
    store.leases.settle(take_one(store, kinds=("slow",)), Done())
    store.control.retry(only(retried), actor="ann")
    database.clock.advance(days=2)
    maintain(store)
    assert ranges(database)[0][1] >= 80, "the range was dropped"
    maintain(store)
    left = states(store)
    assert {job: left[job] for job in (*dead, needed, slow, retried)} == {
        dead[0]: State.DEAD,
        needed: State.DONE,
        slow: State.DONE,
        retried: State.READY,
    }
    assert len(left) < 30
    assert store.views.attempts(dead[0])
    assert not rows(database, "attempt", "job_id") - left.keys()
    assert consistent(store)


def test_jobs_of_a_range_that_cannot_be_dropped_go_one_by_one(database, store):
    """A quarter of their age later: too many jobs of the range are still needed."""
    finish(store, 120)
    database.execute("INSERT INTO holdfast.dependency SELECT 1000000 + n, 45 FROM generate_series(1, 60000) AS n")
    database.clock.advance(MONTH + timedelta(days=1))
    maintain(store)
    waiting = len(states(store))
    database.clock.advance(MONTH / 4)
    maintain(store)
    assert waiting > 0
    assert states(store) == {}


def test_keys_for_ever_outlive_a_range(database, store):
    forever = Unique("k", scope=KeyScope.FOREVER)
    finish(store, WIDTH)
    kept = put(store, unique=forever)
    store.leases.settle(take_one(store), Done())
    put(store, unique=Unique("free"))
    store.leases.settle(take_one(store), Done())
    finish(store, 80)
    database.clock.advance(MONTH + timedelta(days=1))
    for _ in range(3):
        maintain(store)
    assert kept not in rows(database, "job")
    assert database.execute("SELECT key, job_id FROM holdfast.key") == [("k", kept)]


def test_a_label_does_not_find_jobs_of_a_dropped_range(database, store):
    """Their requests may still be there: they are deleted in steps."""
    finish(store, WIDTH)
    put(store, label="nightly")
    store.leases.settle(take_one(store), Done())
    finish(store, 80)
    new = put(store, label="nightly", hold=True)
    database.clock.advance(MONTH + timedelta(days=1))
    prune(store, "done", retention=KEPT)
    assert rows(database, "expired_range", "first_id")
    assert database.execute("SELECT count(*) FROM holdfast.job WHERE label = 'nightly'") == [(2,)]
    dependent = put(store, after=After(labels=("nightly",)))
    assert [each.dependency_id for each in store.views.dependencies(dependent)] == [new]
    assert consistent(store)


# -- the same jobs survive as one by one --------------------------------------------------------


def act(chance: random.Random, store) -> None:
    """A random action of a producer, of a person, or of maintenance."""
    jobs = states(store)
    dead = sorted(job for job, each in jobs.items() if each is State.DEAD)
    finished = sorted(job for job, each in jobs.items() if each in (State.DEAD, State.DONE))
    choice = chance.choices(("put", "hold", "after", "restart", "delete", "tick"), (60, 5, 10, 5, 3, 5))[0]
    if choice == "put":
        put(store, max_attempts=1, unique=Unique(str(chance.randrange(9))) if chance.random() < 0.2 else None)
    elif choice == "hold":
        put(store, hold=True, kind="held")
    elif choice == "after" and jobs:
        put(store, after=After(ids=(chance.choice(sorted(jobs)[-9:]),), when="finished"))
    elif choice == "restart" and finished:
        store.control.restart(only(chance.choice(finished)), actor="ann")
    elif choice == "delete" and dead:
        store.control.delete(only(chance.choice(dead)))
    elif choice == "tick":
        maintain(store)


def scenario(seed: int, database, store) -> list[dict[JobId, State]]:
    """Random finishes, retries, deletes and prunes; returns the jobs that are left at each rest."""
    chance = random.Random(seed)
    rests = []
    for _ in range(5):
        for _ in range(30):
            act(chance, store)
            for lease in take(store, 3) if chance.random() < 0.8 else ():
                store.leases.settle(lease, DEAD if chance.random() < 0.2 else Done())
        if chance.random() < 0.3:
            store.control.unhold(Selector(states=(State.HELD,)), actor="ann")
        # After this pause, all that is past its age is also past the patience with closed ranges.
        database.clock.advance(MONTH * 1.3)
        for _ in range(6):
            maintain(store)
        rests.append(states(store))
    return rests


@pytest.mark.parametrize("seed", range(3))
def test_the_same_jobs_survive_as_one_by_one(database, store, seed, tmp_path):
    """SQLite has no ranges: it prunes each job by itself."""
    with open_database("sqlite", tmp_path) as plain:
        expected = scenario(seed, plain, plain.open())
    assert scenario(seed, database, store) == expected
    assert consistent(store)
    left = set(expected[-1])
    assert rows(database, "job") == left
    assert not rows(database, "attempt", "job_id") - left
    assert database.clock.now() > START


# -- others at the same time -----------------------------------------------------------------


def test_a_long_transaction_of_a_user_delays_nothing(database, store, user):
    """Nothing queues behind retention, and the range is dropped after the end of the transaction."""
    first = finish(store, 120)[0]
    database.clock.advance(MONTH + timedelta(days=1))
    user.execute("SELECT FROM holdfast.finished WHERE id = %s FOR KEY SHARE", (first,))
    before = ranges(database)
    waits = threading.Event()

    def watch():
        with psycopg.connect(database.url, autocommit=True) as other:
            other.execute("SET lock_timeout = '50ms'")
            try:
                while not done.is_set():
                    other.execute("SELECT FROM holdfast.finished WHERE id = 1")
            except psycopg.errors.LockNotAvailable:
                waits.set()

    done = threading.Event()
    watcher = threading.Thread(target=watch)
    watcher.start()
    maintain(store)
    finish(store, 1)
    done.set()
    watcher.join()
    assert not waits.is_set()
    assert ranges(database)[0] == before[0]
    user.rollback()
    maintain(store)
    assert ranges(database)[0] != before[0]


def test_a_lock_on_one_range_alone_holds_up_no_other_job(database, store, user):
    """As a dump of a table has it, or vacuum."""
    finish(store, 120)
    database.clock.advance(MONTH + timedelta(days=1))
    before = ranges(database)
    ((leaf,),) = database.execute("SELECT leaf::text FROM holdfast.done_ranges() WHERE first_id = %s", (WIDTH,))
    user.execute(f"LOCK TABLE {leaf} IN ACCESS SHARE MODE".encode())
    maintain(store)
    finish(store, 1)
    assert ranges(database)[0] == before[0]
    user.rollback()
    maintain(store)
    assert ranges(database)[0] != before[0]


def test_a_dependency_of_an_uncommitted_job_keeps_its_range(database, store, user):
    old = finish(store, 120)[WIDTH + 1]
    live = put(store, hold=True)
    database.clock.advance(MONTH + timedelta(days=1))
    (dependent,) = store.jobs.enqueue_on(user, [NewJob(kind="later", after=After(ids=(old, live)))])
    maintain(store)
    user.commit()
    for _ in range(3):
        maintain(store)
    assert ranges(database)[0][1] >= 80
    assert (state(store, old), state(store, dependent.id)) == (State.DONE, State.WAITING)


def test_a_job_that_is_enqueued_late_with_an_old_id_stays(database, store, user):
    """Ids are drawn ahead: its request comes after its range was dropped, while requests of it are being deleted."""
    late = finish(store, 120)[WIDTH + 5]
    database.execute("DELETE FROM holdfast.finished WHERE id = %s", (late,))
    database.execute("DELETE FROM holdfast.job WHERE id = %s", (late,))
    database.clock.advance(MONTH + timedelta(days=1))
    prune(store, "done", retention=KEPT)
    store.backend.draw_ids = lambda count: [late]
    assert put(store) == late
    for _ in range(3):
        maintain(store)
    assert states(store) == {late: State.READY}
    assert rows(database, "job") == {late}


def test_two_maintenances_at_once(database, store):
    finish(store, 200)
    database.clock.advance(MONTH + timedelta(days=1))
    stores = [opened(database) for _ in range(4)]
    errors: list[HoldfastError] = []

    def run(each):
        try:
            for _ in range(5):
                maintain(each)
        except HoldfastError as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(each,)) for each in stores]
    for thread in threads:
        thread.start()
    for n in range(20):
        put(store, label=f"{n}")
        store.leases.settle(take_one(store), Done())
    for thread in threads:
        thread.join()
    for _ in range(6):  # a drop may have failed: a settlement had the lock
        maintain(store)
    assert not errors
    assert len(states(store)) == 20
    assert consistent(store)


def test_a_kill_between_the_steps_loses_nothing(database, store):
    """The drop is one transaction. The deletes of requests go on where they were."""
    finish(store, 120)
    held = put(store, hold=True)
    database.clock.advance(MONTH + timedelta(days=1))
    before = ranges(database)
    with psycopg.connect(database.url) as killed:
        killed.execute("SELECT * FROM holdfast.maintain_ranges(interval '30 days', 40, 10000)")
        assert killed.execute("SELECT count(*) FROM holdfast.done_ranges()").fetchone() != (len(before),)
        with pytest.raises(psycopg.OperationalError):
            killed.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    assert ranges(database) == before
    prune(store, "done", retention=KEPT)
    with psycopg.connect(database.url) as killed:
        killed.execute("SELECT holdfast.delete_expired_requests(10)")
        killed.rollback()
    assert consistent(store)
    for _ in range(3):
        maintain(store)
    assert rows(database, "job") == {held}


def test_a_copy_has_no_requests_of_dropped_ranges(database, store):
    finish(store, 120)
    database.clock.advance(MONTH + timedelta(days=1))
    prune(store, "done", retention=KEPT)
    assert rows(database, "expired_range", "first_id")
    with store.backend.tools.snapshot() as read:
        jobs, finished = (len(list(read(table)[1])) for table in ("job", "finished"))
    assert jobs == finished


def test_an_old_snapshot_changes_no_ranges(database, store):
    finish(store, 120)
    database.clock.advance(MONTH + timedelta(days=1))
    before = ranges(database)
    with psycopg.connect(database.url) as other:
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        other.execute("SELECT * FROM holdfast.maintain_ranges(interval '30 days', 40, 10000)")
        other.commit()
    assert ranges(database) == before


# -- rights -------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["worker", "operator", "dashboard", "admin"])
def test_a_role_without_ownership_drops_ranges(database, store, role):
    finish(store, 120)
    database.clock.advance(MONTH + timedelta(days=1))
    login(database, store, f"holdfast_{role}")
    member = opened_as_member(database)
    for _ in range(3):
        maintain(member)
    assert ranges(database)[0][1] >= 80
    assert rows(database, "job") == set()


def test_a_user_without_the_right_prunes_one_by_one(database, store):
    finish(store, 120)
    database.clock.advance(MONTH + timedelta(days=1))
    login(database, store, "holdfast_worker")
    database.execute("REVOKE ALL ON FUNCTION holdfast.maintain_ranges FROM holdfast_worker")
    before = ranges(database)
    maintain(opened_as_member(database))
    assert ranges(database) == before
    assert states(store) == {}


def test_a_producer_cannot_drop_ranges(database, store):
    login(database, store, "holdfast_producer")
    url = psycopg.conninfo.make_conninfo(database.url, user="member")
    with psycopg.connect(url) as producer, pytest.raises(psycopg.errors.InsufficientPrivilege):
        producer.execute("SELECT * FROM holdfast.maintain_ranges(interval '0 days', 1, 1)")


def login(database, store, role: str) -> None:
    store.backend.tools.apply(store.backend.tools.roles())
    database.execute("DROP ROLE IF EXISTS member")
    database.execute(f"CREATE ROLE member LOGIN IN ROLE {role}")
    database.execute("GRANT SELECT ON holdfast.test_clock TO member")


def opened_as_member(database) -> Store:
    from holdfast.store.postgres.backend import PostgresBackend

    store = Store(PostgresBackend(psycopg.conninfo.make_conninfo(database.url, user="member")))
    database._opened.append(store)
    store.pruner.range_width = WIDTH
    return store

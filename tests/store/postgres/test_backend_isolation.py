"""Isolation levels and conflicts between transactions on PostgreSQL."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import timedelta

import psycopg
import pytest
from psycopg import IsolationLevel

import holdfast
from holdfast.domain.jobs.new_job import NewJob, Unique
from holdfast.domain.jobs.verdict import Done
from holdfast.errors import StoreBusy, StoreUnavailable
from holdfast.store import open_store
from holdfast.store.engine.backend import Timeouts
from holdfast.store.postgres.connections import SESSION_SETTINGS
from tests.support.backends import available, open_database
from tests.support.jobs import claim_jobs, take_one
from tests.support.pgbouncer import PROGRAM, pgbouncer
from tests.support.postgres import failing_writes
from tests.support.processes import wait_until

STRICT = [IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE]
KEYED = NewJob(kind="mail", unique=Unique("k"))


@pytest.fixture(params=[name for name in available() if name != "sqlite"])
def database(request, tmp_path):
    with open_database(request.param, tmp_path) as database:
        yield database


@pytest.fixture
def app(database):
    with holdfast.Holdfast(database.url) as app:

        @app.job(unique=["to"])
        def mail(to: int = 0) -> None: ...

        assert app.store
        yield app


def finish_after_snapshot(store, user) -> int:
    """A keyed job that has finished after *user* has taken its snapshot."""
    job_id = store.jobs.enqueue(KEYED).id
    user.execute("SELECT FROM holdfast.meta")
    store.leases.settle(take_one(store), Done())
    return job_id


@pytest.mark.parametrize("level", STRICT)
def test_an_old_snapshot_does_not_name_a_finished_job(database, store, level):
    """K22: "already there" would name a job that has finished; the caller's transaction must run again."""
    with psycopg.connect(database.url) as user:
        user.isolation_level = level
        finished = finish_after_snapshot(store, user)
        with pytest.raises(StoreBusy) as refused:
            store.jobs.enqueue_on(user, [KEYED])
        assert (refused.value.retryable, refused.value.exit_code) == (True, 9)
        user.rollback()
        (answer,) = store.jobs.enqueue_on(user, [KEYED])
        assert answer.created
        assert answer.id != finished


@pytest.mark.parametrize("level", STRICT)
def test_an_old_snapshot_does_not_name_a_finished_job_in_sql(database, app, level):
    """K22: the same in holdfast.enqueue."""
    with psycopg.connect(database.url) as user:
        user.isolation_level = level
        finish_after_snapshot(app.store, user)
        with pytest.raises(psycopg.errors.SerializationFailure):
            user.execute('SELECT holdfast.enqueue(\'{"kind": "mail", "key": "k"}\')')


@pytest.mark.parametrize("level", STRICT)
def test_a_live_job_is_still_already_there(database, store, level):
    """K22: and the check leaves no lock: a worker claims and settles the job while the transaction is open."""
    with psycopg.connect(database.url) as user:
        user.isolation_level = level
        job_id = store.jobs.enqueue(KEYED).id
        (answer,) = store.jobs.enqueue_on(user, [KEYED])
        assert (answer.id, answer.created) == (job_id, False)
        store.leases.settle(take_one(store), Done())


@pytest.fixture(params=["", "prepare=off"])
def strict_store(request, database):
    """A store on a server whose default level is REPEATABLE READ."""
    database.execute("ALTER DATABASE postgres SET default_transaction_isolation = 'repeatable read'")
    store = open_store(f"{database.url}{'&' if '?' in database.url else '?'}{request.param}")
    yield store
    store.close()
    database.execute("ALTER DATABASE postgres RESET default_transaction_isolation")


def test_a_limit_holds_whatever_the_default_level_is(database, strict_store):
    """K86: a claim that has waited for a limited queue counts what was claimed meanwhile, for other kinds too."""
    strict_store.queues.set_limits("default", limit=2)
    others = [answer.id for answer in strict_store.jobs.enqueue_many([NewJob(kind="other")] * 2)]
    strict_store.jobs.enqueue_many([NewJob(kind="mail")] * 2)
    claimed = []

    def claim():
        claimed.extend(claim_jobs(strict_store, "w2", 2, queues=["default"], kinds=["mail"]))

    waiting = threading.Thread(target=claim)
    with psycopg.connect(database.url) as first:
        first.isolation_level = IsolationLevel.READ_COMMITTED
        first.execute("SELECT FROM holdfast.queue WHERE name = 'default' FOR UPDATE")
        waiting.start()
        wait_until(lambda: database.execute("SELECT 1 FROM pg_locks WHERE NOT granted"))
        first.execute(
            "UPDATE holdfast.live SET state = 'running', worker = 'w1', claimed_at = holdfast.now(),"
            " lease_expires_at = holdfast.now() + interval '1 minute' WHERE id = ANY(%s)",
            (others,),
        )
    waiting.join()
    assert claimed == []


#: What a DBA may set for a role or a database.
DBA = {
    "default_transaction_isolation": "repeatable read",
    "plan_cache_mode": "force_custom_plan",
    "statement_timeout": "200ms",
    "lock_timeout": "5ms",
    "jit": "on",
    "timezone": "Asia/Tokyo",
    "array_nulls": "off",
    "enable_seqscan": "on",
}


@pytest.fixture
def settings_of_a_dba(postgres_database):
    for name, value in DBA.items():
        postgres_database.execute(f"ALTER DATABASE postgres SET {name} = '{value}'")
    yield postgres_database
    for name in DBA:
        postgres_database.execute(f"ALTER DATABASE postgres RESET {name}")


@pytest.mark.parametrize("pooler", [False, True])
def test_the_settings_of_a_session_need_no_startup_options(settings_of_a_dba, pooler):
    """D5: PgBouncer in session mode ignores these, so that the settings of the database would apply."""
    assert PROGRAM is not None, "PgBouncer is missing: make services"
    url = settings_of_a_dba.url
    with pgbouncer(url, mode="session") if pooler else nullcontext(url) as url:
        store = open_store(url, patience=timedelta(seconds=5))
        wanted = {**SESSION_SETTINGS, "statement_timeout": "4s"}
        text = "SELECT name, current_setting(name, true) FROM unnest(%s::text[]) AS name"
        for backend in (store.backend, store.backend.reserved):
            settings = dict(backend._once(lambda each: each.execute(text, [list(wanted)]).fetchall(), Timeouts.call))
            assert settings == wanted, "D5 is broken"
        store.close()


def test_a_limit_holds_behind_a_pooler_without_startup_options(settings_of_a_dba):
    """D5: the lock and the count would share a snapshot."""
    with pgbouncer(settings_of_a_dba.url, mode="session", size=8) as url:
        store = open_store(url)
        store.queues.set_limits("default", limit=1)
        store.jobs.enqueue_many([NewJob(kind="mail")] * 2)
        with psycopg.connect(settings_of_a_dba.url) as first:
            first.isolation_level = IsolationLevel.READ_COMMITTED
            first.execute("SELECT FROM holdfast.queue WHERE name = 'default' FOR UPDATE")
            with ThreadPoolExecutor(2) as pool:
                claims = [
                    pool.submit(claim_jobs, store, f"w{n}", 2, queues=["default"], kinds=["mail"]) for n in range(2)
                ]
                wait_until(lambda: len(settings_of_a_dba.execute("SELECT 1 FROM pg_locks WHERE NOT granted")) >= 2)
                first.rollback()
                assert sum(len(claim.result()) for claim in claims) == 1, "I8 is broken"
        store.close()


def test_a_transaction_of_a_unit_names_its_level(strict_store):
    """K86: the ledger is written in it."""
    with strict_store.backend.transaction() as connection:
        assert connection.execute("SHOW transaction_isolation").fetchone() == ("read committed",)


@pytest.mark.parametrize("state", ["40001", "40P01"])
def test_a_conflict_is_not_an_outage(database, store, state):
    """K67: the work is sent again; what is refused again and again is busy, and the database answers."""
    with failing_writes(database, state, times=2):
        assert store.jobs.enqueue_many([NewJob(kind="mail")])[0].created
    with failing_writes(database, state, times=100), pytest.raises(StoreBusy) as busy:
        store.jobs.enqueue_many([NewJob(kind="mail")])
    assert not isinstance(busy.value, StoreUnavailable)
    assert (busy.value.code, busy.value.http_status, busy.value.retryable) == ("E_STORE_BUSY", 409, True)


@pytest.mark.parametrize("state", ["40001", "40P01"])
def test_a_claim_that_met_a_conflict_is_sent_again(database, store, state):
    """K67: it was rolled back for certain, so nobody holds its jobs."""
    job_id = store.jobs.enqueue(NewJob(kind="mail")).id
    with failing_writes(database, state, times=1, event="UPDATE"):
        assert take_one(store).job_id == job_id

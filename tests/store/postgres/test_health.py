"""The doctor's checks of a PostgreSQL server: what a user without privileges sees, full disks, limits of connections."""

from __future__ import annotations

import os
from contextlib import closing
from datetime import timedelta

import psycopg
import pytest

from holdfast.domain.health_check import Level
from holdfast.store import open_store
from tests.chaos.sites import fill_disk, small_disk
from tests.support.jobs import put
from tests.support.postgres import QUICK, bundled_programs, running


@pytest.fixture
def operator(postgres_database):
    """The URL of a user with the role of an operator, and no other right on the server."""
    store = postgres_database.open()
    store.database.tools.apply(store.database.tools.roles())
    execute = postgres_database.execute
    execute("DROP ROLE IF EXISTS ops_user")
    execute("CREATE ROLE ops_user LOGIN IN ROLE holdfast_operator")
    yield f"{postgres_database.url}&user=ops_user"
    execute("DROP ROLE ops_user")


def checks(url, name):
    with closing(open_store(url)) as store:
        return [check for check in store.database.tools.health() if check.name == name]


def test_connections_of_other_users_count(operator, postgres_database):
    """O3: the view of activity hides the kind of other users' connections, and "1 of 300" was printed."""
    others = [psycopg.connect(postgres_database.url) for _ in range(5)]
    for url in (operator, postgres_database.url):
        (check,) = checks(url, "connections")
        used = int(check.message.split()[0])
        assert used >= len(others) + 2
        assert used == pytest.approx(len(postgres_database.execute("SELECT FROM pg_stat_activity")), abs=8)
    for each in others:
        each.close()


def test_transactions_that_a_user_cannot_see_are_not_checked(operator, postgres_database, monkeypatch):
    """O3: it said nothing, as if there were none."""
    monkeypatch.setattr("holdfast.store.postgres.health.OLD_TRANSACTION", timedelta(0))
    with psycopg.connect(postgres_database.url) as idle:
        idle.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        idle.execute("SELECT 1")
        found = checks(operator, "vacuum")
        assert found, "O3 is broken: doctor is silent"
        (check,) = found
        assert check.message.startswith("not checked: database user ops_user does not see the transactions")
        assert check.fix == "As a superuser: GRANT pg_monitor TO ops_user."
        postgres_database.execute("GRANT pg_monitor TO ops_user")
        texts = [check.message for check in checks(operator, "vacuum")]
        assert not any(text.startswith("not checked") for text in texts)
        assert any(f"backend {idle.info.backend_pid} is open" in text for text in texts)


def test_the_nearest_limit_of_connections_is_reported(operator, postgres_database):
    """O10: a role or a database may have a lower limit than the server."""
    (check,) = checks(operator, "connections")
    assert check.level is Level.OK
    postgres_database.execute("ALTER ROLE ops_user CONNECTION LIMIT 4")
    with closing(open_store(operator)) as store, psycopg.connect(operator), psycopg.connect(operator):
        put(store)
        (check,) = [each for each in store.database.tools.health() if each.name == "connections"]
        assert (check.level, check.message) == (Level.WARN, "4 of the user's 4 connections are in use")
        assert check.fix.startswith("ALTER ROLE … CONNECTION LIMIT")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_of_the_server():
    """O4: every line was "ok" while no enqueue worked."""
    text = "the disk of the database is full: it cannot take 16 MB"
    with (
        small_disk(150) as disk,
        running(bundled_programs(), settings=QUICK, root=disk) as server,
        closing(open_store(server.url())) as store,
    ):
        tools = store.database.tools
        assert [check.level for check in tools.health() if check.name == "disk"] == [Level.OK]
        assert not tools.is_disk_full()
        filling = fill_disk(disk)
        assert tools.is_disk_full(), "O4 is broken: no write was tried"
        (check,) = [check for check in tools.health() if check.name == "disk"]
        assert (check.level, check.message) == (Level.FAIL, text)
        filling.unlink()
        assert not tools.is_disk_full()


def test_a_limit_of_temporary_files_leaves_the_disk_unchecked(operator, postgres_database):
    postgres_database.execute("ALTER ROLE ops_user SET temp_file_limit = '1MB'")
    (check,) = checks(operator, "disk")
    assert check.level is Level.WARN
    assert check.message.startswith("not checked: no temporary file can be written: temporary file size exceeds")

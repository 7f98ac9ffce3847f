"""URLs with several hosts: the newest primary is found, and a former one refused."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from holdfast.domain.jobs.new_job import NewJob
from holdfast.errors import FormerPrimary, StoreUnavailable
from holdfast.store import open_store
from holdfast.store.postgres.hosts import Hosts, split_hosts
from tests.chaos.standby import _SETTINGS
from tests.support.postgres import PostgresServer, bundled_programs, running


@pytest.fixture(scope="module")
def servers():
    """A primary and its standby."""
    with running(bundled_programs(), settings=_SETTINGS) as primary:
        open_store(primary.url()).close()
        standby = PostgresServer(bundled_programs(), settings=_SETTINGS, copy_of=primary)
        try:
            standby.start()
            yield primary, standby
        finally:
            standby.close()


def url_of(*homes) -> str:
    return f"postgresql://postgres@/postgres?host={','.join(str(home) for home in homes)}"


def home_of(connection) -> str:
    with connection:
        return connection.info.host


def test_one_host_is_left_to_the_driver():
    assert split_hosts("postgresql://h/d") == {}
    assert split_hosts("postgresql://a,b/d?target_session_attrs=any") == {}


def test_each_host_has_its_own_address():
    parts = [conninfo_to_dict(each) for each in split_hosts("postgresql://ada@a:1,b:2/d?sslmode=disable")]
    assert [(each["host"], str(each["port"]), each["user"]) for each in parts] == [("a", "1", "ada"), ("b", "2", "ada")]


def test_the_error_of_each_host_is_named(tmp_path):
    """K87: not that of the last one for all."""
    with pytest.raises(StoreUnavailable) as refused:
        open_store(f"{url_of(tmp_path / 'a', tmp_path / 'b')}&connect_timeout=2")
    assert f"{tmp_path / 'a'}:5432: " in str(refused.value)
    assert f"{tmp_path / 'b'}:5432: " in str(refused.value)


def test_a_former_primary_is_refused(servers):
    """K87: a failover, and then the old primary returns. Nobody works on it, whether they have seen the failover or
    not; and nobody steps back to it when the new one is gone."""
    old, new = servers
    url = url_of(old.home, new.home)
    store = open_store(url)
    try:
        assert home_of(Hosts(url_of(new.home, old.home)).connect()) == str(old.home)  # the standby refuses writes
        old.stop()
        new.promote()
        after = store.jobs.enqueue(NewJob(kind="mail")).id
        old.start()  # it calls itself a primary too
        assert home_of(Hosts(url).connect()) == str(new.home)
        assert store.views.get(after).id == after
        new.stop()
        with pytest.raises(FormerPrimary, match=f"{old.home}:5432: a former primary, on timeline 1") as refused:
            store.jobs.enqueue(NewJob(kind="mail"))
        assert (refused.value.exit_code, refused.value.retryable) == (5, True)
        new.start()
        assert store.jobs.enqueue(NewJob(kind="mail")).created
        with psycopg.connect(old.url()) as former:
            assert former.execute("SELECT count(*) FROM holdfast.job").fetchone() == (0,)
    finally:
        store.close()

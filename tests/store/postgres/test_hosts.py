"""URLs with several hosts: the newest primary is found, and a former one refused."""

from __future__ import annotations

import re
from contextlib import closing
from urllib.parse import quote

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict

from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.jobs.selector import Selector
from holdfast.errors import FormerPrimary, StoreUnavailable
from holdfast.store import open_store
from holdfast.store.postgres.hosts import HostRole, Hosts, Mark, host_role, split_hosts
from tests.chaos.standby import SETTINGS
from tests.support.postgres import PostgresServer, bundled_programs, running


@pytest.fixture(scope="module")
def servers():
    """A primary and its standby."""
    with running(bundled_programs(), settings=SETTINGS) as primary:
        open_store(primary.url()).close()
        standby = PostgresServer(bundled_programs(), settings=SETTINGS, copy_of=primary)
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


def roles(url):
    """O11: what doctor says of each host."""
    return [each.role for each in Hosts(url).states(connect_timeout=2)]


@pytest.mark.parametrize(
    ("reachable", "mark", "newest", "role"),
    [
        (False, None, 2, HostRole.UNREACHABLE),
        (True, None, 2, HostRole.STANDBY),
        (True, Mark(1, 2), 2, HostRole.PRIMARY),
        (True, Mark(1, 1), 2, HostRole.FORMER_PRIMARY),
    ],
)
def test_the_role_of_a_host(reachable, mark, newest, role):
    """O11: two servers may take writes; the timeline shows which of them was promoted last."""
    assert host_role(reachable, mark, newest) is role, "O11 is broken"


def test_one_host_is_left_to_the_driver():
    assert split_hosts("postgresql://h/d") == {}
    assert split_hosts("postgresql://a,b/d?target_session_attrs=any") == {}


def test_each_host_has_its_own_address():
    parts = [conninfo_to_dict(each) for each in split_hosts("postgresql://ada@a:1,b:2/d?sslmode=disable")]
    assert [(each["host"], str(each["port"]), each["user"]) for each in parts] == [("a", "1", "ada"), ("b", "2", "ada")]


#: One server that libpq tried, in its error.
TRIED = re.compile(r'connection to server (?:at|on socket) "(.+?)"(?: \((.+?)\))?(?:, port (\d+))? failed')
#: Addresses of this host where nothing listens: each attempt fails at once.
ADDRESSES = st.sampled_from(["127.77.0.1", "127.77.0.2", "[::1]", "127.77.0.3"])
FOLDERS = st.sampled_from(["/nowhere/a", "/nowhere/b"])
PORTS = st.sampled_from(["", "7", "65000"])


def tried(conninfo):
    """The servers that libpq tries for a connection string, and all of its error if there is none."""
    failed = pq.PGconn.connect(conninfo.encode())
    text = failed.error_message.decode()
    failed.finish()
    return TRIED.findall(text) or text


@st.composite
def urls(draw):
    """Several hosts, in the forms that libpq reads: in the authority or in the query, with ports, some, one or none."""
    count = draw(st.integers(2, 4))
    hosts = draw(st.lists(st.one_of(ADDRESSES, FOLDERS), min_size=count, max_size=count))
    ports = draw(st.lists(PORTS, min_size=count, max_size=count))
    user, database = draw(st.sampled_from(["", "ada@", "ada:s%40@"])), draw(st.sampled_from(["", "/shop"]))
    names = [host.strip("[]") for host in hosts]
    form = draw(st.sampled_from(["authority", "query", "addresses", "names"]))
    if form == "authority":
        each = (quote(host, safe="[]:") + (f":{port}" if port else "") for host, port in zip(hosts, ports, strict=True))
        return f"postgresql://{user}{','.join(each)}{database}"
    if form in ("addresses", "names"):
        names = [name if not name.startswith("/") else "127.77.0.9" for name in names]
        option = f"hostaddr={','.join(names)}"
        option += "&host=" + ",".join(f"db{i}" for i in range(count)) if form == "names" else ""
    else:
        option = f"host={','.join(names)}"
    listed = draw(st.sampled_from(["", f"&port={','.join(ports)}", "&port=9", "&port=", "&port=1,2,3,4,5"]))
    return f"postgresql://{user}{database or '/'}?{option}{listed}"


@given(urls())
def test_every_spelling_leads_where_libpq_goes(url):
    """O1: the hosts of a URL, one by one, are those that libpq tries; what it refuses is left to it."""
    hosts, places = split_hosts(url), tried(url)
    if hosts:
        assert {place for single in hosts for place in tried(single)} == set(places), "O1 is broken"
        assert len(hosts) >= len(set(places))
    else:
        assert "could not match" in places or len(set(places)) == 1


@pytest.mark.parametrize(
    ("environment", "url"),
    [
        ({"PGHOST": "127.77.0.1,127.77.0.2"}, "postgresql:///shop"),
        ({"PGHOST": "127.77.0.1,127.77.0.2", "PGPORT": "7,8"}, "postgresql:///shop"),
        ({"PGPORT": "7"}, "postgresql://127.77.0.1,127.77.0.2/shop"),
        ({"PGPORT": "7"}, "postgresql:///shop?host=127.77.0.1,127.77.0.2"),
        ({"PGHOSTADDR": "127.77.0.1,127.77.0.2"}, "postgresql://db1,db2/shop"),
        ({"PGHOSTADDR": "127.77.0.1"}, "postgresql://db1,db2/shop"),
        ({"PGHOST": "127.77.0.9"}, "postgresql:///shop?hostaddr=127.77.0.1,127.77.0.2"),
        ({"PGSERVICEFILE": "two.conf"}, "postgresql:///shop?service=two"),
        ({"PGSERVICEFILE": "two.conf", "PGSERVICE": "two"}, "postgresql:///shop"),
    ],
)
def test_hosts_of_the_environment_are_those_of_libpq(environment, url, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two.conf").write_text("[two]\nhost=127.77.0.1,127.77.0.2\nport=8,9\n")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    hosts = split_hosts(url)
    if not hosts:
        assert "could not match" in tried(url)
    assert [place for single in hosts for place in tried(single)] == (tried(url) if hosts else [])


def test_the_environment_may_leave_the_choice_to_the_driver(monkeypatch):
    monkeypatch.setenv("PGTARGETSESSIONATTRS", "any")
    assert split_hosts("postgresql://a,b/d") == {}


def test_the_url_of_the_guide_connects(servers):
    """O1: several hosts without ports."""
    homes = (quote(str(server.home), safe="") for server in servers)
    url = f"postgresql://postgres@{','.join(homes)}/postgres"
    assert home_of(Hosts(url).connect()) == str(servers[0].home)
    with closing(open_store(url)) as store:
        assert store.views.page(Selector()).jobs == []


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
        assert roles(url) == [HostRole.PRIMARY, HostRole.STANDBY]
        old.stop()
        new.promote()
        after = store.jobs.enqueue(NewJob(kind="mail")).id
        assert roles(url) == [HostRole.UNREACHABLE, HostRole.PRIMARY]
        old.start()  # it calls itself a primary too
        assert roles(url) == [HostRole.FORMER_PRIMARY, HostRole.PRIMARY]
        warned = {check.message: check.fix for check in store.database.tools.health() if check.name == "hosts"}
        assert f"{old.home}:5432 is a former primary, {new.home}:5432 is the primary" in warned
        assert FormerPrimary.hint in warned.values()
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

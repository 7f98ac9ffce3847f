"""Each statement that passes by the driver's own ways, in each situation in which that can go wrong.

Right is: the answer and the rows of a call without the situation; or an error of ours, and nothing written. Never an error
of the driver, and never an effect twice. Afterwards all connections are returned, and a call works.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from msgspec import Struct

from holdfast.errors import HoldfastError
from holdfast.store import open_store
from holdfast.store.engine.backend import Timeouts
from holdfast.store.engine.operation import Query
from tests.support.backends import open_database, postgres_url
from tests.support.direct_calls import CALLS, Call, Job, watched
from tests.support.jobs import put
from tests.support.pgbouncer import PROGRAM, pgbouncer
from tests.support.processes import wait_until
from tests.support.proxy import proxy_to

#: What a DBA may set for a database or a role.
DBA = {
    "bytea_output": "escape",
    "client_encoding": "latin1",
    "datestyle": "SQL, DMY",
    "default_transaction_deferrable": "on",
    "default_transaction_isolation": "serializable",
    "idle_in_transaction_session_timeout": "2s",
    "idle_session_timeout": "5s",
    "intervalstyle": "sql_standard",
    "jit": "on",
    "lock_timeout": "5ms",
    "plan_cache_mode": "force_custom_plan",
    "quote_all_identifiers": "on",
    "row_security": "off",
    "search_path": "pg_temp",
    "standard_conforming_strings": "off",
    "statement_timeout": "20s",
    "timezone": "Asia/Tokyo",
    "transaction_timeout": "20s",
}


class Outcome(Struct):
    """What a call returned, or the error of ours that it raised; and the rows of all tables before and after."""

    answer: Any
    before: dict[str, list[str]]
    after: dict[str, list[str]]
    error: HoldfastError | None = None


# -- the rows, without what differs from run to run -------------------------------------------


_CHANCE = re.compile(r"nonce|hash|prefix|value|_at$|^at$|expires")


def rows_of(database) -> dict[str, list[str]]:
    """The rows of all tables. Ids are places in the order of all ids; times and secrets are not compared."""
    tables = database.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace AND relkind IN ('r', 'p')"
        " AND NOT relispartition AND relname <> ALL('{meta,epoch,test_clock,migration}') ORDER BY 1"
    )
    # A parent's id is a job's id too.
    rows = {
        name: [row for (row,) in database.execute(f"SELECT row_to_json(t) FROM holdfast.{name} t")]
        for (name,) in tables
    }
    ids = sorted({row["id"] for row in rows["job"]})
    return {name: sorted(repr(_normal(row, ids)) for row in each) for name, each in rows.items()}


def _normal(row: dict[str, Any], ids: list[int]) -> dict[str, Any]:
    def cell(name: str, value: Any) -> Any:
        if value is not None and _CHANCE.search(name):
            return "some"
        if name in {"id", "job_id", "parent_id"} and value in ids:
            return f"job {ids.index(value)}"
        return value

    return {name: cell(name, value) for name, value in row.items()}


def normal_answer(answer: Any, ids: list[int]) -> Any:
    """Jobs are compared by their places, too."""
    if isinstance(answer, list | tuple):
        return [normal_answer(each, ids) for each in answer]
    return f"job {ids.index(answer.id)}" if isinstance(answer, Job) else answer


# -- one call -----------------------------------------------------------------------------------


@contextmanager
def opened(url: str):
    store = open_store(url)
    try:
        yield store
    finally:
        store.close()


def observe(database, call: Call, store, act: Callable[[Any, Any], Any] | None = None) -> Outcome:
    """Prepare the call in a store of its own, and make it in *store*, which must be well afterwards."""
    with opened(database.url) as other:
        prepared = call.prepare(other)
    before, answer, error = rows_of(database), None, None
    try:
        answer = (act or call.act)(store, prepared)
    except HoldfastError as refused:  # any other is a defect
        error = refused
    after = rows_of(database)
    ids = [row[0] for row in database.execute("SELECT id FROM holdfast.job ORDER BY id")]
    check_health(store)
    return Outcome(normal_answer(answer, ids), before, after, error)


def check_health(store) -> None:
    """All connections are returned, and each of them works."""
    for backend in (store.backend, store.backend.reserved):
        wait_until(lambda: backend.pool_stats().connections["in_use"] == 0, seconds=10)  # noqa: B023 - notifications
        assert backend._once(lambda connection: connection.execute("SELECT 1").fetchone(), Timeouts.call) == (1,)
    assert put(store, queue="elsewhere") != put(store, queue="elsewhere")


@cache
def plain(name: str) -> tuple[Outcome, Query]:
    """The call without a situation, and its statement."""
    seen: dict[str, Query] = {}
    with (
        open_database("postgres", Path(), real_time=True) as database,
        opened(database.url) as store,
        watched(lambda query: seen.setdefault(query.name, query)),
    ):
        outcome = observe(database, CALLS[name], store)
    assert outcome.error is None
    return outcome, seen[name]


@pytest.fixture
def call(name) -> Call:
    plain(name)  # before the situation begins
    return CALLS[name]


def check(call: Call, outcome: Outcome) -> None:
    expected, _ = plain(call.name)
    if outcome.error is not None:
        assert outcome.after == outcome.before, f"an error, and something is written: {outcome.error!r}"
        return
    assert outcome.answer == expected.answer
    assert outcome.after == expected.after


# -- situations ---------------------------------------------------------------------------------

every = pytest.mark.parametrize("name", CALLS)
direct = pytest.mark.parametrize("name", [name for name, call in CALLS.items() if call.direct])
#: Only statements without a cursor: the driver prepares the others, on sessions with the same settings.
poolings = pytest.mark.parametrize(
    ("name", "pooler"),
    [
        (name, pooler)
        for name, call in CALLS.items()
        for pooler in ("none", "session mode", "transaction mode")
        if call.direct or pooler != "session mode"
    ],
)
inserts = pytest.mark.parametrize("name", [name for name, call in CALLS.items() if call.inserts])
edges = pytest.mark.parametrize(
    ("name", "edge"), [(name, number) for name, call in CALLS.items() for number in range(len(call.edges))]
)


def part_of(store, name: str) -> str:
    """A part of the statement by which the proxy knows it: the longest one without parameters."""
    text = store.backend.statements.text(plain(name)[1]).decode()
    return max(re.split(r"%\([\w.]+\)s|%%", text), key=len)


@every
def test_the_call_of_each_row_runs_its_statement(name):
    """A row for a statement that is no longer sent is an error."""
    assert plain(name)[1].direct == CALLS[name].direct


@pytest.mark.parametrize("keeps_rows", [False, True], ids=["after the commit", "in the answer"])
@every
def test_a_connection_is_cut(call, postgres_database, name, keeps_rows):
    """The server has committed. A statement that is not sent again is reported: it may have had its effect."""
    with proxy_to(postgres_database.url) as proxy, opened(proxy.uri) as store:
        part = part_of(store, name)
        proxy.keeps_rows = keeps_rows

        def act(store, prepared):
            proxy.lose_answer(part)
            return call.act(store, prepared)

        outcome = observe(postgres_database, call, store, act)
        assert proxy.cuts == 1
    if call.repeats:
        assert outcome.error is None
        check(call, outcome)
    else:
        assert outcome.error is not None
        assert outcome.after == plain(name)[0].after, "an effect twice"


@direct
def test_threads_need_it_first_at_once(call, postgres_database, name):
    """D4: on connections that all of them share. Every lease and every new id goes to one of them."""
    start = Barrier(3)
    with opened(postgres_database.url) as store:

        def act(store, prepared):
            def one(_):
                start.wait()
                with suppress(HoldfastError):
                    return call.act(store, prepared)

            with ThreadPoolExecutor(3) as pool:
                return list(pool.map(one, range(3)))

        outcome = observe(postgres_database, call, store, act)
        again = observe(postgres_database, call, store)
    assert again.error is None
    if call.inserts:
        jobs = [job for answer in outcome.answer for job in answer]
        assert len(set(jobs)) == len(jobs) == len(outcome.after["job"])
    elif name.startswith("claim"):
        leases = [lease for answer in outcome.answer for lease in (answer[0] if name == "claim_few" else answer or [])]
        assert len({lease[0] for lease in leases}) == len(leases)


@contextmanager
def settings_of_a_dba(database):
    (name,) = database.execute("SELECT current_database()")[0]
    for setting, value in DBA.items():
        database.execute(f"""ALTER DATABASE "{name}" SET {setting} = '{value}'""")
    try:
        yield
    finally:
        database.execute(f'ALTER DATABASE "{name}" RESET ALL')


@pytest.fixture(scope="module")
def poolers():
    """The URLs of poolers that drop startup options, and one without a pooler; the database has a DBA's settings."""
    assert PROGRAM is not None, "PgBouncer is missing: make services"
    url = postgres_url("postgres")
    with pgbouncer(url, mode="session", size=12) as session, pgbouncer(url, size=12) as transaction:
        yield {"none": url, "session mode": session, "transaction mode": f"{transaction}&prepare=off"}


@poolings
def test_a_dba_has_other_settings(call, postgres_database, poolers, name, pooler):
    """D5: isolation, timeouts, formats and planner; a pooler drops the startup options."""
    with settings_of_a_dba(postgres_database), opened(poolers[pooler]) as store:
        outcome = observe(postgres_database, call, store)
    assert outcome.error is None
    check(call, outcome)


@pytest.mark.parametrize("table", ["live", "job"])
@inserts
def test_an_id_is_taken(call, postgres_database, name, table):
    """CORE D1: ids were given out twice, after a failover or a restored backup. The call draws others."""
    with opened(postgres_database.url) as store:
        taken = [put(store, kind="old") for _ in range(3)]
        if table == "job":
            postgres_database.execute("DELETE FROM holdfast.live")
        postgres_database.execute("SELECT setval('holdfast.job_id', %s, false)", (taken[0],))
    with opened(postgres_database.url) as store:
        outcome = observe(postgres_database, call, store)
    assert outcome.error is None
    assert len(outcome.after["job"]) == len(taken) + len(plain(name)[0].after["job"])


@direct
def test_sockets_have_a_default_timeout(call, postgres_database, name):
    """D2: libraries call it; it is not meant for the sockets of the driver."""
    socket.setdefaulttimeout(0.2)
    try:
        with opened(postgres_database.url) as store:
            outcome = observe(postgres_database, call, store)
    finally:
        socket.setdefaulttimeout(None)
    assert outcome.error is None
    check(call, outcome)


@edges
def test_values_are_at_the_ends_of_their_types(call, postgres_database, name, edge):
    """All of them are legal. The same values by a cursor have the same result."""
    outcomes = []
    for by_cursor in (False, True):
        postgres_database.empty()
        with opened(postgres_database.url) as store:
            store.backend.statements._has_driver = not by_cursor
            outcomes.append(observe(postgres_database, call, store, call.edges[edge]))
    first, second = outcomes
    assert first.error is None, "a legal value is refused"
    assert first.after == second.after
    assert first.answer == second.answer
    assert second.error is None

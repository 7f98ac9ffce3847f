"""``SELECT holdfast.demand(queue)``: the number that an autoscaler such as KEDA reads."""

from __future__ import annotations

import secrets
from datetime import timedelta

import psycopg
import pytest

from holdfast.domain.jobs.verdict import Done
from holdfast.store.postgres.roles import ROLES
from tests.support.backends import available, open_database
from tests.support.jobs import put, take_one

POSTGRES = [name for name in available() if name != "sqlite"]
#: Jobs of each block: those that do not count come first in the table.
MANY = 40_000
INSERT = """
INSERT INTO holdfast.live (id, state, queue, kind, priority, due_at, token, worker, claimed_at, lease_expires_at)
SELECT 10 * n + block, state, queue, 'mail', 0, now(), 1, worker, claimed, claimed + interval '1 hour'
FROM generate_series(1, %s) AS n, (VALUES
    (1, 'scheduled', 'large', NULL, NULL::timestamptz), (2, 'held', 'large', NULL, NULL),
    (3, 'ready', 'large', NULL, NULL), (4, 'running', 'large', 'w', now()), (5, 'ready', 'other', NULL, NULL)
) AS blocks (block, state, queue, worker, claimed) ORDER BY block, n
"""


@pytest.fixture(params=POSTGRES)
def database(request, tmp_path):
    """SQLite has no functions of ours: there, an autoscaler reads the metrics of the dashboard."""
    with open_database(request.param, tmp_path) as database:
        yield database


def demand(database, arguments: str) -> int:
    return database.execute(f"SELECT holdfast.demand({arguments})")[0][0]


def test_ready_and_running_jobs_of_the_queue_count(database):
    """What waits for another time, for another job or for a person does not."""
    store = database.open()
    for _ in range(3):
        put(store, queue="mail")
    put(store)
    put(store, queue="mail", delay=timedelta(hours=1))
    put(store, queue="mail", hold=True)
    assert demand(database, "'mail'") == 3
    lease = take_one(store, queues=("mail",))
    assert demand(database, "'mail'") == 3
    store.leases.settle(lease, Done())
    assert demand(database, "'mail'") == 2


@pytest.mark.parametrize("queue", ["'nothing'", "NULL", "''"])
def test_it_is_never_null(database, queue):
    database.open()
    assert demand(database, queue) == 0


@pytest.mark.parametrize("role", ROLES)
def test_every_role_may_call_it(database, role):
    store = database.open()
    store.database.tools.apply(store.database.tools.roles())
    put(store)
    name = f"test_{secrets.token_hex(4)}"
    database.execute(f"CREATE ROLE {name} LOGIN IN ROLE holdfast_{role}")
    try:
        with psycopg.connect(database.url, user=name) as connection:
            assert connection.execute("SELECT holdfast.demand('default')").fetchone() == (1,)
    finally:
        database.execute(f"DROP ROLE {name}")


@pytest.fixture
def large(database):
    """Two hundred thousand live jobs; the planner's statistics are of a store with one."""
    store = database.open()
    put(store)
    database.execute("ANALYZE holdfast.live")
    database.execute(INSERT, (MANY,))
    return database


def test_it_reads_two_indexes_up_to_the_cap(large):
    """No table scan, whatever the planner knows; after a vacuum it reads the index of running jobs alone."""
    assert demand(large, "'large'") == 10_000
    assert demand(large, "'large', 70") == 70
    assert demand(large, f"'large', {3 * MANY}") == 2 * MANY
    for upkeep in ("SELECT 1", "ANALYZE holdfast.live", "VACUUM (ANALYZE) holdfast.live"):
        large.execute(upkeep)
        plan = plan_of_demand(large)
        scans = [node for node in nodes(plan) if node["Node Type"].endswith("Scan")]
        types = {node["Index Name"]: node["Node Type"] for node in scans}
        assert types == {"live_ready": "Index Scan", "live_running": "Index Only Scan"}, upkeep
        assert sum(node["Actual Rows"] for node in scans) <= 10_000, upkeep
        assert sum(node.get("Heap Fetches", 0) for node in scans) == 0 or not upkeep.startswith("VACUUM")
        assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 1_000, upkeep


def plan_of_demand(database):
    (settings, body), *_ = database.execute("SELECT proconfig, prosrc FROM pg_proc WHERE proname = 'demand'")
    with psycopg.connect(database.url) as connection:
        for setting in settings:
            connection.execute(f"SET {setting}".encode())
        connection.execute("SET plan_cache_mode = force_generic_plan")
        connection.execute(f"PREPARE demand (text, integer) AS {body}".encode())
        query = b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE demand('large', 10000)"
        ((explained,),) = connection.execute(query).fetchone()
    return explained["Plan"]


def nodes(node):
    yield node
    for child in node.get("Plans", []):
        yield from nodes(child)

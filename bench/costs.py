"""What claim-and-settle costs PostgreSQL beyond time: WAL bytes and dead rows per job."""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from bench.contest import Contestant


def costs(url: str, open_contestant: Callable[[], Contestant], *, jobs: int) -> dict[str, float]:
    """Measured once, apart from the rounds: a session's counts are only sure after its end."""
    _with(open_contestant, lambda system: system.enqueue_bulk(jobs))
    wal, dead = _read(url)
    _with(open_contestant, lambda system: system.drain(jobs, 1000))
    wal_after, dead_after = _read(url)
    return {"wal_bytes": (wal_after - wal) / jobs, "dead_rows": (dead_after - dead) / jobs}


def _with(open_contestant: Callable[[], Contestant], act: Callable[[Contestant], float]) -> None:
    system = open_contestant()
    try:
        act(system)
    finally:
        system.close()


def _read(url: str) -> tuple[int, int]:
    query = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint, sum(n_tup_upd + n_tup_del)::bigint FROM pg_stat_user_tables"
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(query).fetchone()
    assert row is not None
    return row

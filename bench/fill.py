"""Fill stores with jobs that a claim must not feel: finished ones, or a waiting crowd."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import psycopg

from bench.work import KIND, PAYLOAD
from holdfast.store.postgres.backend import PostgresBackend
from holdfast.store.sqlite.backend import SqliteBackend

SLICE = 250_000
#: The waiting crowd is ready too, in a lane that nobody claims.
LATER = "later"

_PG_JOB = (
    "INSERT INTO holdfast.job (id, kind, payload, actor, created_at, max_attempts, max_crashes, on_lost)"
    f" SELECT n, '{KIND}', '{PAYLOAD}', 'fill', now(), 3, 3, 'retry' FROM generate_series(%s::bigint, %s::bigint) AS n"
)
_PG_NEXT = {
    "finished": (
        "INSERT INTO holdfast.finished (id, state, queue, kind, priority, due_at, attempts, crashes, token, worker,"
        " started_at, finished_at, reason)"
        f" SELECT n, 'done', '{LATER}', '{KIND}', 0, now(), 1, 0, 1, 'fill', now(), now(), 'done'"
        " FROM generate_series(%s::bigint, %s::bigint) AS n"
    ),
    "waiting": (
        "INSERT INTO holdfast.live (id, state, queue, kind, priority, due_at)"
        f" SELECT n, 'ready', '{LATER}', '{KIND}', 0, now() FROM generate_series(%s::bigint, %s::bigint) AS n"
    ),
}


def fill_postgres(url: str, what: str | None, count: int) -> None:
    """Make a store with *count* finished or waiting jobs, vacuumed and on disk."""
    PostgresBackend(url).close()
    with psycopg.connect(url, autocommit=True) as connection:
        if what is not None:
            for low in range(1, count + 1, SLICE):
                bounds = (low, min(low + SLICE - 1, count))
                connection.execute(_PG_JOB, bounds)
                connection.execute(_PG_NEXT[what], bounds)
            connection.execute("SELECT setval('holdfast.job_id', %s)", (count,))
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")


_SERIES = "WITH RECURSIVE series (n) AS (SELECT ?1 UNION ALL SELECT n + 1 FROM series WHERE n < ?2) "
_LITE_JOB = (
    "INSERT INTO holdfast_job (id, kind, payload, actor, created_at, max_attempts, max_crashes, on_lost) "
    f"{_SERIES} SELECT n, '{KIND}', '{PAYLOAD}', 'fill', 1, 3, 3, 'retry' FROM series"
)
_LITE_NEXT = {
    "finished": (
        "INSERT INTO holdfast_finished (id, state, queue, kind, priority, due_at, attempts, crashes, token, worker,"
        f" started_at, finished_at, reason) {_SERIES}"
        f" SELECT n, 'done', '{LATER}', '{KIND}', 0, n, 1, 0, 1, 'fill', n, n, 'done' FROM series"
    ),
    "waiting": (
        f"INSERT INTO holdfast_live (id, state, queue, kind, priority, due_at) {_SERIES}"
        f" SELECT n, 'ready', '{LATER}', '{KIND}', 0, n FROM series"
    ),
}


def fill_sqlite(path: Path, what: str | None, count: int) -> None:
    """The same for a SQLite file; its WAL is empty afterwards."""
    SqliteBackend(path).close()
    if what is None:
        return
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("BEGIN")
    connection.execute(_LITE_JOB, (1, count))
    connection.execute(_LITE_NEXT[what], (1, count))
    connection.execute("UPDATE holdfast_meta SET last_job_id = ?", (count,))
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()

"""The raw limit on SQLite: Holdfast's tables and pragmas, the least SQL, plain sqlite3."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

from bench.work import KIND, PAYLOAD, QUEUE, chunks

CLAIM = f"""
    UPDATE holdfast_live SET state = 'running', token = token + 1, worker = 'raw', claimed_at = ?1, lease_expires_at = ?2
    WHERE id IN (
        SELECT id FROM holdfast_live WHERE state = 'ready' AND queue = '{QUEUE}' AND kind = '{KIND}' AND reader = ''
        ORDER BY priority DESC, due_at, id LIMIT ?3)
    RETURNING id, token, (SELECT payload FROM holdfast_job AS job WHERE job.id = holdfast_live.id)
"""
APPEND = """
    INSERT INTO holdfast_finished (id, state, queue, kind, priority, due_at, attempts, crashes, token, worker,
        started_at, finished_at, reason)
    SELECT id, 'done', queue, kind, priority, due_at, attempts + 1, crashes, token, worker, claimed_at, ?3, 'done'
    FROM holdfast_live WHERE id = ?1 AND token = ?2
"""
REMOVE = "DELETE FROM holdfast_live WHERE id = ?1 AND token = ?2"
JOB = "INSERT INTO holdfast_job (id, kind, payload, actor, created_at, max_attempts, max_crashes, on_lost) VALUES (?, ?, ?, 'raw', ?, 3, 3, 'retry')"
LIVE = "INSERT INTO holdfast_live (id, state, queue, kind, priority, due_at) VALUES (?, 'ready', ?, ?, 0, ?)"
MINUTE = 60_000_000


class RawSqlite:
    """One connection, everything in explicit transactions, ids counted by itself."""

    def __init__(self, path: Path, *, first_id: int) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, cached_statements=256)
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "mmap_size = 0", "wal_autocheckpoint = 2048"):
            self._connection.execute(f"PRAGMA {pragma}")
        self._id = first_id

    def enqueue_one(self, count: int) -> float:
        run = self._connection.execute
        began = time.perf_counter()
        for _ in range(count):
            self._id += 1
            now = _micros()
            run("BEGIN IMMEDIATE")
            run(JOB, (self._id, KIND, PAYLOAD, now))
            run(LIVE, (self._id, QUEUE, KIND, now))
            run("COMMIT")
        return time.perf_counter() - began

    def enqueue_bulk(self, count: int) -> float:
        now = _micros()
        blocks = []
        for size in chunks(count):
            ids = range(self._id + 1, self._id + size + 1)
            blocks.append(([(n, KIND, PAYLOAD, now) for n in ids], [(n, QUEUE, KIND, now) for n in ids]))
            self._id += size
        began = time.perf_counter()
        for jobs, live in blocks:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(JOB, jobs)
            self._connection.executemany(LIVE, live)
            self._connection.execute("COMMIT")
        return time.perf_counter() - began

    def drain(self, count: int, batch: int) -> float:
        connection, left = self._connection, count
        began = time.perf_counter()
        while left:
            now = _micros()
            rows = connection.execute(CLAIM, (now, now + MINUTE, batch)).fetchall()
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(APPEND, [(job, token, now) for job, token, _ in rows])
            left -= connection.executemany(REMOVE, [(job, token) for job, token, _ in rows]).rowcount
            connection.execute("COMMIT")
        return time.perf_counter() - began

    def close(self) -> None:
        self._connection.close()


def _micros() -> int:
    return time.time_ns() // 1000

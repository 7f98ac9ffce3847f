"""The raw limit on PostgreSQL: Holdfast's tables, the least SQL, plain psycopg.

The tables, indexes and triggers are Holdfast's own, so what is left to lose is in
Holdfast's statements and in its Python. Nothing here knows limits, pauses, keys or needs.
"""

from __future__ import annotations

import time

import psycopg

from bench.work import KIND, PAYLOAD, QUEUE, chunks

CLAIM = f"""
    WITH taken AS (
        UPDATE holdfast.live SET state = 'running', token = token + 1, worker = 'raw',
            claimed_at = now(), lease_expires_at = now() + interval '60 s'
        WHERE id = ANY(ARRAY(
            SELECT id FROM holdfast.live WHERE state = 'ready' AND queue = '{QUEUE}' AND kind = '{KIND}' AND reader = ''
            ORDER BY priority DESC, due_at, id LIMIT %s FOR UPDATE SKIP LOCKED))
        RETURNING id, token)
    SELECT taken.id, taken.token, job.payload::text FROM taken JOIN holdfast.job ON job.id = taken.id
"""
SETTLE = """
    WITH gone AS (
        DELETE FROM holdfast.live USING unnest(%s::bigint[], %s::bigint[]) AS held (id, token)
        WHERE live.id = held.id AND live.token = held.token
        RETURNING live.id, queue, kind, priority, due_at, attempts, crashes, live.token, worker, claimed_at)
    INSERT INTO holdfast.finished (id, state, queue, kind, priority, due_at, attempts, crashes, token, worker,
        started_at, finished_at, reason)
    SELECT id, 'done', queue, kind, priority, due_at, attempts + 1, crashes, token, worker,
        claimed_at, now(), 'done'
    FROM gone
"""
JOB = "id, kind, payload, actor, created_at, max_attempts, max_crashes, on_lost"
LIVE = "id, state, queue, kind, priority, due_at"
ENQUEUE = f"""
    WITH asked AS (
        INSERT INTO holdfast.job ({JOB}) VALUES (%s, '{KIND}', %s::json, 'raw', now(), 3, 3, 'retry') RETURNING id)
    INSERT INTO holdfast.live ({LIVE}) SELECT id, 'ready', '{QUEUE}', '{KIND}', 0, now() FROM asked
"""


class RawPostgres:
    """One connection in autocommit, everything prepared, ids counted by itself."""

    def __init__(self, url: str, *, first_id: int) -> None:
        # A plan that is cached while the table is small must still serve when it is large.
        plans = "-c enable_seqscan=off"
        self._connection = psycopg.connect(url, autocommit=True, prepare_threshold=0, options=plans)
        self._id = first_id

    def enqueue_one(self, count: int) -> float:
        began = time.perf_counter()
        for _ in range(count):
            self._id += 1
            self._connection.execute(ENQUEUE, (self._id, PAYLOAD))
        return time.perf_counter() - began

    def enqueue_bulk(self, count: int) -> float:
        blocks = [self._encoded(size) for size in chunks(count)]
        began = time.perf_counter()
        for job, live in blocks:
            with self._connection.transaction(), self._connection.cursor() as cursor:
                with cursor.copy(f"COPY holdfast.job ({JOB}) FROM STDIN") as copy:
                    copy.write(job)
                with cursor.copy(f"COPY holdfast.live ({LIVE}) FROM STDIN") as copy:
                    copy.write(live)
        return time.perf_counter() - began

    def drain(self, count: int, batch: int) -> float:
        left = count
        cursor = self._connection.cursor()
        began = time.perf_counter()
        while left:
            rows = cursor.execute(CLAIM, (batch,)).fetchall()
            ids, tokens, _payloads = zip(*rows, strict=True)
            # Arrays as text: psycopg builds them value by value from lists.
            cursor.execute(SETTLE, (_array(ids), _array(tokens)))
            left -= cursor.rowcount
        return time.perf_counter() - began

    def close(self) -> None:
        self._connection.close()

    def _encoded(self, size: int) -> tuple[bytes, bytes]:
        """The rows as COPY wants them: encoding is not part of the limit."""
        ids = range(self._id + 1, self._id + size + 1)
        self._id += size
        job = "".join(f"{n}\t{KIND}\t{PAYLOAD}\traw\tnow\t3\t3\tretry\n" for n in ids)
        live = "".join(f"{n}\tready\t{QUEUE}\t{KIND}\t0\tnow\n" for n in ids)
        return job.encode(), live.encode()


def _array(numbers: tuple[int, ...]) -> str:
    return f"{{{','.join(map(str, numbers))}}}"

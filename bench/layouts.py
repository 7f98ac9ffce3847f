"""Four ways to lay out the job table on PostgreSQL, measured side by side.

    python -m bench.layouts [--finished 10000,1000000] [--jobs 20000] [--rounds 3]

(a) ``one``      one table, a state column, partial indexes on the live states
(b) ``history``  a live table; settling deletes the live row and appends the ended one
(c) ``narrow``   immutable job rows beside narrow ready, running and ended tables
(d) ``split``    immutable job rows beside one narrow live table and one narrow ended table

Each layout inserts, claims and settles the same jobs with the fewest statements that
it needs. The result is written down in docs/adr/0002-job-table.md.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import time
from dataclasses import dataclass

import psycopg
from tests.support.postgres import DURABLE, bundled_programs, running

COLUMNS = """
    id bigint PRIMARY KEY, kind text NOT NULL, queue text NOT NULL, {state}
    priority integer NOT NULL DEFAULT 0, run_at timestamptz NOT NULL DEFAULT now(),
    payload json NOT NULL, label text, max_attempts integer NOT NULL DEFAULT 3,
    max_crashes integer NOT NULL DEFAULT 3, on_lost text NOT NULL DEFAULT 'retry',
    backoff text NOT NULL DEFAULT 'exponential', actor text NOT NULL DEFAULT 'system:client',
    created_at timestamptz NOT NULL DEFAULT now()"""
HELD = """, attempts integer NOT NULL DEFAULT 0, crashes integer NOT NULL DEFAULT 0,
    token bigint NOT NULL DEFAULT 0, worker text, leased_until timestamptz, started_at timestamptz,
    suspect boolean NOT NULL DEFAULT false, progress json, checkpoint json"""
FINISHED = ", finished_at timestamptz, result json, error text"

READY = "(queue, kind, priority DESC, run_at, id)"
PAYLOAD = json.dumps({"user": 12345, "template": "welcome", "text": "x" * int(os.environ.get("PAYLOAD_BYTES", "10"))})
NAMES = "id, kind, queue, payload"


@dataclass(frozen=True, kw_only=True)
class Layout:
    name: str
    schema: str
    insert: tuple[str, ...]
    finished: tuple[str, ...]
    claim: str
    settle: str


def _fill(table: str, columns: str, values: str) -> str:
    return (
        f"INSERT INTO {table} ({columns}) SELECT {values} FROM generate_series(%(low)s::bigint, %(high)s::bigint) AS n"
    )


ONE = Layout(
    name="one",
    schema=f"""
        CREATE TABLE job ({COLUMNS.format(state="state text NOT NULL DEFAULT 'ready',")}{HELD}{FINISHED}) WITH (fillfactor = 80);
        CREATE INDEX job_ready ON job {READY} WHERE state = 'ready';
        CREATE INDEX job_running ON job (leased_until) WHERE state = 'running';
        CREATE INDEX job_scheduled ON job (run_at) WHERE state = 'scheduled';
        CREATE INDEX job_ended ON job (state, finished_at) WHERE state IN ('done', 'dead', 'cancelled');
    """,
    insert=(_fill("job", NAMES, f"n, 'k', %(queue)s, '{PAYLOAD}'"),),
    finished=(
        _fill(
            "job", f"{NAMES}, state, finished_at, token, attempts", f"n, 'k', 'old', '{PAYLOAD}', 'done', now(), 1, 1"
        ),
    ),
    claim="""
        UPDATE job SET state = 'running', token = token + 1, worker = 'w', leased_until = now() + interval '60 s'
        WHERE id = ANY(ARRAY(
            SELECT id FROM job WHERE state = 'ready' AND queue = 'q' AND kind = 'k'
            ORDER BY priority DESC, run_at, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED))
        RETURNING id, token, payload
    """,
    settle="""
        UPDATE job SET state = 'done', finished_at = now(), attempts = attempts + 1, leased_until = NULL
        FROM unnest(%(ids)s::bigint[], %(tokens)s::bigint[]) AS held (id, token)
        WHERE job.id = held.id AND job.token = held.token AND job.worker IS NOT NULL
        RETURNING job.id
    """,
)

HISTORY = Layout(
    name="history",
    schema=f"""
        CREATE TABLE job ({COLUMNS.format(state="state text NOT NULL DEFAULT 'ready',")}{HELD}) WITH (fillfactor = 80);
        CREATE INDEX job_ready ON job {READY} WHERE state = 'ready';
        CREATE INDEX job_running ON job (leased_until) WHERE state = 'running';
        CREATE INDEX job_scheduled ON job (run_at) WHERE state = 'scheduled';
        CREATE TABLE ended ({COLUMNS.format(state="state text NOT NULL,")}{HELD}{FINISHED});
        CREATE INDEX ended_state ON ended (state, finished_at);
    """,
    insert=ONE.insert,
    finished=(
        _fill(
            "finished",
            f"{NAMES}, state, finished_at, token, attempts",
            f"n, 'k', 'old', '{PAYLOAD}', 'done', now(), 1, 1",
        ),
    ),
    claim=ONE.claim,
    settle="""
        WITH gone AS (
            DELETE FROM job USING unnest(%(ids)s::bigint[], %(tokens)s::bigint[]) AS held (id, token)
            WHERE job.id = held.id AND job.token = held.token RETURNING job.*)
        INSERT INTO finished (id, kind, queue, state, priority, run_at, payload, label, max_attempts, max_crashes, on_lost,
            backoff, actor, created_at, attempts, crashes, token, worker, leased_until, started_at, poison_suspect, finished_at)
        SELECT id, kind, queue, 'done', priority, run_at, payload, label, max_attempts, max_crashes, on_lost,
            backoff, actor, created_at, attempts + 1, crashes, token, worker, NULL, started_at, poison_suspect, now()
        FROM gone RETURNING id
    """,
)

NARROW = Layout(
    name="narrow",
    schema=f"""
        CREATE TABLE job ({COLUMNS.format(state="")});
        CREATE TABLE ready (id bigint NOT NULL, queue text NOT NULL, kind text NOT NULL, priority integer NOT NULL,
            run_at timestamptz NOT NULL, attempts integer NOT NULL DEFAULT 0, crashes integer NOT NULL DEFAULT 0,
            token bigint NOT NULL DEFAULT 0, suspect boolean NOT NULL DEFAULT false);
        CREATE UNIQUE INDEX ready_order ON ready {READY};
        CREATE TABLE running (id bigint PRIMARY KEY, queue text NOT NULL, kind text NOT NULL, attempts integer NOT NULL,
            crashes integer NOT NULL, token bigint NOT NULL, worker text NOT NULL, leased_until timestamptz NOT NULL,
            started_at timestamptz, progress json, checkpoint json);
        CREATE INDEX running_until ON running (leased_until);
        CREATE TABLE ended (id bigint PRIMARY KEY, state text NOT NULL, attempts integer NOT NULL, crashes integer NOT NULL,
            token bigint NOT NULL, worker text, started_at timestamptz, finished_at timestamptz NOT NULL, result json, error text);
        CREATE INDEX ended_state ON ended (state, finished_at);
    """,
    insert=(
        _fill("job", NAMES, f"n, 'k', %(queue)s, '{PAYLOAD}'"),
        _fill("ready", "id, queue, kind, priority, run_at", "n, %(queue)s, 'k', 0, now()"),
    ),
    finished=(
        _fill("job", NAMES, f"n, 'k', 'old', '{PAYLOAD}'"),
        _fill("finished", "id, state, attempts, crashes, token, finished_at", "n, 'done', 1, 0, 1, now()"),
    ),
    claim="""
        WITH taken AS (
            DELETE FROM ready WHERE ctid = ANY(ARRAY(
                SELECT ctid FROM ready WHERE queue = 'q' AND kind = 'k'
                ORDER BY priority DESC, run_at, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED))
            RETURNING id, queue, kind, attempts, crashes, token + 1 AS token),
        held AS (
            INSERT INTO running (id, queue, kind, attempts, crashes, token, worker, leased_until)
            SELECT id, queue, kind, attempts, crashes, token, 'w', now() + interval '60 s' FROM taken)
        SELECT taken.id, taken.token, job.payload FROM taken JOIN job ON job.id = taken.id
    """,
    settle="""
        WITH gone AS (
            DELETE FROM running USING unnest(%(ids)s::bigint[], %(tokens)s::bigint[]) AS held (id, token)
            WHERE running.id = held.id AND running.token = held.token
            RETURNING running.id, attempts, crashes, running.token, worker, started_at)
        INSERT INTO finished (id, state, attempts, crashes, token, worker, started_at, finished_at)
        SELECT id, 'done', attempts + 1, crashes, token, worker, started_at, now() FROM gone RETURNING id
    """,
)

SPLIT = Layout(
    name="split",
    schema=f"""
        CREATE TABLE job ({COLUMNS.format(state="")});
        CREATE TABLE live (id bigint PRIMARY KEY, state text NOT NULL DEFAULT 'ready', queue text NOT NULL,
            kind text NOT NULL, priority integer NOT NULL DEFAULT 0, due_at timestamptz NOT NULL DEFAULT now(){HELD})
            WITH (fillfactor = 80);
        CREATE INDEX live_ready ON live (queue, kind, priority DESC, due_at, id) WHERE state = 'ready';
        CREATE INDEX live_running ON live (leased_until) WHERE state = 'running';
        CREATE INDEX live_scheduled ON live (due_at) WHERE state = 'scheduled';
        CREATE TABLE ended (id bigint PRIMARY KEY, state text NOT NULL, attempts integer NOT NULL, crashes integer NOT NULL,
            token bigint NOT NULL, worker text, started_at timestamptz, finished_at timestamptz NOT NULL, result json, error text);
        CREATE INDEX ended_state ON ended (state, finished_at);
    """,
    insert=(
        _fill("job", NAMES, f"n, 'k', %(queue)s, '{PAYLOAD}'"),
        _fill("live", "id, queue, kind", "n, %(queue)s, 'k'"),
    ),
    finished=NARROW.finished,
    claim="""
        WITH taken AS (
            UPDATE live SET state = 'running', token = token + 1, worker = 'w', leased_until = now() + interval '60 s'
            WHERE id = ANY(ARRAY(
                SELECT id FROM live WHERE state = 'ready' AND queue = 'q' AND kind = 'k'
                ORDER BY priority DESC, due_at, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED))
            RETURNING id, token)
        SELECT taken.id, taken.token, job.payload FROM taken JOIN job ON job.id = taken.id
    """,
    settle="""
        WITH gone AS (
            DELETE FROM live USING unnest(%(ids)s::bigint[], %(tokens)s::bigint[]) AS held (id, token)
            WHERE live.id = held.id AND live.token = held.token
            RETURNING live.id, attempts, crashes, live.token, worker, started_at)
        INSERT INTO finished (id, state, attempts, crashes, token, worker, started_at, finished_at)
        SELECT id, 'done', attempts + 1, crashes, token, worker, started_at, now() FROM gone RETURNING id
    """,
)

LAYOUTS = (ONE, HISTORY, NARROW, SPLIT)


def drain(url: str, layout: Layout, batch: int) -> int:
    """Claim and settle in groups of *batch* until nothing is ready; answer how many."""
    count = 0
    with psycopg.connect(url, autocommit=True, prepare_threshold=0) as connection:
        while rows := connection.execute(layout.claim, {"limit": batch}).fetchall():
            held = {"ids": [row[0] for row in rows], "tokens": [row[1] for row in rows]}
            count += len(connection.execute(layout.settle, held).fetchall())
    return count


def measure(url: str, layout: Layout, *, jobs: int, batch: int, workers: int, base: int) -> dict[str, float]:
    with psycopg.connect(url, autocommit=True) as connection:
        scope = {"low": base, "high": base + jobs - 1, "queue": "q"}
        began = time.perf_counter()
        for statement in layout.insert:
            connection.execute(statement, scope)
        inserted = time.perf_counter() - began
        connection.execute("SELECT pg_stat_force_next_flush()")
        before = connection.execute("SELECT sum(n_tup_upd + n_tup_del) FROM pg_stat_user_tables").fetchone()
        wal = connection.execute("SELECT pg_current_wal_lsn()").fetchone()
        began = time.perf_counter()
        if workers == 1:
            done = drain(url, layout, batch)
        else:
            with multiprocessing.get_context("spawn").Pool(workers) as pool:
                pool.starmap(drain, [(url, layout, batch)] * workers)  # warms the children up
                for statement in layout.insert:
                    connection.execute(statement, {**scope, "low": base + jobs, "high": base + 2 * jobs - 1})
                began = time.perf_counter()
                done = sum(pool.starmap(drain, [(url, layout, batch)] * workers))
        seconds = time.perf_counter() - began
        assert done == jobs, (done, jobs)
        connection.execute("SELECT pg_stat_force_next_flush()")
        used = connection.execute("SELECT pg_current_wal_lsn() - %s::pg_lsn", wal).fetchone()
        dead = connection.execute("SELECT sum(n_tup_upd + n_tup_del) FROM pg_stat_user_tables").fetchone()
    assert used
    assert dead
    assert before
    return {
        "insert_per_s": jobs / inserted,
        "drain_per_s": jobs / seconds,
        "wal_bytes_per_job": float(used[0]) / jobs / workers,
        "dead_rows_per_job": float(dead[0] - before[0]) / jobs / workers,
    }


def prepare(url: str, layout: Layout, *, finished: int, waiting: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
        connection.execute(layout.schema)
        for low in range(1, finished, 1_000_000):
            for statement in layout.finished:
                connection.execute(statement, {"low": low, "high": min(low + 999_999, finished)})
        if waiting:
            first = finished + 1
            for statement in layout.insert:
                connection.execute(statement, {"low": first, "high": first + waiting - 1, "queue": "later"})
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--finished", default="10000,1000000")
    parser.add_argument("--waiting", type=int, default=1_000_000)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    cases = [(int(n), 0) for n in options.finished.split(",")]
    cases += [(10_000, options.waiting)] if options.waiting else []
    rows = []
    with running(bundled_programs(), settings=DURABLE) as server:
        for finished, waiting in cases:
            for layout in LAYOUTS:
                prepare(server.url(), layout, finished=finished, waiting=waiting)
                base = 100_000_000
                for batch, workers in ((100, 1), (1000, 1), (1000, 2)):
                    samples = []
                    for _ in range(options.rounds):
                        samples.append(
                            measure(server.url(), layout, jobs=options.jobs, batch=batch, workers=workers, base=base)
                        )
                        base += 2 * options.jobs
                    row = {
                        "finished": finished,
                        "waiting": waiting,
                        "layout": layout.name,
                        "batch": batch,
                        "workers": workers,
                        **{k: statistics.median(s[k] for s in samples) for k in samples[0]},
                    }
                    rows.append(row)
                    print(
                        f"{finished:>9} finished {waiting:>8} waiting  {layout.name:8} batch {batch:>5} workers {workers}"
                        f"  insert {row['insert_per_s']:>9,.0f}/s  drain {row['drain_per_s']:>8,.0f}/s"
                        f"  WAL {row['wal_bytes_per_job']:>6,.0f} B/job  dead {row['dead_rows_per_job']:.1f}/job",
                        flush=True,
                    )
    print(json.dumps(rows))


if __name__ == "__main__":
    main(sys.argv[1:])

"""A store of two million jobs, and the plans of statements on it under any statistics."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.adapt import PyFormat, Transformer

from holdfast.store import sql
from holdfast.store.flow import Ask
from holdfast.store.postgres.connection import PostgresBackend
from holdfast.store.postgres.statements import Statements, to_sql

NAME = "holdfast_plans"

#: Ids are dense from 1: live jobs have the odd ones, ended jobs the even ones, each in blocks
#: by age, so that no list finds its jobs at the end of the table by luck.
ENDED = 1_000_000
RUNNING, MINE, LATER, SCHEDULED, WAITING, HELD = 300, 100_000, 699_700, 100_000, 50_000, 50_000
LIVE = RUNNING + MINE + LATER + SCHEDULED + WAITING + HELD

_LOAD = f"""
INSERT INTO holdfast.queue (name, run_limit) VALUES ('narrow', 200);
INSERT INTO holdfast.job (id, kind, payload, label, key, actor, created_at, on_lost, after_when, after_failed)
SELECT id, 'mail', '{{}}', CASE WHEN id % 20 < 2 THEN 'batch-' || id / 1000 END, CASE WHEN id % 20 < 2 THEN 'key-' || id END,
    'test', now() - interval '9 days' + id * interval '100 ms', 'retry', 'done', 'cancel'
FROM generate_series(1, {ENDED + LIVE}) AS id;
INSERT INTO holdfast.ended (id, state, queue, kind, priority, due_at, attempts, crashes, token, worker, started_at, ended_at, reason)
SELECT 2 * n, CASE n % 100 WHEN 1 THEN 'dead' WHEN 2 THEN 'cancelled' ELSE 'done' END, 'mine', 'mail', 0, at, 1, 0, 1, 'w1', at, at, 'done'
FROM generate_series(1, {ENDED}) AS n, LATERAL (SELECT now() - interval '40 days' + n * interval '2 s' AS at) AS ended;
INSERT INTO holdfast.live (id, state, queue, kind, priority, due_at, token, worker, claimed_at, started_at, lapses_at)
SELECT 2 * n - 1, 'running', CASE WHEN n % 3 = 0 THEN 'narrow' ELSE 'mine' END, 'mail', 0, now(), 1, 'w1', now(),
    CASE WHEN n % 2 = 0 THEN now() END, now() + (n - 150) * interval '1 hour'
FROM generate_series(1, {RUNNING}) AS n;
INSERT INTO holdfast.live (id, state, queue, kind, priority, due_at)
SELECT 2 * n - 1,
    CASE WHEN n <= {RUNNING + MINE + LATER} THEN 'ready' WHEN n <= {LIVE - WAITING - HELD} THEN 'scheduled'
        WHEN n <= {LIVE - HELD} THEN 'waiting' ELSE 'held' END,
    CASE WHEN n <= {RUNNING} + {MINE} THEN CASE WHEN n % 2 = 0 THEN 'narrow' ELSE 'mine' END ELSE 'later' END,
    'mail', n % 3, now() + (n - {LIVE - WAITING - HELD - SCHEDULED // 2}) * interval '1 s'
FROM generate_series({RUNNING + 1}, {LIVE}) AS n;
INSERT INTO holdfast.need (job_id, need_id)
SELECT 2 * n - 1, 2 * (n - {LIVE - WAITING - HELD}) - need
FROM generate_series({LIVE - WAITING - HELD + 1}, {LIVE - HELD}) AS n, generate_series(0, 1) AS need;
INSERT INTO holdfast.key (kind, key, job_id, scope)
SELECT 'mail', 'key-' || id, id, 'forever' FROM generate_series(1, {ENDED + LIVE}) AS id WHERE id % 20 < 2;
INSERT INTO holdfast.attempt (job_id, token, number, ended_at, reason)
SELECT 20 * n, 1, 1, now(), 'error' FROM generate_series(1, 100000) AS n;
INSERT INTO holdfast.event (job_id, at, name, actor) SELECT 20 * n, now(), 'failed', 'test' FROM generate_series(1, 100000) AS n;
INSERT INTO holdfast.progress (job_id, done, at) SELECT n, 1, now() FROM generate_series(1, 20000) AS n;
"""


class BigStore:
    """A PostgreSQL database of its own with the jobs above, and their statistics at hand."""

    def __init__(self, server_url: str) -> None:
        with psycopg.connect(server_url, autocommit=True) as server:
            server.execute(f"DROP DATABASE IF EXISTS {NAME}")
            server.execute(f"CREATE DATABASE {NAME}")
        url = psycopg.conninfo.make_conninfo(server_url, dbname=NAME)
        PostgresBackend(url).close()
        self._statements = Statements("holdfast")
        self._connection = psycopg.connect(url, autocommit=True)
        self._run("SET plan_cache_mode = force_generic_plan")
        self._tables = [row[0] for row in self._run("SELECT tablename FROM pg_tables WHERE schemaname = 'holdfast'")]
        self._load()

    def close(self) -> None:
        self._connection.close()

    def use_statistics(self, name: str) -> None:
        """Let the planner know what it knew at the moment *name*: ``empty``, ``stale`` or ``fresh``."""
        with self._connection.transaction():
            self._run(f"DELETE FROM pg_statistic WHERE starelid::bigint IN {_OURS}")
            self._run(f"INSERT INTO pg_statistic SELECT (starelid::bigint - {_SHELF[name]})::oid, {_REST} FROM pg_statistic WHERE starelid::bigint - {_SHELF[name]} IN {_OURS}")
            self._run(f"UPDATE pg_class SET relpages = kept.relpages, reltuples = kept.reltuples, relallvisible = 0 FROM sizes AS kept WHERE kept.moment = '{name}' AND kept.oid = pg_class.oid")

    def explain(self, ask: Ask) -> Plan:
        """Run *ask* by a generic plan, as a worker that has run it before would; undo it."""
        text, values = self._numbered(ask)
        with self._connection.transaction(force_rollback=True):
            self._run(f"PREPARE asked {self._types(values)} AS {text}")
            given = psycopg.ClientCursor(self._connection).mogrify(", ".join(["%s"] * len(values)), values)
            found = self._run(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE asked({given})" if values else "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE asked")
            self._run("DEALLOCATE asked")
        return Plan(found[0][0][0])

    def _run(self, query: str) -> list[Any]:
        cursor = self._connection.execute(query.encode(), prepare=False)
        return cursor.fetchall() if cursor.description else []

    def _load(self) -> None:
        for table in self._tables:
            self._run(f"ALTER TABLE holdfast.{table} SET (autovacuum_enabled = false)")
        self._run("CREATE TABLE sizes (moment text, oid oid, relpages integer, reltuples real)")
        self._keep("empty")
        with self._connection.transaction(force_rollback=False):
            self._run(_FEW)
        self._run(f"ANALYZE {', '.join('holdfast.' + t for t in self._tables)}")
        self._keep("stale")
        self._run(f"TRUNCATE {', '.join('holdfast.' + t for t in self._tables if t != 'meta')}")
        with self._connection.transaction():
            self._run(_LOAD)
        self._run(f"ANALYZE {', '.join('holdfast.' + t for t in self._tables)}")
        self._keep("fresh")

    def _keep(self, name: str) -> None:
        """Lay the statistics of this moment aside, under ids of tables that do not exist."""
        self._run(f"INSERT INTO pg_statistic SELECT (starelid::bigint + {_SHELF[name]})::oid, {_REST} FROM pg_statistic WHERE starelid::bigint IN {_OURS}")
        self._run(f"INSERT INTO sizes SELECT '{name}', oid, relpages, reltuples FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace AND relkind IN ('r', 'i')")

    def _numbered(self, ask: Ask) -> tuple[str, list[Any]]:
        text = self._statements.text(ask).decode()
        given = to_sql(ask.parameters)
        names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", text)))
        for number, name in enumerate(names, start=1):
            text = text.replace(f"%({name})s", f"${number}")
        return text.replace("%%", "%"), [given[name] for name in names]

    def _types(self, values: list[Any]) -> str:
        """The types that psycopg would declare for *values*."""
        if not values:
            return ""
        dumper = Transformer(self._connection)
        dumper.dump_sequence(values, [PyFormat.AUTO] * len(values))
        assert dumper.types is not None
        names = [self._run(f"SELECT CASE WHEN {oid} = 0 THEN 'unknown' ELSE {oid}::regtype::text END")[0][0] for oid in dumper.types]
        return f"({', '.join(names)})"


class Plan:
    """What EXPLAIN ANALYZE told."""

    def __init__(self, explained: dict[str, Any]) -> None:
        self.explained = explained
        self.root = explained["Plan"]

    def nodes(self) -> Iterator[dict[str, Any]]:
        waiting = [self.root]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += node.get("Plans", [])

    @property
    def buffers(self) -> int:
        return self.root["Shared Hit Blocks"] + self.root["Shared Read Blocks"]

    @property
    def ms(self): return self.explained["Execution Time"]

    def seq_scans(self): return {n["Relation Name"] for n in self.nodes() if n["Node Type"] == "Seq Scan"}
    def rows_seen(self): return max(((n["Actual Rows"] + n.get("Rows Removed by Filter",0) + n.get("Rows Removed by Index Recheck",0)) * n["Actual Loops"] for n in self.nodes()), default=0)

    def lines(self, node=None, depth=0):
        node = node or self.root
        s = "  "*depth + node["Node Type"] + " " + str(node.get("Relation Name","")) + " " + str(node.get("Index Name","")) + f" est={node['Plan Rows']} rows={node['Actual Rows']} loops={node['Actual Loops']} buf={node['Shared Hit Blocks']+node['Shared Read Blocks']} filt={node.get('Rows Removed by Filter')} {node.get('Index Cond','')} {node.get('Scan Direction','')} {node.get('Filter','')[:70]}"
        out=[s]
        for c in node.get("Plans", []): out += self.lines(c, depth+1)
        return out


_FEW = """
INSERT INTO holdfast.queue (name) VALUES ('few');
INSERT INTO holdfast.job (id, kind, payload, actor, created_at, on_lost) SELECT id, 'mail', '{}', 'test', now(), 'retry' FROM generate_series(1, 9) AS id;
INSERT INTO holdfast.live (id, state, queue, kind, priority, due_at) SELECT id, 'ready', 'mine', 'mail', 0, now() FROM generate_series(1, 5) AS id;
INSERT INTO holdfast.ended (id, state, queue, kind, priority, due_at, attempts, crashes, token, worker, started_at, ended_at, reason)
SELECT id, 'done', 'mine', 'mail', 0, now(), 1, 0, 1, 'w1', now(), now(), 'done' FROM generate_series(6, 9) AS id;
"""
_SHELF = {"empty": 10**8, "stale": 2 * 10**8, "fresh": 3 * 10**8}
_OURS = "(SELECT oid::bigint FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace)"
_COLUMNS = ["staattnum", "stainherit", "stanullfrac", "stawidth", "stadistinct"]
_REST = ", ".join(_COLUMNS + [f"{part}{n}" for part in ("stakind", "staop", "stacoll", "stanumbers", "stavalues") for n in range(1, 6)])

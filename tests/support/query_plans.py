"""Stores full of jobs, and the cost of each statement of an operation on them.

The operations are the store's own: an :class:`Observed` backend explains every statement in
the transaction in which it then runs, and rolls back.
"""

from __future__ import annotations

import itertools
import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
from msgspec import Struct
from psycopg.adapt import PyFormat, Transformer

from holdfast.domain.jobs.job import JobId
from holdfast.store import Store
from holdfast.store.engine.backend import Timeouts
from holdfast.store.engine.changes import Notification
from holdfast.store.engine.operation import Query, Statement, run_operation, to_micros
from holdfast.store.postgres.backend import PostgresBackend
from holdfast.store.postgres.connections import begin_session, connect, connect_options
from holdfast.store.postgres.statements import Statements
from holdfast.store.sqlite import statements as sqlite_statements
from holdfast.store.sqlite.backend import SqliteBackend

DATABASE = "holdfast_plans"
#: Tables that grow with the number of jobs.
BIG = {"job", "live", "finished", "dependency", "key", "attempt", "event", "progress"}
#: Aliases of such tables in the statements for SQLite.
ALIASES = {"candidate", "existing", "dependent", "own", "other", "queued"}


class Layout(Struct, frozen=True, kw_only=True):
    """The jobs of a store. Live jobs have odd ids and finished ones even ids.

    Live jobs come in blocks, the oldest first: running, ready in the worker's queues,
    scheduled, waiting, held, ready in a queue without a worker. A list that walks all jobs
    back from the newest passes a large block before it meets any block but the last.
    """

    finished: int
    running: int
    mine: int
    scheduled: int
    waiting: int
    held: int
    later: int

    @property
    def live(self) -> int:
        return self.running + self.mine + self.scheduled + self.waiting + self.held + self.later

    def first(self, block: str) -> int:
        """Return the position of the first job of a block, counted over the live jobs from 1."""
        names = ("running", "mine", "scheduled", "waiting", "held", "later")
        return 1 + sum(getattr(self, name) for name in names[: names.index(block)])

    def ids(self, block: str, count: int = 100) -> list[JobId]:
        """Return the first ids of a block of live jobs, or of the finished ones."""
        if block == "finished":
            return [JobId(2 * n) for n in range(1, count + 1)]
        return [JobId(2 * n - 1) for n in range(self.first(block), self.first(block) + count)]


#: One text for both backends: at(n) is the time n seconds from now, series holds 1, 2, 3, …
LOAD = """
INSERT INTO holdfast.queue (name, run_limit) VALUES ('narrow', 200);
INSERT INTO holdfast.job (id, kind, payload, tags, label, key, actor, created_at, on_lost, after_when, after_failed)
SELECT n, 'mail', '{}', CASE WHEN n % 5000 = 0 THEN '["rare"]' END::json, CASE WHEN n % 20 < 2 THEN 'batch-' || (n / 1000) END, CASE WHEN n % 20 < 2 THEN 'key-' || n END,
    'test', at(n - 4000000), 'retry', 'done', 'cancel'
FROM series WHERE n <= $live + $finished;
INSERT INTO holdfast.finished (id, state, queue, kind, priority, due_at, attempts, crashes, token, worker,
    started_at, finished_at, reason, error)
SELECT 2 * n, CASE n % 100 WHEN 10 THEN 'dead' WHEN 2 THEN 'cancelled' ELSE 'done' END, 'mine', 'mail', 0,
    at(9 * (n - $finished)), 1, 0, 1, 'w1', at(9 * (n - $finished)), at(9 * (n - $finished)), 'done',
    CASE n % 1000 WHEN 10 THEN 'boom' END
FROM series WHERE n <= $finished;
INSERT INTO holdfast.live (id, state, queue, kind, priority, due_at, token, has_dependents, worker, claimed_at, attempts,
    started_at, lease_expires_at)
SELECT 2 * n - 1, 'running', CASE WHEN n % 3 = 0 THEN 'narrow' ELSE 'mine' END, 'mail', 0, at(0), 1, n > 0, 'w1', at(0),
    1 - n % 2, CASE WHEN n % 2 = 0 THEN at(0) END, at(3600 * (n - $running / 2))
FROM series WHERE n <= $running;
INSERT INTO holdfast.live (id, state, queue, kind, priority, due_at)
SELECT 2 * n - 1,
    CASE WHEN n < $scheduled THEN 'ready' WHEN n < $waiting THEN 'scheduled' WHEN n < $held THEN 'waiting'
        WHEN n < $later THEN 'held' ELSE 'ready' END,
    CASE WHEN n >= $scheduled THEN 'later' WHEN n % 2 = 0 THEN 'narrow' ELSE 'mine' END,
    'mail', n % 3, at(n - ($scheduled + $waiting) / 2)
FROM series WHERE n > $running AND n <= $live;
INSERT INTO holdfast.dependency (job_id, dependency_id)
SELECT 2 * n - 1, 2 * (n - $waiting + $finished / 2) FROM series WHERE n >= $waiting AND n < $held
UNION ALL SELECT 2 * n - 1, 2 * (n - $waiting + $later) - 1 FROM series WHERE n >= $waiting AND n < $held
UNION ALL SELECT 2 * (n + $waiting) - 1, 2 * n - 1 FROM series WHERE n <= $running;
INSERT INTO holdfast.key (kind, key, job_id, scope)
SELECT 'mail', 'key-' || n, n, CASE n % 20 WHEN 0 THEN 'live' ELSE 'forever' END
FROM series WHERE n <= $live + $finished AND n % 20 < 2;
INSERT INTO holdfast.attempt (job_id, token, number, finished_at, reason)
SELECT n, 1, 1, at(0), 'error' FROM series WHERE n <= ($live + $finished) AND n % 20 = 0;
INSERT INTO holdfast.event (job_id, at, name, actor)
SELECT n, at(0), 'failed', 'test' FROM series WHERE n <= ($live + $finished) AND n % 20 = 0;
INSERT INTO holdfast.progress (job_id, done, at) SELECT n, 1, at(0) FROM series WHERE n <= ($live + $finished) / 100;
"""


def load_script(layout: Layout) -> str:
    """Return the script that fills a store with *layout*."""
    positions = {block: layout.first(block) for block in ("scheduled", "waiting", "held", "later")}
    values = {"live": layout.live, "finished": layout.finished, "running": layout.running, **positions}
    return re.sub(r"\$(\w+)", lambda match: str(values[match[1]]), LOAD)


class Cost(Struct, frozen=True):
    """The cost of one statement: *work* is in pages (PostgreSQL) or in bytecode steps (SQLite)."""

    statement: str
    work: int
    rows: int
    walked: set[str]
    compiled: bool
    plan: str


class Observed:
    """A backend that explains each statement before it runs it."""

    #: Calls of other threads add nothing to this transaction.
    single_writer = True

    def __init__(
        self,
        name: str,
        explain: Callable[[Query], Cost],
        perform: Callable[[Statement], list[Any]],
        allocate_ids: Callable[[int], list[JobId] | None],
    ) -> None:
        self.name = name
        self.costs: list[Cost] = []
        self.draw_ids = allocate_ids
        self._explain = explain
        self._perform = perform

    def run(self, query: Query, *, repeatable: bool = False, timeout: timedelta | None = None) -> list[Any]:
        return self._do(query)

    def send(self, query: Query, *, timeout: timedelta) -> Callable[[], list[Any]]:
        rows = self._do(query)
        return lambda: rows

    def fetch(self, query: Query) -> list[Any]:
        return self._do(query)

    def notification(self, changes: frozenset[str]) -> Notification:
        return Notification("jobs", lambda: None)

    def notify(self, changes: frozenset[str]) -> None:
        """Do nothing: there is no listener."""

    def write(self, operation, /, *args, **kwargs):
        return run_operation(operation(*args, **kwargs), self._do)

    read = write

    def _do(self, step: Statement) -> list[Any]:
        if isinstance(step, Query):
            self.costs.append(self._explain(step))
        return self._perform(step)


class BigPostgres:
    """A PostgreSQL database of its own, with planner statistics of several situations."""

    #: Never analysed; a few jobs, none running; a few, all running; no live jobs any more; up to date.
    STATISTICS = ("empty", "idle", "busy", "drained", "fresh")

    def __init__(self, server_url: str, *, jobs: int = 1_000_000) -> None:
        self.layout = Layout(
            finished=jobs // 2,
            running=300,
            mine=jobs // 20,
            scheduled=jobs // 20,
            waiting=jobs // 40,
            held=jobs // 40,
            later=jobs // 2 - jobs * 3 // 20 - 300,
        )
        with psycopg.connect(server_url, autocommit=True) as server:
            server.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
            server.execute(f"CREATE DATABASE {DATABASE}")
        url = psycopg.conninfo.make_conninfo(server_url, dbname=DATABASE)
        PostgresBackend(url).close()
        self._statements = Statements("holdfast")
        self._connection = connect(url, **connect_options(url), prepare_threshold=2)
        begin_session(self._connection, Timeouts.statement)
        self._make_ranges(jobs)
        self._tables = [row[0] for row in self._run(_TABLES)]
        self._load()

    def close(self) -> None:
        self._connection.close()

    def use_statistics(self, situation: str) -> None:
        """Give the planner the statistics of a situation, one of :attr:`STATISTICS`."""
        shelf = _shelf(situation)
        with self._connection.transaction():
            self._run(f"DELETE FROM pg_statistic WHERE starelid::bigint IN ({_OURS})")
            self._run(
                f"INSERT INTO pg_statistic SELECT (starelid::bigint - {shelf})::oid, {_REST}"
                f" FROM pg_statistic WHERE starelid::bigint - {shelf} IN ({_OURS})"
            )
            self._run(
                "UPDATE pg_class SET relpages = kept.relpages, reltuples = kept.reltuples, relallvisible = 0"
                f" FROM kept_sizes AS kept WHERE kept.situation = '{situation}' AND kept.oid = pg_class.oid"
            )

    def observe(self, operation: Callable[[Store, Layout], Any]) -> list[Cost]:
        """Run *operation* and roll it back."""
        ids = itertools.count(10**9)
        backend = Observed(
            "postgres",
            self._explain,
            lambda step: self._statements.perform(self._connection, step),
            lambda count: [JobId(next(ids)) for _ in range(count)],
        )
        # A statement that times out is the last of the costs, with the figure NEVER.
        with suppress(psycopg.errors.QueryCanceled), self._connection.transaction(force_rollback=True):
            self._run("SET LOCAL statement_timeout = '120s'")
            operation(Store(backend), self.layout)
        return backend.costs

    def _explain(self, query: Query) -> Cost:
        """Run *query* as a prepared statement, with the types that a worker's connection uses."""
        text, values = self._numbered(query)
        types = ", ".join(self._types(values))
        arguments = psycopg.ClientCursor(self._connection).mogrify(", ".join(["%s"] * len(values)), values)
        execute = f"EXECUTE explained {f'({arguments})' if arguments else ''}"
        self._run(f"PREPARE explained {f'({types})' if types else ''} AS {text}")
        try:
            with self._connection.transaction(force_rollback=True):
                plan = self._run(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {execute}")
        except psycopg.errors.QueryCanceled:
            plan = self._run(f"EXPLAIN (FORMAT JSON) {execute}")
        self._run("DEALLOCATE explained")
        return _postgres_cost(query.name, plan[0][0][0])

    def _numbered(self, query: Query) -> tuple[str, list[Any]]:
        text = self._statements.text(query).decode()
        parameters = self._statements.arguments(query)
        names = list(dict.fromkeys(re.findall(r"%\(([\w.]+)\)s", text)))
        for number, name in enumerate(names, start=1):
            text = text.replace(f"%({name})s", f"${number}")
        return text.replace("%%", "%"), [parameters[name] for name in names]

    def _types(self, values: list[Any]) -> list[str]:
        if not values:
            return []
        dumper = Transformer(self._connection)
        dumper.dump_sequence(values, [PyFormat.AUTO] * len(values))
        assert dumper.types is not None
        columns = ", ".join(f"{oid or _UNKNOWN}::regtype::text" for oid in dumper.types)
        return list(self._run(f"SELECT {columns}")[0])

    def _run(self, query: str) -> list[Any]:
        cursor = self._connection.execute(query.encode(), prepare=False)
        return cursor.fetchall() if cursor.description else []

    def _make_ranges(self, jobs: int) -> None:
        """Spread the finished jobs over several ranges, as in a store that is some months old."""
        self._run("DROP TABLE holdfast.finished_before_10000000, holdfast.finished_from_10000000")
        edges = ["MINVALUE", *(jobs * part // 6 for part in range(1, 7)), 2 * jobs, "MAXVALUE"]
        for first, following in itertools.pairwise(edges):
            self._run(
                f"CREATE TABLE holdfast.finished_from_{first} PARTITION OF holdfast.finished_done"
                f" FOR VALUES FROM ({first}) TO ({following})"
            )

    def _load(self) -> None:
        names = ", ".join(f"holdfast.{table}" for table in self._tables if table != "meta")
        self._run("SET statement_timeout = 0")
        few = Layout(finished=4, running=0, mine=5, scheduled=0, waiting=0, held=0, later=0)
        situations = {
            "idle": few,
            "busy": Layout(finished=4, running=5, mine=0, scheduled=0, waiting=0, held=0, later=0),
        }
        for table in self._tables:
            self._run(f"ALTER TABLE holdfast.{table} SET (autovacuum_enabled = false)")
        self._run(_HELPERS)
        self._run(f"INSERT INTO series SELECT generate_series(1, {self.layout.live + self.layout.finished})")
        self._keep("empty")
        for situation, layout in {**situations, "fresh": self.layout}.items():
            with self._connection.transaction():
                self._run(f"TRUNCATE {names}")
                self._run(load_script(layout))
            self._run(f"ANALYZE {names}")
            self._keep(situation)
        self._keep("drained")
        self._run(
            "UPDATE kept_sizes AS kept SET reltuples = 0 FROM pg_class WHERE kept.situation = 'drained'"
            " AND pg_class.oid = kept.oid AND (pg_class.relname = 'live' OR pg_class.relname LIKE 'live%')"
        )

    def _keep(self, situation: str) -> None:
        """Store the present statistics under the ids of tables that do not exist."""
        self._run(
            f"INSERT INTO pg_statistic SELECT (starelid::bigint + {_shelf(situation)})::oid, {_REST}"
            f" FROM pg_statistic WHERE starelid::bigint IN ({_OURS})"
        )
        self._run(
            f"INSERT INTO kept_sizes SELECT '{situation}', oid, relpages, reltuples FROM pg_class WHERE oid IN ({_OURS})"
        )


#: The figure of a statement that did not finish.
NEVER = 10**9
_UNKNOWN = 705  # the type of a parameter that psycopg leaves open
_TABLES = "SELECT relname FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace AND relkind = 'r'"
_OURS = "SELECT oid::bigint FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace AND relkind IN ('r', 'i', 'p')"
_SLOTS = [f"{part}{n}" for part in ("stakind", "staop", "stacoll", "stanumbers", "stavalues") for n in range(1, 6)]
_REST = ", ".join(["staattnum", "stainherit", "stanullfrac", "stawidth", "stadistinct", *_SLOTS])
_HELPERS = """
CREATE TABLE kept_sizes (situation text, oid oid, relpages integer, reltuples real);
CREATE UNLOGGED TABLE series (n integer);
CREATE FUNCTION at(seconds bigint) RETURNS timestamptz LANGUAGE sql STABLE
    AS $$ SELECT now() + seconds * interval '1 second' $$;
"""


def _shelf(situation: str) -> int:
    return 10**8 * (1 + BigPostgres.STATISTICS.index(situation))


def _postgres_cost(statement: str, explained: dict[str, Any]) -> Cost:
    root = explained["Plan"]
    nodes = list(_nodes(root))
    return Cost(
        statement=statement,
        work=_pages(root),
        rows=max(_touched(node) for node in nodes),
        walked={_table(node) for node in nodes if node["Node Type"] == "Seq Scan"} & BIG,
        compiled="JIT" in explained,
        plan="\n".join(_outline(root)),
    )


def _table(node: dict[str, Any]) -> str:
    """The table of a node; that of a partition is the whole one."""
    name: str = node["Relation Name"]
    return "finished" if name.startswith("finished_") else name


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", []):
        yield from _nodes(child)


def _pages(node: dict[str, Any]) -> int:
    return node.get("Shared Hit Blocks", NEVER) + node.get("Shared Read Blocks", NEVER)


def _touched(node: dict[str, Any]) -> int:
    dropped = sum(value for key, value in node.items() if key.startswith("Rows Removed by"))
    return round((node.get("Actual Rows", NEVER) + dropped) * node.get("Actual Loops", 1))


def _outline(node: dict[str, Any], depth: int = 0) -> Iterator[str]:
    words = [node["Node Type"], node.get("Relation Name"), node.get("Index Name"), node.get("Index Cond")]
    figures = f"rows={_touched(node)} expected={node['Plan Rows']} pages={_pages(node)}"
    yield "  " * depth + " ".join(word for word in words if word) + f" [{figures}]"
    for child in node.get("Plans", []):
        yield from _outline(child, depth + 1)


class BigSqlite:
    """A SQLite file with a tenth of the jobs, with or without the planner's statistics."""

    STATISTICS = ("empty", "fresh")

    layout = Layout(
        finished=50_000,
        running=300,
        mine=10_000,
        scheduled=10_000,
        waiting=5_000,
        held=5_000,
        later=19_700,
    )

    def __init__(self, path: Path) -> None:
        SqliteBackend(path, durability="fast").close()
        self._now = datetime.now(UTC)
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.create_function("at", 1, lambda n: to_micros(self._now + timedelta(seconds=n)))
        self._load()

    def close(self) -> None:
        self._connection.close()

    def use_statistics(self, situation: str) -> None:
        if situation == "fresh":
            self._connection.execute("ANALYZE")
        else:
            with suppress(sqlite3.OperationalError):
                self._connection.execute("DELETE FROM sqlite_stat1")
        # The planner reads them when the schema is loaded.
        self._connection.execute("ANALYZE sqlite_schema")

    def observe(self, operation: Callable[[Store, Layout], Any]) -> list[Cost]:
        """Run *operation* and roll it back."""
        backend = Observed("sqlite", self._explain, self._perform, lambda _count: None)
        self._connection.execute("BEGIN")
        try:
            operation(Store(backend), self.layout)
        finally:
            self._connection.execute("ROLLBACK")
        return backend.costs

    def _perform(self, step: Statement) -> list[Any]:
        return sqlite_statements.performer(self._connection, self._now)(step)

    def _explain(self, query: Query) -> Cost:
        parameters = {name: sqlite_statements.to_sql(value) for name, value in query.parameters.items()}
        lines = [
            row[3]
            for text in sqlite_statements.split_statement(query.name, query.where)
            for row in self._connection.execute(
                f"EXPLAIN QUERY PLAN {text}", {**parameters, "now": to_micros(self._now), "chosen": "[]"}
            )
        ]
        walked = {line for line in lines if _walks(line)}
        return Cost(query.name, self._steps(query), 0, walked, False, "\n".join(lines))

    def _steps(self, query: Query) -> int:
        """Return the number of SQLite instructions of *query*, rounded to hundreds."""
        ticks = 0

        def tick() -> int:
            nonlocal ticks
            ticks += 1
            return 0

        self._connection.execute("SAVEPOINT explained")
        self._connection.set_progress_handler(tick, 100)
        try:
            self._perform(query)
        finally:
            self._connection.set_progress_handler(None, 0)
            self._connection.execute("ROLLBACK TO explained")
            self._connection.execute("RELEASE explained")
        return ticks * 100

    def _load(self) -> None:
        count = self.layout.live + self.layout.finished
        self._connection.execute("CREATE TEMP TABLE series (n INTEGER PRIMARY KEY)")
        self._connection.execute(
            "INSERT INTO series SELECT value FROM json_each(?)", (json.dumps(list(range(1, count + 1))),)
        )
        self._connection.executescript(
            "BEGIN;" + load_script(self.layout).replace("holdfast.", "holdfast_").replace("::json", "") + "COMMIT;"
        )
        self._connection.execute("UPDATE holdfast_meta SET last_job_id = ?", (count,))


def _walks(line: str) -> bool:
    """Return whether a line of the plan scans a whole big table; the index of running jobs is small."""
    scan = re.match(r"SCAN (\w+)", line)
    if not scan or "VIRTUAL TABLE" in line or "holdfast_live_running" in line:
        return False
    return scan[1].removeprefix("holdfast_") in BIG | ALIASES

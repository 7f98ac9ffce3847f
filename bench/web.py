"""The benchmark of the dashboard: what each page asks of a large store, and how long the server takes for it.

    python -m bench.web [--finished N] [--ready N] [--units N] [--schedules N] [--rounds N]

On a PostgreSQL of its own, with durable settings. Every page is asked for once to warm up, then some times; told are
its statements, the median and the worst of the server's time, and its size. Then fifty people watch live pages while
jobs change. Last, a server is started anew, as a program of its own, and timed until its first page has come.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import os
import resource
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from tests.support.open_site import counting
from tests.support.postgres import DURABLE, bundled_programs, running
from tests.support.viewers import watching

import holdfast
from holdfast.domain.access.roles import Role
from holdfast.domain.jobs.new_job import NewJob
from holdfast.web import asgi
from holdfast.web.page_cache import RENDER_INTERVAL_S
from holdfast.web.server import Server

#: What was promised: statements and milliseconds for a page, seconds until the first page of a new server.
STATEMENTS, PAGE_MS, FIRST_S = 5, 300.0, 1.5
#: Statements a second for each live page, for all its viewers; the poll's are extra.
LIVE, POLL = 2.0, ("read_change_tokens", "list_current_access")
#: One statement of each request looks who is at the door.
DOOR = "get_valid_credential"

#: Finished jobs have ended over a day, the last ones now; every fiftieth is dead.
_FILL = """
INSERT INTO holdfast.job (id, kind, payload, label, actor, created_at, max_attempts, max_crashes, on_lost)
SELECT n, 'kind-' || n %% 20, '{"n": 1}', 'job-' || n, 'fill', now(), 3, 3, 'retry'
FROM generate_series(1, %(finished)s + %(ready)s) AS n;

INSERT INTO holdfast.finished (id, state, queue, kind, priority, due_at, attempts, crashes, token, worker, started_at,
    finished_at, reason, error)
SELECT n, CASE WHEN n %% 50 = 0 THEN 'dead' ELSE 'done' END, 'queue-' || n %% 10, 'kind-' || n %% 20, 0, now(), 1, 0, 1,
    'fill', now(), now() - (%(finished)s - n) * interval '80 milliseconds', 'done',
    CASE WHEN n %% 50 = 0 THEN 'ValueError: record ' || n || ' is broken in part ' || n %% 7 END
FROM generate_series(1, %(finished)s) AS n;

INSERT INTO holdfast.live (id, state, queue, kind, priority, due_at)
SELECT %(finished)s + n, 'ready', 'queue-' || n %% 10, 'kind-' || n %% 20, 0, now()
FROM generate_series(1, %(ready)s) AS n;

INSERT INTO holdfast.batch (identity, generation, kind, arguments, source, state, total, run_number, options, actor,
    created_at, started_at)
VALUES ('fill', 1, 'resync', '{}', 'range 1-n', 'stopped', %(units)s, 1, '{}', 'fill', now(), now());

INSERT INTO holdfast.unit (batch_id, key, position, state, run_number, attempts, label, error)
SELECT 1, n::text, n, CASE WHEN n %% 100 = 0 THEN 'failed' WHEN n %% 10 = 0 THEN 'pending' ELSE 'done' END, 1, 1,
    CASE WHEN n %% 3 = 0 THEN 'new' END, CASE WHEN n %% 100 = 0 THEN 'ValueError: message ' || n END
FROM generate_series(1, %(units)s) AS n;

INSERT INTO holdfast.unit_count
SELECT 1, 0, CASE WHEN state = 'done' THEN 'done' ELSE 'failed' END, count(*)
FROM holdfast.unit WHERE state <> 'pending' GROUP BY 3;

INSERT INTO holdfast.schedule (name, definition, cursor, next_at, check_at, actor, created_at, changed_at)
SELECT 'schedule-' || n, '{"kind": "kind-1", "when": {"cron": "*/5 * * * *"}}', now(), now() + interval '1 hour',
    now() + interval '1 hour', 'fill', now(), now()
FROM generate_series(1, %(schedules)s) AS n;

SELECT setval('holdfast.job_id', %(finished)s + %(ready)s)
"""


def fill(url: str, sizes: dict[str, int]) -> None:
    """A store of these sizes, vacuumed."""
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in _FILL.split(";"):
            connection.execute(statement, sizes)
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")


def paths(sizes: dict[str, int]) -> list[str]:
    """The address of every screen, and of some filters."""
    last = sizes["finished"] + sizes["ready"]
    return [
        "/", "/jobs", "/jobs?state=done", "/jobs?state=dead", "/jobs?filter=state%3Dready", f"/jobs?before={last // 2}",
        "/jobs?filter=label%3Djob-77*", "/jobs?filter=queue%3Dqueue-3%20kind%3Dkind-3", f"/jobs/{last}", "/jobs/50",
        "/batches", "/batches/1", "/batches/1?state=failed", "/batches/1?state=pending", "/batches/1?text=message%2099",
        "/schedules", "/schedules?after=schedule-5", "/schedule?name=schedule-77", "/queues", "/workers", "/errors",
        "/dependencies?job=50", "/dependencies", "/audit-log", "/doctor",
    ]  # fmt: skip


class Asker:
    """Calls the site in this process, and measures the server's own time."""

    def __init__(self, site: Any, token: str) -> None:
        self._site = site
        self._headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {token}".encode())]
        self._runner = asyncio.Runner()

    def get(self, path: str) -> tuple[int, int, float]:
        """Status, bytes, seconds."""
        name, _, query = path.partition("?")
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "path": name,
            "raw_path": name.encode(), "query_string": query.encode(), "root_path": "", "scheme": "http",
            "headers": self._headers, "client": ("127.0.0.1", 1), "server": ("localhost", 80),
        }  # fmt: skip
        return self._runner.run(self._call(scope))

    async def _call(self, scope: dict[str, Any]) -> tuple[int, int, float]:
        status, size = 0, 0

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            nonlocal status, size
            status = message.get("status", status)
            size += len(message.get("body", b""))

        begun = time.perf_counter()
        await self._site(scope, receive, send)
        return status, size, time.perf_counter() - begun


def measure(url: str, sizes: dict[str, int], rounds: int) -> bool:
    """Ask for every page; answers whether all kept what was promised."""
    app, kept = holdfast.Holdfast(url), True
    token = app.store.credentials.add("bench", Role.ADMIN, actor="bench")
    site = asgi(app)
    asker = Asker(site, token)
    print(f"{'page':45} {'statements':>10} {'median ms':>10} {'worst ms':>9} {'KB':>6}")
    for path in paths(sizes):
        asker.get(path)
        with counting(site.store) as asked:
            status, size, _ = asker.get(path)
        own = [name for name in asked if name != DOOR]
        took = [1000 * asker.get(path)[2] for _ in range(rounds)]
        good = status == 200 and statistics.median(took) <= PAGE_MS and len(own) <= STATEMENTS
        kept = kept and good
        mark = "" if good else f"  <-- {status} {own}"
        print(f"{path:45} {len(own):10} {statistics.median(took):10.1f} {max(took):9.1f} {size / 1000:6.1f}{mark}")
    site.close()
    app.close()
    return kept


def watch(url: str, count: int = 50, reloads: int = 5) -> bool:
    """Let people watch live pages while jobs change; answers whether the statements stay below the promise."""
    app = holdfast.Holdfast(url)
    server = Server(app, "127.0.0.1:0")
    server.start()
    watched = [("/", Role.VIEWER), ("/jobs", Role.VIEWER), ("/jobs", Role.OPERATOR), ("/batches/1", Role.VIEWER)]
    with watching(app, server.port, watched, count) as viewers, counting(server.site.store) as statements:
        begun = time.perf_counter()
        while min(len(each.reloads) for each in viewers) < reloads:
            app.store.jobs.enqueue(NewJob(kind="kind-1"))
            time.sleep(0.1)
        elapsed = time.perf_counter() - begun
    server.stop()
    took = [1000 * seconds for viewer in viewers for _, seconds in viewer.reloads]
    poll = sum(name in POLL for name in statements)
    each = (len(statements) - poll) / (elapsed + RENDER_INTERVAL_S) / len(watched)
    print(
        f"{count} viewers of {len(watched)} live pages: {each:.1f} statements a second for each page (at most {LIVE}), "
        f"{poll / elapsed:.1f} for the poll; a reload takes {statistics.median(took):.0f} ms (p50), {max(took):.0f} at most"
    )
    server.close()
    app.close()
    return each <= LIVE


@contextmanager
def served(url: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "holdfast", "web", "--url", url, "--listen", f"127.0.0.1:{port}"]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONWARNINGS": "ignore"}, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def first_page(url: str) -> float:
    """Seconds from the start of a server to the end of its first page."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    begun = time.perf_counter()
    with served(url, port):
        while True:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
                connection.request("GET", "/login")
                answer = connection.getresponse()
                answer.read()
            except ConnectionError:
                time.sleep(0.01)
                continue
            return time.perf_counter() - begun


def _children() -> float:
    """Seconds of processor that ended children have taken."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, size in {"finished": 1_000_000, "ready": 100_000, "units": 1_000_000, "schedules": 10_000}.items():
        parser.add_argument(f"--{name}", type=int, default=size)
    parser.add_argument("--rounds", type=int, default=5)
    given = vars(parser.parse_args())
    rounds = given.pop("rounds")
    with running(bundled_programs(), settings=DURABLE) as server:
        url = server.url()
        holdfast.Holdfast(url).store.close()
        begun = time.perf_counter()
        fill(url, given)
        print(
            f"filled in {time.perf_counter() - begun:.0f} s: " + ", ".join(f"{n:,} {word}" for word, n in given.items())
        )
        kept = measure(url, given, rounds)
        kept = watch(url) and kept
        before = _children()
        first = statistics.median(first_page(url) for _ in range(3))
        busy = (_children() - before) / 3
    print(f"from start to first page: {first:.2f} s (at most {FIRST_S} s); {busy:.2f} s of processor, start to end")
    return 0 if kept and first <= FIRST_S else 1


if __name__ == "__main__":
    sys.exit(main())

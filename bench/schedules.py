"""The benchmark of schedules: the next moment beside cronsim and croniter, idle ticks, plans per second.

    python -m bench.schedules [--quick]

A peer is asked in two ways: it walks on from moment to moment with one object, which is its best, and it answers a
single question, which takes it a new object. Ours is compiled once, and asked the single question, as a planner does.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

from tests.support.postgres import DURABLE, bundled_programs, running

import holdfast
from bench.peers import HOME, python
from bench.report import Ratio, print_ratios
from holdfast.domain.schedules.firing_times import Calendar, between
from holdfast.worker.schedules.planner import Planner
from holdfast.worker.schedules.scopes import ScopeProviders
from holdfast.worker.stats import Stats

EXPRESSIONS = [
    ("*/5 * * * *", "UTC"),
    ("*/5 * * * *", "Europe/Berlin"),
    ("30 2 * * *", "Europe/Berlin"),
    ("0 9 * * 1-5", "America/New_York"),
    ("15 3 1,15 * *", "Australia/Lord_Howe"),
    ("0 0 1 1 *", "UTC"),
]
START = datetime(2026, 1, 15, 12, 34, 56, tzinfo=UTC)
YEARS = timedelta(days=3653)
#: At most so many milliseconds for a tick with nothing due, and at least so many plans in a second.
IDLE_MS, PLANS = 5.0, 20_000


# -- the next moment -------------------------------------------------------------------------


class CronPeer:
    """A library in a process of its own, which measures itself."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [python(), "-m", "bench.peer_cron"], cwd=HOME, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def measure(self, expression: str, tz: str, moments: int, times: int) -> dict[str, float]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order: dict[str, object] = {"peer": self.name, "expression": expression, "tz": tz, "start": START.isoformat()}
        order |= {"moments": moments, "times": times}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer: dict[str, float] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        self._process.communicate(timeout=30)


def next_after(expression: str, tz: str, moments: int, times: int) -> float:
    """Seconds per call, walking on from moment to moment, several times over the same years."""
    rule = Calendar(expression, tz)
    began = time.perf_counter()
    for _ in range(times):
        instant = START
        for _ in range(moments):
            instant = rule.next_after(instant)
    return (time.perf_counter() - began) / (moments * times)


def moments_in_years(expression: str, tz: str, most: int) -> int:
    """How many moments there are in the next years, up to *most*."""
    rule = Calendar(expression, tz)
    return sum(1 for _ in islice(between(rule, START, START + YEARS), most))


def contest(count: int, rounds: int) -> list[Ratio]:
    peers = [CronPeer("cronsim"), CronPeer("croniter")]
    found: dict[str, list[float]] = {}
    print(f"\nnext_after, microseconds ({count} moments, median of {rounds})")
    print(f"  {'expression':34}{'holdfast':>10}" + "".join(f"{p.name:>10}{'single':>9}" for p in peers))
    for expression, tz in EXPRESSIONS:
        few = moments_in_years(expression, tz, count)
        ours, theirs = [], {peer.name: [] for peer in peers}
        for _ in range(rounds):
            ours.append(next_after(expression, tz, few, count // few))
            for peer in peers:
                theirs[peer.name].append(peer.measure(expression, tz, few, count // few))
        mine = statistics.median(ours)
        cells = ""
        for peer in peers:
            walk = statistics.median(each["walk"] for each in theirs[peer.name])
            fresh = statistics.median(each["fresh"] for each in theirs[peer.name])
            found.setdefault(f"{peer.name} walking", []).append(walk / mine)
            found.setdefault(f"{peer.name} asked once", []).append(fresh / mine)
            cells += f"{walk * 1e6:>10.1f}{fresh * 1e6:>9.1f}"
        print(f"  {f'{expression} {tz}':34}{mine * 1e6:>10.1f}{cells}")
    for peer in peers:
        peer.close()
    targets = {"cronsim walking": 3.0, "croniter walking": 10.0}
    return [
        Ratio(name=f"{name} / holdfast, the least", value=min(values), target=targets.get(name))
        for name, values in found.items()
    ]


# -- planners --------------------------------------------------------------------------------


@contextmanager
def stores() -> Iterator[dict[str, str]]:
    with tempfile.TemporaryDirectory() as folder, running(bundled_programs(), settings=DURABLE) as server:
        yield {"postgres": server.url(), "sqlite": f"sqlite:///{Path(folder) / 'jobs.db'}"}


def make_app(url: str) -> holdfast.Holdfast:
    app = holdfast.Holdfast(url)

    @app.job()
    def nothing(plan: holdfast.Plan) -> None: ...

    return app


def fill(app: holdfast.Holdfast, url: str, prefix: str, count: int) -> None:
    """Many schedules that fire in a year or later. Each is a copy of a paused one."""
    model = app.schedules.create(f"{prefix} model", "nothing", "@yearly")
    app.schedules.pause(model.name)
    if url.startswith("sqlite"):
        import sqlite3

        later = int((datetime.now(UTC) + timedelta(days=365)).timestamp() * 1e6)
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
            connection.execute(
                "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?)"
                " INSERT INTO holdfast_schedule (name, definition, cursor, next_at, check_at, actor, created_at, changed_at)"
                " SELECT ? || ' ' || n, ?, 0, ? + n, ? + n, 'bench', 0, 0 FROM n",
                (count, prefix, model.definition, later, later),
            )
        return
    import psycopg

    with psycopg.connect(url, autocommit=True) as server:
        server.execute(
            "INSERT INTO holdfast.schedule (name, definition, cursor, next_at, check_at, actor, created_at, changed_at)"
            " SELECT %s || ' ' || n, %s::json, now(), later, later, 'bench', now(), now()"
            " FROM generate_series(1, %s) AS n, LATERAL (SELECT now() + interval '1 year' + n * interval '1 s') AS t (later)",
            (prefix, model.definition, count),
        )
        server.execute("VACUUM ANALYZE holdfast.schedule")


def idle_tick(app: holdfast.Holdfast, rounds: int = 200) -> float:
    """Milliseconds of a planner's tick with nothing due, median."""
    planner = Planner(app.store, ScopeProviders({}), counts=Stats())
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        assert planner.tick().considered == 0
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)


def set_back(url: str, names: str, back: timedelta) -> None:
    """Let schedules begin earlier, so that plans are due."""
    began = datetime.now(UTC) - back
    if url.startswith("sqlite"):
        import sqlite3

        micros = int(began.timestamp() * 1e6)
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
            connection.execute(
                "UPDATE holdfast_schedule SET cursor = :began, next_at = :began, check_at = :began WHERE name LIKE :names",
                {"began": micros, "names": names},
            )
        return
    import psycopg

    with psycopg.connect(url, autocommit=True) as server:
        server.execute(
            "UPDATE holdfast.schedule SET cursor = %(began)s, next_at = %(began)s, check_at = %(began)s"
            " WHERE name LIKE %(names)s",
            {"began": began, "names": names},
        )


def plan_all(app: holdfast.Holdfast) -> tuple[int, float]:
    """Let one planner carry out all plans that are due; returns their number and how many there were in a second."""
    planner = Planner(app.store, ScopeProviders({}), counts=Stats())
    began, fired = time.perf_counter(), 0
    while (ticked := planner.tick()).considered:
        fired += ticked.processed
    return fired, fired / (time.perf_counter() - began)


def busy(app: holdfast.Holdfast, url: str, count: int) -> float:
    """Plans per second of one planner, when so many schedules are due, one plan each."""
    fill(app, url, "busy", count)
    app.schedules.delete("busy model")
    set_back(url, "busy %", timedelta(days=366))
    fired, rate = plan_all(app)
    assert fired == count, fired
    return rate


def catching_up(app: holdfast.Holdfast, url: str, count: int) -> float:
    """Plans per second of one planner, when many plans of one schedule are due."""
    app.schedules.create("late", "nothing", "every 1s", catch_up="every", overlap="allow", end=datetime.now(UTC))
    set_back(url, "late", timedelta(seconds=count))
    fired, rate = plan_all(app)
    assert fired >= count - 1, fired
    return rate


def plan_everywhere(idle: int, plans: int) -> list[Ratio]:
    found: list[Ratio] = []
    with stores() as urls:
        for name, url in urls.items():
            with make_app(url) as app:
                fill(app, url, "idle", idle)
                tick = idle_tick(app)
                rate, late = busy(app, url, plans), catching_up(app, url, plans)
            print(
                f"\n{name}: tick among {idle:,} idle schedules {tick:.2f} ms; {rate:,.0f} plans/s of {plans:,} schedules,"
                f" {late:,.0f}/s of one that catches up"
            )
            found.append(Ratio(name=f"{name}: idle tick, ms", value=tick, target=IDLE_MS, at_most=True))
            found.append(Ratio(name=f"{name}: plans per second", value=rate, target=PLANS))
            found.append(Ratio(name=f"{name}: plans per second, catching up", value=late, target=PLANS))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer schedules: for a first look")
    options = parser.parse_args()
    size: dict[str, Any] = {"idle": 20_000, "plans": 2_000} if options.quick else {"idle": 1_000_000, "plans": 20_000}
    ratios = contest(2000, 3 if options.quick else 5) + plan_everywhere(**size)
    print_ratios(ratios)
    return 1 if any(ratio.verdict == "MISSED" for ratio in ratios) else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Sum up sales every five minutes, and write a report for each tenant, even if schedulers are killed.

python rollup.py sell --count 100        # add sales, now
python rollup.py show                    # print sums, reports, and missing or repeated ones
"""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import click

import holdfast
from holdfast import Plan

app = holdfast.Holdfast()  # the store: HOLDFAST_URL, or url in holdfast.toml
SALES = Path("sales.db")
EVERY = os.environ.get("ROLLUP_EVERY", "5m")
TENANTS = ("ada", "bob", "eve")

TABLES = """
CREATE TABLE IF NOT EXISTS sale (at REAL, tenant TEXT, cents INTEGER);
CREATE TABLE IF NOT EXISTS watermark (at REAL);
CREATE TABLE IF NOT EXISTS total (tenant TEXT PRIMARY KEY, cents INTEGER);
CREATE TABLE IF NOT EXISTS report (key TEXT PRIMARY KEY, tenant TEXT, until REAL, cents INTEGER, written INTEGER);
INSERT INTO watermark SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM watermark);
"""


def tenants() -> list[str]:
    """The tenants. The planner calls this for each plan, so a new tenant gets the next report."""
    with opened() as sales:
        return [name for (name,) in sales.execute("SELECT DISTINCT tenant FROM sale ORDER BY tenant")]


@app.schedule(f"every {EVERY}", catch_up="latest")
@app.job(retry=["1s"])
def rollup(plan: Plan) -> int:
    """Sum up all sales since the watermark. The next plan covers a missed one."""
    with opened() as sales:
        (mark,) = sales.execute("SELECT at FROM watermark").fetchone()
        until = plan.time.timestamp()
        if until <= mark:
            return 0  # a newer plan ran first
        span = {"mark": mark, "until": until}
        totals = sales.execute(
            "INSERT INTO total SELECT tenant, sum(cents) FROM sale WHERE at > :mark AND at <= :until GROUP BY tenant"
            " ON CONFLICT (tenant) DO UPDATE SET cents = cents + excluded.cents",
            span,
        )
        sales.execute("UPDATE watermark SET at = :until", span)
        return totals.rowcount


@app.schedule(f"every {EVERY}", catch_up="every", scopes=tenants)
@app.job(retry=["1s"])
def report(plan: Plan) -> int:
    """Write the sales of a tenant up to this plan. No report may be missing, so every plan fires."""
    with opened() as sales:
        until = plan.time.timestamp()
        (cents,) = sales.execute(
            "SELECT coalesce(sum(cents), 0) FROM sale WHERE tenant = ? AND at <= ?", (plan.scope, until)
        ).fetchone()
        sales.execute(
            "INSERT INTO report VALUES (?, ?, ?, ?, 1) ON CONFLICT (key) DO UPDATE SET written = written + 1",
            (plan.key, plan.scope, until, cents),
        )
        return int(cents)


@contextmanager
def opened() -> Iterator[sqlite3.Connection]:
    """A transaction on the sales that locks the file from the first read on."""
    with closing(sqlite3.connect(SALES, timeout=30, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.executescript(TABLES)
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")


@click.group()
def program() -> None:
    """Add sales, and show the results of the schedules."""


@program.command()
@click.option("--count", default=100, show_default=True)
def sell(count: int) -> None:
    """Add sales, now."""
    now, chance = datetime.now(UTC).timestamp(), random.Random()
    rows = [(now, TENANTS[n % len(TENANTS)], chance.randrange(1, 10_000)) for n in range(count)]
    with opened() as sales:
        sales.executemany("INSERT INTO sale VALUES (?, ?, ?)", rows)
    click.echo(f"{count} sales")


@program.command()
def show() -> None:
    """Print totals up to the watermark, and the number of reports, missing ones and repeated ones."""
    with opened() as sales:
        for tenant, cents in sales.execute("SELECT tenant, cents FROM total ORDER BY tenant"):
            click.echo(f"{tenant}  {cents / 100:,.2f}")
        written = dict(sales.execute("SELECT key, written FROM report"))
    fired = {
        Plan(plan.schedule, plan.time, plan.scope).key: plan.state
        for plan in app.store.plans.history("report", limit=100_000)
    }
    missing = sum(1 for key, state in fired.items() if state == "done" and key not in written)
    twice = sum(1 for count in written.values() if count > 1)
    click.echo(f"{len(written)} reports, {missing} missing, {twice} written twice")


if __name__ == "__main__":
    program()

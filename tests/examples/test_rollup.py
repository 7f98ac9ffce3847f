"""examples/rollup: two schedulers, killed in the middle; no report lost or doubled, all sales summed up."""

from __future__ import annotations

import signal
import sqlite3
from contextlib import closing
from itertools import pairwise

import pytest

import holdfast
from tests.support.processes import wait_until
from tests.support.program import ROOT, clean_environment, finished, programs

HERE = f"{ROOT}/examples/rollup"
TENANTS = {"ada", "bob", "eve"}


@pytest.fixture
def start(tmp_path):
    with programs(cwd=tmp_path, env=clean_environment(tmp_path, PYTHONPATH=HERE, ROLLUP_EVERY="1s")) as start:
        yield start


@pytest.fixture
def rollup(start):
    return lambda *words: finished(start(f"{HERE}/rollup.py", *words))[1]


@pytest.fixture
def sales(tmp_path):
    def ask(query):
        with closing(sqlite3.connect(tmp_path / "sales.db", timeout=30)) as connection:
            return connection.execute(query).fetchall()

    return ask


@pytest.fixture
def store(tmp_path):
    with holdfast.Holdfast(f"sqlite:///{tmp_path}/jobs.db") as app:
        yield app.store


def test_no_plan_is_lost_or_doubled_when_schedulers_are_killed(start, rollup, sales, store):
    """Each tenant has one report for each second, over both kills; the totals are those of all sales."""
    rollup("sell", "--count", "300")
    line = ("-m", "holdfast", "scheduler", "--app", "rollup:app")
    first, second = start(*line), start(*line)
    worker = start("-m", "holdfast", "worker", "--app", "rollup:app", "--no-plans")

    def reports():
        return len(store.plans.history("report", limit=10_000))

    wait_until(lambda: reports() >= 6)
    first.send_signal(signal.SIGKILL)
    rollup("sell", "--count", "300")
    before = reports()
    wait_until(lambda: reports() >= before + 6)
    second.send_signal(signal.SIGKILL)  # nobody plans, until somebody does again
    second.wait()
    silent = max(plan.time for plan in store.plans.history("report"))
    wait_until(lambda: (store.schedules.now() - silent).total_seconds() > 4)
    third = start(*line)
    now = store.schedules.now()
    wait_until(lambda: max(plan.time for plan in store.plans.history("report")) > now)
    third.send_signal(signal.SIGTERM)
    third.wait()
    plans = store.plans.history("report", limit=10_000)
    wait_until(lambda: sales("SELECT count(*) FROM report") == [(len(plans),)])
    wait_until(lambda: sales("SELECT sum(cents) FROM total") == sales("SELECT sum(cents) FROM sale"))
    worker.send_signal(signal.SIGTERM)
    worker.wait()

    assert {plan.scope for plan in plans} == TENANTS
    for tenant in TENANTS:
        times = sorted(plan.time.timestamp() for plan in plans if plan.scope == tenant)
        assert {later - earlier for earlier, later in pairwise(times)} == {1.0}
    assert sales("SELECT DISTINCT written FROM report") == [(1,)]
    assert [str(skip.reason) for skip in store.plans.skips("rollup")].count("catch_up") >= 1
    assert rollup("show").splitlines()[-1] == f"{len(plans)} reports, 0 missing, 0 written twice"

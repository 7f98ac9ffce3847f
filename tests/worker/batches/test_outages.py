"""Runs of batches outlast a store that is away for a while: a restart, a failover."""

from __future__ import annotations

import os
from collections import Counter

import psycopg
import pytest

import holdfast
from holdfast.errors import StoreUnavailable
from holdfast.store.batches.batches import Batches
from holdfast.worker.batches import outages, unit_runner
from tests.support.processes import connect


@pytest.fixture
def app(real_database, monkeypatch):
    for place in (outages, unit_runner):
        monkeypatch.setattr(place, "RETRY_S", 0.01)
    with holdfast.Holdfast(real_database.url) as app:
        yield app


@pytest.fixture
def work(app):
    """A unit function that records its calls, and what its hook received."""

    @app.unit()
    def work(key: int) -> None:
        work.made.append(key)

    work.made, work.told = [], []
    work.on_unit(lambda unit: work.told.append(unit.key))
    return work


def away(monkeypatch, name, calls, *, after=False):
    """The store does not answer these calls, by their numbers from 0; *after*: it has done what was asked."""
    real, made = getattr(Batches, name), []

    def broken(*args, **options):
        made.append(name)
        if len(made) - 1 not in calls:
            return real(*args, **options)
        if after:
            real(*args, **options)
        raise StoreUnavailable("the connection broke")

    monkeypatch.setattr(Batches, name, broken)
    return made


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("where", ["here", "workers"])
def test_a_run_outlasts_an_outage(app, work, monkeypatch, where, after):
    """Every unit runs once and is told once, also if the write had arrived."""
    flushes = away(monkeypatch, "flush", {1, 2, 4}, after=after)
    ends, reads = (away(monkeypatch, name, {0}, after=after) for name in ("end", "counters"))
    with app.worker(slots=2, poll=0.1):
        result = app.run(work, range(120), where=where, output="none")
    assert (result.exit_code, result.summary.succeeded) == (0, 120)
    assert Counter(work.made) == Counter(work.told) == Counter(range(120))
    assert app.store.batches.recount(result.batch.id) == {"done": 120}
    assert len(flushes) > 4
    assert ends if where == "here" else reads


@pytest.mark.parametrize("after", [False, True])
def test_a_session_outlasts_an_outage(app, monkeypatch, after):
    away(monkeypatch, "flush", {1, 2}, after=after)
    away(monkeypatch, "end", {0}, after=after)
    seen = []
    with app.session("rows", output="none") as run:
        for key in run.pending(range(60)):
            with run.unit(key):
                seen.append(key)
    assert (run.exit_code, run.summary.succeeded, seen) == (0, 60, [*range(60)])


def test_a_run_gives_up_after_a_minute(app, work, monkeypatch):
    monkeypatch.setattr(outages, "MAX_OUTAGE_S", 0.0)
    away(monkeypatch, "flush", range(1, 100))
    with pytest.raises(StoreUnavailable):
        app.run(work, range(120), output="none")


def test_an_outage_is_no_failure_of_units_with_a_transaction(app, monkeypatch):
    """The breaker stopped the run, since several transactions in a row found no store."""
    away(monkeypatch, "unit_transaction", range(8))

    @app.unit(max_failures=2)
    def work(key: int, unit: holdfast.Unit) -> None:
        with unit.transaction() as connection:
            connection.execute("SELECT 1")

    result = app.run(work, range(6), output="none")
    units = app.store.batches.units(result.batch.id)
    assert (result.exit_code, {unit.attempts for unit in units}) == (0, {1}), "W9 is broken: an outage fails units"


def test_a_connection_that_breaks_within_a_transaction_is_an_outage(postgres_database):
    """The error of the driver reaches the function; the unit runs again, and its effect is there once."""
    with holdfast.Holdfast(postgres_database.url) as app, connect(postgres_database.url, autocommit=True) as other:
        other.execute("CREATE TABLE effect (key bigint)")
        raised = []

        @app.unit(max_failures=1)
        def work(key: int, unit: holdfast.Unit) -> None:
            with unit.transaction() as connection:
                connection.execute("INSERT INTO effect VALUES (%s)", (key,))
                if key not in raised:
                    raised.append(key)
                    other.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))
                    connection.execute("SELECT 1")

        result = app.run(work, range(3), output="none")
        assert (result.exit_code, raised) == (0, [0, 1, 2])
        assert other.execute("SELECT key FROM effect ORDER BY key").fetchall() == [(0,), (1,), (2,)]
        other.execute("DROP TABLE effect")


def test_a_failure_of_another_database_is_a_failure_of_the_unit(app):
    """Its error is that of the driver, too."""

    @app.unit(max_failures=0)
    def work(key: int, unit: holdfast.Unit) -> None:
        with unit.transaction():
            psycopg.connect(f"postgresql:///nothing?host=/nowhere-{os.getpid()}&connect_timeout=1")

    result = app.run(work, [1], output="none")
    assert result.exit_code == 1
    assert "psycopg.OperationalError" in app.store.batches.units(result.batch.id)[0].error

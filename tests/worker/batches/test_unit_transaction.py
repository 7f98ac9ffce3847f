"""Units that end in their own transaction, in every way a user can call it."""

from __future__ import annotations

import sqlite3

import psycopg
import pytest

import holdfast
from holdfast import Fatal, Skip, Unit
from holdfast.domain.batches.unit import UnitState
from holdfast.errors import InvalidInput
from tests.client.batches.test_local import run

UNIQUE = (sqlite3.IntegrityError, psycopg.errors.UniqueViolation)


@pytest.fixture
def app(real_database):
    with holdfast.Holdfast(real_database.url) as app:
        with app.store.backend.transaction() as connection:
            connection.execute("DROP TABLE IF EXISTS effect")
            connection.execute("CREATE TABLE effect (key INTEGER PRIMARY KEY)")
        yield app
        with app.store.backend.transaction() as connection:
            connection.execute("DROP TABLE effect")


def put(connection, key):
    connection.execute(f"INSERT INTO effect VALUES ({key})")


def effects(app):
    with app.store.backend.transaction() as connection:
        return sorted(key for (key,) in connection.execute("SELECT key FROM effect").fetchall())


def done_with(app, body, key=1, *, form="here", **options):
    """Run one unit. Returns its row, its effects and the hook's lines."""
    told = []

    @app.unit(max_failures=0, **options)
    def work(key: int, unit: Unit) -> object:
        return body(unit)

    work.on_unit(told.append)
    if form == "session":
        with app.session("loop", output="none") as session:
            for each in session.pending([key]):
                with session.unit(each) as unit:
                    body(unit)
        (batch,) = app.store.batches.page().batches
    elif form == "workers":
        with app.worker(slots=1, poll=0.1, heartbeat=0.5):
            batch = run(app, work, [key], where="workers", shards=1).batch
    else:
        batch = run(app, work, [key]).batch
    (unit,) = app.store.batches.units(batch.id)
    counters, rows = app.store.batches.counters(batch.id), app.store.batches.recount(batch.id)
    assert (counters.done, counters.failed, counters.skipped) == tuple(
        rows.get(state, 0) for state in ("done", "failed", "skipped")
    )
    assert counters.warned == int(unit.warning is not None and unit.state is UnitState.DONE)
    return unit, effects(app), told


@pytest.mark.parametrize("form", ["here", "session", "workers"])
def test_an_error_after_the_block_is_a_warning(app, form, caplog):
    """K75: the unit is done, because its transaction has committed; the error is kept and logged."""

    def body(unit):
        with unit.transaction() as connection:
            put(connection, 1)
        raise ValueError("too late")

    unit, made, told = done_with(app, body, form=form, retries=2, retry=["0s"])
    assert (unit.state, made) == (UnitState.DONE, [1])
    assert unit.warning == "after its transaction: ValueError: too late", "K75 is broken: the error is lost"
    assert "ValueError: too late" in caplog.text
    if form != "session":
        assert [(line.key, line.status, line.warning) for line in told] == [(1, "done", unit.warning)]


def test_fatal_after_the_block_still_stops_the_run(app):
    """K75."""

    @app.unit()
    def work(key: int, unit: Unit) -> None:
        with unit.transaction() as connection:
            put(connection, key)
        raise Fatal("no disk")

    result = run(app, work, range(200))
    assert (result.exit_code, result.summary.failed) == (8, 0)
    assert result.summary.succeeded == len(effects(app)) < 200


def test_what_is_said_after_the_block_is_kept(app):
    """K75: label, data, the value that is returned, a warning; a result for an inbox is refused."""

    def late(unit):
        with unit.transaction() as connection:
            unit.done("early")
            put(connection, 1)
        unit.warn("slow")
        unit.done("late")
        return {"rows": 1}

    unit, _, (line,) = done_with(app, late)
    assert (unit.label, unit.warning, unit.data) == ("late", "slow", '{"rows":1}')
    assert (line.label, line.warning, line.data) == ("late", "slow", {"rows": 1})
    (batch,) = app.store.batches.page().batches
    assert app.store.batches.counters(batch.id).labels == {"late": 1}


def test_a_second_block_is_refused_before_anything_runs(app):
    """K75: the unit is done; what the second block would have written is not there."""

    def body(unit):
        with unit.transaction() as connection:
            put(connection, 1)
        with unit.transaction() as connection:
            put(connection, 2)

    unit, made, _ = done_with(app, body)
    assert (unit.state, made) == (UnitState.DONE, [1]), "K75 is broken: a second block was kept"
    assert "the unit has already used its transaction" in unit.warning


def test_a_block_after_one_that_was_rolled_back_is_fine(app):
    """K75: the user's own error leaves the first block as it is."""

    def body(unit):
        with pytest.raises(UNIQUE), unit.transaction() as connection:
            connection.execute("INSERT INTO effect VALUES (1), (1)")
        with unit.transaction() as connection:
            put(connection, 2)

    unit, made, told = done_with(app, body)
    assert (unit.state, unit.warning, made, len(told)) == (UnitState.DONE, None, [2], 1), "K75 is broken"


def test_a_block_within_a_block_is_refused(app):
    """K75: nothing of either is kept; savepoints are the way."""

    def body(unit):
        with unit.transaction() as connection:
            put(connection, 1)
            with unit.transaction() as inner:
                put(inner, 2)

    unit, made, _ = done_with(app, body)
    assert (unit.state, made) == (UnitState.FAILED, [])
    assert "is open already" in unit.error


def test_savepoints_are_fine(app):
    """K75."""

    def body(unit):
        with unit.transaction() as connection:
            put(connection, 1)
            connection.execute("SAVEPOINT part")
            with pytest.raises(UNIQUE):
                put(connection, 1)
            connection.execute("ROLLBACK TO SAVEPOINT part")
            connection.execute("RELEASE SAVEPOINT part")
            put(connection, 2)

    unit, made, _ = done_with(app, body)
    assert (unit.state, made) == (UnitState.DONE, [1, 2])


@pytest.mark.parametrize("method", ["commit", "rollback"])
def test_a_commit_of_the_user_is_refused(app, method):
    """K75: nothing is kept, and the unit has failed with the reason."""

    def body(unit):
        with unit.transaction() as connection:
            put(connection, 1)
            getattr(connection, method)()

    unit, made, _ = done_with(app, body)
    assert (unit.state, made) == (UnitState.FAILED, []), "K75 is broken: a commit of the user was done"
    assert "must not be committed or rolled back by your code" in unit.error


@pytest.mark.parametrize("statement", ["COMMIT", "ROLLBACK"])
def test_a_commit_that_is_sent_as_sql_is_found(app, statement):
    """K75: SQLite refuses it; on PostgreSQL it is done before we can know, and the unit says so."""

    def body(unit):
        with unit.transaction() as connection:
            put(connection, 1)
            connection.execute(statement)

    unit, made, _ = done_with(app, body)
    assert unit.state is UnitState.FAILED
    kept = app.store.backend.name != "sqlite" and statement == "COMMIT"
    assert made == ([1] if kept else [])
    assert ("has ended this transaction" if app.store.backend.name != "sqlite" else "by your code") in unit.error


def test_a_closed_connection_and_a_spoiled_transaction_fail_the_unit(app):
    """K75: nothing is kept."""

    def closes(unit):
        with unit.transaction() as connection:
            put(connection, 1)
            connection.close()

    unit, made, _ = done_with(app, closes, name="closes")
    assert (unit.state, made) == (UnitState.FAILED, [])
    assert "closed" in unit.error
    if app.store.backend.name == "sqlite":
        return

    def spoils(unit):
        with unit.transaction() as connection:
            put(connection, 1)
            with pytest.raises(UNIQUE):
                put(connection, 1)

    unit, made, _ = done_with(app, spoils, name="spoils")
    assert (unit.state, made) == (UnitState.FAILED, [])
    assert "a statement failed within the transaction" in unit.error


def test_a_skip_within_the_block_keeps_nothing(app):
    """K75."""

    def body(unit):
        with unit.transaction() as connection:
            put(connection, 1)
            raise Skip("no need")

    unit, made, _ = done_with(app, body)
    assert (unit.state, unit.warning, made) == (UnitState.SKIPPED, "no need", [])


def test_a_result_is_handed_over_within_the_block_only(app):
    """K75: afterwards the unit is done, and nobody would wait for the result."""

    def body(unit):
        with unit.transaction() as connection:
            put(connection, 1)
        with pytest.raises(InvalidInput, match="has committed"):
            unit.hand_over(1)

    unit, made, _ = done_with(app, body)
    assert (unit.state, made) == (UnitState.DONE, [1])

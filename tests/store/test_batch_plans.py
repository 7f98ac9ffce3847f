"""No statement of a batch reads the whole ledger, but those that are for the whole of it."""

from __future__ import annotations

import re

import pytest

from holdfast.domain.request import NewJob
from holdfast.store import sql
from holdfast.store.flow import Ask, Rows
from holdfast.store.ledger import Next
from holdfast.store.postgres.statements import to_sql
from tests.store.test_batches import begin, keys
from tests.support.processes import connect

#: They are asked once a run at most, or by a person, and are for all units of one batch.
WHOLE = {"recount", "gone_units", "cancel_units", "reopen_units", "list_units", "forget_batch"}
UNITS = 20_000


@pytest.fixture
def big(real_database):
    """Two batches of many units, and jobs beside them."""
    store = real_database.open()
    run = begin(store, "one")
    store.batches.plan(run, keys(*range(UNITS)))
    other = begin(store, "two")
    store.batches.plan(other, keys(*range(UNITS)))
    store.jobs.enqueue_many([NewJob(kind="mail") for _ in range(1000)])
    real_database.execute("ANALYZE")
    return store, run


def plan_of(database, store, ask):
    """The plan that the database makes for a statement, as text."""
    if database.name == "sqlite":
        statement = sql.compose(sql.statements("sqlite"), ask.name, ask.where)
        told = {**dict.fromkeys(sql.parameters(statement)), "units": "[]", "unit": "[]", "delta": "[]", "keys": "[]"}
        rows = []
        with connect(database.url) as connection:
            for part in statement.split(";\n"):
                values = {name: told.get(name) for name in sql.parameters(part)}
                rows += connection.execute(f"EXPLAIN QUERY PLAN {part}", values).fetchall()
        connection.close()
        return "\n".join(row[3] for row in rows)
    with connect(database.url) as connection:
        rows = connection.execute(b"EXPLAIN " + store.backend.statements.text(ask), to_sql(ask.parameters)).fetchall()
    return "\n".join(row[0] for row in rows)


def test_a_run_reads_no_more_than_it_takes(big, real_database):
    """Every statement of a flush, a claim and a return finds its rows by an index."""
    store, run = big
    seen = []
    perform = store.backend.write

    def watched(flow, *args):
        def told():
            step = flow(*args)
            answer = None
            while True:
                try:
                    ask = step.send(answer)
                except StopIteration as stop:
                    return stop.value
                if isinstance(ask, Ask):
                    seen.append(ask)
                answer = yield ask

        return perform(told)

    store.backend.write = watched
    flushed = store.batches.flush(run, ask_for=Next(limit=50))
    mine = [(unit.key, unit.place) for unit in flushed.taken]
    store.batches.flush(run, ask_for=Next(candidates=keys(*range(50, 100)), in_hand=mine, limit=50))
    begin(store, "one", dead=(run.lease.job_id,))
    store.backend.write = perform
    names = {ask.name for ask in seen}
    assert {"open_units", "units_by_key", "suspect_units", "hold_units", "drop_holdings"} <= names
    for ask in seen:
        if ask.name in WHOLE or isinstance(ask, Rows):
            continue
        plan = plan_of(real_database, store, ask)
        assert not re.search(r"SCAN (holdfast_)?(unit|live|job)\b(?! VIRTUAL)|Seq Scan on (unit|live|job)\b", plan), (
            ask.name,
            plan,
        )

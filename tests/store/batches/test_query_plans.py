"""No statement of a batch reads the whole ledger, but those that are for the whole of it."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from holdfast.domain.batches.batch import Sharding
from holdfast.domain.batches.unit import HandedResult, UnitOutcome, UnitState
from holdfast.domain.jobs.new_job import NewJob
from holdfast.store.batches.unit_choice import NextUnits
from holdfast.store.engine import sql
from holdfast.store.engine.operation import Query, Rows
from tests.store.batches.test_batches import WORKER, begin, keys, leave
from tests.support.jobs import claim_jobs
from tests.support.processes import connect

#: They are asked once a run at most, or by a person, and are for all units of one batch.
WHOLE = {"recount_units", "skip_missing_units", "cancel_units", "reopen_units", "list_units", "delete_batch"}
UNITS = 20_000
#: Finished batches, with an event each. Among fewer, a plan with a scan is nearly as cheap as one with an index.
FINISHED = 5000
FINISHED_BATCHES = """INSERT INTO {prefix}batch
    (identity, generation, kind, arguments, source, state, run_number, options, actor, created_at, finished_at)
    WITH RECURSIVE counted (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < {count})
    SELECT identity || n, generation, kind, arguments, source, 'done', 1, options, actor, created_at, created_at
    FROM {prefix}batch CROSS JOIN counted WHERE identity = 'small'"""
FINISHED_EVENTS = """INSERT INTO {prefix}batch_event (batch_id, at, name, run_number)
    SELECT id, created_at, 'finished', 1 FROM {prefix}batch WHERE state = 'done'"""
CONDITIONS = ("batch_has_states", "batch_has_owner")


@pytest.fixture
def big(real_database):
    """Two batches of many units, and jobs beside them."""
    store = real_database.open()
    run = begin(store, "one")
    store.batches.plan(run, keys(*range(UNITS)))
    other = begin(store, "two")
    store.batches.plan(other, keys(*range(UNITS)))
    store.jobs.enqueue_many([NewJob(kind="mail") for _ in range(1000)])
    leave(store, begin(store, "small"), total=0)
    prefix = "holdfast." if real_database.name == "postgres" else "holdfast_"
    for statement in (FINISHED_BATCHES, FINISHED_EVENTS):
        real_database.execute(statement.format(prefix=prefix, count=FINISHED))
    real_database.execute("ANALYZE")
    return store, run


def plan_of(database, store, ask):
    """The plan that the database makes for a statement, as text."""
    if database.name == "sqlite":
        statement = sql.compose("sqlite", ask.name, ask.where)
        told = {
            **dict.fromkeys(sql.parameters(statement)),
            "units": "[]",
            "unit": "[]",
            "delta": "[]",
            "keys": "[]",
            "result": "[]",
        }
        rows = []
        with connect(database.url) as connection:
            for part in statement.split(";\n"):
                values = {name: told.get(name) for name in sql.parameters(part)}
                rows += connection.execute(f"EXPLAIN QUERY PLAN {part}", values).fetchall()
        connection.close()
        return "\n".join(row[3] for row in rows)
    with connect(database.url) as connection:
        statements = store.backend.statements
        rows = connection.execute(b"EXPLAIN " + statements.text(ask), statements.arguments(ask)).fetchall()
    return "\n".join(row[0] for row in rows)


def watching(perform, seen):
    """The same write, which notes every statement."""

    def watched(flow, *args, **kwargs):
        def told():
            step = flow(*args, **kwargs)
            answer = None
            while True:
                try:
                    ask = step.send(answer)
                except StopIteration as stop:
                    return stop.value
                if isinstance(ask, Query):
                    seen.append(ask)
                answer = yield ask

        return perform(told)

    return watched


NEW_UNITS = {"keys": '["a", "b"]', "position": 7, "duration_ms": 0}


def assert_no_scan(database, store, seen):
    for ask in seen:
        if ask.name in WHOLE or isinstance(ask, Rows):
            continue
        plan = plan_of(database, store, ask)
        tables = "unit|live|job|inbox|batch|batch_event"
        assert not re.search(rf"SCAN (holdfast_)?({tables})\b(?! VIRTUAL)|Seq Scan on ({tables})\b", plan), (
            ask.name,
            plan,
        )


def test_a_run_reads_no_more_than_it_takes(big, real_database):
    """Every statement of a flush, a claim and a return finds its rows by an index."""
    store, run = big
    seen, perform = [], store.backend.write
    store.backend.write = watching(perform, seen)
    flushed = store.batches.flush(run, next_units=NextUnits(limit=50))
    mine = [(unit.key, unit.position) for unit in flushed.taken]
    store.batches.flush(run, next_units=NextUnits(candidates=keys(*range(50, 100)), in_hand=mine, limit=50))
    begin(store, "one", dead=(run.lease.job_id,))
    store.backend.write = perform
    names = {ask.name for ask in seen}
    assert {"read_pending_units", "get_units", "return_lost_units", "put_in_flight", "delete_in_flight"} <= names
    assert_no_scan(real_database, store, seen)


def test_a_look_into_a_ledger_reads_no_more_than_it_shows(big, real_database):
    """Units by state, in their order, by key; errors; what people do to some of them."""
    store, run = big
    batch = {"batch_id": run.batch.id}
    newest = {"before": 2**62, "window": 50}
    seen = [
        Query("list_batches", {**newest, "limit": 50, "states": ["done"], "owner": "ada"}, None, CONDITIONS),
        Query("get_batch_window_end", newest),
        Query("list_batch_events", {**batch, "before": 2**62, "limit": 50}),
        Query("list_units_by_state", {**batch, "state": "failed", "after": "", "limit": 50}),
        Query("list_pending_units", {**batch, "last_run": 0, "position": -1, "limit": 50}),
        Query("list_units_window", {**batch, "after": "", "limit": 50}),
        Query("list_unit_errors", {**batch, "after": "", "limit": 50}),
        Query("list_batch_details", {"ids": [run.batch.id], "labels": 100}),
        Query("change_failed_units", {**batch, "keys": ["1"], "state": "pending", "before": "failed", "label": None}),
    ]
    assert_no_scan(real_database, store, seen)


def test_a_shard_and_a_consumer_read_no_more_than_they_take(big, real_database):
    """Join, take, hand over, leave; take results, accept one, let others expire; look for lost shards."""
    store, run = big
    store.batches.launch(run, Sharding(kind="shard:resync", shards=1))
    (lease,) = claim_jobs(store, WORKER, queues=["default"], kinds=["shard:resync"])
    seen, perform = [], store.backend.write
    store.backend.write = watching(perform, seen)
    shard = store.batches.join(run.batch.id, lease, owner="{}", worker=WORKER)
    units = store.batches.flush(shard, next_units=NextUnits(limit=1000)).taken
    plain = [UnitOutcome(key=unit.key, position=unit.position, state=UnitState.DONE) for unit in units[:100]]
    store.batches.flush(shard, plain, NextUnits(planned=True))
    ends = [
        UnitOutcome(key=unit.key, position=unit.position, state=UnitState.RUNNING, handed=HandedResult("box", "1"))
        for unit in units[100:]
    ]
    store.batches.flush(shard, ends)
    store.batches.leave(shard, None)
    store.batches.revive()
    real_database.execute("ANALYZE")
    (result, other) = store.inbox.take("box", limit=2)
    store.inbox.accept(result)
    store.inbox.refuse(other, "no")
    store.inbox.expire()
    store.backend.write = perform
    seen += [
        Query("claim_inbox_results", {"inbox": "box", "limit": 2, "lease_duration": timedelta(seconds=1)}),
        Query("list_expired_inbox_results", {"limit": 2}),
        Query("list_inboxes", {"limit": 2}),
        Query("list_inbox_results", {"inbox": "box", "limit": 2}),
        Query("get_inbox_results", {"ids": [1]}),
        Query("retry_units", {"batch_id": 1, "keys": ["1"], "run_number": 2, "crashes": 3}),
        Query("insert_done_units", {**NEW_UNITS, "batch_id": 1, "run_number": 1, "worker": WORKER}),
        Query("list_unit_notes", {"batch_id": 1, "keys": ["1"]}),
        Query("overrule_units", {"batch_id": 1, "keys": ["1"], "run_number": 2}),
    ]
    counters = plan_of(real_database, store, Query("count_units_by_kind", {"limit": 2, "labels": 100}))
    assert "SCAN counted" not in counters
    assert {
        "finish_units",
        "insert_inbox_results",
        "delete_inbox_result",
        "finish_delivered_unit",
        "list_batches_without_shards",
        "lock_lease",
    } <= {ask.name for ask in seen}
    assert_no_scan(real_database, store, seen)

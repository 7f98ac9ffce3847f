"""The view ``execution_view``: one row for each execution, for audits by SQL (4.43)."""

from __future__ import annotations

import re

import pytest

from holdfast.domain.jobs.verdict import Done
from holdfast.domain.schedules.definition import Definition
from holdfast.domain.schedules.plan import Overlap
from tests.store.schedules.test_plans import fire, step
from tests.support.jobs import BOOM, put, take_one

COLUMNS = (
    *("job_id", "attempt", "kind", "queue", "label", "schedule", "plan_time", "scope", "worker", "host", "outcome"),
    *("enqueued_at", "started_at", "finished_at", "seconds", "exit_code", "error"),
)
#: The tables that grow with the executions.
BIG = ("job", "finished_before", "attempt", "plan")
#: Rows of jobs that are done, each with its plan, for a plan of the database.
ROWS = 20_000


def executions(database, columns="job_id, attempt, outcome, error"):
    return database.execute(f"SELECT {columns} FROM holdfast.execution_view ORDER BY job_id, attempt, finished_at")


def run(store, clock, verdict=None, **options):
    """Claim a job, start it, and settle it 2 s later; without a verdict it keeps running."""
    lease = take_one(store, started=True, **options)
    clock.advance(seconds=2)
    if verdict is not None:
        store.leases.settle(lease, verdict)


def test_each_run_is_a_row(database, store, clock):
    """I21: a success at the first try has one, too; a job that never ran has none."""
    store.workers.announce("worker-1", host="rack7", pid=7, queues=[], kinds=[], version="1")
    first, second, third = put(store, label="l"), put(store, retry='{"steps":[0]}'), put(store, max_attempts=1)
    run(store, clock, Done(result='"secret"'))
    run(store, clock, BOOM)
    clock.advance(minutes=1)
    store.leases.promote(limit=10)
    run(store, clock, BOOM)  # the third one, which has waited longer
    run(store, clock, Done())
    put(store, hold=True)
    last = put(store)
    run(store, clock)
    assert sorted(executions(database)) == sorted(
        [
            (first, 1, "done", None),
            (second, 1, "handler_error", "boom"),
            (third, 1, "handler_error", "boom"),
            (second, 2, "done", None),
            (last, 1, "running", None),
        ],
        key=lambda row: row[:2],
    ), "I21 is broken"
    names = ", ".join(COLUMNS)
    row = dict(zip(COLUMNS, executions(database, names)[0], strict=True))
    assert (row["kind"], row["queue"], row["label"], row["worker"], row["host"]) == (
        *("mail", "default", "l"),
        *("worker-1", "rack7"),
    )
    assert (row["seconds"], row["schedule"], row["exit_code"]) == (2.0, None, None)
    assert row["enqueued_at"] <= row["started_at"] < row["finished_at"]


def test_a_run_names_the_plan_that_made_it(database, store, clock):
    """Schedule, the time of the plan and the scope; retried and running ones as well."""
    definition = Definition(kind="mail", cron="*/5 * * * *", overlap=Overlap.ALLOW)
    found = store.schedules.create("five", definition, actor="ada")
    clock.advance(minutes=6)
    store.plans.advance([step(found, fire(5, scope="eu", retry='{"steps":[0]}'), overlap=Overlap.ALLOW)])
    run(store, clock, BOOM)
    clock.advance(minutes=1)
    store.leases.promote(limit=10)
    run(store, clock)
    rows = executions(database, "schedule, scope, outcome, plan_time")
    assert [row[:3] for row in rows] == [("five", "eu", "handler_error"), ("five", "eu", "running")]
    assert len({row[3] for row in rows}) == 1


FILL = {
    "sqlite": (
        f"""INSERT INTO holdfast.job (id, kind, payload, actor, created_at, on_lost)
        WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {ROWS})
        SELECT n, 'mail', '{{}}', 'a', n * 1000000, 'retry' FROM n""",
        """INSERT INTO holdfast.finished (id, state, queue, kind, priority, due_at, attempts, crashes, token, finished_at)
        SELECT id, 'done', 'q', kind, 0, 0, 1, 0, 1, created_at FROM holdfast.job""",
        """INSERT INTO holdfast.attempt (job_id, token, number, finished_at, reason)
        SELECT id, 1, 1, created_at, 'handler_error' FROM holdfast.job""",
        """INSERT INTO holdfast.plan (schedule, time, scope, origin, job_id, open, queued, actor, decided_at)
        SELECT 's' || (id % 500), created_at, 'global', 'due', id, false, false, 'a', created_at FROM holdfast.job""",
        "ANALYZE",
    ),
}
FILL["postgres"] = (
    FILL["sqlite"][0]
    .replace(f"WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {ROWS})\n", "")
    .replace("n * 1000000", "to_timestamp(n)")
    .replace("'retry' FROM n", f"'retry' FROM generate_series(1, {ROWS}) AS n"),
    FILL["sqlite"][1].replace("kind, 0, 0, 1,", "kind, 0, now(), 1,"),
    *(statement.replace("id % 500", "mod(id, 500)") for statement in FILL["sqlite"][2:]),
)


@pytest.mark.parametrize(
    ("condition", "rows"),
    [("job_id = 77", 0), ("schedule = 's7' AND plan_time > {time}", 600), ("finished_at > {time}", 50)],
)
def test_no_question_reads_whole_tables(database, store, condition, rows):
    """By job, by schedule and by time: the indexes serve each, whatever the number of rows."""
    sqlite = database.name == "sqlite"
    for statement in FILL["sqlite" if sqlite else "postgres"]:
        database.execute(statement)
    time = f"{(ROWS - rows) * 1_000_000}" if sqlite else f"to_timestamp({ROWS - rows})"
    text = f"SELECT * FROM holdfast.execution_view WHERE {condition.format(time=time)}"
    assert database.execute(text)
    plan = database.execute(f"EXPLAIN QUERY PLAN {text}" if sqlite else f"EXPLAIN {text}")
    lines = [str(row[-1]).strip() for row in plan]
    whole = re.compile(rf"(SCAN|.*Seq Scan on) (holdfast\.)?({'|'.join(BIG)})")
    assert not [line for line in lines if whole.match(line)], "\n".join(lines)

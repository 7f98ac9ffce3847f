"""No statement about schedules or plans reads a whole table, however many of them are idle."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from holdfast.domain.schedules.definition import Definition
from holdfast.store.engine import sql
from holdfast.store.engine.operation import Query, Rows
from holdfast.store.sqlite.statements import statement_by_row
from holdfast.store.sqlite.statements import to_sql as to_sqlite
from tests.support.backends import START
from tests.support.processes import connect

SCHEDULES, PLANS = 20_000, 50_000
DEFINITION = Definition(kind="mail", cron="@daily").dumps()
BY_PLAN = Rows(schedule=["s1"], time=[START], scope=["global"])
BY_NAME = Rows(name=["s1"], cursor=[START], next_at=[START], fired=[1])
#: How each statement is asked, beyond the names of its parameters.
ASKED = {
    "schedules": ["s1"],
    "names": ["s1"],
    "ids": [1],
    "after_id": 1,
    "providers": ["tenants0"],
    "provider": "tenants0",
    "busy": ["s8"],
    "waiting": Rows(provider=["tenants0"], name=["s8"]),
    "scopes": Rows(schedule=["s1"], scope=["global"]),
    "plan": BY_PLAN,
    "advance": BY_NAME,
    "dependencies": Rows(job_id=[1], dependency_id=[2]),
    "skip": Rows(schedule=["s1"], last=[START], first=[START], scope=[""], reason=["late"], count=[1]),
    "limit": 10,
    "window": 100_000,
    "kind": "mail7",
    "definition": DEFINITION,
    "declared": None,
    **dict.fromkeys(("at", "cursor", "next_at", "time", "until"), START),
    **dict.fromkeys(("age", "late", "rest"), timedelta(days=1)),
    **dict.fromkeys(("fired", "token", "version", "failures"), 1),
    "paused": False,
}
#: All but the one that only appends.
STATEMENTS = [
    *(name for noun in ("schedules", "plans") for name in sql.statements("postgres", noun=noun)),
    *("delete_dependencies", "prune_plans", "prune_skipped_plans"),
]
STATEMENTS.remove("insert_skipped_plans")

FILL = {
    "sqlite": [
        f"""WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {SCHEDULES})
        INSERT INTO holdfast_schedule (name, definition, provider, cursor, next_at, check_at, actor, created_at,
            changed_at)
        SELECT 's' || n, replace('{DEFINITION}', 'mail', 'mail' || (n % 50)),
            CASE WHEN n % 2 = 0 THEN 'tenants' || (n % 4) END, 0, 4000000000000000 + n,
            4000000000000000 + n, 'ada', 0, 0 FROM n""",
        f"""WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {PLANS})
        INSERT INTO holdfast_plan (schedule, time, scope, origin, job_id, open, queued, actor, decided_at)
        SELECT 's' || (n % 100), n, 'global', 'due', n, n % 500 = 0, n % 1000 = 0, 'ada', n FROM n""",
        f"""WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {PLANS})
        INSERT INTO holdfast_skipped_plan (schedule, last, first, scope, reason, count, decided_at)
        SELECT 's' || (n % 100), n, n, '', 'late', 1, n FROM n""",
        "ANALYZE",
    ],
    "postgres": [
        f"""INSERT INTO holdfast.schedule (name, definition, provider, cursor, next_at, check_at, actor, created_at,
            changed_at)
        SELECT 's' || n, replace('{DEFINITION}', 'mail', 'mail' || mod(n, 50))::json,
            CASE WHEN mod(n, 2) = 0 THEN 'tenants' || mod(n, 4) END, now(),
            now() + n * interval '1 day', now() + n * interval '1 day', 'ada', now(), now()
        FROM generate_series(1, {SCHEDULES}) AS n""",
        f"""INSERT INTO holdfast.plan (schedule, time, scope, origin, job_id, open, queued, actor, decided_at)
        SELECT 's' || mod(n, 100)::text, now() - n * interval '1 s', 'global', 'due', n, mod(n, 500) = 0, mod(n, 1000) = 0, 'ada',
            now() - n * interval '1 s' FROM generate_series(1, {PLANS}) AS n""",
        f"""INSERT INTO holdfast.skipped_plan (schedule, last, first, scope, reason, count, decided_at)
        SELECT 's' || mod(n, 100)::text, now() - n * interval '1 s', now() - n * interval '1 s', '', 'late', 1,
            now() - n * interval '1 s' FROM generate_series(1, {PLANS}) AS n""",
        f"""INSERT INTO holdfast.live (id, state, queue, kind, priority, due_at)
        SELECT n, 'ready', 'default', 'mail', 0, now() FROM generate_series(1, {PLANS}) AS n""",
        """INSERT INTO holdfast.finished (id, state, queue, kind, priority, due_at, attempts, crashes, token, finished_at)
        SELECT n, 'done', 'default', 'mail', 0, now(), 1, 0, 1, now() FROM generate_series(100001, 150000) AS n""",
        "ANALYZE",
    ],
}


@pytest.fixture
def big(real_database):
    store = real_database.open()
    for statement in FILL["sqlite" if real_database.name == "sqlite" else "postgres"]:
        real_database.execute(statement)
    return store


def plan_of(database, store, name, where=()):
    """The plan that the database makes for a statement, as text."""
    names = sql.parameters(sql.compose("postgres", name, where))
    ask = Query(name, {each: ASKED.get(each, "s1") for each in names}, None, where)
    if database.name != "sqlite":
        with connect(database.url) as connection:
            text = b"EXPLAIN " + store.backend.statements.text(ask)
            return "\n".join(row[0] for row in connection.execute(text, store.backend.statements.arguments(ask)))
    rows = []
    with connect(database.url) as connection:
        if (by_row := statement_by_row(name)) is not None:
            return "\n".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {by_row[0]}", by_row[2]))
        for part in sql.compose("sqlite", name, where).split(";\n"):
            values = {each: to_sqlite(ask.parameters.get(each, START)) for each in sql.parameters(part)}
            rows += connection.execute(f"EXPLAIN QUERY PLAN {part}", values).fetchall()
    connection.close()
    return "\n".join(row[3] for row in rows)


def test_nothing_is_read_as_a_whole(big, real_database):
    """A planner's tick with nothing due, a step, a look at the history: all of them find their rows by an index."""
    scan = re.compile(
        r"SCAN (holdfast_)?(schedule|plan|skipped_plan|live|finished)\b(?! USING (COVERING )?INDEX \S*(_queued|_failing))|Seq Scan on (schedule|plan|skipped_plan|live|finished)\b"
    )
    found = {name: plan for name in STATEMENTS if scan.search(plan := plan_of(real_database, big, name))}
    assert not found, "\n\n".join(f"{name}\n{plan}" for name, plan in found.items())


@pytest.mark.parametrize(
    ("condition", "index"),
    [
        ("schedule_is_paused", "schedule_paused"),
        ("schedule_is_over", "schedule_over"),
        ("schedule_is_failing", "schedule_failing"),
        ("schedule_has_kind", "schedule_kind"),
    ],
)
def test_a_rare_choice_of_schedules_has_its_index(big, real_database, condition, index):
    """V3: a list of 100,000 schedules is not read for the three that are paused."""
    assert index in plan_of(real_database, big, "list_schedules", (condition,))

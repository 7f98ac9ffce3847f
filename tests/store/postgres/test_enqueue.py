"""``select holdfast.enqueue(...)``: jobs from plain SQL in PostgreSQL (J2)."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast.domain.jobs.job import State
from holdfast.domain.jobs.kind_options import new_job_of
from holdfast.domain.jobs.retry_curve import Curve
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.verdict import Done
from tests.support.backends import START, available, open_database
from tests.support.jobs import claim_jobs, take_one

POSTGRES = [name for name in available() if name != "sqlite"]


@pytest.fixture(params=POSTGRES)
def database(request, tmp_path):
    """SQLite has no functions of ours: there, a trigger would write the tables itself."""
    with open_database(request.param, tmp_path) as database:
        yield database


@pytest.fixture
def store(database):
    with holdfast.Holdfast(database.url) as app:

        @app.job(queue="post", priority=2, max_attempts=7, retry=["5s"], on_lost="hold")
        def mail(to: int) -> None: ...

        @app.job(unique=["to", "what"])
        def once(to: int, what: str) -> None: ...

        @app.job(unique=["n"], unique_for="1h")
        def hourly(n: int) -> None: ...

        yield app.store


def enqueue(database, arguments: str) -> int:
    return database.execute(f"SELECT holdfast.enqueue({arguments})")[0][0]


def test_a_job_has_its_own_attempts_timeout_and_delays(database, store):
    """E9.4: as in Python."""
    arguments = "'mail', '{\"to\": 1}', max_attempts => 5, timeout => '90 s', retry => ARRAY['10 s', '1 m']::interval[]"
    job = store.views.get(enqueue(database, arguments))
    assert (job.max_attempts, job.timeout, Curve.loads(job.retry).steps) == (5, 90.0, (10.0, 60.0))
    assert store.views.get(enqueue(database, "'mail', '{\"to\": 2}', max_attempts => 0")).max_attempts is None


def test_defaults_come_from_the_kind(database, store):
    """The same job as one that was enqueued in Python."""
    job = store.views.get(enqueue(database, """'mail', '{"to": 7}'"""))
    assert (job.kind, job.queue, job.priority, job.max_attempts) == ("mail", "post", 2, 7)
    assert (job.on_lost, job.state, job.payload, job.actor) == ("hold", State.READY, '{"to": 7}', "holdfast:sql")
    assert '"steps":[5.0]' in job.retry.replace(" ", "")


def test_careful_work_stays_careful(database, store):
    """It is never prefetched, and its start is recorded before it begins."""
    enqueue(database, """'mail', '{"to": 7}'""")
    assert claim_jobs(store, "w", 0, queues=["post"], kinds=["mail"], ahead=9, short=["mail"]) == []
    assert claim_jobs(store, "w", queues=["post"], kinds=["mail"])[0].starts_recorded


def test_options_can_be_given(database, store):
    """By name, as SQL likes it."""
    job = store.views.get(
        enqueue(database, """'mail', '{}', queue => 'q', priority => -1, delay => interval '1 hour', label => 'l'""")
    )
    assert (job.queue, job.priority, job.label, job.state) == ("q", -1, "l", State.SCHEDULED)
    assert job.due_at == START + timedelta(hours=1)


def test_keys_are_those_of_python(database, store):
    """The same fields form the same key, whoever enqueues."""
    first = enqueue(database, """'once', '{"to": 7, "what": "x"}'""")
    assert enqueue(database, """'once', '{"what": "x", "to": 7}'""") == first
    app = holdfast.Holdfast(database.url)

    @app.job(unique=["to", "what"])
    def once(to: int, what: str) -> None: ...

    assert once.enqueue(to=7, what="x").id == first
    app.close()


def test_a_key_frees_as_everywhere(database, store):
    """Live: with the end of the job. Period: with its time."""
    first = enqueue(database, """'mail', '{"to": 1}', key => 'k'""")
    assert enqueue(database, """'mail', '{"to": 1}', key => 'k'""") == first
    store.leases.settle(take_one(store, queues=("post",), started=True), Done())
    assert enqueue(database, """'mail', '{"to": 1}', key => 'k'""") != first

    hourly = enqueue(database, """'hourly', '{"n": 1}'""")
    store.leases.settle(take_one(store, kinds=("hourly",)), Done())
    assert enqueue(database, """'hourly', '{"n": 1}'""") == hourly
    database.clock.advance(hours=1)
    assert enqueue(database, """'hourly', '{"n": 1}'""") != hourly


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("'nothing'", "E_UNKNOWN_KIND"),
        ("'mail', '[]'", "E_INVALID_PAYLOAD"),
        ("'once', '{\"to\": 1}'", "E_INVALID_PAYLOAD"),
        ("'mail', to_json(repeat('x', 300000))", "E_PAYLOAD_TOO_LARGE"),
        ("'mail', '{}', delay => interval '1 s', run_at => now()", "E_INVALID"),
    ],
)
def test_bad_input_is_refused_with_its_code(database, store, arguments, code):
    """And nothing is written."""
    with pytest.raises(psycopg.errors.RaiseException, match=code):
        enqueue(database, arguments)
    assert database.execute("SELECT count(*) FROM holdfast.job")[0][0] == 0


def test_it_follows_the_callers_transaction(database, store):
    """A rollback leaves nothing."""
    with psycopg.connect(database.url) as connection:
        connection.execute("SELECT holdfast.enqueue('mail', '{}')")
        connection.rollback()
    assert database.execute("SELECT count(*) FROM holdfast.job")[0][0] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        "'mail', '{}', run_at => 'infinity'",
        "'mail', '{}', run_at => '-infinity'",
        "'mail', '{}', run_at => '4000-01-01 BC'",
        "'mail', '{}', run_at => '20000-01-01'",
        "'mail', '{}', delay => interval '-1 s'",
        "'mail', '{}', delay => interval '9000 years'",
        "'mail', '{}', queue => ''",
        "'mail', '{}', queue => ' q'",
        "'mail', '{}', queue => repeat('q', 201)",
        "'mail', '{}', label => ''",
        "'mail', '{}', key => ''",
        "'mail', '{}', key => repeat('k', 513)",
        "'mail', '{\"to\": \"a\\u0000\"}'",
        "'mail', '{\"to\": \"\\ud800\"}'",
        "'mail', ('{\"to\": ' || repeat('[', 100) || repeat(']', 100) || '}')::json",
        "'mail', NULL",
    ],
)
def test_sql_refuses_what_python_refuses(database, store, arguments):
    """K19: a job that no list could read was accepted."""
    with pytest.raises(psycopg.errors.RaiseException, match="E_INVALID"):
        enqueue(database, arguments)
    assert database.execute("SELECT count(*) FROM holdfast.job")[0][0] == 0


def test_the_edges_that_python_accepts_are_accepted(database, store):
    """K19: the checks are no stricter than Python's."""
    deep = "('{\"to\": ' || repeat('[', 99) || repeat(']', 99) || '}')::json"
    enqueue(database, f"'mail', {deep}, key => repeat('k', 512), queue => repeat('q', 200)")
    enqueue(database, "'mail', '{}', run_at => '8999-12-31 23:59+00'")
    assert len(store.views.page(Selector()).jobs) == 2


def test_the_schema_refuses_due_times_that_nobody_can_read(database, store):
    """K19: also for rows that did not come through the function."""
    for due in ("infinity", "-infinity", "4000-01-01 BC"):
        with pytest.raises(psycopg.errors.CheckViolation):
            database.execute(
                "INSERT INTO holdfast.live (id, state, queue, kind, priority, due_at)"
                " VALUES (1, 'ready', 'q', 'k', 0, %s)",
                (due,),
            )


KEYED = [
    {"a": "Ann", "b": [1]},
    {"a": 'Zoë \u2028 \x7f \x01 " \\ / 😀', "b": []},
    {"a": "Bob", "b": [1, 2.0, 2.5, -0.0, 1e23, 1e-7, 123456789012345678901234.5, 0.1]},
    {"a": None, "b": {"z": 1, "é": [True, None], "aa": {}, "Z": ""}},
    {"a": 2**62, "b": "x" * 600},
    {"a": 5, "b": 5.0},
]


@pytest.mark.parametrize("payload", KEYED)
def test_sql_forms_the_keys_of_python(database, payload):
    """K27: however the caller writes its JSON, one key is one job."""
    with holdfast.Holdfast(database.url) as app:

        @app.job(unique=["a", "b"])
        def pair(a: Any, b: Any) -> None: ...

        first = pair.enqueue(**payload)
        for text in (json.dumps(payload), json.dumps(payload, ensure_ascii=False, indent=1)):
            assert database.execute("SELECT holdfast.enqueue('pair', %s::json)", (text,)) == [(first.id,)]
        assert app.store.jobs.enqueue(new_job_of(app.store.kinds.get("pair"), payload)).id == first.id


def test_the_types_of_a_handler_do_not_change_the_key(database):
    """K27: 5 and 5.0 are the same amount, for Python and SQL."""
    with holdfast.Holdfast(database.url) as app:

        @app.job(unique=["amount"])
        def pay(amount: float) -> None: ...

        first = pay.enqueue(amount=5)
        for text in ('{"amount": 5}', '{"amount": 5.0}', '{"amount":50e-1}'):
            assert database.execute("SELECT holdfast.enqueue('pay', %s::json)", (text,)) == [(first.id,)]


def test_a_job_from_sql_has_the_published_version(store, database):
    """K13: SQL enqueues for the newest code that has published the kind."""
    with holdfast.Holdfast(database.url) as app:
        app.job(name="mail", version=3)(lambda to: None)
        app.store.kinds.publish([])
    ((job_id,),) = database.execute("SELECT holdfast.enqueue('mail', '{\"to\": 7}')")
    assert store.views.get(job_id).kind_version == 3
    assert take_one(store, queues=("default",)).kind_version == 3

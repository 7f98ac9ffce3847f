"""``SELECT * FROM holdfast.enqueue(...)``: jobs from plain SQL in PostgreSQL (J2). See also test_enqueue_parity.py."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast.domain.jobs.job import State
from holdfast.domain.jobs.kind_options import check_payload, new_job_of
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.verdict import Done
from holdfast.errors import InvalidPayload
from tests.support.backends import available, open_database
from tests.support.jobs import claim_jobs, take_one
from tests.support.processes import wait_until

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

        @app.job()
        def typed(any: Any = None) -> None: ...  # noqa: A002

        yield app.store


def enqueue(database, kind, payload, **options) -> int:
    """Enqueue one job in SQL, and return its id."""
    return answer(database, {"kind": kind, "payload": payload, **options})[0]


def answer(database, request) -> tuple[int, str]:
    """The id and the outcome of a single request."""
    (row,) = answers(database, request)
    return row


def answers(database, request) -> list[tuple[int, str]]:
    return database.execute("SELECT id, outcome FROM holdfast.enqueue(%s)", (json.dumps(request),))


def count(database) -> int:
    return database.execute("SELECT count(*) FROM holdfast.job")[0][0]


def test_defaults_come_from_the_kind(database, store):
    """The same job as one that was enqueued in Python."""
    job = store.views.get(enqueue(database, "mail", {"to": 7}))
    assert (job.kind, job.queue, job.priority, job.max_attempts) == ("mail", "post", 2, 7)
    assert (job.on_lost, job.state, job.payload, job.actor) == ("hold", State.READY, '{"to":7}', "holdfast:sql")
    assert '"steps":[5.0]' in job.retry.replace(" ", "")
    assert store.views.get(enqueue(database, "mail", {"to": 7}, actor="ada")).actor == "ada"


def test_careful_work_stays_careful(database, store):
    """It is never prefetched, and its start is recorded before it begins."""
    enqueue(database, "mail", {"to": 7})
    assert claim_jobs(store, "w", 0, queues=["post"], kinds=["mail"], ahead=9, short=["mail"]) == []
    assert claim_jobs(store, "w", queues=["post"], kinds=["mail"])[0].starts_recorded


def test_a_key_frees_as_everywhere(database, store):
    """Live: with the end of the job. Period: with its time."""
    mail = {"kind": "mail", "payload": {"to": 1}, "key": "k"}
    first = answer(database, mail)[0]
    assert answer(database, mail) == (first, "existing")
    store.leases.settle(take_one(store, queues=("post",), started=True), Done())
    assert answer(database, mail)[1] == "created"

    hourly = {"kind": "hourly", "payload": {"n": 1}}
    first = answer(database, hourly)[0]
    store.leases.settle(take_one(store, kinds=("hourly",)), Done())
    assert answer(database, hourly) == (first, "existing")
    database.clock.advance(hours=1)
    assert answer(database, hourly)[1] == "created"


def test_many_are_enqueued_all_or_not_at_all(database, store):
    """The answers come in the order of the requests; the same key twice is one job."""
    requests = [{"kind": "mail", "payload": {"to": n}, "key": "ab"[n % 2]} for n in range(4)]
    (a, _), (b, _), *others = found = answers(database, requests)
    assert found == [(a, "created"), (b, "created"), (a, "existing"), (b, "existing")]
    assert [json.loads(store.views.get(job).payload)["to"] for job in (a, b)] == [0, 1]
    for bad in ({"kind": "mail"}, {**requests[0], "on_conflict": "raise"}, 5, None):
        with pytest.raises(psycopg.errors.RaiseException, match="E_"):
            answers(database, [{"kind": "mail", "payload": {"to": 9}}, bad])
    replacing = [{**requests[0], "on_conflict": "replace"}] * 2
    with pytest.raises(psycopg.errors.RaiseException, match="E_INVALID: two requests of one call"):
        answers(database, replacing)
    assert answers(database, []) == []
    assert (count(database), len(others)) == (2, 2)


def test_a_job_may_start_after_a_later_one_of_its_call(database, store):
    """Labels and keys are looked up when all jobs of the call exist, as in Python."""
    first, second = answers(
        database,
        [
            {"kind": "mail", "payload": {"to": 1}, "after": {"keys": [["mail", "second"]]}},
            {"kind": "mail", "payload": {"to": 2}, "key": "second"},
        ],
    )
    assert [each.dependency_id for each in store.views.dependencies(first[0])] == [second[0]]


def test_a_dependency_that_has_finished_starts_or_cancels_the_job(database, store):
    """Maintenance decides by the rules of Python."""
    done = enqueue(database, "mail", {"to": 1})
    store.leases.settle(take_one(store, queues=("post",), started=True), Done())
    job = enqueue(database, "mail", {"to": 2}, after=[done])
    other = enqueue(database, "mail", {"to": 2}, after={"ids": [done], "when": "failed"})
    store.leases.complete_effects()
    assert (store.views.get(job).state, store.views.get(other).state) == (State.READY, State.CANCELLED)


@pytest.mark.parametrize("cast", ["", "::text", "::varchar", "::json", "::jsonb"])
def test_the_request_is_text_or_json_of_any_driver(database, store, cast):
    """psycopg sends texts without a type, others as text or varchar; triggers build json or jsonb."""
    request = '{"kind": "mail", "payload": {"to": 7}}'
    with psycopg.connect(database.url, autocommit=True) as connection:
        for binary in (False, True):
            cursor = connection.execute(f"SELECT * FROM holdfast.enqueue(%s{cast})".encode(), (request,), binary=binary)
            assert cursor.fetchone()[1] == "created"
        literal = psycopg.sql.SQL("SELECT outcome FROM holdfast.enqueue({}" + cast + ")").format(request)
        assert connection.execute(literal).fetchone() == ("created",)
        connection.execute(f"PREPARE job AS SELECT outcome FROM holdfast.enqueue($1{cast})".encode())
        assert connection.execute(b"EXECUTE job ('" + request.encode() + b"')").fetchone() == ("created",)


@pytest.mark.parametrize("request_", ["", "nonsense", "5", "null", '"a"', "[[]]", None, "{}", "[" * 20_000])
def test_what_is_no_request_is_refused(database, store, request_):
    """And nothing is written."""
    with pytest.raises(psycopg.errors.RaiseException, match="E_INVALID"):
        database.execute("SELECT holdfast.enqueue(%s::text)", (request_,))
    assert count(database) == 0


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        ({"bogus": 1}, r"'mail' has no parameter 'bogus'.*\n.*It takes: to\."),
        ({}, "'mail' needs the parameter 'to'"),
        ({"to": "secret"}, "the payload of 'mail' does not fit: to is of type integer, not string"),
    ],
)
def test_a_refusal_says_what_python_says(database, store, payload, says):
    """K19, 2.36: names and types are checked before anything is written. The value may be a secret."""
    with pytest.raises(psycopg.errors.RaiseException, match=says) as refused:
        enqueue(database, "mail", payload)
    assert "secret" not in str(refused.value)
    with pytest.raises(InvalidPayload) as ours:
        check_payload(store.kinds.get("mail"), payload)
    assert ours.value.message in str(refused.value)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ('{"kind": "mail", "payload": {"to": 1}, "label": "a\\u0000"}', "E_INVALID_TEXT"),
        ('{"kind": "mail", "payload": {"to": 1}, "label": "\\ud800"}', "E_INVALID_TEXT"),
        ('{"kind": "typed", "payload": {"any": "\\udc00"}}', "E_INVALID_TEXT"),
        ('{"kind": "typed", "payload": {"any": 1e999}}', "E_INVALID_PAYLOAD"),
        ('{"kind": "typed", "payload": {"any": [1, -1.5E+400]}}', "E_INVALID_PAYLOAD"),
        ('{"kind": "typed", "payload": {"any": 1e200000}}', "E_INVALID_TEXT"),
        ('{"kind": "mail", "payload": {"to": "x", "to": 1}}', "E_INVALID_PAYLOAD"),
    ],
)
def test_what_no_worker_can_read_is_refused(database, store, request_, code):
    """The edges of JSON. A name that is there twice has to fit twice: the worker reads both."""
    with pytest.raises(psycopg.errors.RaiseException, match=f"^{code}:"):
        database.execute("SELECT holdfast.enqueue(%s)", (request_,))
    assert count(database) == 0


def test_a_payload_keeps_its_numbers_and_texts_and_loses_its_spaces(database, store):
    """The size is that of what is stored, as in Python."""
    text = '{\n "any" : [ 1e23 , 1.50, -0.0,\t9007199254740993, " a  b\\\\" , ", ", "\\" " ] }'
    request = f'{{"kind": "typed", "payload": {text}}}'
    ((job_id, _),) = database.execute("SELECT * FROM holdfast.enqueue(%s)", (request,))
    stored = store.views.get(job_id).payload
    assert stored == '{"any":[1e23,1.50,-0.0,9007199254740993," a  b\\\\",", ","\\" "]}'
    assert json.loads(stored) == json.loads(text)
    wide = json.dumps({"kind": "typed", "payload": {"any": [1] * 100_000}}, indent=8)
    database.execute("SELECT holdfast.enqueue(%s)", (wide,))


def test_it_follows_the_callers_transaction(database, store):
    """A rollback leaves nothing; a trigger enqueues with the row that it is about."""
    with psycopg.connect(database.url) as connection:
        connection.execute("SELECT holdfast.enqueue(%s)", ('{"kind": "mail", "payload": {"to": 1}}',))
        connection.rollback()
    assert count(database) == 0
    with psycopg.connect(database.url) as connection:
        connection.execute("CREATE TEMP TABLE buyer (id integer)")
        connection.execute(
            "CREATE FUNCTION pg_temp.welcome() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM holdfast.enqueue("
            "jsonb_build_object('kind', 'mail', 'payload', jsonb_build_object('to', NEW.id), 'key', 'b' || NEW.id));"
            " RETURN NEW; END $$"
        )
        connection.execute("CREATE TRIGGER t AFTER INSERT ON buyer FOR EACH ROW EXECUTE FUNCTION pg_temp.welcome()")
        connection.execute("INSERT INTO buyer SELECT generate_series(1, 3)")
    assert sorted(job.key for job in store.views.page(Selector()).jobs) == ["b1", "b2", "b3"]


def test_calls_with_the_same_keys_in_any_order_wait_for_each_other(database, store):
    """Keys are taken in their order: two calls cannot deadlock."""
    requests = [{"kind": "mail", "payload": {"to": n}, "key": f"k{n}"} for n in range(50)]
    with ThreadPoolExecutor() as pool, psycopg.connect(database.url) as first, psycopg.connect(database.url) as second:
        mine = first.execute("SELECT * FROM holdfast.enqueue(%s)", (json.dumps(requests[:25]),)).fetchall()
        text, pid = json.dumps(requests[::-1]), second.info.backend_pid
        other = pool.submit(second.execute, "SELECT * FROM holdfast.enqueue(%s)", (text,))
        wait_until(lambda: database.execute("SELECT 1 FROM pg_locks WHERE NOT granted AND pid = %s", (pid,)))
        more = first.execute("SELECT * FROM holdfast.enqueue(%s)", (json.dumps(requests),)).fetchall()
        first.commit()
        theirs = other.result().fetchall()
    assert [row[1] for row in mine] == ["created"] * 25
    assert [row[0] for row in theirs[::-1]] == [row[0] for row in more]


def test_commands_that_are_switched_off_are_refused(database, store):
    """As at the command line."""
    with holdfast.Holdfast(database.url) as app:
        app.worker(commands=True)
    command = {"kind": "command", "payload": {"argv": ["true"], "cwd": "/"}}
    assert answer(database, command)[1] == "created"
    with pytest.raises(psycopg.errors.RaiseException, match="E_INVALID_PAYLOAD"):
        answer(database, {"kind": "command", "payload": {"argv": "true"}})
    store.command_switch.set(on=False)
    with pytest.raises(psycopg.errors.RaiseException, match="E_CONFLICT"):
        answer(database, command)


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
            request = f'{{"kind": "pair", "payload": {text}}}'
            assert database.execute("SELECT id FROM holdfast.enqueue(%s)", (request,)) == [(first.id,)]
        assert app.store.jobs.enqueue(new_job_of(app.store.kinds.get("pair"), payload)).id == first.id


def test_the_types_of_a_handler_do_not_change_the_key(database):
    """K27: 5 and 5.0 are the same amount, for Python and SQL."""
    with holdfast.Holdfast(database.url) as app:

        @app.job(unique=["amount"])
        def pay(amount: float) -> None: ...

        first = pay.enqueue(amount=5)
        for text in ('{"amount": 5}', '{"amount": 5.0}', '{"amount":50e-1}'):
            request = f'{{"kind": "pay", "payload": {text}}}'
            assert database.execute("SELECT id FROM holdfast.enqueue(%s)", (request,)) == [(first.id,)]


def test_a_job_from_sql_has_the_published_version(store, database):
    """K13: SQL enqueues for the newest code that has published the kind."""
    with holdfast.Holdfast(database.url) as app:
        app.job(name="mail", version=3)(lambda to: None)
        app.store.kinds.publish([])
    job_id = enqueue(database, "mail", {"to": 7})
    assert store.views.get(job_id).kind_version == 3
    assert take_one(store, queues=("default",)).kind_version == 3

"""The database roles, one by one: what each of them may do, and what it may not."""

from __future__ import annotations

import json
import os
import secrets
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pytest
from psycopg import errors

import holdfast
from holdfast.admin.actions.actions import Actions
from holdfast.admin.views.overview import overview
from holdfast.client.jobs.job_ref import JobRef
from holdfast.domain.access.audit import Via
from holdfast.domain.access.roles import Role
from holdfast.domain.commands.command import COMMAND
from holdfast.domain.jobs.dependencies import After, IfNot
from holdfast.domain.jobs.job import State
from holdfast.domain.jobs.kind_options import KindOptions
from holdfast.domain.jobs.new_job import NewJob, OnConflict, Unique
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.verdict import Done
from holdfast.domain.retention import Retention
from holdfast.errors import HoldfastError, NoSuchJob, PrivilegeMissing
from holdfast.store import open_store
from holdfast.store.postgres.roles import ROLES
from holdfast.worker.commands.identity import os_user
from tests.cli.conftest import run_process
from tests.store.batches.test_batches import begin, finish, leave
from tests.store.fleet.test_registry_kinds import published
from tests.support.backends import open_database
from tests.support.jobs import BOOM, only, put, state, take, take_one

KEY = Unique("k")


def enqueue(store, **options):
    return store.jobs.enqueue(NewJob(kind="mail", **options))


def find(store, label):
    """The id of a job, which producers read in its table; they list no jobs."""
    with psycopg.connect(store.backend.url) as connection:
        ((job_id,),) = connection.execute("SELECT id FROM holdfast.job WHERE label = %s", (label,)).fetchall()
    return job_id


def read_own_result(store):
    """What ``ref.result()`` reads, while the job waits."""
    job = store.views.get(enqueue(store, payload="[7]").id)
    assert (job.payload, job.result) == ("[7]", None)


def replace(store):
    enqueue(store, unique=KEY)
    assert enqueue(store, unique=KEY, on_conflict=OnConflict.REPLACE, payload="[1]").replaced


def depend_on_failed(store):
    """K32: the new job is cancelled, or held, at once."""
    failed = find(store, "failed")
    assert state(store, enqueue(store, after=After(ids=(failed,))).id) is State.CANCELLED
    assert state(store, enqueue(store, after=After(ids=(failed,), if_not=IfNot.HOLD)).id) is State.HELD
    enqueue(store, after=After(ids=(enqueue(store).id,)))


def run_jobs(store):
    put(store, queue="own", max_attempts=1)
    lease = take_one(store, queues=("own",))
    store.leases.settle(lease, BOOM)


def run_batch(store):
    run = begin(store)
    finish(store, run, 1)
    leave(store, run, total=1)


def prune(store):
    """K32: retention works with the role of a worker."""
    ages = Retention(done=timedelta(microseconds=1), cancelled=timedelta(microseconds=1))
    store.pruner.prune(ages)


def add_token(store):
    store.credentials.add(secrets.token_hex(4), Role.ADMIN, actor="ada")


def act(store):
    actions = Actions(store, actor="ada", via=Via.CLI)
    actions.jobs.perform("hold", Selector(ids=(put(store),)))
    actions.queues.perform("set", "q", limit=secrets.randbelow(10**6) + 1)


def serve(store):
    """What the dashboard does with each request, and an answer under an idempotency key."""
    store.credentials.server_secret()
    store.credentials.find("none")
    store.sessions.find(store.sessions.open("ada", Role.VIEWER, lifetime=timedelta(hours=1)))
    assert store.idempotency_keys.claim("ci", secrets.token_hex(4), "digest") is None


def enqueue_command(store, **options):
    return store.jobs.enqueue(NewJob(kind=COMMAND, payload=PROGRAM, **options))


def replace_command(store):
    """A key that a held command of the owner has."""
    answer = enqueue_command(store, label="held command", unique=Unique("held"), on_conflict=OnConflict.REPLACE)
    assert answer.replaced


def depend_on_command(store):
    command = find(store, "held command")
    assert state(store, enqueue(store, after=After(ids=(command,))).id) is State.WAITING


def reveal_field(store):
    with store.dry_run() as tried:
        tried.kinds.reveal("mail", "once_secret")


def by_sql(*statements):
    """The statements in a transaction of their own, which is rolled back."""

    def run(store):
        with psycopg.connect(store.backend.url) as connection, connection.transaction(force_rollback=True):
            for statement in statements:
                assert connection.execute(statement.encode()).rowcount > 0, statement

    return run


def sql_enqueue(kind, payload="{}", **options):
    """An enqueue in SQL."""
    request = json.dumps({"kind": kind, "payload": json.loads(payload), **options})
    return f"SELECT holdfast.enqueue({psycopg.sql.Literal(request).as_string()})"


def read_history(store):
    job_id = find(store, "any")
    assert store.views.events(job_id)
    assert store.views.why(job_id)


def back_up(store):
    with TemporaryDirectory() as folder:
        store.database.backup(Path(folder) / "backup.db")


PROGRAM = '{"argv": ["id"], "cwd": "/"}'
ANY_JOB = "(SELECT id FROM holdfast.job WHERE label = 'any')"
RUNNING = "(SELECT id FROM holdfast.job WHERE label = 'running')"
HELD = "(SELECT id FROM holdfast.job WHERE label = 'held command')"
#: What the matrix in docs/reference/roles.md says, by its rows.
ACTIONS = {
    "wait for jobs": lambda store: [store.views.state(find(store, "any")), store.dashboard.lanes()],
    "enqueue, and read payload and result of the own job": read_own_result,
    "list jobs": lambda store: store.views.page(Selector()),
    "read payload and result of any job": lambda store: store.views.get(find(store, "any")),
    "read the history of a job": read_history,
    "read queues, batches and schedules": lambda store: [overview(store), [*store.schedules.all()]],
    "read the audit log": lambda store: store.audit_log.page(),
    "read tokens": lambda store: store.credentials.list(),
    "read sessions": by_sql("SELECT name, role FROM holdfast.session"),
    "enqueue": enqueue,
    "enqueue many": lambda store: store.jobs.enqueue_many([NewJob(kind="mail")] * 2),
    "enqueue by SQL": by_sql(sql_enqueue("mail")),
    "replace": replace,
    "depend on a failed job": depend_on_failed,
    "depend on a command": depend_on_command,
    "enqueue as a person": lambda store: Actions(store, actor="ada", via=Via.CLI).jobs.enqueue("mail", {}),
    "enqueue a command": enqueue_command,
    "enqueue many commands": lambda store: store.jobs.enqueue_many([NewJob(kind=COMMAND, payload=PROGRAM)] * 2),
    "enqueue a command by SQL": by_sql(sql_enqueue("command", PROGRAM)),
    "insert the rows of a command": by_sql(
        f"""INSERT INTO holdfast.job (id, kind, payload, actor, created_at, on_lost)
            VALUES (-7, 'mail', '{PROGRAM}', 'x', now(), 'retry')""",
        """INSERT INTO holdfast.live (id, state, queue, kind, priority, due_at)
            VALUES (-7, 'ready', 'default', 'command', 0, now())""",
    ),
    "replace a command": replace_command,
    "release a held command": by_sql(f"UPDATE holdfast.live SET state = 'ready' WHERE id = {HELD}"),
    "turn a job into a command": by_sql(
        f"UPDATE holdfast.live SET kind = 'command' WHERE id = {ANY_JOB}",
        f"UPDATE holdfast.job SET kind = 'command' WHERE id = {ANY_JOB}",
    ),
    "delete a job that waits for none": by_sql(f"DELETE FROM holdfast.live WHERE id = {ANY_JOB}"),
    "delete a running job": by_sql(f"DELETE FROM holdfast.live WHERE id = {RUNNING}"),
    "take a running job from its worker": by_sql(
        f"UPDATE holdfast.live SET token = token + 1, note = 'x' WHERE id = {RUNNING}"
    ),
    "change any payload": by_sql(f"UPDATE holdfast.job SET payload = '[1]' WHERE id = {ANY_JOB}"),
    "run jobs": run_jobs,
    "run a batch": run_batch,
    "prune": prune,
    "retry, cancel, pause and change jobs; change queues": act,
    "add a token": add_token,
    "make a sign-in link": lambda store: store.sessions.add_link(Role.ADMIN, lifetime=timedelta(minutes=1)),
    "back up": back_up,
    "switch commands": lambda store: [store.command_switch.set(on=False), store.command_switch.set(on=True)],
    "show a secret field again (`holdfast db secrets --reveal`)": reveal_field,
    "serve pages": serve,
    "change the schema": by_sql("CREATE TABLE holdfast.mine (id int)"),
    "call `holdfast.demand` and the functions that check values": by_sql(
        "SELECT holdfast.now(), holdfast.check_name('a', 'b'), holdfast.check_payload('{}')",
        "SELECT holdfast.unique_key('k', '[\"a\"]', '{\"a\": 1}'), holdfast.canonical_json('{}')",
        "SELECT holdfast.checked_due_time(now(), NULL, NULL), holdfast.demand('default')",
    ),
}
GUIDE = Path(__file__).parents[3] / "docs" / "reference" / "roles.md"


def matrix():
    """The rows of the matrix in the guide: what each role may do."""
    _, _, text = GUIDE.read_text(encoding="utf-8").partition("\n| | reader |")
    header, _, *rows = [line.strip("| ").split(" | ") for line in f"reader |{text}".partition("\n\n")[0].splitlines()]
    for name, *cells in rows:
        yield name, {role for role, cell in zip(header, cells, strict=True) if cell == "yes"}


def test_the_matrix_names_every_role_and_action():
    assert {name for name, _ in matrix()} == set(ACTIONS)
    assert set.union(*(roles for _, roles in matrix())) == set(ROLES)


@pytest.fixture
def database(tmp_path):
    with open_database("postgres", tmp_path, real_time=True) as database:
        yield database


@pytest.fixture
def login(database):
    """Opens the store as a user who has one role."""
    owner = database.open()
    names, stores = [], []

    def open_as(role, schema="holdfast"):
        name = f"test_{secrets.token_hex(4)}"
        names.append(name)
        database.execute(f"CREATE ROLE {name} LOGIN IN ROLE {schema}_{role}")
        stores.append(open_store(f"{database.url}&user={name}&schema={schema}"))
        return stores[-1]

    owner.database.tools.apply(owner.database.tools.roles())
    with holdfast.Holdfast(database.url) as app:
        app.job("mail")(lambda: None)
        assert app.store
        app.worker(commands=True)  # publishes the built-in kind
    yield open_as
    for store in stores:
        store.close()
    for name in names:
        database.execute(f"DROP ROLE {name}")


@pytest.mark.parametrize("role", ROLES)
def test_each_role_may_do_its_work_and_no_more(database, login, role):
    """K32, K80: real users, each with one role."""
    owner = database.open()
    owner.control.cancel(only(put(owner, label="failed")), actor="ada")
    put(owner, label="any")
    put(owner, label="running", queue="runs")
    take_one(owner, queues=("runs",))
    enqueue_command(owner, label="held command", hold=True, unique=Unique("held"))
    owner.sessions.add_link(Role.VIEWER, lifetime=timedelta(minutes=1))
    for secret in (("once_secret",), ()):
        owner.kinds.publish([published(secrets=secret)])
    store, allowed = login(role), set()
    for name, action in ACTIONS.items():
        try:
            action(store)
        except HoldfastError as error:
            assert isinstance(error, PrivilegeMissing), (name, error)  # noqa: PT017
        except errors.InsufficientPrivilege:
            pass
        else:
            allowed.add(name)
    assert allowed == {name for name, roles in matrix() if role in roles}


COPY = "COPY holdfast.live (id, state, queue, kind, priority, due_at) FROM STDIN"
ATTEMPTS = (
    'SELECT holdfast.enqueue(\'{"kind": "holdfast.ping"}\')',
    """INSERT INTO holdfast.job (id, kind, payload, actor, created_at, on_lost)
        VALUES (-7, 'command', '{}', 'x', now(), 'retry')""",
    """INSERT INTO holdfast.live (id, state, queue, kind, priority, due_at)
        VALUES (-7, 'ready', 'default', 'command', 0, now())""",
    """INSERT INTO holdfast.finished (id, state, queue, kind, priority, due_at, attempts, crashes, token, finished_at)
        VALUES (-7, 'dead', 'default', 'command', 0, now(), 1, 0, 1, now())""",
    """INSERT INTO holdfast.live (id, state, queue, kind, priority, due_at)
        SELECT id, 'ready', 'default', 'command', 0, now() FROM holdfast.live LIMIT 1
        ON CONFLICT (id) DO UPDATE SET kind = 'command'""",
    "UPDATE holdfast.live SET kind = 'command'",
    "UPDATE holdfast.job SET kind = 'command'",
    """INSERT INTO holdfast.schedule (name, definition, cursor, next_at, check_at, actor, created_at, changed_at)
        VALUES ('x', '{"kind": "command", "when": {"cron": "* * * * *"}}', now(), now(), now(), 'x', now(), now())""",
    """INSERT INTO holdfast.batch (identity, generation, kind, arguments, source, state, options, actor, created_at)
        VALUES ('x', 1, 'command', '{}', 'x', 'ready', '{}', 'x', now())""",
    "INSERT INTO holdfast.unit (batch_id, key, position, state, run_number) VALUES (1, 'x', 1, 'pending', 1)",
    "INSERT INTO holdfast.inbox SELECT FROM holdfast.inbox",
    "UPDATE holdfast.worker SET requested = 'stop'",
    "UPDATE holdfast.queue SET paused = true",
    "SET ROLE holdfast_worker",
    "DELETE FROM holdfast.command_switch",
    "ALTER TABLE holdfast.live DISABLE TRIGGER ALL",
    "SET session_replication_role = replica",
    "GRANT EXECUTE ON FUNCTION holdfast.may_run_commands() TO PUBLIC",
    "CREATE OR REPLACE FUNCTION holdfast.may_run_commands() RETURNS boolean LANGUAGE sql AS 'SELECT true'",
)


#: With a schema of its own, as applications have, a caller can put its functions and operators before PostgreSQL's.
DISGUISE = (
    "CREATE FUNCTION own.has_function_privilege(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
    "CREATE FUNCTION own.differs(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
    "CREATE OPERATOR own.<> (LEFTARG = text, RIGHTARG = text, FUNCTION = own.differs)",
    "SET search_path = own, pg_catalog",
)
#: These may succeed: they make other kinds look like commands. No worker runs a program for it.
TRICKS = (
    "CREATE TEMP TABLE kind AS SELECT * FROM holdfast.kind WHERE name = 'command'",
    "UPDATE pg_temp.kind SET name = 'tool', options = (options::jsonb || '{\"aliases\": [\"command\"]}')::json",
    "INSERT INTO holdfast.kind SELECT * FROM pg_temp.kind",
    "SELECT holdfast.enqueue(json_build_object('kind', 'tool', 'payload', '{program}'::json))",
    'UPDATE holdfast.kind SET options = (options::jsonb || \'{"executor": "command", "aliases": ["command"]}\')::json',
    "SELECT holdfast.enqueue(json_build_object('kind', 'mail', 'payload', '{program}'::json))",
    "UPDATE holdfast.job SET payload = '{program}'",
    "UPDATE holdfast.live SET state = 'ready' WHERE state = 'held'",
    "UPDATE holdfast.live SET kind_version = 1, reader = 'command'",
)


#: The functions that run with the rights of the owner, and a role that may call each.
OWNER_CALLS = {
    "reader": "SELECT holdfast.begin_timeline()",
    "producer": "SELECT holdfast.draw_job_ids(1), holdfast.own_job(1)",
    "worker": "SELECT holdfast.maintain_ranges('1 day', 1000, 10), holdfast.prune_credentials('1 day', 10)",
    "operator": "UPDATE holdfast.kind SET options = options",
}


@pytest.mark.parametrize("role", OWNER_CALLS)
def test_temporary_types_of_a_caller_get_no_rights_of_the_owner(database, login, role):
    """E10.4: PostgreSQL searches them before its own, unless a search path names them: any reader became the owner."""
    store, seen = login(role), []
    with psycopg.connect(store.backend.url) as connection, connection.transaction(force_rollback=True):
        connection.execute(
            "CREATE FUNCTION pg_temp.spy() RETURNS boolean LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE NOTICE '%', current_user; RETURN true; END $$"
        )
        for name in ("text", "oid", "regclass", "interval", "timestamptz"):
            connection.execute(f"CREATE DOMAIN pg_temp.{name} AS pg_catalog.{name} CHECK (pg_temp.spy())".encode())
        connection.add_notice_handler(lambda notice: seen.append(notice.message_primary))
        connection.execute("SELECT '1'::pg_temp.text")
        assert set(seen) == {connection.info.user}, "the spy sees nothing"
        connection.execute(OWNER_CALLS[role].encode())
        assert set(seen) == {connection.info.user}, "E10 is broken: code of a caller has the rights of the owner"


def test_only_the_owner_writes_the_timeline(database, login):
    """Numbers of a past history would give tokens out again."""
    with psycopg.connect(login("admin").backend.url) as connection, pytest.raises(errors.InsufficientPrivilege):
        connection.execute("UPDATE holdfast.timeline SET token_base = 0")


def try_to_run(connection, program, *, refused):
    for attempt in (*ATTEMPTS, sql_enqueue("command", program)) if refused else TRICKS:
        try:
            connection.execute(attempt.replace("{program}", program).encode())
        except errors.Error:
            continue
        if refused:
            pytest.fail(f"E10 is broken: a producer may {attempt}")


def test_a_producer_cannot_make_a_worker_run_a_program(database, login, tmp_path):
    """E10.1: whatever it tries, a worker that runs commands finds none."""
    owner, proof = database.open(), tmp_path / "proof"
    program = json.dumps({"argv": ["touch", str(proof)], "cwd": "/", "env": {"PATH": os.environ["PATH"]}})
    put(owner, label="any", unique=Unique("mine"))
    enqueue_command(owner, label="held command", hold=True, unique=Unique("held"))
    store = login("producer")
    with psycopg.connect(store.backend.url, autocommit=True) as connection:
        database.execute(f"CREATE SCHEMA own AUTHORIZATION {connection.info.user}")
        try_to_run(connection, program, refused=True)
        for statement in DISGUISE:
            connection.execute(statement.encode())
        try_to_run(connection, program, refused=True)
        try_to_run(connection, program, refused=False)
        with pytest.raises(errors.InsufficientPrivilege), connection.cursor().copy(COPY) as copy:
            copy.write_row((-7, "ready", "default", "command", 0, "2020-01-01"))
    with holdfast.Holdfast(database.url) as app:
        app.worker(commands=True, drain=True, poll=0.05).run()
    assert not proof.exists()
    (command,) = owner.views.all(Selector(kinds=(COMMAND,)))
    assert (command.state, command.payload) == (State.HELD, PROGRAM)
    database.execute("DROP SCHEMA own CASCADE")


@pytest.mark.parametrize("role", ["reader", "producer", "command_producer", "worker", "operator"])
def test_the_command_line_enqueues_or_fails_never_both(database, login, role):
    """E10.4: `add` as producer enqueued, then ended with exit 4, and a retry doubled the job."""
    owner, url = database.open(), login(role).backend.url
    lines = (["enqueue", "mail"], ["add", "--", "true"], ["add", "--callback", "echo {id}", "--", "true"])
    for line, jobs in zip(lines, (1, 1, 2), strict=True):
        before = owner.views.count(Selector()).count
        done = run_process(*line, env={**os.environ, "HOLDFAST_URL": url})
        added = owner.views.count(Selector()).count - before
        assert (done.returncode, added) in ((0, jobs), (4, 0)), (line, done.stderr)
        assert done.returncode == 0 or role not in ("command_producer", "operator"), done.stderr


def test_commands_that_read_work_for_producers_as_the_guide_says(database, login):
    """The matrix said that a producer reads jobs, and `show`, `why`, `top` and `queue ls` failed."""
    job, url = put(database.open()), login("producer").backend.url
    lines = {"ls": 4, "workers": 0, "doctor": 0, f"show {job}": 4, f"why {job}": 4, "queue ls": 4, "top": 4}
    for line, code in lines.items():
        done = run_process(*line.split(), env={**os.environ, "HOLDFAST_URL": url})
        assert done.returncode == code, (line, done.stdout, done.stderr)
        assert code == 0 or "holdfast_reader" in done.stderr


def test_a_producer_unmasks_nothing_and_breaks_no_enqueue(database, login):
    """W2: by SQL, or as an application of another release. What it declares as secret is masked, too."""
    owner, store = database.open(), login("producer")
    owner.kinds.publish([published(secrets=("card",))])
    before = owner.kinds.get("mail")
    with psycopg.connect(store.backend.url, autocommit=True) as connection:
        connection.execute("UPDATE holdfast.kind SET options = '{}', payload_schema = 'false', version = 99")
        for statement in ("DELETE FROM holdfast.secret_field", "UPDATE holdfast.secret_field SET name = 'x'"):
            with pytest.raises(errors.InsufficientPrivilege):
                connection.execute(statement.encode())
    store.kinds.publish([published(secrets=("iban",), version=7)])
    assert owner.kinds.get("mail") == before, "E10 is broken: a producer changes what enqueues are checked against"
    assert database.open().views.declared_secrets()["mail"] == ("card", "iban"), "E10 is broken: a field is shown"


@pytest.mark.parametrize("state", ["ready", "scheduled", "held", "waiting"])
def test_a_producer_inserts_no_row_without_its_job(database, login, state):
    """W3: such rows kept a queue from starting anything. A job and its row may come in one statement."""
    store = login("producer")
    job, live = "(id, kind, payload, actor, created_at, on_lost)", "(id, state, queue, kind, priority, due_at)"
    insert = f"INSERT INTO holdfast.live {live} SELECT %s, '{state}', 'default', %s, 2147483647, now()"
    request = f"INSERT INTO holdfast.job {job} VALUES (77, 'mail', '{{}}', 'x', now(), 'retry') RETURNING id"
    with psycopg.connect(store.backend.url, autocommit=True) as connection:
        try:
            connection.execute(insert.encode(), (88, "mail"))
        except errors.InsufficientPrivilege as error:
            assert "has no request" in str(error)  # noqa: PT017
        else:
            pytest.fail("I18 is broken: a producer inserts rows that hold up a queue")
        with pytest.raises(errors.InsufficientPrivilege, match="has no request"):
            connection.execute(f"WITH request AS ({request}) {insert}".encode(), (77, "other"))
        connection.execute(f"WITH request AS ({request}) {insert}".encode(), (77, "mail"))


def test_a_worker_replaces_a_kind_that_a_producer_published_first(database, login):
    """W2: whatever version the producer gave it. Until then the fields that it declares are masked."""
    login("producer").kinds.publish([published("new", secrets=("card",), version=2**31 - 1)])
    worker = login("worker")
    assert worker.kinds.get("new").version == 2**31 - 1
    worker.kinds.publish([published("new", queue="a")])
    assert (worker.kinds.options("new"), worker.views.declared_secrets()["new"]) == (KindOptions(queue="a"), ("card",))
    with psycopg.connect(worker.backend.url) as connection, pytest.raises(errors.InsufficientPrivilege):
        connection.execute("DELETE FROM holdfast.secret_field")


#: What a producer tries in order to read a job of another one, whose id takes the place of {id}.
PEEPS = (
    "SELECT payload FROM holdfast.job WHERE id = {id}",
    "SELECT result, error FROM holdfast.finished WHERE id = {id}",
    "SELECT * FROM holdfast.finished_view WHERE id = {id}",
    "SELECT result FROM holdfast.live_view",
    "SELECT checkpoint FROM holdfast.progress",
    "SELECT error FROM holdfast.attempt",
    "SELECT detail FROM holdfast.event",
    "SELECT result FROM holdfast.step",
    "SELECT holdfast.payload_of({id})",
    "UPDATE holdfast.job SET label = 'x' WHERE id = {id} RETURNING payload",
    "UPDATE holdfast.job SET db_user = session_user WHERE id = {id}",
    "TABLE holdfast.execution_view",
    "SET ROLE holdfast_reader",
)


@pytest.mark.parametrize("role", ["producer", "command_producer"])
def test_a_producer_reads_its_own_payloads_and_results_only(database, login, role):
    """K32, W9: every producer read the payloads, errors and results of all applications, secrets in clear."""
    owner, mine, other = database.open(), login(role), login(role)
    own, theirs = enqueue(mine, payload='["own"]').id, enqueue(other, payload='["theirs"]', unique=KEY).id
    assert enqueue(mine, unique=KEY).id == theirs
    assert enqueue(mine, unique=KEY, on_conflict=OnConflict.REPLACE, payload='["replaced"]').replaced
    for lease in take(owner, 2):
        owner.leases.settle(lease, Done(result='"secret"'))
    ref = JobRef(own, lambda: mine.views)
    assert (ref.result(), ref.wait().payload) == ("secret", '["own"]')
    assert JobRef(theirs, lambda: other.views).result() == "secret"
    with suppress(PrivilegeMissing):
        pytest.fail(f"K32 is broken: a producer reads {JobRef(theirs, lambda: mine.views).result()} of another one")
    with pytest.raises(NoSuchJob):
        mine.views.get(10**6)
    assert mine.views.state(theirs) is State.DONE
    with psycopg.connect(mine.backend.url, autocommit=True) as connection:
        assert connection.execute("SELECT result FROM holdfast.own_job(%s)", (own,)).fetchall() == [('"secret"',)]
        assert connection.execute("SELECT result FROM holdfast.own_job(%s)", (theirs,)).fetchall() == []
        for statement in PEEPS:
            with suppress(errors.InsufficientPrivilege):
                connection.execute(statement.format(id=theirs).encode())
                pytest.fail(f"K32 is broken: a producer may {statement}")


def test_a_producer_uses_the_sql_function(database, login):
    """K32: also in a transaction of its own."""
    store = login("producer")
    assert state(store, enqueue(store, unique=KEY).id) is State.READY
    with psycopg.connect(store.backend.url) as connection:
        for options in (
            {"key": "k"},
            {"key": "k", "on_conflict": "replace"},
            {"label": "a", "tags": ["t"]},
            {"after": [1]},
        ):
            connection.execute(sql_enqueue("mail", **options).encode())
        connection.execute(sql_enqueue("mail", after={"labels": ["a"], "keys": [["mail", "k"]]}).encode())
        store.jobs.enqueue_on(connection, [NewJob(kind="mail", unique=KEY, on_conflict=OnConflict.REPLACE)])


def test_a_refused_entry_undoes_the_change(database, login):
    """K79: a role that may not write the audit log changes nothing as a person."""
    job_id = put(database.open())
    with pytest.raises(HoldfastError, match="audit_entry"):
        Actions(login("worker"), actor="ada", via=Via.CLI).jobs.perform("hold", Selector(ids=(job_id,)))
    assert state(database.open(), job_id) is State.READY


@pytest.mark.parametrize("role", ["producer", "operator", "dashboard"])
def test_an_audit_entry_names_the_user_of_its_session(database, login, role):
    """No role for people or programs can write another name into it."""
    store = login(role)
    name = psycopg.conninfo.conninfo_to_dict(store.backend.url)["user"]
    Actions(store, actor="somebody", via=Via.CLI).record("sign in", "link=viewer")
    (entry,) = database.open().audit_log.page()
    assert (entry.actor, entry.os_user, entry.db_user) == ("somebody", os_user(), name)
    values = "(at, actor, via, action, target, db_user) VALUES (now(), 'ada', 'cli', 'hold', 'id=1', 'ada')"
    with psycopg.connect(store.backend.url) as connection, pytest.raises(errors.InsufficientPrivilege):
        connection.execute(f"INSERT INTO holdfast.audit_entry {values}")


def test_roles_know_the_tables_of_a_later_version(database, login):
    """K32: a migration gives the roles that exist their privileges on its tables, in the same transaction."""
    database.execute("CREATE ROLE later_worker NOLOGIN")
    try:
        open_store(f"{database.url}&schema=later").close()
        store = login("worker", schema="later")
        run_jobs(store)
        prune(store)
        assert store.views.count(Selector(states=(State.DONE,))).count == 0
    finally:
        database.execute("DROP SCHEMA IF EXISTS later CASCADE")
        database.execute("DROP OWNED BY later_worker")


def test_a_plain_owner_migrates(database, login):
    """Deliver 8: the migrator is no superuser; it owns the schema that it has created."""
    name = f"test_{secrets.token_hex(4)}"
    database.execute(f"CREATE ROLE {name} LOGIN")
    try:
        database.execute(
            f"GRANT CREATE ON DATABASE {psycopg.conninfo.conninfo_to_dict(database.url)['dbname']} TO {name}"
        )
        with closing(open_store(f"{database.url}&user={name}&schema=own")) as owner:
            assert all(finding.ok for finding in owner.database.check())
            run_jobs(owner)
        with psycopg.connect(database.url) as connection:
            query = "SELECT nspowner::regrole::text FROM pg_namespace WHERE nspname = 'own'"
            assert connection.execute(query).fetchone() == (name,)
    finally:
        database.execute(f"DROP OWNED BY {name} CASCADE")
        database.execute(f"DROP ROLE {name}")


def test_privileges_that_a_role_must_not_have_are_taken_away(database, login):
    """K80: roles of an earlier version could create tokens."""
    tools = database.open().database.tools
    database.execute("GRANT ALL ON holdfast.credential TO holdfast_worker")
    tools.apply(tools.roles())
    with pytest.raises(HoldfastError, match="may not change tokens"):
        add_token(login("worker"))


@pytest.fixture
def plain_owner(postgres_database):
    """A store in a schema of a user who is not a superuser, on a server without its roles."""
    execute = postgres_database.execute
    execute("DROP SCHEMA IF EXISTS owned CASCADE")
    execute("DROP ROLE IF EXISTS plain_owner")
    execute("CREATE ROLE plain_owner LOGIN")
    (database,) = execute("SELECT current_database()")[0]
    execute(f'GRANT CREATE ON DATABASE "{database}" TO plain_owner')
    url = f"{postgres_database.url}&schema=owned"
    open_store(f"{url}&user=plain_owner").close()
    yield url
    for role in ROLES:
        if execute("SELECT FROM pg_roles WHERE rolname = %s", (f"owned_{role}",)):
            execute(f"DROP OWNED BY owned_{role}")
            execute(f"DROP ROLE owned_{role}")
    execute("DROP OWNED BY plain_owner CASCADE")
    execute("DROP ROLE plain_owner")


def test_the_owner_applies_roles_that_exist(plain_owner):
    """O6: "permission denied to create role", also when none was missing, and a hint that did not help."""

    def apply(url):
        return run_process("db", "roles", "--apply", env=os.environ | {"HOLDFAST_URL": url})

    refused = apply(f"{plain_owner}&user=plain_owner")
    assert refused.returncode == 4
    assert (
        "plain_owner may not create roles, and these do not exist yet: owned_reader, owned_producer" in refused.stderr
    )
    assert (
        "Let a superuser run holdfast db roles --apply once, or: ALTER ROLE plain_owner CREATEROLE." in refused.stderr
    )
    assert apply(plain_owner).returncode == 0
    with closing(open_store(plain_owner)) as store, store.backend.connect(autocommit=True) as connection:
        connection.execute("REVOKE ALL ON owned.job FROM owned_reader")
        assert apply(f"{plain_owner}&user=plain_owner").returncode == 0
        right = "SELECT has_table_privilege('owned_reader', 'owned.job', 'SELECT')"
        assert connection.execute(right).fetchone() == (True,)

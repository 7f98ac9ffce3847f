"""The schema and the statements: alike on both backends, and in step with the code."""

from __future__ import annotations

import re
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.domain.batches.batch import BatchState
from holdfast.domain.batches.unit import UnitState
from holdfast.domain.jobs.dependencies import IfNot, When
from holdfast.domain.jobs.job import FINISHED, LIVE, TRANSITIONS, OnLost, State
from holdfast.domain.jobs.new_job import KeyHolder, KeyScope
from holdfast.errors import SchemaTooNew
from holdfast.store.engine import sql
from holdfast.store.engine.backend import SCHEMA_VERSION
from holdfast.store.engine.operation import reader
from holdfast.store.sqlite.schema import migrate, split_script
from tests.support.jobs import put, take_one

BACKENDS = ("sqlite", "postgres")


STORE = Path(sql.__file__).parents[1]


def words(text: str) -> set[str]:
    return set(re.findall(r"'([a-z_>]+)'", text)) or set(re.findall(r"[a-z_]+", text))


def table(backend: str, name: str) -> str:
    """The columns and constraints of a table, as the schema creates it."""
    (text,) = re.findall(rf"CREATE TABLE holdfast[._]{name} \((.*?)\n\)", "".join(sql.migrations(backend)), re.DOTALL)
    return text


def check_of(backend: str, name: str, column: str) -> str:
    """The condition for the values of a column: a CHECK of the table, or that of the column's type."""
    checks = re.findall(rf"CHECK \({column} (?:IN \(|= ANY \(|= )(.*?)\)", table(backend, name), re.DOTALL)
    for domain in re.findall(rf"^ +{column} holdfast\.(\w+)", table(backend, name), re.MULTILINE):
        text = "".join(sql.migrations(backend))
        checks += re.findall(rf"CREATE DOMAIN holdfast\.{domain} AS text CHECK \(VALUE IN \((.*?)\)\);", text)
    return str(checks[0])


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_schema_repeats_the_moves(backend):
    """The trigger of the live table allows exactly the live transitions of the domain."""
    (allowed,) = re.findall(r"NOT IN \((.*?)\)", "".join(sql.migrations(backend)), re.DOTALL)
    assert words(allowed) == {f"{old}>{new}" for old in LIVE for new in TRANSITIONS[old] & LIVE}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("name", "column", "expected"),
    [
        ("job", "on_lost", set(OnLost)),
        ("job", "after_when", set(When)),
        ("job", "after_failed", set(IfNot)),
        ("key", "scope", set(KeyScope)),
        ("live", "state", LIVE),
        ("finished", "state", FINISHED),
        ("unit", "state", set(UnitState)),
        ("batch", "state", set(BatchState)),
    ],
)
def test_the_schema_repeats_the_closed_sets(backend, name, column, expected):
    """Each CHECK lists the values of the domain; live and finished states share no table."""
    assert words(check_of(backend, name, column)) == expected


@pytest.mark.parametrize("old", sorted(LIVE))
@pytest.mark.parametrize("new", sorted(LIVE))
def test_the_database_refuses_what_the_rules_forbid(store, database, old, new):
    """Each live move is tried for real, behind the store's back."""
    put(store)
    take_one(store)
    forced = "worker = NULL, claimed_at = NULL, lease_expires_at = NULL"
    running = {"sqlite": "worker = 'w', claimed_at = 1, lease_expires_at = 1"}.get(
        database.name, "worker = 'w', claimed_at = now(), lease_expires_at = now()"
    )
    for step in _path(old):
        database.execute(f"UPDATE holdfast.live SET state = '{step}', {running if step is State.RUNNING else forced}")
    move = f"UPDATE holdfast.live SET state = '{new}', {running if new is State.RUNNING else forced}"
    if new in TRANSITIONS[old] or new is old:
        database.execute(move)
    else:
        with pytest.raises(Exception, match=r"cannot (make this )?move"):
            database.execute(move)


def _path(state: State) -> list[State]:
    """How a running job gets to *state* by legal moves."""
    return {State.RUNNING: [], State.WAITING: [State.HELD, State.WAITING]}.get(state, [state])


def test_statements_have_the_same_names_and_parameters():
    """Both backends have the same statements with the same parameters. (SQLite also gets the time and, for a
    second statement, the rows of the first. It keeps no index entries of jobs that are gone, and needs no claim that
    passes over them. It inserts many jobs by columns, and draws their ids in the same transaction.)"""
    ours, theirs = sql.statements("sqlite"), sql.statements("postgres")
    positions = {"claim_few", "claim_onward", "list_lane_heads", "take_turn"}
    assert ours.keys() | positions | {"draw_job_ids", "find_job_elsewhere", "insert_jobs"} == theirs.keys()
    for name, text in ours.items():
        assert sql.parameters(text) - {"now", "chosen"} == sql.parameters(theirs[name]) - {"notification"}, name


def test_files_have_the_same_names():
    """The two backends lie side by side, file for file."""
    names = [{path.relative_to(STORE / b) for path in (STORE / b).rglob("*.sql")} for b in BACKENDS]
    assert names[0] == names[1]


def test_every_statement_says_what_it_is_for():
    """A comment follows each ``-- name:`` line."""
    for path in STORE.rglob("*.sql"):
        bare = re.findall(r"^-- name: (\w+)\n(?!-- )", path.read_text(), re.MULTILINE)
        assert not bare, f"{path.name}: {bare}"


def test_every_fragment_is_expanded():
    """Only the conditions of a selector are left to be filled in."""
    for backend in BACKENDS:
        left = {word for text in sql.statements(backend).values() for word in re.findall(r"(?<!')\{(\w+)\}", text)}
        assert left == {"where"}


def test_a_statement_in_two_places_is_refused(tmp_path, monkeypatch):
    """A shared statement cannot be changed for one backend by a second copy."""
    for folder in (sql.SHARED, "postgres"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "jobs.sql").write_text("-- name: read_now\n-- Read the clock.\nSELECT 1\n")
    monkeypatch.setattr(sql, "_STORE", tmp_path)
    with pytest.raises(ValueError, match="read_now"):
        sql._pieces.__wrapped__("postgres")


@pytest.mark.parametrize(
    ("shared", "expected"),
    [
        ("SELECT id::text FROM holdfast.live AS live", "SELECT id FROM holdfast_live AS live"),
        ("due_at <= (SELECT holdfast.now()) - :age::interval", "due_at <= :now - :age"),
        ("id = ANY(:ids::bigint[])", "id IN (SELECT value FROM json_each(:ids))"),
        ("FROM unnest(:queues::text[]) AS queues (value)", "FROM json_each(:queues) AS queues"),
        ("SELECT id FROM holdfast.key ORDER BY id FOR UPDATE SKIP LOCKED", "SELECT id FROM holdfast_key ORDER BY id"),
        ("state IS DISTINCT FROM 'cancel'", "state IS NOT 'cancel'"),
        ("holdfast.same(live.queue, :queue)", "live.queue = :queue"),
        ("kind LIKE :function", "kind GLOB :function"),
        ("EXISTS (SELECT FROM holdfast.job)", "EXISTS (SELECT 1 FROM holdfast_job)"),
        (
            "id = ANY(ARRAY(SELECT id FROM x WHERE (a OR f(b)) LIMIT 1 FOR UPDATE)) RETURNING id",
            "id IN (SELECT id FROM x WHERE (a OR f(b)) LIMIT 1) RETURNING id",
        ),
        (
            "SELECT key, n FROM jsonb_to_recordset(:unit::jsonb) AS unit (key text,\n    n bigint)",
            "SELECT key, n FROM (SELECT value->>'key' AS key, value->>'n' AS n FROM json_each(:unit)) AS unit",
        ),
    ],
)
def test_shared_statements_become_sqlite(shared, expected):
    """One case per rule of translation."""
    assert sql.to_sqlite(shared) == expected


def test_a_column_out_of_place_is_found_at_once():
    """Rows are read by position; the names of the columns must be those of the struct."""
    with pytest.raises(TypeError, match="bogus"):
        reader(KeyHolder, ("kind", "key", "job_id", "scope", "expires_at", "bogus"), micros=True)


# -- migrations -----------------------------------------------------------------------------


def test_migrations_are_applied_once(store):
    """A second run does nothing."""
    assert store.backend.migrate() == []


def test_a_fresh_schema_equals_the_sum_of_migrations(tmp_path):
    """A store that is migrated from any earlier version has the schema of a new one."""
    scripts = sql.migrations("sqlite")
    assert len(scripts) == SCHEMA_VERSION == len(sql.migrations("postgres"))
    fresh = _migrated(tmp_path / "fresh.db", start=0)
    for start in range(1, len(scripts) + 1):
        assert _migrated(tmp_path / f"from-{start}.db", start=start) == fresh


def _migrated(path, *, start: int) -> list[tuple[str, str]]:
    connection = sqlite3.connect(path, isolation_level=None)
    for script in sql.migrations("sqlite")[:start]:
        for statement in split_script(script):
            connection.execute(statement)
    if start:
        connection.execute(
            "INSERT INTO holdfast_meta (version, oldest_code, checksums, objects) VALUES (?, 1, '{}', '{}')", (start,)
        )
    migrate(connection)
    found = connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
    connection.close()
    return found


def test_postgres_schemas_are_alike_however_they_came_to_be():
    """A schema that was migrated step by step has the same catalogue as one made at once."""
    import psycopg

    from holdfast.store.postgres import schema
    from holdfast.store.postgres.statements import Statements
    from tests.support.backends import postgres_url

    with psycopg.connect(postgres_url("postgres"), autocommit=True) as connection:
        catalogues = []
        for name, rounds in (("at_once", 1), ("step_by_step", 3)):
            connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")
            for _ in range(rounds):
                schema.migrate(connection, Statements(name))
            catalogues.append(_catalogue(connection, name))
            connection.execute(f"DROP SCHEMA {name} CASCADE")
    assert catalogues[0] == catalogues[1]
    assert len(catalogues[0]) > 100


def _catalogue(connection, name: str) -> list[tuple[str, ...]]:
    """Every column, index, constraint, trigger and function of a schema, without its name."""
    rows = connection.execute(
        """
        SELECT 'column', table_name, column_name, data_type || ' ' || is_nullable || ' ' || coalesce(column_default, '')
        FROM information_schema.columns WHERE table_schema = %(name)s
        UNION ALL SELECT 'index', tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = %(name)s
        UNION ALL SELECT 'check', conrelid::regclass::text, conname, pg_get_constraintdef(oid)
        FROM pg_constraint WHERE connamespace = %(name)s::regnamespace
        UNION ALL SELECT 'function', proname, '', prosrc FROM pg_proc WHERE pronamespace = %(name)s::regnamespace
        """,
        {"name": name},
    ).fetchall()
    return sorted(tuple(part.replace(name, "schema") for part in row) for row in rows)


def test_a_store_of_a_newer_version_is_refused(store, database):
    """Only when it says that it needs newer code; otherwise older code may go on."""
    newer = SCHEMA_VERSION + 1
    database.execute(f"UPDATE holdfast.meta SET version = {newer}")
    try:
        database.open()
        database.execute(f"UPDATE holdfast.meta SET oldest_code = {newer}")
        with pytest.raises(SchemaTooNew) as caught:
            database.open()
        assert caught.value.exit_code == 4
        assert "Upgrade" in caught.value.hint
    finally:
        database.execute(f"UPDATE holdfast.meta SET version = {SCHEMA_VERSION}, oldest_code = 1")


def test_two_processes_may_set_up_at_once(tmp_path):
    """The second process waits for the first and has nothing left to do."""
    from holdfast.store.sqlite.backend import SqliteBackend

    with ThreadPoolExecutor(8) as pool:
        backends = list(pool.map(lambda _: SqliteBackend(tmp_path / "new.db"), range(8)))
    assert len({backend.installation for backend in backends}) == 1
    for backend in backends:
        backend.close()

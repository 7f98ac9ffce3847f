"""Migrations: who applies them, what they wait for, and how a schema that is not theirs is found."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path

import pytest

import holdfast
from holdfast.errors import SchemaMismatch, SchemaOutdated, StoreUnavailable
from holdfast.store import Store, open_store
from holdfast.store.engine import sql
from holdfast.store.engine.migrations import CONCURRENT, Migration
from holdfast.store.postgres import schema as postgres_schema
from holdfast.store.sqlite import schema as sqlite_schema
from tests.support.backends import available, postgres_url
from tests.support.jobs import put, take
from tests.support.processes import connect, wait_until

POSTGRES = [name for name in available() if name != "sqlite"]
SCHEMA = "hf_migrations"
COLUMN = "ALTER TABLE holdfast.queue ADD COLUMN colour text;"
INDEX = f"{CONCURRENT}\n-- An index for colours.\nCREATE INDEX CONCURRENTLY IF NOT EXISTS queue_colour ON holdfast.queue (name);\n"


@pytest.fixture
def future(monkeypatch):
    """Pretends that this code has more migrations."""
    original = sql.migrations

    def add(*texts: str) -> None:
        spelled = {"sqlite": [text.replace("holdfast.", "holdfast_") for text in texts], "postgres": list(texts)}
        monkeypatch.setattr(sql, "migrations", lambda backend: original(backend) + spelled[backend])
        for module in (sqlite_schema, postgres_schema):
            monkeypatch.setattr(module, "SCHEMA_VERSION", 1 + len(texts))

    return add


class Place:
    """A store that a test may rebuild: a file, or a schema of its own."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.server = f"sqlite:///{directory}/jobs.db" if name == "sqlite" else postgres_url(name)
        mark = "&" if "?" in self.server else "?"
        self.url = f"{self.server}{mark}durability=fast" if name == "sqlite" else f"{self.server}{mark}schema={SCHEMA}"
        self._stores: list[Store] = []

    def open(self, **options) -> Store:
        self._stores.append(open_store(self.url, **options))
        return self._stores[-1]

    def spelled(self, text: str) -> str:
        return text.replace("holdfast.", "holdfast_" if self.name == "sqlite" else f"{SCHEMA}.")

    def execute(self, text: str) -> None:
        with closing(connect(self.server, autocommit=True)) as connection:
            connection.execute(self.spelled(text))
            connection.commit()

    def close(self) -> None:
        for store in self._stores:
            store.close()
        if self.name != "sqlite":
            self.execute("DROP SCHEMA IF EXISTS hf_migrations CASCADE")


@pytest.fixture
def place(backend_name, tmp_path):
    place = Place(backend_name, tmp_path)
    yield place
    place.close()


@pytest.fixture(params=POSTGRES)
def postgres(request, tmp_path):
    place = Place(request.param, tmp_path)
    yield place
    place.close()


def test_only_the_owner_and_workers_migrate(place, future):
    """K31: another call on an older schema says what to do, and changes nothing."""
    url = place.url
    place.open()
    future(COLUMN)
    with pytest.raises(SchemaOutdated, match="the store has schema 1, and this code needs 2") as caught:
        open_store(url)
    assert "holdfast db migrate" in caught.value.hint
    with holdfast.Holdfast(url) as app:

        @app.job()
        def mail() -> None: ...

        with pytest.raises(SchemaOutdated):
            mail.enqueue()
        app.worker()
        assert mail.enqueue().created
    store = place.open(may_migrate=True)
    assert (store.backend.migrated, store.database.tools.schema_problems()) == ([], [])


def test_applied_migrations_are_reported(place, future):
    """K88: once, with their numbers."""
    assert place.open().backend.migrated == [1]
    future(COLUMN, COLUMN.replace("colour", "shape"))
    assert place.open(may_migrate=True).backend.migrated == [2, 3]
    assert place.open(may_migrate=True).backend.migrated == []


def test_a_migration_does_not_wait_for_long(postgres, future, monkeypatch):
    """K31: a reader that holds a table costs claims no more than the short wait of each attempt."""
    monkeypatch.setattr(postgres_schema, "LOCK_TIMEOUT_S", 0.05)
    monkeypatch.setattr(postgres_schema, "RETRY_DELAYS_S", (0.01, 0.01))
    store = postgres.open()
    put(store)
    future(COLUMN)
    with connect(postgres.server) as dump:
        dump.execute(postgres.spelled("SELECT count(*) FROM holdfast.queue"))
        with pytest.raises(StoreUnavailable, match="migration 2 cannot lock its tables") as caught:
            store.backend.migrate()
        assert "dump" in caught.value.hint
        assert len(take(store)) == 1
    assert store.backend.migrate() == [2]


def test_a_migration_tries_again(postgres, future, monkeypatch):
    """K31: it goes on when the reader has ended."""
    monkeypatch.setattr(postgres_schema, "LOCK_TIMEOUT_S", 0.05)
    monkeypatch.setattr(postgres_schema, "RETRY_DELAYS_S", (0.01,) * 1000)
    store = postgres.open()
    future(COLUMN)
    applied = []
    with connect(postgres.server) as dump, connect(postgres.server, autocommit=True) as witness:
        dump.execute(postgres.spelled("SELECT count(*) FROM holdfast.queue"))
        migrating = threading.Thread(target=lambda: applied.extend(store.backend.migrate()))
        migrating.start()
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'hf_migrations.queue'::regclass"
        wait_until(lambda: witness.execute(waiting).fetchone() == (1,), every=0.005)
    migrating.join(30)
    assert applied == [2]


def test_indexes_are_built_while_others_write(postgres, future):
    """K31: outside a transaction; what an attempt left behind is built anew, and a second run does nothing."""
    store = postgres.open()
    future(INDEX)
    with connect(postgres.server, autocommit=True) as user:
        user.execute("CREATE INDEX queue_colour ON hf_migrations.queue (name)")
        user.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'hf_migrations.queue_colour'::regclass")
        with connect(postgres.server) as writer:
            writer.execute("LOCK TABLE hf_migrations.live IN ROW EXCLUSIVE MODE")
            assert store.backend.migrate() == [2]
        valid = "SELECT indisvalid FROM pg_index WHERE indexrelid = 'hf_migrations.queue_colour'::regclass"
        assert user.execute(valid).fetchone() == (True,)
        locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
        assert user.execute(locks).fetchone() == (0,)
    assert store.backend.migrate() == []
    assert store.database.tools.schema_problems() == []


def test_a_concurrent_migration_is_a_list_of_statements():
    assert Migration(2, INDEX).statements == [
        "CREATE INDEX CONCURRENTLY IF NOT EXISTS queue_colour ON holdfast.queue (name)"
    ]
    assert not Migration(2, COLUMN).concurrent


BROKEN = {
    "ALTER TABLE holdfast.queue DROP COLUMN note": "queue.note is missing",
    "ALTER TABLE holdfast.queue RENAME COLUMN note TO remark": "queue.note is missing",
    "DROP INDEX holdfast.live_ready": "live_ready is missing",
}


@pytest.mark.parametrize("change", BROKEN)
def test_a_worker_refuses_another_schema(place, change):
    """K85: it would fail at every claim. The check names what differs."""
    store = place.open()
    place.execute(change)
    (finding,) = [finding for finding in store.database.check() if not finding.ok]
    assert BROKEN[change] in finding.detail
    with holdfast.Holdfast(place.url) as app, pytest.raises(SchemaMismatch, match=r"is missing"):
        app.worker()


@pytest.mark.parametrize("created", ["on", "off"])
def test_a_setting_that_quotes_all_names_is_no_difference(place, created):
    """``ALTER DATABASE … SET quote_all_identifiers`` changes the texts of types and indexes, not the schema."""
    if place.name == "sqlite":
        pytest.skip("SQLite has no such setting")
    with holdfast.Holdfast(f"{place.url}&options=-c%20quote_all_identifiers%3D{created}") as app:
        assert app.store
    for opened in ("on", "off"):
        with holdfast.Holdfast(f"{place.url}&options=-c%20quote_all_identifiers%3D{opened}") as app:
            app.worker()
            assert all(finding.ok for finding in app.store.database.check())


def test_the_schema_is_compared_for_the_first_worker_of_a_process(place):
    """That takes 10 ms. A running worker does not compare it again, either."""
    with holdfast.Holdfast(place.url) as app:
        app.worker()
        place.execute("DROP INDEX holdfast.live_ready")
        app.worker()
    with holdfast.Holdfast(place.url) as app, pytest.raises(SchemaMismatch, match=r"is missing"):
        app.worker()


def test_a_rewritten_migration_is_found(place, monkeypatch):
    """K85: the store has the checksum of the migration that it was made with."""
    store = place.open()
    original = sql.migrations
    monkeypatch.setattr(sql, "migrations", lambda backend: [text + "\n-- changed" for text in original(backend)])
    with pytest.raises(SchemaMismatch, match="migration 1 of this code"):
        store.database.require_schema()


def test_what_people_add_is_no_difference(place):
    store = place.open()
    place.execute("CREATE INDEX mine ON holdfast.job (created_at)")
    assert store.database.tools.schema_problems() == []


def test_a_changed_definition_is_reported_but_not_refused(place):
    """An index with other columns is slow, but no statement fails."""
    store = place.open()
    index, table = place.spelled("holdfast.live_due"), place.spelled("holdfast.live")
    place.execute(f"DROP INDEX {index}")
    place.execute(f"CREATE INDEX {index.removeprefix(f'{SCHEMA}.')} ON {table} (due_at) WHERE state = 'scheduled'")
    (problem,) = store.database.tools.schema_problems()
    assert "live_due has another definition" in problem
    store.database.require_schema()

"""Stores of development versions: every command refuses them with the way out, and the way out works."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing

import pytest

import holdfast
from holdfast.domain.jobs.job import State
from holdfast.domain.jobs.selector import Selector
from holdfast.errors import SchemaMismatch, SchemaTooNew
from holdfast.store import open_store
from holdfast.store.engine.migrations import OTHER_TABLES, TABLES, renamed
from tests.cli.conftest import run_process
from tests.store.engine.test_migrations import SCHEMA, place  # noqa: F401 - a fixture
from tests.support.jobs import put

#: What other versions changed since, and how the copy takes it.
CHANGES = {
    "an edited migration": (),
    "a column that was added since": ("ALTER TABLE holdfast.queue DROP COLUMN note",),
    "a column that was dropped since": ("ALTER TABLE holdfast.job ADD COLUMN colour text",),
    "a table that was added since": ("DROP TABLE holdfast.trace",),
    "no checksums yet": ("ALTER TABLE holdfast.meta DROP COLUMN checksums",),
}
#: Commands of all rooms.
COMMANDS = ("ls", "db migrate", "add -- true", "worker", "up", "workers")


def develop(place, *changes, version=1, oldest_code=1):  # noqa: F811 - the fixture
    """Turn the store into one of a development version."""
    place.execute(
        f'UPDATE holdfast.meta SET checksums = \'{{"1": "0"}}\', version = {version}, oldest_code = {oldest_code}'
    )
    for change in changes:
        place.execute(change)


@pytest.fixture
def made(place):  # noqa: F811 - the fixture
    """A store with a job."""
    store = place.open()
    put(store, tags='["kept"]', priority=7)
    return place


@pytest.mark.parametrize("change", CHANGES)
def test_it_is_refused_with_the_way_out_that_works(made, tmp_path, change):
    """O2: db migrate said "nothing to do" and enqueues worked, while every worker refused."""
    develop(made, *CHANGES[change])
    with closing(open_store(made.url, any_schema=True)) as store:
        assert not store.backend.fits, "O2 is broken: the schema counts as that of this version"
    for options in ({}, {"create": False}, {"may_migrate": True}):
        with pytest.raises(SchemaMismatch, match="a development version of Holdfast made this store") as refused:
            made.open(**options)
        assert "holdfast db backup NEW.db" in refused.value.hint
        assert "holdfast db copy" in refused.value.hint
    with holdfast.Holdfast(made.url) as app, pytest.raises(SchemaMismatch, match="a development version"):
        app.worker()
    done = run_process("db", "backup", str(tmp_path / "new.db"), env=os.environ | {"HOLDFAST_URL": made.url})
    assert done.returncode == 0, done.stdout + done.stderr
    with closing(open_store(f"sqlite:///{tmp_path / 'new.db'}", create=False)) as copy:
        (job,) = copy.views.all(Selector())
        assert (job.state, job.priority, job.tags) == (State.READY, 7, '["kept"]')
        assert copy.database.tools.schema_problems() == []
        assert [entry.action for entry in copy.audit_log.page()] == ["db backup"]
        assert put(copy) > job.id


@pytest.mark.parametrize(("version", "oldest"), [(1, 1), (7, 3)])
def test_every_command_says_so(made, version, oldest):
    """O2: an older store was taken for a newer one: "Upgrade Holdfast on this host"."""
    develop(made, version=version, oldest_code=oldest)
    environment = os.environ | {"HOLDFAST_URL": made.url}
    for command in COMMANDS:
        done = run_process(*command.split(), env=environment)
        text = " ".join((done.stdout + done.stderr).split())
        assert done.returncode == 4, (command, text)
        assert "a development version of Holdfast made this store" in text, command
        assert "holdfast db backup NEW.db" in text, command
    done = run_process("doctor", env=environment)
    assert done.returncode == 1
    assert "a development version of Holdfast made this store" in " ".join(done.stdout.split())


@pytest.mark.parametrize("renamed_thing", ["table", "column"])
def test_a_copy_that_would_lose_rows_is_refused(made, tmp_path, renamed_thing):
    """Names that changed since cannot be matched. The advice then is not to copy."""
    new_name = "holdfast_ended" if made.url.startswith("sqlite") else "ended"
    change = "ALTER TABLE holdfast.job RENAME COLUMN label TO caption"
    develop(made, change if renamed_thing == "column" else f"ALTER TABLE holdfast.finished RENAME TO {new_name}")
    done = run_process("db", "backup", str(tmp_path / "new.db"), env=os.environ | {"HOLDFAST_URL": made.url})
    text = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 4, text
    assert "Finish its jobs with the code that made it" in text
    assert not (tmp_path / "new.db").exists()
    with pytest.raises(SchemaMismatch) as refused:
        made.open()
    assert ("Finish its jobs" in refused.value.hint) == (renamed_thing == "table")


def test_a_newer_release_is_no_development_version(made):
    """It has the checksums of all migrations of this code, and more."""
    with closing(made.open()) as store:
        checksums = json.dumps({"1": recorded(store), "2": "ffffffff"})
    made.execute(f"UPDATE holdfast.meta SET checksums = '{checksums}', version = 2")
    made.open().close()
    made.execute("UPDATE holdfast.meta SET oldest_code = 2")
    with pytest.raises(SchemaTooNew) as refused:
        made.open()
    assert "Upgrade Holdfast" in refused.value.hint


def recorded(store):
    """The checksum of the first migration in the store."""
    if store.backend.name == "sqlite":
        with closing(sqlite3.connect(store.backend.path)) as connection:
            return json.loads(connection.execute("SELECT checksums FROM holdfast_meta").fetchone()[0])["1"]
    with store.backend.connect() as connection:
        return connection.execute(f"SELECT checksums FROM {SCHEMA}.meta").fetchone()[0]["1"]


@pytest.mark.parametrize(
    ("ours", "theirs", "unknown"),
    [("ab", "ab", []), ("ab", "a", []), ("a", "ab", []), ("ab", "ac", ["c"]), ("a", "b", ["b"])],
)
def test_a_name_may_have_changed_if_one_is_missing_and_another_unknown(ours, theirs, unknown):
    assert renamed(ours, theirs) == unknown


def test_all_tables_are_known(made):
    with closing(made.open()) as store:
        assert set(TABLES) <= set(store.database.tools.tables())
        assert renamed(TABLES, set(store.database.tools.tables()) - {*OTHER_TABLES}) == []
        assert [*store.views.all(Selector())] != []

"""The store as a whole: one test per promise of store/engine/database.py."""

from __future__ import annotations

import os
from datetime import timedelta

import psycopg
import pytest

import holdfast
from holdfast.domain.batches.unit import HandedResult, UnitOutcome, UnitState
from holdfast.domain.fleet.stop_switch import StopMode
from holdfast.domain.jobs.dependencies import After
from holdfast.domain.jobs.job import State, WorkerId
from holdfast.domain.jobs.new_job import KeyScope, NewJob, Unique
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.verdict import Done, Failed
from holdfast.domain.schedules.decision import Skipped, SkipReason
from holdfast.domain.schedules.definition import Definition
from holdfast.domain.schedules.plan import Overlap
from holdfast.errors import InvalidInput, PrivilegeMissing, StoreInUse, StoreMoved, StoreReadOnly, StoreUnavailable
from holdfast.store import open_store
from holdfast.store.batches.runs import RunRequest
from holdfast.store.batches.unit_choice import NextUnits
from holdfast.store.engine.database import CHECKS, Database
from holdfast.store.engine.migrations import TABLES
from tests.store.schedules.test_plans import fire, step
from tests.support.backends import START, open_database
from tests.support.jobs import put, state, take_one

QUIET = {"report": lambda *_: None}


def fill(store):
    """Something in every table; answers the jobs by what they are."""
    app = holdfast.Holdfast("sqlite:///never-opened.db")
    app.job(name="mail")(lambda: None)
    store.kinds.publish([app.kinds["mail"].published()])
    store.queues.set_limits("slow", limit=2)
    store.queues.pause("slow", note="for the night")
    jobs = {"dead": put(store, payload='{"text": "ä\\u0000\\ud83d\\ude00"}', label="L", tags='["t"]')}
    lease = take_one(store)
    store.leases.report(lease, done=1, total=2, message="half", checkpoint='{"at": 7}')
    store.steps.keep(lease, "first", '"kept"')
    store.leases.settle(lease, Failed(error="boom\nagain", permanent=True))
    jobs["done"] = put(store, unique=Unique("k", KeyScope.FOREVER, None))
    store.leases.settle(take_one(store), Done('{"ok": true}'))
    jobs["held"] = put(store, hold=True, unique=Unique("p", KeyScope.PERIOD, timedelta(hours=1)), priority=-3)
    jobs["waiting"] = put(store, after=After(ids=(jobs["held"],)))
    jobs["later"] = put(store, delay=timedelta(days=1), max_attempts=None)
    store.control.set_priority(Selector(ids=(jobs["later"],)), 9, actor="ada")
    opening = RunRequest(identity="i", kind="mail", arguments="{}", source="range", actor="ada", owner="{}")
    run = store.batches.open(opening, worker=WorkerId("w"))
    (unit,) = store.batches.flush(run, next_units=NextUnits(candidates=[("1", 0)], limit=1)).taken
    store.batches.flush(run, [UnitOutcome(key=unit.key, position=0, state=UnitState.DONE, data='{"x": 1}')])
    store.batches.end(run, None, 1, complete=True)
    definition = Definition(kind="mail", cron="*/5 * * * *")
    schedule = store.schedules.create("five", definition, actor="ada")
    late = Skipped(START, START, 1, SkipReason.LATE)
    store.plans.advance([step(schedule, fire(0, hold=True), fire(5), overlap=Overlap.QUEUE_ALL, skip=[late])])
    store.leases.settle(run.lease, Done())
    gone = put(store)
    store.control.cancel(Selector(ids=(gone,)), actor="ada")
    store.control.delete(Selector(ids=(gone,)))
    return jobs


def told(store):
    """All that can be seen of a store."""
    jobs = list(store.views.all(Selector()))
    history = {job.id: (store.views.attempts(job.id), store.views.events(job.id)) for job in jobs}
    batches = [
        (batch, store.batches.units(batch.id), store.batches.counters(batch.id))
        for batch in store.batches.page().batches
    ]
    schedules = [(each, store.plans.history(each.name), store.plans.skips(each.name)) for each in store.schedules.all()]
    return jobs, history, store.queues.list(), store.kinds.get("mail"), batches, schedules


@pytest.fixture
def file(tmp_path):
    """A store in a file, in real time."""
    store = open_store(f"sqlite:///{tmp_path}/old.db?durability=fast")
    yield store
    store.close()


@pytest.fixture
def target(tmp_path):
    with open_database("postgres", tmp_path, real_time=True) as database:
        yield database.open()


def test_a_sound_store_is_found_sound(store):
    fill(store)
    findings = store.database.check()
    assert [finding for finding in findings if not finding.ok] == []
    assert len(findings) == len(CHECKS) + 2


BREAK = {
    "find_jobs_without_state": "DELETE FROM holdfast.live WHERE id = {held}",
    "find_jobs_live_and_finished": "INSERT INTO holdfast.finished (id, state, queue, kind, priority, due_at, attempts, crashes, token,"
    " finished_at) SELECT id, 'done', queue, kind, priority, due_at, 0, 0, 0, due_at FROM holdfast.live WHERE id = {held}",
    "find_states_without_job": "DELETE FROM holdfast.job WHERE id = {held}",
    "find_tags_without_job": "INSERT INTO holdfast.job_tag VALUES ('t', 1000000)",
    "find_waiting_without_dependencies": "DELETE FROM holdfast.dependency",
    "find_jobs_past_limits": "UPDATE holdfast.live SET attempts = 99 WHERE id = {held}",
    "find_keys_of_two_jobs": "UPDATE holdfast.key SET scope = 'live', expires_at = NULL, job_id = {later}"
    " WHERE job_id = {held}",
    "find_batches_miscounted": "UPDATE holdfast.unit_count SET count = count + 1 WHERE name = 'done'",
    "find_units_without_batch": "DELETE FROM holdfast.batch",
    "find_holders_without_lease": "INSERT INTO holdfast.in_flight (job_id, batch_id, token, run_number, units, owner)"
    " VALUES ({held}, 1, 1, 1, '[]', '{{}}')",
    "find_results_without_unit": "INSERT INTO holdfast.inbox (inbox, batch_id, key, data, available_at, expires_at)"
    " SELECT 'i', 1, 'x', '{{}}', due_at, due_at FROM holdfast.live WHERE id = {held}",
}
#: Whose id a check reports, if it is not that of the held job: a job, or the only batch or result.
REPORTED = {
    "find_waiting_without_dependencies": "waiting",
    **dict.fromkeys(
        ("find_batches_miscounted", "find_units_without_batch", "find_results_without_unit", "find_tags_without_job"),
        "first",
    ),
}


@pytest.mark.parametrize("broken", CHECKS)
def test_what_is_broken_is_named(store, database, broken):
    """K81: batches, counters, keys and inboxes are checked, too."""
    jobs = {**fill(store), "first": 1}
    database.execute(BREAK[broken].format(**jobs))
    (finding,) = [finding for finding in store.database.check() if not finding.ok]
    assert finding.check == CHECKS[broken]
    assert finding.detail.startswith(f"not so: {jobs[REPORTED.get(broken, 'held')]}")


def test_a_backup_needs_no_hard_links(store, tmp_path, monkeypatch):
    """K82: and it never replaces a file that appears while it is written."""
    monkeypatch.setattr(os, "link", None)
    put(store)
    file = tmp_path / "backup.db"
    assert store.database.backup(file) == file.stat().st_size > 0
    assert file.stat().st_mode & 0o777 == 0o600
    late = tmp_path / "late.db"
    real = Database._write_backup

    def write(self, draft):
        real(self, draft)
        late.write_text("mine")

    monkeypatch.setattr(Database, "_write_backup", write)
    with pytest.raises(InvalidInput, match="exists already"):
        store.database.backup(late)
    assert late.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir() if "backup-" in path.name) == []


def test_a_damaged_file_is_found(tmp_path):
    store = open_store(f"sqlite:///{tmp_path}/jobs.db")
    fill(store)
    store.close()
    path = tmp_path / "jobs.db"
    with path.open("r+b") as damaged:
        damaged.seek(12288 + 8)
        damaged.write(b"\xff" * 2000)
    store = open_store(f"sqlite:///{path}")
    assert not store.database.check()[0].ok
    store.close()


def test_vacuum_gives_room_back(file):
    file.jobs.enqueue_many([NewJob(kind="mail", payload=f'{{"x": "{"y" * 1000}"}}') for _ in range(2000)])
    file.control.delete(Selector(kinds=("mail",)))
    done = file.database.vacuum()
    assert done.after < done.before / 5


def test_vacuum_rebuilds_empty_indexes(target, monkeypatch):
    """K88: deleted rows leave pages of indexes that VACUUM keeps. Only the indexes of a nearly empty table are rebuilt."""
    monkeypatch.setattr("holdfast.store.postgres.database.EMPTY_INDEX_BYTES", 100_000)
    target.jobs.enqueue_many([NewJob(kind="mail") for _ in range(3000)])
    target.control.delete(Selector(kinds=("mail",)))
    with psycopg.connect(target.backend.url) as connection:
        size = "SELECT pg_indexes_size('holdfast.live')"
        (before,) = connection.execute(size).fetchone()
        connection.commit()
        target.database.vacuum()
        (after,) = connection.execute(size).fetchone()
    assert after < before / 2


def test_vacuum_keeps_everything(store):
    fill(store)
    before = told(store)
    assert store.database.vacuum().before > 0
    assert told(store) == before


def test_a_backup_holds_everything(real_database, tmp_path):
    """From either backend it is a SQLite store of its own, private to its user."""
    store = real_database.open()
    jobs = fill(store)
    path = tmp_path / "copy" / "backup.db"
    path.parent.mkdir()
    assert store.database.backup(path) == path.stat().st_size
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["backup.db"]
    copy = open_store(f"sqlite:///{path}")
    assert told(copy) == told(store)
    assert put(copy) > max(jobs.values()) + 1, "the id of a job that was removed is not given again"
    copy.close()


def test_a_backup_of_a_busy_store_gives_no_id_twice(real_database, tmp_path, monkeypatch):
    """K12: jobs that are enqueued while the backup begins are in it, and its next id follows theirs."""
    store = real_database.open()
    put(store)
    tools = store.database.tools
    original = type(tools).last_id

    def last_id(self):
        try:
            return original(self)
        finally:
            # Others enqueue right after the counter was read, each process with ids of its own.
            other = real_database.open()
            for _ in range(3):
                put(other)

    monkeypatch.setattr(type(tools), "last_id", last_id)
    path = tmp_path / "backup.db"
    store.database.backup(path)
    copy = open_store(f"sqlite:///{path}")
    known = {job.id for job in copy.views.all(Selector())}
    assert put(copy) > max(known)
    copy.close()


def test_a_backup_is_another_installation(real_database, tmp_path):
    """An enqueue on a connection to the copy is refused by an application of the original."""
    store = real_database.open()
    path = tmp_path / "backup.db"
    store.database.backup(path)
    copy = open_store(f"sqlite:///{path}")
    assert copy.backend.installation != store.backend.installation
    copy.close()


def test_a_backup_overwrites_nothing(store, tmp_path):
    (tmp_path / "mine.db").write_text("precious")
    with pytest.raises(InvalidInput, match="exists already"):
        store.database.backup(tmp_path / "mine.db")
    assert (tmp_path / "mine.db").read_text() == "precious"


def test_a_backup_that_fails_leaves_nothing(tmp_path, file):
    with pytest.raises((StoreUnavailable, OSError)):
        file.database.backup(tmp_path / "nowhere" / "x.db")
    assert not (tmp_path / "nowhere").exists()


def test_a_move_keeps_ids_and_history(file, target):
    jobs = fill(file)
    before = told(file)
    rows = file.database.move_to(target.database, "postgresql://there", **QUIET)
    assert told(target) == before
    assert list(rows) == list(TABLES)
    assert put(target) > max(jobs.values()) + 1
    assert target.steps.kept is not None
    assert [finding for finding in target.database.check() if not finding.ok] == []


def test_what_was_moved_goes_on_there(file, target):
    """Needs, keys and checkpoints mean the same as before."""
    jobs = fill(file)
    file.database.move_to(target.database, "postgresql://there", **QUIET)
    assert target.jobs.enqueue(NewJob(kind="mail", unique=Unique("k", KeyScope.FOREVER, None))).id == jobs["done"]
    target.control.unhold(Selector(ids=(jobs["held"],)), actor="ada")
    target.leases.settle(take_one(target), Done())
    assert state(target, jobs["waiting"]) is State.READY
    target.control.retry(Selector(ids=(jobs["dead"],)), actor="ada")
    leases = [take_one(target), take_one(target)]
    assert '{"at": 7}' in [lease.checkpoint for lease in leases]


def test_the_old_store_takes_and_starts_nothing_any_more(file, target):
    """A producer that was forgotten hears of it, instead of losing jobs."""
    fill(file)
    left = put(file)
    file.database.move_to(target.database, "postgresql://there", **QUIET)
    for late in (lambda: put(file), lambda: take_one(file)):
        with pytest.raises(StoreMoved, match="copied to postgresql://there"):
            late()
    assert state(file, left) is State.READY


def test_the_old_store_refuses_results_and_batches_too(file, target):
    """K81: what is accepted there would be handed out again by the new store."""
    opening = RunRequest(identity="x", kind="mail", arguments="{}", source="range", actor="ada", owner="{}")
    run = file.batches.open(opening, worker=WorkerId("w"))
    units = file.batches.flush(run, next_units=NextUnits(candidates=[("1", 0), ("2", 1)], limit=2)).taken
    handed = {"state": UnitState.RUNNING, "handed": HandedResult("letters", '{"x": 1}')}
    file.batches.flush(run, [UnitOutcome(key=unit.key, position=unit.position, **handed) for unit in units])
    file.batches.end(run, None, 2, complete=True)
    file.leases.settle(run.lease, Done())
    (taken,) = file.inbox.take("letters")
    file.database.move_to(target.database, "postgresql://there", **QUIET)
    for late in (
        lambda: file.inbox.accept(taken),
        lambda: file.inbox.take("letters"),
        lambda: file.batches.cancel(run.batch.id),
        lambda: file.batches.open(opening, worker=WorkerId("w")),
        lambda: file.queues.pause("default"),
        lambda: file.schedules.create("five", Definition(kind="mail", cron="*/5 * * * *"), actor="ada"),
        lambda: file.stop_switch.set(StopMode.DRAIN, actor="ada"),
    ):
        with pytest.raises(StoreMoved, match="copied to postgresql://there"):
            late()
    assert file.batches.get(run.batch.id).id == run.batch.id, "it can be read"


def test_nothing_is_moved_under_a_holder(file, target):
    """A worker that was seen, or a lease that has not lapsed."""
    file.workers.announce(WorkerId("w"), host="h", pid=1, queues=["default"], kinds=["mail"], version=None)
    with pytest.raises(StoreInUse, match="worker w is alive"):
        file.database.move_to(target.database, "there", **QUIET)
    file.workers.record_stop(WorkerId("w"))
    put(file)
    lease = take_one(file)
    with pytest.raises(StoreInUse, match="worker worker-1 is alive"):
        file.database.move_to(target.database, "there", **QUIET)
    file.leases.settle(lease, Done())
    assert put(file), "it is open as before"


def test_nothing_is_moved_onto_other_jobs(file, target):
    put(target)
    with pytest.raises(StoreInUse, match="the target has jobs already"):
        file.database.move_to(target.database, "there", **QUIET)


def test_only_sqlite_moves_to_postgres(file, target):
    for source, there in ((target, file), (file, file)):
        with pytest.raises(InvalidInput, match="only a SQLite store"):
            source.database.move_to(there.database, "there", **QUIET)


def test_a_move_that_fails_changes_nothing(file, target):
    """The old store is open again, the new one as empty as before."""

    def cut(table, _):
        if table == "event":
            raise KeyboardInterrupt

    fill(file)
    with pytest.raises(KeyboardInterrupt):
        file.database.move_to(target.database, "there", report=cut)
    assert put(file)
    assert not target.database.any_job()
    file.database.move_to(target.database, "there", **QUIET)
    assert target.database.any_job()


# -- roles -------------------------------------------------------------------------------------


@pytest.fixture
def as_role(target):
    """Opens the store as a user who has one of the roles and nothing else."""
    opened = []
    target.database.tools.apply(target.database.tools.roles())
    target.database.tools.apply(target.database.tools.roles())  # twice is as good as once

    def become(role):
        user = f"{role}_user"
        with psycopg.connect(target.backend.url, autocommit=True) as connection:
            connection.execute(f"DROP ROLE IF EXISTS {user}".encode())
            connection.execute(f"CREATE ROLE {user} LOGIN IN ROLE holdfast_{role}".encode())
        store = open_store(f"{target.backend.url}&user={user}")
        opened.append((store, user))
        return store

    yield become
    for store, user in opened:
        store.close()
        with psycopg.connect(target.backend.url, autocommit=True) as connection:
            connection.execute(f"DROP ROLE {user}".encode())


def test_a_reader_only_looks(target, as_role):
    jobs = fill(target)
    reader = as_role("reader")
    assert told(reader) == told(target)
    assert reader.views.why(jobs["held"])
    for write in (lambda: put(reader), lambda: take_one(reader), lambda: reader.queues.pause("default")):
        with pytest.raises(StoreReadOnly):
            write()


def test_a_producer_enqueues_and_no_more(target, as_role):
    """Each way to enqueue: one, many, with a key, with needs, replaced, held, and from SQL."""
    fill(target)
    producer = as_role("producer")
    first = put(producer, unique=Unique("u"), hold=True)
    assert put(producer, unique=Unique("u")) == first
    put(producer, after=After(ids=(first,)))
    last = producer.jobs.enqueue_many([NewJob(kind="mail") for _ in range(100)])[-1].id
    app = holdfast.Holdfast("sqlite:///never-opened.db")
    app.job(name="other")(lambda: None)
    producer.kinds.publish([app.kinds["other"].published()])
    with psycopg.connect(producer.backend.url) as connection:
        connection.execute('SELECT holdfast.enqueue(\'{"kind": "other"}\')')
    for write in (
        lambda: producer.queues.pause("default"),
        lambda: producer.control.delete(Selector(ids=(last,))),
        lambda: producer.workers.announce(WorkerId("w"), host="h", pid=1, queues=[], kinds=[], version=None),
    ):
        with pytest.raises(StoreReadOnly):
            write()


@pytest.mark.parametrize(
    ("role", "call", "message", "grant"),
    [
        ("producer", lambda store: store.audit_log.page(), "may not read the audit log (table audit_entry)", "reader"),
        ("producer", lambda store: store.stop_switch.get(), "may not read the table stop_switch", "reader"),
        ("producer", lambda store: store.queues.pause("default"), "may not change queues (table queue)", "operator"),
        ("reader", put, "may not change jobs (draw_job_ids)", "producer"),
        ("worker", lambda store: store.credentials.list(), "may not read tokens (table credential)", "dashboard"),
        (
            "producer",
            lambda store: store.jobs.enqueue(NewJob(kind="command", payload='{"argv": ["id"], "cwd": "/"}')),
            'may not enqueue or change jobs of kind "command"',
            "command_producer",
        ),
    ],
)
def test_a_denied_privilege_names_the_user_and_the_role_that_helps(target, as_role, role, call, message, grant):
    with pytest.raises(PrivilegeMissing) as caught:
        call(as_role(role))
    assert caught.value.message.startswith(f"database user {role}_user {message}; it needs the role holdfast_{grant}")
    assert f"GRANT holdfast_{grant} TO {role}_user" in caught.value.hint
    assert "file" not in caught.value.hint


@pytest.mark.parametrize("role", ["reader", "producer", "worker", "operator"])
def test_a_backup_is_refused_before_it_begins_if_the_user_cannot_read_every_table(target, as_role, role, tmp_path):
    """It ended with a syntax error of SQLite."""
    fill(target)
    with pytest.raises(PrivilegeMissing) as caught:
        as_role(role).database.backup(tmp_path / "backup.db")
    assert f"database user {role}_user may not read" in caught.value.message
    assert "holdfast_admin" in caught.value.message
    assert list(tmp_path.glob("*backup*")) == []
    assert as_role("admin").database.backup(tmp_path / "backup.db") > 0


def test_a_worker_works_but_owns_nothing(target, as_role):
    fill(target)
    worker = as_role("worker")
    put(worker)
    worker.leases.settle(take_one(worker), Done())
    worker.control.hold(Selector(kinds=("mail",)), actor="ada")
    worker.pruner.prune()
    with pytest.raises(psycopg.errors.InsufficientPrivilege), psycopg.connect(worker.backend.url) as connection:
        connection.execute("DROP TABLE holdfast.job")
    with pytest.raises(psycopg.errors.InsufficientPrivilege), psycopg.connect(worker.backend.url) as connection:
        connection.execute("UPDATE holdfast.meta SET oldest_code = 99")

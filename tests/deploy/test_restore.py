"""The drills of docs/guides/backups.md, with its own SQL, on both backends."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

import holdfast
from holdfast import Selector, State
from tests.cli.conftest import run_process
from tests.support.backends import postgres_url
from tests.support.postgres import QUICK, PostgresServer, bundled_programs
from tests.support.processes import PATIENCE, wait_until
from tests.support.workers import drain, working

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "backups.md"
#: Short enough to wait for, long enough for a busy machine.
LEASE = "3s"


class PostgresDrill:
    """A store in a database of its own, a dump of it, and the database to which that is restored."""

    def __init__(self, folder: Path) -> None:
        self._server = postgres_url("postgres")
        self._dump = folder / "holdfast.dump"
        self.source, self.restored = self._create("drill_source"), self._create("drill_restored")

    def back_up(self) -> None:
        (line,) = re.findall(r"^pg_dump (.*)$", GUIDE.read_text(), re.MULTILINE)
        self._run("pg_dump", line, source=self.source)

    def restore(self) -> None:
        (line,) = re.findall(r"^ *pg_restore (.*)$", GUIDE.read_text(), re.MULTILINE)
        self._run("pg_restore", line, source=self.restored)

    def become_another(self) -> None:
        with psycopg.connect(self.restored) as connection:
            connection.execute(sql_block("holdfast.meta").encode())

    def close(self) -> None:
        with psycopg.connect(self._server, autocommit=True) as connection:
            for name in ("drill_source", "drill_restored"):
                connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())

    def _create(self, name: str) -> str:
        with psycopg.connect(self._server, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())
            connection.execute(f"CREATE DATABASE {name}".encode())
        return urlunsplit(urlsplit(self._server)._replace(path=f"/{name}"))

    def _run(self, program: str, line: str, *, source: str) -> None:
        """A line of the guide, as a shell would run it."""
        path = f"{bundled_programs()}:/bin:/usr/bin"
        environ = {"PATH": path, "DATABASE_URL": source}
        line = f"{program} {line}".replace("holdfast.dump", str(self._dump))
        subprocess.run(["/bin/sh", "-c", line], env=environ, check=True, timeout=120)


class SqliteDrill:
    """A file, a backup of it, and the file that replaces it."""

    def __init__(self, folder: Path) -> None:
        self._backup, self._file = folder / "backup.db", folder / "restored.db"
        self.source, self.restored = f"sqlite:///{folder / 'source.db'}", f"sqlite:///{self._file}"

    def back_up(self) -> None:
        assert run_process("db", "backup", str(self._backup), "--url", self.source).returncode == 0

    def restore(self) -> None:
        shutil.copy(self._backup, self._file)

    def become_another(self) -> None:
        with closing(sqlite3.connect(self._file)) as connection, connection:
            connection.execute(sql_block("last_job_id"))
        connection.close()

    def close(self) -> None:
        """Nothing runs."""


def sql_block(word: str) -> str:
    """The SQL of the guide that contains a word."""
    blocks = re.findall(r"^ *```sql\n(.*?)^ *```$", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    (block,) = [block for block in blocks if word in block]
    return block


class Shop:
    """An application whose handlers wait at a gate, and remember their effects."""

    def __init__(self, url: str, effects: list[str]) -> None:
        self.app = app = holdfast.Holdfast(url)
        self.gate, self.effects = threading.Event(), effects

        @app.job(lease=LEASE)
        def note(name: str) -> None:
            effects.append(name)

        @app.job(max_attempts=1)
        def broken() -> None:
            raise ValueError("no good")

        for on_lost in ("retry", "hold", "dead"):
            app.job(name=f"slow-{on_lost}", lease=LEASE, on_lost=on_lost)(self._slow)

        @app.unit(lease=LEASE)
        def count(n: int) -> None:
            if n == 5:
                self.gate.wait()
            effects.append(f"unit {n}")

        self.note, self.broken, self.count = note, broken, count

    def _slow(self, name: str) -> None:
        self.gate.wait()
        self.effects.append(name)

    def states(self) -> dict[int, State]:
        return {job.id: job.state for job in self.app.views.all(Selector())}

    def running(self) -> list[holdfast.Job]:
        return list(self.app.views.all(Selector(states=(State.RUNNING,))))


@pytest.fixture(params=[SqliteDrill, PostgresDrill])
def drill(request, tmp_path):
    drill = request.param(tmp_path)
    yield drill
    drill.close()


def operate(url: str, *line: str) -> str:
    """A command of the operator in the restored store, which succeeds."""
    done = run_process(*line, "--url", url)
    assert done.returncode == 0, (line, done.stdout, done.stderr)
    return done.stdout


def enqueue_all(shop: Shop) -> dict[str, int]:
    """Jobs in every state, by what becomes of them; a schedule that has fired once."""
    note, app = shop.note, shop.app
    jobs = {f"slow-{each}": app.enqueue(f"slow-{each}", {"name": each}) for each in ("retry", "hold", "dead")}
    jobs["done"], jobs["broken"] = note.enqueue("done"), shop.broken.enqueue()
    jobs["ready"] = note.options(queue="later").enqueue("ready")
    jobs["waiting"] = note.options(after=jobs["ready"]).enqueue("waiting")
    jobs["scheduled"] = note.options(delay="1h").enqueue("scheduled")
    jobs["held"] = note.options(hold=True).enqueue("held")
    jobs["repeated"] = note.options(queue="soon").enqueue("repeated")
    app.schedules.create("nightly", "note", "@yearly", payload={"name": "plan"})
    (fired,) = app.schedules.trigger("nightly")
    return {**{name: ref.id for name, ref in jobs.items()}, "plan": fired}


class Past(NamedTuple):
    """What the old store has done: at the time of the backup, and after it."""

    jobs: dict[str, int]
    batch: int
    at_backup: dict[int, State]
    lost: int
    effects: Counter[str]


def live_through(drill: SqliteDrill | PostgresDrill, effects: list[str]) -> Past:
    """Back up a store while a worker runs its jobs; then it finishes them, and one more is enqueued."""
    shop = Shop(drill.source, effects)
    jobs = enqueue_all(shop)
    batch = shop.app.submit(shop.count, range(20), shards=1).id
    with working(shop.app, queues=["default"], slots=6):
        wait_until(lambda: len(shop.running()) == 4 and all(job.started_at for job in shop.running()))
        wait_until(lambda: Counter(effects) >= Counter(["done", "plan", *units(5)]))
        wait_until(lambda: shop.app.store.batches.counters(batch).done == 5)
        wait_until(lambda: shop.states()[jobs["broken"]] is State.DEAD)
        at_backup = shop.states()
        drill.back_up()
        shop.gate.set()
        wait_until(lambda: not shop.running())
    drain(shop.app, queues=["soon"])
    lost = shop.note.enqueue("lost").id
    shop.app.close()
    assert Counter(effects) >= Counter(["repeated", "retry", "hold", "dead", "unit 19"])
    return Past(jobs, batch, at_backup, lost, Counter(effects))


@pytest.mark.slow
def test_a_backup_is_restored_and_nothing_runs_unseen(drill):
    """Issue 22: no job is lost, no id comes twice, and nothing runs before the operator has decided."""
    effects: list[str] = []
    past = live_through(drill, effects)
    drill.restore()
    operate(drill.restored, "emergency-stop", "--yes", "--note", "restored")
    drill.become_another()
    operate(drill.restored, "db", "check")
    shop = Shop(drill.restored, effects)
    assert shop.states() == past.at_backup, "every job is there, as it was"
    assert "the store is stopped (emergency stop by" in run_process("doctor", "--url", drill.restored).stdout
    listed = json.loads(operate(drill.restored, "ls", "--state", "running", "-o", "json"))["data"]["jobs"]
    assert {past.jobs[f"slow-{each}"] for each in ("retry", "hold", "dead")} < {job["id"] for job in listed}

    shop.gate.set()
    with working(shop.app, queues=["*"], slots=6):
        wait_until(lambda: not shop.running())
        assert Counter(effects) == past.effects, "nothing has run"
        states = {name: shop.states()[job] for name, job in past.jobs.items()}
        assert states["slow-retry"] is states["slow-hold"] is states["held"] is State.HELD
        assert states["slow-dead"] is State.DEAD
        assert states["ready"] is states["repeated"] is State.READY
        decide(drill, shop, past)
    operate(drill.restored, "db", "check")
    again = Counter(effects) - past.effects
    # The first three never ran; one finished after the backup; a person has resumed the last one.
    expected = ["ready", "waiting", "new", "repeated", "hold"]
    assert Counter({name: count for name, count in again.items() if name not in units(20)}) == Counter(expected)
    assert units(5).isdisjoint(again), "units that were done stay done"
    assert [plan.job_id for plan in shop.app.store.plans.history("nightly")] == [past.jobs["plan"]]
    shop.app.close()


def decide(drill: SqliteDrill | PostgresDrill, shop: Shop, past: Past) -> None:
    """One job has had its effect, another may have it twice; the store continues."""
    held = past.jobs["slow-hold"]
    operate(drill.restored, "cancel", str(past.jobs["slow-retry"]))
    operate(drill.restored, "resume", "--all")
    wait_until(lambda: shop.states()[past.jobs["waiting"]] is State.DONE)
    wait_until(lambda: shop.app.store.batches.counters(past.batch).done == 20)
    wait_until(lambda: shop.states()[past.jobs["repeated"]] is State.DONE)
    assert shop.states()[held] is State.HELD
    operate(drill.restored, "resume", str(held))
    wait_until(lambda: shop.states()[held] is State.DONE)
    new = shop.note.enqueue("new")
    assert new.id > past.lost, "the old store never gave it out"
    new.result(timeout=PATIENCE)


def units(count: int) -> set[str]:
    """The effects of the first units."""
    return {f"unit {n}" for n in range(count)}


@pytest.mark.slow
def test_a_server_is_restored_to_a_point_in_time():
    """What was committed before the point is there, what came later is not, and the store works."""
    settings = {**QUICK, "shared_buffers": "64MB", "wal_level": "replica", "archive_mode": "on"}
    primary = PostgresServer(bundled_programs(), settings=settings)
    archive = primary.home / "archive"
    archive.mkdir()
    archive.chmod(0o777)
    primary.settings["archive_command"] = f"cp %p {archive}/%f"
    primary.start()
    restored = None
    try:
        with holdfast.Holdfast(primary.url()) as app:
            note = app.job(name="note")(lambda: None)
            first = note.enqueue().id
            restored = PostgresServer(bundled_programs(), settings=settings, copy_of=primary)
            second = note.enqueue().id
            execute(primary, "SELECT pg_create_restore_point('before_the_mistake')")
            app.control.cancel(Selector(ids=(first,)), actor="ada")
            note.enqueue()
        primary.stop()  # it archives the rest of its log first
        (restored.data / "standby.signal").rename(restored.data / "recovery.signal")
        (restored.data / "postgresql.auto.conf").write_text("")
        restored.settings |= {
            "restore_command": f"cp {archive}/%f %p",
            "recovery_target_name": "before_the_mistake",
            "recovery_target_action": "promote",
        }
        restored.start()
        wait_until(lambda: execute(restored, "SELECT pg_is_in_recovery()") == [(False,)])
        with holdfast.Holdfast(restored.url()) as app:
            app.job(name="note")(lambda: None)
            assert {job.id: job.state for job in app.views.all(Selector())} == dict.fromkeys(
                (first, second), State.READY
            )
            assert all(finding.ok for finding in app.store.database.check())
            drain(app)
            assert app.get(first).state is app.get(second).state is State.DONE
            assert app.enqueue("note", {}).id > second
    finally:
        primary.close()
        if restored is not None:
            restored.close()


def execute(server: PostgresServer, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        return connection.execute(query.encode()).fetchall()

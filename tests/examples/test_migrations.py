"""examples/migrations: each sketch is short, and does what the system that it replaces did."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast import Selector, State, testing
from holdfast.domain.batches.batch import BatchState
from tests.docs.test_transcripts import blocks
from tests.support.processes import PATIENCE, wait_until
from tests.support.program import ROOT, clean_environment

HERE = Path(ROOT) / "examples" / "migrations"
SKETCHES = sorted(path for path in HERE.iterdir() if path.suffix in (".py", ".sh"))


@pytest.mark.parametrize("path", SKETCHES, ids=lambda path: path.name)
def test_a_sketch_is_short(path):
    assert len(path.read_text().splitlines()) <= 60


@pytest.fixture
def load(real_database, monkeypatch):
    """Imports a sketch with a store of its own."""
    loaded = []

    def load(name):
        monkeypatch.setenv("HOLDFAST_URL", real_database.url)
        spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        loaded.append(module.app)
        return module

    yield load
    for app in loaded:
        app.close()


# -- a mail tool -------------------------------------------------------------------------------


@pytest.fixture
def bash(tmp_path):
    """Runs lines of bash in a folder with messages 1 to 20; 7 and 9 are missing. ``pm2`` says what the file has."""
    with closing(sqlite3.connect(tmp_path / "mail.db")) as mail, mail:
        mail.execute("CREATE TABLE message (id INTEGER PRIMARY KEY, body TEXT)")
        mail.execute("CREATE TABLE entry (id INTEGER PRIMARY KEY, length INTEGER)")
        mail.executemany("INSERT INTO message VALUES (?, 'one two')", [(n,) for n in range(1, 21) if n not in (7, 9)])
    (tmp_path / "exclusively").write_text(blocks("scripts.md", "sh")[1])
    (tmp_path / "status").write_text("stopped")
    pm2 = 'case $1 in jlist) echo "[{\\"name\\":\\"mail\\",\\"pm2_env\\":{\\"status\\":\\"$(cat status)\\"}}]";; '
    pm2 += "stop) echo stopped > status;; start) echo online > status;; esac; echo $1 >> calls\n"
    (tmp_path / "pm2").write_text(f"#!/bin/sh\n{pm2}")
    (tmp_path / "pm2").chmod(0o755)
    program = f"{sys.executable} {HERE}/mailagent.py"
    environ = clean_environment(tmp_path, M=program, PATH=f"{tmp_path}:{os.environ['PATH']}")

    def call(line):
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        return done.returncode, done.stdout

    return call


def test_the_mail_tool(bash, tmp_path):
    """Its recipe with the service, its exit codes, and its output before the command."""
    code, out = bash("$M -o json email resync --range 1-20 --jobs 2")
    assert (code, json.loads(out)["data"]["summary"]["failed"]) == (6, 2)
    assert bash("$M email resync --ids 7,9 --max-failures 0")[0] == 1
    with closing(sqlite3.connect(tmp_path / "mail.db")) as mail, mail:
        mail.execute("INSERT INTO message VALUES (7, 'seven'), (9, 'nine')")
    (tmp_path / "status").write_text("online")
    assert bash("$M email resync --range 1-20")[0] == 9
    code, out = bash("sh exclusively mail $M -o ndjson email resync --range 1-20 | tail -n +2")
    lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert [(line["key"], line["status"], line["data"]) for line in lines if "key" in line] == [
        (7, "done", {"words": 1}),
        (9, "done", {"words": 1}),
    ]
    assert (tmp_path / "calls").read_text().split()[-2:] == ["jlist", "start"]
    assert bash("$M email resync --range 1-20 --replace-existing --allow-concurrent")[0] == 0


# -- an importer -------------------------------------------------------------------------------


def test_the_importer(load):
    """A duplicate, a result that is saved, one that the browser refuses; the batch finishes with the last receipt."""
    importer = load("importer")
    with importer.app.worker(poll=0.1):
        batch = importer.start("ada", importer.SITES)
        wait_until(lambda: importer.app.store.batches.counters(batch).in_inbox == 2)
    counters = importer.app.store.batches.counters(batch)
    assert (counters.labels, counters.done) == ({"saved": 2, "duplicate": 1}, 1)
    assert importer.pick_up("bob") == []
    one, two = sorted(importer.pick_up("ada"), key=lambda page: page["address"])
    assert (one["text"], two["text"]) == ("one", "two")
    importer.acknowledge("ada", one["receipt"])
    importer.acknowledge("ada", two["receipt"], "no headline")
    assert importer.app.store.batches.get(batch).state is BatchState.PARTIAL
    assert importer.app.store.ledger.count_ends() == {"partial": 1}


# -- a crawler's queue -------------------------------------------------------------------------


def test_the_crawlers_queue(load):
    """Each page has one live job; a slow one runs again, a missing one is dead, an expired session loses no attempt."""
    crawl = load("crawl_queue")
    crawl.session["open"] = False
    first = crawl.fetch.enqueue("/")
    assert not crawl.fetch.enqueue("/").created
    with crawl.app.worker(poll=0.1):
        wait_until(lambda: crawl.app.queues.get("crawl").paused)
        wait_until(lambda: first.job().state is State.READY)
        assert first.job().attempts == 0
        crawl.sign_in()
        wait_until(
            lambda: not crawl.app.views.count(Selector(states=(State.READY, State.RUNNING, State.SCHEDULED))).count
        )
    assert set(crawl.tries) == {"/", "/a", "/b", "/slow"}
    # Two pages lead there: the second one has a job of its own if the first is dead by then.
    dead = crawl.app.views.all(Selector(states=(State.DEAD,)))
    assert {json.loads(each.payload)["url"] for each in dead} == {"/gone"}
    assert (first.result(), crawl.tries["/slow"]) == (3, 2)


# -- a cron manager ----------------------------------------------------------------------------


def test_the_cron_manager(load):
    """Plans of the tenants of each time, caught up; one tenant that fails holds up no other, and is found by its tag."""
    cron = load("cron_replicas")
    with testing.isolated(cron.app, at=datetime(2030, 12, 31, 23, 45, 40, tzinfo=UTC)) as clock:
        testing.plan(cron.app)
        clock.advance("10m")
        clock.advance(timedelta(minutes=15))
        cron.failing.add("bob")
        testing.plan(cron.app)
        testing.drain(cron.app)
        minutes = sorted((time.minute, tenant) for tenant, time in cron.totals)
        assert minutes == [
            (0, "ada"),
            (0, "eve"),
            (5, "ada"),
            (5, "eve"),
            (10, "ada"),
            (10, "eve"),
            (50, "ada"),
            (55, "ada"),
        ]
        assert set(cron.totals.values()) == {1}
        bob = Selector(labels=("rollup",), tags=("scope=bob",))
        assert {str(job.state) for job in cron.app.views.all(bob)} == {"scheduled", "waiting"}
        cron.failing.clear()
        clock.advance("1m")
        testing.drain(cron.app)
        assert [(plan.scope, plan.state) for plan in cron.app.schedules.history("rollup", scope="bob")] == [
            ("bob", State.DONE)
        ] * 5


# -- command jobs ------------------------------------------------------------------------------


def test_the_yearly_commands(tmp_path):
    """Three years, a merge, and a deploy: every command ran once, the last one with the new code."""
    environ = clean_environment(tmp_path, PYTHON=sys.executable)
    with (tmp_path / "output").open("w") as output:
        script = subprocess.Popen(
            ["sh", "-x", HERE / "yearly.sh"],
            cwd=tmp_path,
            env=environ,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            code = script.wait(PATIENCE)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(script.pid, signal.SIGKILL)  # its workers, if it did not come to its end
            script.wait()
    assert code == 0, (tmp_path / "output").read_text()
    assert (tmp_path / "merged").read_text() == "built" * 3
    assert "1.1" in (tmp_path / "shown").read_text()

"""examples/mailbox_backfill under bash: every exit code, interrupted, killed, resumed; every message done once."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys

import pytest

from tests.docs.test_transcripts import blocks
from tests.support.processes import PATIENCE, wait_until
from tests.support.program import ROOT, clean_environment

PROGRAM = f"{sys.executable} {ROOT}/examples/mailbox_backfill/mailbox.py"
HOLDFAST = f"{sys.executable} -m holdfast"
MESSAGES = 200


@pytest.fixture
def bash(tmp_path):
    """Runs lines of bash in an empty directory; ``$M`` is the program, ``again`` the script of the guide."""
    (tmp_path / "again").write_text(blocks("scripts.md", "sh")[0])
    (tmp_path / "sleep").write_text("#!/bin/sh\n")
    (tmp_path / "sleep").chmod(0o755)
    environ = clean_environment(tmp_path, M=PROGRAM, PATH=f"{tmp_path}:{os.environ['PATH']}")
    started = []

    def start(line):
        process = subprocess.Popen(
            ["bash", "-c", line], cwd=tmp_path, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        started.append(process)
        return process

    def call(line):
        process = start(line)
        out, err = process.communicate(timeout=PATIENCE)
        call.err = err
        return process.returncode, out

    call.start = start
    yield call
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def effects(folder):
    connection = sqlite3.connect(folder / "index.db")
    try:
        return [mid for (mid,) in connection.execute("SELECT mid FROM effect")]
    finally:
        connection.close()


RESYNC = f"$M resync --range 1-{MESSAGES} --jobs 4 -o json"


def test_interrupted_killed_and_finished(bash, tmp_path):
    """Ctrl-C to the whole process group, kill -9, and the same line again."""
    bash(f"$M make --messages {MESSAGES}")
    slow = f"exec {RESYNC} --nap 0.02"
    first = bash.start(slow)
    wait_until(lambda: len(effects(tmp_path)) > 20)
    os.killpg(first.pid, signal.SIGINT)
    out, _ = first.communicate(timeout=PATIENCE)
    assert (first.returncode, json.loads(out)["error"]["code"]) == (7, "E_ABORTED")
    assert "mailbox.py resync --range" in json.loads(out)["error"]["next"]
    before = len(effects(tmp_path))
    second = bash.start(slow)
    wait_until(lambda: len(effects(tmp_path)) > before + 20)
    os.killpg(second.pid, signal.SIGKILL)
    second.wait(PATIENCE)
    code, out = bash(f"{RESYNC} --nap 0.02")
    assert (code, json.loads(out)["data"]["summary"]["succeeded"]) == (0, MESSAGES)
    assert set(effects(tmp_path)) == set(range(1, MESSAGES + 1))
    assert len(effects(tmp_path)) - MESSAGES <= 50 + 4, "no more than the unwritten ones are repeated"
    assert json.loads(out)["data"]["summary"]["warned"] == MESSAGES // 50


def test_broken_messages_and_the_loop_until_done(bash):
    """Exit 6 while some fail, 0 when they are mended; the script of the guide stops at both."""
    bash(f"$M make --messages {MESSAGES} --broken 7,123")
    code, out = bash(f"sh again {RESYNC}")
    assert (code, json.loads(out)["data"]["summary"]["failed"]) == (6, 2)
    bash(f"$M make --messages {MESSAGES}")
    code, out = bash(RESYNC)
    summary = json.loads(out)["data"]["summary"]
    assert (code, summary["failed"], summary["succeeded"]) == (0, 0, MESSAGES)
    assert bash("$M count")[1] == f"{MESSAGES} messages are indexed, 0 of them more than once\n"


def test_a_server_that_is_down_trips_the_breaker(bash, tmp_path):
    """Exit 8, tried again by the script of the guide, five times at most; mended, it goes on."""
    bash(f"$M make --messages {MESSAGES} --broken {','.join(map(str, range(50, 100)))}")
    code, out = bash(f"sh again {RESYNC} --jobs 1")
    documents = [json.loads(line) for line in out.splitlines()]
    assert (code, len(documents), {each["error"]["code"] for each in documents}) == (8, 5, {"E_MAX_FAILURES"})
    bash(f"$M make --messages {MESSAGES}")
    assert bash(f"sh again {RESYNC}")[0] == 0


def test_the_other_exit_codes(bash, tmp_path):
    """1, 9, 10, 12 and 11, each from a real run."""
    bash(f"$M make --messages {MESSAGES} --broken 1,2,3")
    assert bash("$M resync --ids 1,2,3 --max-failures 0 -o json")[0] == 1
    assert bash(f"{RESYNC} --nap 0.05 --deadline 0.3s")[0] == 10
    running = bash.start(f"exec {RESYNC} --nap 1")  # so long that it is under way when others come
    before = len(effects(tmp_path))
    wait_until(lambda: len(effects(tmp_path)) > before)
    code, out = bash(f"{RESYNC} --nap 0.05")
    assert (code, f"pid {running.pid}" in json.loads(out)["error"]["message"]) == (9, True)
    assert bash(f"{HOLDFAST} batch pause 2")[0] == 0
    assert running.wait(PATIENCE) == 11
    assert bash(f"{RESYNC} --nap 0.05")[0] == 11
    bash(f"{HOLDFAST} batch resume 2")
    running = bash.start(f"exec {RESYNC} --nap 1")  # so long that it is under way when it is cancelled
    wait_until(lambda: json.loads(bash(f"{HOLDFAST} batch show 2 -o json")[1])["data"]["holders"])
    assert bash(f"{HOLDFAST} batch cancel 2 --yes")[0] == 0
    assert running.wait(PATIENCE) == 12


def test_nothing_to_do_drift_and_leaving_at_once(bash, tmp_path):
    """13, 14 and 130; the script that stops a service around a command starts it again, and keeps the code."""
    bash(f"$M make --messages {MESSAGES}; echo one > rules")
    assert bash("$M resync --range 1-20 --once")[0] == 0
    code, out = bash("$M resync --range 1-20 --once -o json")
    assert (code, json.loads(out)["data"]["dry_run"]) == (13, True)
    assert bash(f"{RESYNC} --inputs rules --limit 5")[0] == 0
    code, out = bash(f"echo two > rules; {RESYNC} --inputs rules")
    assert (code, json.loads(out)["error"]["code"]) == (14, "E_DRIFT")
    assert bash(f"{RESYNC} --inputs rules --accept-drift --limit 5")[0] == 0
    (tmp_path / "without").write_text(blocks("scripts.md", "sh")[2])
    (tmp_path / "systemctl").write_text('#!/bin/sh\necho "$@" >> calls\n')
    (tmp_path / "systemctl").chmod(0o755)
    before = len(effects(tmp_path))
    running = bash.start("exec sh without mail $M resync --range 1-100 --nap 60 --jobs 2")
    wait_until(lambda: "batch" in running.stderr.readline())
    wait_until(lambda: json.loads(bash(f"{HOLDFAST} batch ls -o json")[1])["data"]["batches"][0]["holders"])
    os.killpg(running.pid, signal.SIGINT)
    wait_until(lambda: "stopping" in running.stderr.readline())
    assert len(effects(tmp_path)) == before
    os.killpg(running.pid, signal.SIGINT)
    assert running.wait(PATIENCE) == 130
    assert (tmp_path / "calls").read_text() == "--user stop mail\n--user start mail\n"


def test_other_flags_other_ledger(bash):
    """SPEC 8.19."""
    bash(f"$M make --messages {MESSAGES}")
    assert json.loads(bash("$M resync --range 1-20 -o json")[1])["data"]["summary"]["labels"] == {"new": 20}
    replaced = json.loads(bash("$M resync --range 1-20 --replace -o json")[1])["data"]
    assert (replaced["batch"], replaced["summary"]["labels"]) == (2, {"replaced": 20})

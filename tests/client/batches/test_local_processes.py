"""Batches in processes of their own: interrupted, failed, killed and resumed."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from holdfast.domain.batches.batch import BatchState
from holdfast.domain.batches.checkpoint import MAX_UNWRITTEN
from tests.support.processes import PATIENCE, connect, wait_until
from tests.support.program import programs

COUNT = 300
SEEDS = [int(os.environ.get("HOLDFAST_SEED", "1"))]
#: The states of a batch after a run with this exit code; a kill may come just after the end.
STATES = {
    0: {BatchState.DONE},
    6: {BatchState.PARTIAL},
    7: {BatchState.STOPPED},
    -signal.SIGKILL: {BatchState.RUNNING, *(state for state in BatchState if state.finished)},
}


class Effects:
    """The effects of units, and their counts."""

    def __init__(self, path):
        self.path = path
        self._run("CREATE TABLE effect (key INTEGER)")

    def _run(self, query):
        connection = sqlite3.connect(self.path, timeout=60)
        try:
            with connection:
                return connection.execute(query).fetchall()
        finally:
            connection.close()

    def counts(self):
        return Counter(key for (key,) in self._run("SELECT key FROM effect"))

    def __len__(self):
        return self._run("SELECT count(*) FROM effect")[0][0]


@pytest.fixture
def effects(tmp_path):
    return Effects(tmp_path / "effects.db")


@pytest.fixture
def start(real_database, effects):
    with programs("-m", "tests.support.programs.batch_program", real_database.url, str(effects.path)) as start:
        yield start


@pytest.fixture
def run(start):
    """Run the batch to its end. Returns its exit code and its JSON answer."""

    def call(*words):
        process = start(*words)
        out, err = process.communicate(timeout=PATIENCE)
        return process.returncode, json.loads(out) if out.strip() else {"stderr": err}

    return call


def check(real_database):
    """Counters equal rows, and no unit is in flight."""
    store = real_database.open()
    (batch, *_) = store.batches.page().batches
    counted, rows = store.batches.counters(batch.id), store.batches.recount(batch.id)
    for state in ("done", "failed", "skipped", "cancelled", "in_doubt"):
        assert getattr(counted, state) == rows.get(state, 0), (state, counted, rows)
    return batch, counted


def test_a_clean_run_is_exit_0(run, effects, real_database):
    code, document = run("--count", COUNT, "--jobs", 8)
    assert (code, document["status"]) == (0, "success")
    assert effects.counts() == dict.fromkeys(range(COUNT), 1)
    batch, counted = check(real_database)
    assert (batch.state, batch.total, counted.done) == (BatchState.DONE, COUNT, COUNT)
    code, document = run("--count", COUNT)
    assert (code, document["data"]["generation"]) == (0, 2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_first_signal_is_exit_7_and_resumable(start, run, effects, real_database, number):
    """SPEC 8.5: SIGTERM is the same. Units in flight finish; none is repeated."""
    process = start("--count", COUNT, "--nap", "0.01")
    wait_until(lambda: len(effects) > 20)
    process.send_signal(number)
    out, _ = process.communicate(timeout=PATIENCE)
    document = json.loads(out)
    assert (process.returncode, document["error"]["code"]) == (7, "E_ABORTED")
    assert "tests.support.programs.batch_program" in document["error"]["next"]
    assert document["data"]["summary"]["succeeded"] == len(effects)
    assert check(real_database)[0].state is BatchState.STOPPED
    assert run("--count", COUNT)[0] == 0
    assert effects.counts() == dict.fromkeys(range(COUNT), 1)


def test_a_second_signal_is_exit_130(start, effects):
    process = start("--count", 10, "--jobs", 1, "--nap", "30")
    wait_until(Path(f"{effects.path}-begun").exists)
    process.send_signal(signal.SIGINT)
    wait_until(lambda: "stopping" in process.stderr.readline())
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 130


def test_killed_three_times_and_resumed(start, run, effects, real_database):
    """SPEC 8.3, 8.34: no unit is lost, and only unwritten ones are repeated."""
    for _ in range(3):
        before = len(effects)
        process = start("--count", COUNT, "--jobs", 4, "--nap", "0.003")
        wait_until(lambda before=before: len(effects) > before + 30)
        process.kill()
        process.wait()
    code, _ = run("--count", COUNT)
    counts = effects.counts()
    assert code == 0
    assert set(counts) == set(range(COUNT))
    assert sum(counts.values()) - COUNT <= 3 * (MAX_UNWRITTEN + 4)
    check(real_database)


def test_exactly_once_where_the_effect_is_in_the_same_database(start, run, real_database):
    """With unit.transaction() a kill repeats no effect."""
    connection = connect(real_database.url, autocommit=True)
    connection.execute("DROP TABLE IF EXISTS effect")
    connection.execute("CREATE TABLE effect (key INTEGER)")

    def made():
        return [key for (key,) in connection.execute("SELECT key FROM effect").fetchall()]

    for _ in range(2):
        before = len(made())
        process = start("--count", COUNT, "--jobs", 2, "--tx")
        wait_until(lambda before=before: len(made()) > before + 20)
        process.kill()
        process.wait()
    assert run("--count", COUNT, "--tx")[0] == 0
    assert sorted(made()) == list(range(COUNT))
    check(real_database)
    connection.execute("DROP TABLE effect")
    connection.close()


def test_a_unit_that_kills_its_process_is_set_aside(run, effects, real_database):
    """Other units lose no attempt, and the run after its last crash goes on without it."""
    codes = []
    while not codes or codes[-1] == -9:
        codes.append(run("--count", 20, "--jobs", 4, "--kill", 7)[0])
        assert len(codes) < 10
    assert codes == [-9, -9, -9, -9, 6]
    assert set(effects.counts()) == set(range(20)) - {7}
    store = real_database.open()
    (batch, *_) = store.batches.page().batches
    (killer,) = store.batches.units(batch.id, state="failed")
    assert (killer.key, killer.label) == ("7", "crashed")


def test_failures_have_their_exit_codes(run, real_database):
    """Some failed: 6; the same command runs them again; all failed: 1."""
    code, document = run("--count", 20, "--fail", "3,5")
    assert (code, document["status"], document["error"]["code"]) == (6, "partial_failure", "E_PARTIAL_FAILURE")
    assert (document["data"]["summary"]["succeeded"], document["data"]["summary"]["failed"]) == (18, 2)
    code, document = run("--count", 20)
    assert (code, document["data"]["summary"]["failed"], document["data"]["generation"]) == (0, 0, 1)
    code, document = run("--count", 2, "--fail", "0,1", "--fresh")
    assert (code, document["error"]["code"]) == (1, "E_ALL_FAILED")
    check(real_database)


def test_the_breaker_trips_and_releases_the_streak(run, real_database):
    """SPEC 8.4: exit 8; the streak is pending and keeps its attempts; it runs once the cause is fixed."""
    fail = ",".join(map(str, range(50, 100)))
    code, document = run("--count", 200, "--jobs", 1, "--fail", fail, "--max-failures", 5)
    summary = document["data"]["summary"]
    assert (code, summary["aborted_by"], summary["max_failures_hit"]) == (8, "max_failures", True)
    assert (summary["succeeded"], summary["failed"], summary["returned"]) == (50, 0, 5)
    store = real_database.open()
    (batch, *_) = store.batches.page().batches
    pending = store.batches.units(batch.id, state="pending")
    assert sorted(int(unit.key) for unit in pending) == [50, 51, 52, 53, 54]
    assert {unit.attempts for unit in pending} == {0}
    check(real_database)
    assert run("--count", 200)[0] == 0


def test_a_second_run_of_one_identity_is_exit_9(start, run, effects, tmp_path):
    """SPEC 8.18: the error names the owner's pid and command; --wait waits for it."""
    gate = tmp_path / "gate"
    first = start("--count", COUNT, "--gate", gate)
    wait_until(lambda: len(effects) > 2)
    code, answer = run("--count", COUNT)
    assert code == 9
    assert answer["error"]["code"] == "E_BATCH_HELD"
    assert f"pid {first.pid}" in answer["error"]["message"]
    assert "batch_program" in answer["error"]["message"]
    waiting = start("--count", COUNT, "--wait")
    gate.touch()
    assert first.wait(PATIENCE) == 0
    assert waiting.wait(PATIENCE) == 0


def test_a_run_that_joins_shares_the_ledger(start, run, effects, real_database, tmp_path):
    gate = tmp_path / "gate"
    first = start("--count", COUNT, "--gate", gate, "--jobs", 2)
    wait_until(lambda: len(effects) > 2)
    second = start("--count", COUNT, "--jobs", 2, "--allow-concurrent")
    batches = real_database.open().batches
    wait_until(lambda: len(batches.holders(batches.page().batches[0].id)) == 2)
    gate.touch()
    assert {first.wait(PATIENCE), second.wait(PATIENCE)} == {0}
    assert effects.counts() == dict.fromkeys(range(COUNT), 1)
    assert check(real_database)[0].state is BatchState.DONE


def test_time_and_number_can_be_limited(run, effects):
    code, document = run("--count", COUNT, "--nap", "0.01", "--deadline", "0.3")
    assert (code, document["error"]["code"]) == (10, "E_DEADLINE")
    before = len(effects)
    code, _ = run("--count", COUNT, "--limit", 7)
    assert (code, len(effects) - before) == (0, 7)


def test_drift_is_exit_14(run):
    assert run("--count", COUNT, "--limit", 5)[0] == 0
    assert run("--count", COUNT, "--version", "2")[0] == 14


@pytest.mark.parametrize(("action", "code"), [("pause", 11), ("cancel", 12)])
def test_a_local_run_obeys_requests(start, effects, real_database, action, code):
    """Within about a second; every unit of a cancelled batch is finished."""
    process = start("--count", COUNT, "--nap", "0.02", "--jobs", 2)
    wait_until(lambda: len(effects) > 5)
    store = real_database.open()
    (batch, *_) = store.batches.page().batches
    getattr(store.batches, action)(batch.id)
    assert process.wait(PATIENCE) == code
    batch, counted = check(real_database)
    if action == "cancel":
        assert (batch.state, counted.done + counted.cancelled) == (BatchState.CANCELLED, COUNT)
    else:
        assert batch.state is BatchState.PAUSED


def test_keys_may_come_and_go(run, effects, real_database):
    """A changed key set is not drift: new keys are added, pending keys that vanished are skipped."""
    assert run("--count", 100, "--limit", 30)[0] == 0
    code, document = run("--first", 10, "--count", 100)
    assert (code, document["data"]["summary"]["succeeded"]) == (0, 110)
    assert effects.counts() == dict.fromkeys(range(110), 1)
    check(real_database)


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_no_unit_is_lost(start, run, effects, real_database, seed):
    """Random signals, kills, failures, key sets that grow and shrink, one to sixteen jobs."""
    luck = random.Random(seed)
    kills, last, most = 0, COUNT, COUNT
    for _ in range(6):
        before = len(effects)
        last += luck.choice([0, 20, -20])
        most = max(most, last)
        fail = ",".join(str(luck.randrange(last)) for _ in range(luck.choice([0, 3])))
        jobs = luck.choice([1, 2, 4, 16])
        process = start("--count", last, "--jobs", jobs, "--nap", "0.004", "--fail", fail)
        wait_until(lambda before=before, p=process: len(effects) > before + 20 or p.poll() is not None)
        number = luck.choice([signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
        kills += MAX_UNWRITTEN + jobs if number is signal.SIGKILL else 0
        process.send_signal(number)
        code = process.wait(PATIENCE)
        assert check(real_database)[0].state in STATES[code], "the exit code matches the store"
    code, _ = run("--count", last)
    while code == 6:
        code, _ = run("--count", last)
    counts = effects.counts()
    assert code == 0
    assert set(range(last)) <= set(counts) <= set(range(most))
    assert sum(counts.values()) - len(counts) <= kills
    batch, counted = check(real_database)
    assert (batch.state, counted.done, counted.failed) == (BatchState.DONE, len(counts), 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_to_workers_no_unit_is_lost(start, run, effects, real_database, seed):
    """The same with two workers that are stopped and killed: units in their hands run again."""
    luck = random.Random(seed)
    store, kills = real_database.open(), 0
    runner = start("--count", COUNT, "--where", "workers", "--nap", "0.004", "--fail", "7,11")
    workers = [start("--work", "--nap", "0.004", "--fail", "7,11") for _ in range(2)]
    for _ in range(6):
        before = len(effects)
        wait_until(lambda before=before: len(effects) > before + 20 or runner.poll() is not None)
        victim = luck.randrange(2)
        number = luck.choice([signal.SIGTERM, signal.SIGKILL, signal.SIGKILL])
        kills += MAX_UNWRITTEN + 3 if number is signal.SIGKILL else 0
        workers[victim].send_signal(number)
        workers[victim].wait(PATIENCE)
        workers[victim] = start("--work", "--nap", "0.004", "--fail", "7,11")
        for holder in store.batches.page().batches[:1]:
            counted, rows = store.batches.counters(holder.id), store.batches.recount(holder.id)
            assert counted.done <= rows["done"] <= COUNT
    assert runner.wait(PATIENCE) == 6
    counts = effects.counts()
    assert set(counts) == set(range(COUNT)) - {7, 11}
    assert sum(counts.values()) - len(counts) <= kills
    batch, counted = check(real_database)
    assert (batch.state, counted.done, counted.failed) == (BatchState.PARTIAL, COUNT - 2, 2)
    code, document = run("--count", COUNT)
    assert (code, document["data"]["summary"]["succeeded"]) == (0, COUNT)


def test_exactly_once_on_two_workers(start, run, real_database):
    """In the same database, whenever workers are killed."""
    connection = connect(real_database.url, autocommit=True)
    connection.execute("DROP TABLE IF EXISTS effect")
    connection.execute("CREATE TABLE effect (key INTEGER)")

    def made():
        return [key for (key,) in connection.execute("SELECT key FROM effect").fetchall()]

    runner = start("--count", COUNT, "--where", "workers", "--tx")
    workers = [start("--work", "--tx") for _ in range(2)]
    for turn in range(3):
        before = len(made())
        wait_until(lambda before=before: len(made()) > before + 20 or runner.poll() is not None)
        workers[turn % 2].kill()
        workers[turn % 2].wait()
        workers[turn % 2] = start("--work", "--tx")
    assert runner.wait(PATIENCE) == 0
    assert sorted(made()) == list(range(COUNT))
    check(real_database)
    connection.execute("DROP TABLE effect")
    connection.close()


def test_ctrl_c_of_a_watcher_stops_the_batch(start, run, effects, real_database):
    """Like a local run: exit 7, and the same command resumes it."""
    worker = start("--work", "--nap", "0.01")
    watching = start("--count", COUNT, "--where", "workers", "--nap", "0.01")
    wait_until(lambda: len(effects) > 5)
    watching.send_signal(signal.SIGINT)
    out, _ = watching.communicate(timeout=PATIENCE)
    assert (watching.returncode, json.loads(out)["error"]["code"]) == (7, "E_ABORTED")
    assert check(real_database)[0].state is BatchState.STOPPED
    assert run("--count", COUNT, "--where", "workers", "--nap", "0")[0] == 0
    assert effects.counts() == dict.fromkeys(range(COUNT), 1)
    worker.terminate()
    assert worker.wait(PATIENCE) == 0


def test_the_ledger_is_written_on_time(start, effects, real_database):
    """SPEC 8.27: not only on a clean stop; a row is written within a second after its unit is finished."""
    process = start("--count", 100, "--jobs", 1, "--nap", "0.3")
    wait_until(lambda: len(effects) >= 1)
    store = real_database.open()
    wait_until(lambda: any(store.batches.counters(batch.id).done for batch in store.batches.page().batches))
    assert process.poll() is None
    assert len(effects) < MAX_UNWRITTEN

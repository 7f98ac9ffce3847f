"""Timeouts, hooks, rates, inboxes and conflicts of units in this process."""

from __future__ import annotations

import json
import os
import re
import stat
import threading

import msgspec
import pytest
from msgspec import structs

import holdfast
from holdfast import Unit
from holdfast.client.batches.batch_claim import run_request
from holdfast.client.batches.options import RunOptions
from holdfast.domain.batches.batch import BatchState
from holdfast.domain.batches.unit import unit_key
from holdfast.errors import ConfigurationError, InvalidInput, InvalidKind, ServiceRunning
from holdfast.store.batches.unit_choice import NextUnits
from holdfast.worker import clock
from holdfast.worker.batches.conflicts import Owner, is_owner_dead, this_process
from tests.client.batches.test_local import run
from tests.support.processes import wait_until


@pytest.fixture
def app(real_database):
    with holdfast.Holdfast(real_database.url) as app:
        yield app


def unit_of(app, result, key="1"):
    return {unit.key: unit for unit in app.store.batches.units(result.batch.id)}[key]


@pytest.mark.parametrize("warns", [False, True])
def test_a_unit_that_returns_after_its_timeout_is_overdue(app, warns):
    """Y13: it was done without a word. It is done, with a warning."""

    @app.unit(timeout=0.2)
    def work(key: int, unit: Unit) -> None:
        if key == 1:
            if warns:
                unit.warn("slow server")
            unit.stopping.wait(60)

    result = run(app, work, [1, 2])
    units = {unit.key: unit for unit in app.store.batches.units(result.batch.id)}
    assert (result.exit_code, units["2"].warning) == (0, None)
    warning = units["1"].warning or ""
    assert warning.startswith("overdue: it took longer than its timeout of 0.2 s, and ended after "), "Y13 is broken"
    assert warning.endswith("; slow server") is warns


def test_a_unit_that_times_out_is_stopped(app):
    """It fails, is retried with its full timeout, and other units are not affected."""
    tries, others = [], []

    @app.unit(timeout=0.2, retries=1, retry=["0s"])
    def work(key: int, unit: Unit) -> None:
        if key == 1:
            tries.append(unit.attempt)
            unit.sleep(30)
        others.append(unit.stopping.is_set())

    result = run(app, work, [1, 2, 3], jobs=3)
    assert (result.exit_code, tries, others) == (6, [1, 2], [False, False])
    assert unit_of(app, result).error.startswith("TimeoutError: it took longer than its timeout of 0.2 s")


def test_an_interrupted_unit_keeps_its_attempts(app):
    """A stop is neither a timeout nor a failure: the unit is pending again, and keeps its attempts."""
    begun, seen = threading.Event(), []

    @app.unit(timeout=60)
    def work(key: int, unit: Unit) -> None:
        seen.append((key, unit.attempt))
        if not begun.is_set():
            begun.set()
            unit.sleep(30)

    def pause():
        begun.wait(120)
        (batch,) = app.store.batches.page().batches
        app.store.batches.pause(batch.id)

    thread = threading.Thread(target=pause)
    thread.start()
    result = run(app, work, [1, 2])
    thread.join()
    assert (result.exit_code, result.batch.state, seen) == (11, BatchState.PAUSED, [(1, 1)])
    app.store.batches.resume(result.batch.id)
    assert run(app, work, [1, 2]).exit_code == 0
    assert seen == [(1, 1), (2, 1), (1, 1)], "a unit that no run has begun comes first"


def test_a_timeout_without_a_unit_parameter_is_refused(app):
    with pytest.raises(InvalidKind, match="cannot be stopped by a timeout"):

        @app.unit(timeout=1)
        def work(key: int) -> None: ...


def test_units_begin_no_faster_than_the_rate(app):
    began = clock.now()

    @app.unit()
    def work(key: int) -> None: ...

    assert run(app, work, range(21), rate=50, jobs=4).exit_code == 0
    assert clock.now() - began >= 0.4


def test_a_stop_does_not_wait_for_the_rate(app):
    """A deadline ends a run whose units wait for the rate."""

    @app.unit(rate=0.01)
    def work(key: int) -> None: ...

    assert run(app, work, range(5), deadline=0.3).exit_code == 10


def test_hooks_see_a_run(app):
    """A hook that fails is logged, and no unit fails."""
    seen = []

    @app.unit(max_failures=0)
    def work(key: int) -> int:
        if key == 2:
            raise ValueError
        return key

    work.on_begin(lambda batch: seen.append(batch.kind))
    work.on_unit(lambda unit: seen.append((unit.key, unit.status, unit.data)))
    work.on_unit(lambda unit: unit.no_such_thing)
    work.on_end(lambda summary: seen.append(summary.succeeded))
    assert run(app, work, [1, 2]).exit_code == 6
    assert seen == ["work", (1, "done", 1), (2, "failed", None), 1]


def test_a_run_whose_first_hook_fails_does_not_begin(app):
    made = []

    @app.unit()
    def work(key: int) -> None:
        made.append(key)

    @work.on_begin
    def no(_) -> None:
        raise ValueError

    result = run(app, work, [1, 2])
    assert (result.exit_code, made, result.batch.state) == (8, [], BatchState.STOPPED)


def test_results_go_through_an_inbox(app):
    """Taken, accepted, refused; the batch is finished when no result waits."""

    @app.unit()
    def fetch(key: int, unit: Unit) -> None:
        unit.hand_over({"page": key})

    result = run(app, fetch, range(4))
    assert (result.exit_code, result.summary.in_inbox, result.summary.pending) == (0, 4, 0)
    box = app.inbox("fetch")
    first, second, third = box.take(3)
    assert (first.key, first.value, first.batch, len(box)) == (0, {"page": 0}, result.batch.id, 4)
    first.accept()
    second.refuse("empty")
    with third.transaction() as connection:
        connection.execute("SELECT 1")
    (last,) = box.take(wait="5s")
    last.accept()
    assert (box.take(), len(box)) == ([], 0)
    batch = app.store.batches.get(result.batch.id)
    counted = app.store.batches.counters(result.batch.id)
    assert (batch.state, counted.done, counted.failed) == (BatchState.PARTIAL, 3, 1)
    assert run(app, fetch, range(4)).summary.in_inbox == 1


def test_a_result_too_large_for_an_inbox_fails_its_unit(app):
    @app.unit()
    def fetch(key: int, unit: Unit) -> None:
        unit.hand_over("x" * 2_000_000, inbox="large")

    result = run(app, fetch, [1])
    assert (result.exit_code, "too large" in unit_of(app, result).error, len(app.inbox("large"))) == (1, True, 0)


# -- lost runs ------------------------------------------------------------------------------


def json_of(value):
    return msgspec.json.encode(value).decode()


def lose(app, function, *keys):
    """A run that had these units in hand when its process died."""
    gone = Owner("here", 2**22 - 1, 0, this_process().boot, this_process().namespace, "gone")
    opening = structs.replace(run_request(function.bind(), [*keys], RunOptions()), owner=json_of(gone))
    opened = app.store.batches.open(opening, worker="w")
    candidates = [(unit_key(key), place) for place, key in enumerate(keys)]
    app.store.batches.flush(opened, next_units=NextUnits(candidates=candidates, limit=100))


def test_a_step_of_the_clock_makes_no_run_dead(monkeypatch):
    """A start by the wall clock moves with it: a second run took the units of a live one over."""
    import psutil

    before, boot = this_process().encode(), psutil.boot_time()
    monkeypatch.setattr(psutil._pslinux, "boot_time", lambda: boot + 3600)
    assert not is_owner_dead(before)
    assert is_owner_dead(json_of(structs.replace(this_process(), started=1))), "another process has its number"


def test_units_of_a_lost_run_are_verified(app):
    """Confirmed units do not run again, others do; a verifier that raises fails its unit."""
    made = []

    @app.unit(on_lost="verify", max_failures=0)
    def work(key: int) -> None:
        made.append(key)

    @work.verify
    def was_made(key: int) -> bool:
        if key == 3:
            raise OSError("the other side does not answer")
        return key == 1

    lose(app, work, 1, 2, 3)
    result = run(app, work, [1, 2, 3, 4])
    assert (made, result.exit_code, result.summary.labels) == ([4, 2], 6, {"verified": 1})
    assert "does not answer" in unit_of(app, result, "3").error


def test_a_unit_is_verified_until_its_verifier_answers(app):
    """A verifier that raised left its unit failed, and the next run began it without asking."""
    made, answers = [], [OSError("the other side does not answer"), True]

    @app.unit(on_lost="verify", max_failures=0)
    def work(key: int) -> None:
        made.append(key)

    @work.verify
    def was_made(key: int) -> bool:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    lose(app, work, 1)
    assert run(app, work, [1]).exit_code == 1
    assert run(app, work, [1]).exit_code == 0
    assert (made, answers) == ([], []), "B14 is broken: a unit that was lost in flight ran without its verifier"


def test_verify_requires_a_verifier(app):
    @app.unit(on_lost="verify")
    def work(key: int) -> None: ...

    with pytest.raises(InvalidKind, match="no verifier"):
        run(app, work, [1])
    assert app.store.batches.page().batches == []


# -- conflicts -----------------------------------------------------------------------------


@pytest.fixture
def manager(tmp_path, monkeypatch):
    """Put an executable on the PATH that answers like a service manager."""

    def make(name, answer, code=0):
        executable = tmp_path / name
        executable.write_text(f"#!/bin/sh\ncat <<'END'\n{answer}\nEND\nexit {code}\n")
        executable.chmod(executable.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    return make


@pytest.fixture
def work(app):
    @app.unit()
    def work(key: int) -> None: ...

    return work


def test_a_live_process_is_a_conflict(app, work, tmp_path):
    """Exit 9 with its pid, command and age; a dead process is not one; a run can be allowed beside it."""
    file = tmp_path / "service.pid"
    probe = f"pid:{file}"
    assert run(app, work, [1], conflicts=[probe]).exit_code == 0
    file.write_text(f"{os.getpid()}\n")
    result = run(app, work, [1], conflicts=[probe])
    assert (result.exit_code, type(result.error)) == (9, ServiceRunning)
    assert f"pid {os.getpid()}" in result.error.message
    assert run(app, work, [1], conflicts=[probe], allow_concurrent=True).exit_code == 0
    file.write_text("99999999")
    assert run(app, work, [1], conflicts=[probe]).exit_code == 0


def test_a_run_can_wait_for_the_end_of_a_service(app, work, tmp_path):
    file = tmp_path / "service.pid"
    file.write_text(str(os.getpid()))
    threading.Timer(0.3, file.unlink).start()
    assert run(app, work, [1], conflicts=[f"pid:{file}"], wait=True).exit_code == 0


@pytest.mark.parametrize(("state", "code"), [("active", 9), ("activating", 9), ("inactive", 0), ("failed", 0)])
def test_a_systemd_service_is_a_conflict(app, work, manager, state, code):
    manager("systemctl", f"ActiveState={state}\nMainPID={os.getpid()}")
    assert run(app, work, [1], conflicts=["systemd:mail.service"]).exit_code == code


@pytest.mark.parametrize(
    ("name", "status", "code"), [("mail", "online", 9), ("mail", "stopped", 0), ("other", "online", 0)]
)
def test_a_pm2_process_is_a_conflict(app, work, manager, name, status, code):
    manager("pm2", json.dumps([{"name": name, "pid": os.getpid(), "pm2_env": {"status": status}}]))
    assert run(app, work, [1], conflicts=["pm2:mail"]).exit_code == code


def test_the_status_of_a_pm2_process_without_a_pid_is_told(app, work, manager):
    manager("pm2", json.dumps([{"name": "mail", "pid": 0, "pm2_env": {"status": "launching"}}]))
    result = run(app, work, [1], conflicts=["pm2:mail"])
    assert (result.exit_code, "launching" in str(result.error)) == (9, True)


def test_notices_before_the_answer_of_pm2_are_ignored(app, work, manager, monkeypatch, tmp_path):
    """E3: it prints them when it starts its daemon. Where pm2 is missing, it runs nothing."""
    listed = json.dumps([{"name": "mail", "pid": os.getpid(), "pm2_env": {"status": "online"}}])
    manager("pm2", f"[PM2] Spawning PM2 daemon with pm2_home=/root/.pm2\n[PM2] PM2 Successfully daemonized\n{listed}")
    assert run(app, work, [1], conflicts=["pm2:mail"]).exit_code == 9
    manager("pm2", "[PM2] Spawning PM2 daemon\n[]")
    assert run(app, work, [1], conflicts=["pm2:mail"]).exit_code == 0
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert run(app, work, [1], conflicts=["pm2:mail"]).exit_code == 0


def test_a_worker_is_a_conflict(app, work):
    with app.worker(queues=["mail"], poll=0.1):
        wait_until(app.store.workers.list)
        result = run(app, work, [1], conflicts=["worker:mail"])
        assert result.exit_code == 9
        assert re.search(r"worker:mail \(pid \d+ on \S+, for \d+s\) is running", str(result.error))
        assert run(app, work, [1], conflicts=["worker:other"]).exit_code == 0


def test_a_function_knows_its_services(app, tmp_path):
    file = tmp_path / "service.pid"
    file.write_text(str(os.getpid()))

    @app.unit(conflicts=[f"pid:{file}"])
    def work(key: int) -> None: ...

    assert run(app, work, [1]).exit_code == 9


@pytest.mark.parametrize("probe", ["mail", "pid:", "launchd:mail", ":x"])
def test_an_invalid_probe_is_refused(app, work, probe):
    with pytest.raises(InvalidInput, match="names no service"):
        run(app, work, [1], conflicts=[probe])


def test_a_manager_that_does_not_answer_is_an_error(app, work, manager, tmp_path):
    """Otherwise the batch could run beside a live service."""
    manager("systemctl", "", code=1)
    with pytest.raises(ConfigurationError, match="systemctl failed"):
        run(app, work, [1], conflicts=["systemd:mail"])
    (tmp_path / "odd.pid").write_text("nobody")
    with pytest.raises(ConfigurationError, match="contains no pid"):
        run(app, work, [1], conflicts=[f"pid:{tmp_path}/odd.pid"])
    manager("pm2", "not JSON")
    with pytest.raises(ConfigurationError, match="did not answer with JSON"):
        run(app, work, [1], conflicts=["pm2:mail"])

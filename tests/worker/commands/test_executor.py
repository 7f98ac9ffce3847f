"""Commands as jobs: arguments, logs, caps, and no process that outlives its job."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

import holdfast
from holdfast import Selector, State
from holdfast.domain.commands.command import COMMAND, Command
from holdfast.domain.fleet.autoscaler import Bounds
from holdfast.domain.jobs.dependencies import After
from holdfast.domain.jobs.new_job import NewJob
from holdfast.errors import StoreUnavailable
from holdfast.settings import command_url, log_folder
from holdfast.worker.commands import resource_caps
from holdfast.worker.commands.log_files import CUT, AttemptLog, log_path
from holdfast.worker.commands.resource_caps import best_cap_method, enforcer_here
from holdfast.worker.dead_workers import take_over_from_dead
from tests.support.processes import Child, gone, wait_until

#: Characters that a shell would interpret.
NASTY = [
    "; touch pwned",
    "$(touch pwned)",
    "`touch pwned`",
    "&& touch pwned",
    "| touch pwned",
    "> pwned",
    "\n touch pwned\n",
    "' ; touch pwned ; '",
    '" ; touch pwned ; "',
    "${IFS}touch${IFS}pwned",
    "--help",
    "-rf",
    "*",
    "~",
    "%s%n",
    "ä 😀",
    "",
]


@pytest.fixture
def app(real_database, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with holdfast.Holdfast(real_database.url) as app:
        assert app.store
        yield app


@pytest.fixture
def add(app, tmp_path):
    """Add a command that runs in the directory of the test."""

    def add(*words, label=None, max_attempts=1, after=None, retry=None, **options):
        options = {"cwd": str(tmp_path), "env": {"PATH": os.environ["PATH"]}, **options}
        command = Command(argv=tuple(words), **options)
        request = NewJob(
            kind=COMMAND, payload=command.dumps(), label=label, max_attempts=max_attempts, after=after, retry=retry
        )
        return app.store.jobs.enqueue(request).id

    return add


@pytest.fixture
def run(app, add):
    """Add a command, run it and return its job."""

    def run(*words, **options):
        job_id = add(*words, **options)
        drain(app)
        return app.views.get(job_id)

    return run


def drain(app, **options):
    app.worker(**{"commands": True, "slots": 4, "poll": 0.05, "drain": True, **options}).run()


def log_of(app, job, token=1, **parameters):
    return log_path(log_folder(app.url), job.id, token, parameters).read_text()


def python(code, *words):
    return [sys.executable, "-c", code, *words]


# -- arguments and environment -----------------------------------------------------------------


def test_arguments_reach_the_command_unchanged(app, run, tmp_path):
    """No shell interprets them."""
    job = run(*python("import json, sys; print(json.dumps(sys.argv[1:]))", *NASTY))
    assert (job.state, json.loads(log_of(app, job))) == (State.DONE, NASTY)
    assert not (tmp_path / "pwned").exists()


def test_variables_and_directories_are_read_by_no_shell(app, run, tmp_path):
    for n, text in enumerate(text for text in NASTY if text and "/" not in text):
        folder = tmp_path / f"{n} {text}"
        folder.mkdir()
        env = {"PATH": os.environ["PATH"], "NASTY": text}
        job = run(
            *python("import os; print([os.environ['NASTY'], os.getcwd()])"), cwd=str(folder), env=env, memory=10**9
        )
        assert log_of(app, job).strip() == str([text, str(folder)])
    assert not list(tmp_path.rglob("pwned"))


def test_a_command_gets_little_of_its_workers_environment(app, run, monkeypatch):
    """It gets the stored variables, a home and values about its job, but no secrets of the worker."""
    monkeypatch.setenv("WORKERS_SECRET", "x")
    job = run(
        *python("import json, os; print(json.dumps(dict(os.environ)))"), env={"MINE": "1"}, parameters={"year": "2020"}
    )
    variables = json.loads(log_path(log_folder(app.url), job.id, 1, {"year": "2020"}).read_text())
    assert "WORKERS_SECRET" not in variables
    assert (variables["MINE"], variables["HOLDFAST_JOB_ID"], variables["HOLDFAST_PARAM_year"]) == (
        "1",
        str(job.id),
        "2020",
    )
    assert variables["HOLDFAST_URL"] == command_url(app.url)
    assert {name for name in variables if name.startswith("HOLDFAST_")} == {
        *("HOLDFAST_URL", "HOLDFAST_JOB_ID", "HOLDFAST_ATTEMPT", "HOLDFAST_QUEUE", "HOLDFAST_CHILD"),
        "HOLDFAST_PARAM_year",
    }


def test_nothing_can_be_read_from_it(run):
    assert run("cat").state is State.DONE


# -- outcomes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "reason", "code"),
    [
        (["sh", "-c", "exit 3"], "exit_3", 3),
        (["sh", "-c", "kill -15 $$"], "signal_15", -15),
        (["sh", "-c", "kill -9 $$"], "signal_9", -9),
        (["there-is-no-such-program"], "cannot_start", None),
        (["/etc/passwd"], "cannot_start", None),
        (["/etc"], "cannot_start", None),
    ],
)
def test_exit_codes_and_reasons_are_recorded(app, run, words, reason, code):
    job = run(*words)
    (attempt,) = app.views.attempts(job.id)
    assert (job.state, attempt.reason, attempt.exit_code) == (State.DEAD, reason, code)


@pytest.mark.parametrize(
    ("program", "error"),
    [
        (b"echo hi\n", "the program './program' has no #! line: add one, or run sh ./program"),
        (b"", "the program './program' has no #! line: add one, or run sh ./program"),
        (b"\x7fELF of another machine", "the program './program' is for another machine"),
        (b"#!/no/such/shell -e\necho\n", "the interpreter '/no/such/shell' of './program' is not there"),
        (
            b"#!/bin/sh\r\necho\r\n",
            "the interpreter '/bin/sh\\r' of './program' is not there: its lines end with CR and LF",
        ),
    ],
)
def test_a_program_that_the_system_cannot_execute(run, tmp_path, program, error):
    """Its own reason, in place of the words of the system."""
    (tmp_path / "program").write_bytes(program)
    (tmp_path / "program").chmod(0o755)
    job = run("./program", cwd=str(tmp_path))
    assert (job.reason, job.error) == ("cannot_start", error)


def test_a_missing_directory_fails_the_start(run, tmp_path):
    job = run("true", cwd=str(tmp_path / "nowhere"))
    assert (job.reason, job.error) == ("cannot_start", f"there is no directory {tmp_path / 'nowhere'}")


def test_a_failure_includes_the_end_of_the_output(run):
    job = run("sh", "-c", "echo first; echo the disk is on fire >&2; exit 1")
    assert job.error.splitlines()[0] == "it ended with exit code 1"
    assert job.error.endswith("the disk is on fire")


def test_a_success_records_its_resources(run):
    result = json.loads(run(*python("print(sum(range(10**6)))")).result)
    assert result["exit_code"] == 0
    assert result["cpu_seconds"] > 0
    assert result["log"].endswith("-1.log")


def test_a_timeout_begins_with_a_request_to_end(run, tmp_path):
    """The command receives a signal and may clean up."""
    code = "trap 'touch tidied; exit 0' TERM; touch begun; while :; do sleep 0.01; done"
    job = run("sh", "-c", code, timeout=timedelta(seconds=0.5))
    assert (job.state, job.reason, (tmp_path / "tidied").exists()) == (State.DEAD, "run_timeout", True)


def test_a_cancelled_command_ends(app, add, tmp_path):
    job_id = add("sh", "-c", "touch begun; exec sleep 60")
    with app.worker(commands=True, poll=0.05, heartbeat=0.2):
        wait_until((tmp_path / "begun").exists)
        app.control.cancel(Selector(ids=(job_id,)), actor="ada")
        assert wait_until(lambda: app.views.get(job_id).state is State.CANCELLED)


def test_a_worker_that_stops_releases_its_commands(app, add, tmp_path):
    """Without losing an attempt."""
    job_id = add("sh", "-c", "touch begun; exec sleep 60")
    with app.worker(commands=True, poll=0.05, grace=0.5):
        wait_until((tmp_path / "begun").exists)
    job = app.views.get(job_id)
    assert (job.state, job.attempts) == (State.READY, 0)


SAVES_AT_TERM = (
    "trap 'touch termed; while [ ! -e save ]; do sleep 0.05; done; touch saved; exit 0' TERM; "
    "touch begun; while :; do sleep 0.05; done"
)


def test_a_command_has_its_stop_delay_when_its_worker_stops(app, add, tmp_path):
    """Y6: one second before the end of the grace period it got SIGTERM: nothing that saves for longer could end."""
    add("sh", "-c", SAVES_AT_TERM, stop_delay=timedelta(seconds=600))
    with app.worker(commands=True, poll=0.05, grace=60) as worker:
        wait_until((tmp_path / "begun").exists)
        worker.stop()
        wait_until((tmp_path / "termed").exists, seconds=45, failure="Y6 is broken")  # not one second before the end
        (tmp_path / "save").touch()
    assert (tmp_path / "saved").exists(), "Y6 is broken"


@pytest.mark.parametrize("how", ["cancel", "timeout"])
def test_a_command_has_its_stop_delay_when_it_is_stopped(app, add, tmp_path, how):
    """Y6: five seconds after SIGTERM it was killed, whatever it needed."""
    timeout = timedelta(seconds=0.5) if how == "timeout" else None
    job_id = add("sh", "-c", SAVES_AT_TERM, stop_delay=timedelta(seconds=120), timeout=timeout)
    with app.worker(commands=True, poll=0.05, heartbeat=0.2) as worker:
        wait_until((tmp_path / "begun").exists)
        if how == "cancel":
            app.control.cancel(Selector(ids=(job_id,)), actor="ada")
        wait_until((tmp_path / "termed").exists)
        (run,) = worker._active_runs.all()
        assert run.stop_delay == 120, "Y6 is broken"
        (tmp_path / "save").touch()
        wait_until(lambda: app.views.get(job_id).state.finished)
    assert (tmp_path / "saved").exists()


def test_a_command_without_a_stop_delay_has_ten_seconds(app, add, tmp_path):
    add("sh", "-c", "touch begun; exec sleep 60")
    with app.worker(commands=True, poll=0.05, grace=0.2) as worker:
        wait_until((tmp_path / "begun").exists)
        assert [run.stop_delay for run in worker._active_runs.all()] == [10]


# -- logs --------------------------------------------------------------------------------------


def test_attempts_have_logs_of_their_own(app, run, tmp_path):
    """A retry never writes to an old log."""
    code = "echo attempt $HOLDFAST_ATTEMPT; [ $HOLDFAST_ATTEMPT = 3 ]"
    job = run("sh", "-c", code, max_attempts=3, retry='{"steps": [0.0], "jitter": 0.0}')
    assert job.state is State.DONE
    assert [log_of(app, job, token) for token in (1, 2, 3)] == [f"attempt {n}\n" for n in (1, 2, 3)]


def test_a_log_can_be_read_while_it_is_written(app, add, tmp_path):
    job_id = add("sh", "-c", "echo one; while [ ! -e go ]; do sleep 0.01; done; echo two")
    with app.worker(commands=True, poll=0.05):
        job = app.views.get(job_id)
        path = log_path(log_folder(app.url), job_id, 1, {})
        wait_until(lambda: path.exists() and path.read_text() == "one\n")
        (tmp_path / "go").touch()
        wait_until(lambda: app.views.get(job_id).state is State.DONE)
    assert log_of(app, job) == "one\ntwo\n"


def test_a_log_is_capped(tmp_path):
    """The newer half stays, from the beginning of a line."""
    log = AttemptLog(tmp_path / "log", max_bytes=1000)
    for n in range(500):
        log.write(f"line {n}\n".encode())
    log.close()
    data = (tmp_path / "log").read_bytes()
    assert len(data) <= 1000
    assert data.startswith(CUT)
    assert data.endswith(b"line 499\n")
    assert data[len(CUT) :].startswith(b"line ")


def test_a_full_disk_costs_lines_and_nothing_else():
    log = AttemptLog(Path("/dev/full"))
    log.write(b"lost\n")
    log.write(b"lost too\n")
    assert log.tail() == "lost\nlost too\n"
    log.close()


def test_a_log_that_cannot_be_made_does_not_fail_the_command(app, run):
    folder = log_folder(app.url)
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_text("in the way")
    assert run("echo", "hello").state is State.DONE


# -- trees of processes ------------------------------------------------------------------------

#: Starts processes that leave its session, and prints their PIDs.
DAEMONS = """
import os, signal, sys
reading, writing = os.pipe()
for n in range({count}):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            open(sys.argv[1] + '/' + str(os.getpid()), 'w').close()
            os.write(writing, b'!')
            while True:
                signal.pause()
        os._exit(0)
for n in range({count}):
    os.read(reading, 1)
open(sys.argv[1] + '-ready', 'w').close()
{then}
"""


def daemons(tmp_path, count=20, then=""):
    folder = tmp_path / "daemons"
    folder.mkdir()
    return python(DAEMONS.format(count=count, then=then), str(folder)), folder


def pids(folder):
    return [int(file.name) for file in folder.iterdir()]


def test_orphans_are_killed(run, tmp_path):
    words, folder = daemons(tmp_path, count=200)
    assert run(*words).state is State.DONE
    wait_until(lambda: all(gone(pid) for pid in pids(folder)))


def work(pipe, url, folder):
    from holdfast.worker.commands import executor

    os.environ["XDG_DATA_HOME"] = folder
    short = executor.command_kind(lease=timedelta(seconds=2))
    executor.command_kind = lambda: short
    with holdfast.Holdfast(url) as app:
        worker = app.worker(commands=True, poll=0.05, heartbeat=0.2)
        pipe.send("up")
        worker.run()


@pytest.mark.parametrize("how", ["kill", "pause"])
def test_nothing_outlives_its_worker(app, add, real_database, tmp_path, how):
    """Killed -9 or stopped past its lease: its command and all descendants are dead before another run begins."""
    words, folder = daemons(tmp_path, count=5, then="signal.pause()")
    job_id = add(*words)
    child = Child(work, real_database.url, str(tmp_path))
    child.hear()
    wait_until((tmp_path / "daemons-ready").exists)
    getattr(child, how)()
    wait_until(lambda: all(gone(pid) for pid in pids(folder)))
    assert app.views.get(job_id).state is State.RUNNING
    child.kill()
    child.end()


def supervisors(of):
    """The supervisors that a process has started."""
    return [
        child for child in psutil.Process(of).children() if "holdfast.worker.commands.supervisor" in child.cmdline()
    ]


def test_nothing_outlives_its_supervisor(app, add, tmp_path):
    """Killed -9: the commands are dead before another worker may run them."""
    words, folder = daemons(tmp_path, count=5, then="signal.pause()")
    job_id = add(*words, max_attempts=2, retry='{"steps": [60.0], "jitter": 0.0}')
    with app.worker(commands=True, poll=0.05):
        wait_until((tmp_path / "daemons-ready").exists)
        for supervisor in supervisors(os.getpid()):
            supervisor.kill()
        wait_until(lambda: app.views.get(job_id).state is State.SCHEDULED)
        assert all(gone(pid) for pid in pids(folder))


def test_the_next_worker_kills_the_commands_of_a_killed_worker_and_supervisor(app, add, real_database, tmp_path):
    words, folder = daemons(tmp_path, count=5, then="signal.pause()")
    add(*words)
    child = Child(work, real_database.url, str(tmp_path))
    child.hear()
    wait_until((tmp_path / "daemons-ready").exists)
    own = supervisors(child.pid)
    child.pause()
    for supervisor in own:
        supervisor.kill()
    child.kill()
    child.end()
    left = pids(folder)
    add("true")
    with app.worker(commands=True, poll=0.05, grace=0.2):
        wait_until(lambda: all(gone(pid) for pid in left))


def test_a_command_is_gone_before_another_worker_runs_it_again(app, add, real_database, tmp_path):
    """I16: its worker and its supervisor were killed, and the next worker has a supervisor already."""
    state = "grep -q 'State:.[RSDT]' /proc/$(cat first)/status"
    code = f"if [ -e first ]; then {state}; echo $? > second; else echo $$ > first; exec sleep 600; fi"
    child = Child(work, real_database.url, str(tmp_path))
    child.hear()
    job_id = add("sh", "-c", code, max_attempts=2, retry='{"steps": [0.0], "jitter": 0.0}')
    wait_until(lambda: (tmp_path / "first").exists() and (tmp_path / "first").read_text())
    with app.worker(commands=True, queues=["default", "other"], poll=0.05, grace=0.2):
        payload = Command(argv=("true",), cwd="/", env={"PATH": os.environ["PATH"]}).dumps()
        other = app.store.jobs.enqueue(NewJob(kind=COMMAND, payload=payload, queue="other")).id
        wait_until(lambda: app.views.get(other).state is State.DONE)
        own = supervisors(child.pid)
        child.pause()
        for supervisor in own:
            supervisor.kill()
        child.kill()
        child.end()
        wait_until(lambda: app.views.get(job_id).state is State.DONE)
    assert (tmp_path / "second").read_text() != "0\n", "I16 is broken: the program runs twice at a time"


def work_with_usual_leases(pipe, url, folder):
    os.environ["XDG_DATA_HOME"] = folder
    with holdfast.Holdfast(url) as app:
        worker = app.worker(commands=True, poll=0.05, heartbeat=0.2)
        pipe.send("up")
        worker.run()


@pytest.mark.parametrize("killed", ["worker", "worker and supervisor"])
def test_the_commands_of_a_killed_worker_go_on_at_once(app, add, real_database, tmp_path, killed):
    """Y7: they stood still for the 300 s of their leases, on their own host. I16 holds: the first program is dead."""
    state = "grep -q 'State:.[RSDT]' /proc/$(cat first)/status"
    code = f"if [ -e first ]; then {state}; echo $? > second; else echo $$ > first; exec sleep 600; fi"
    child = Child(work_with_usual_leases, real_database.url, str(tmp_path))
    child.hear()
    job_id = add("sh", "-c", code, max_attempts=2, retry='{"steps": [0.0], "jitter": 0.0}')
    wait_until(lambda: (tmp_path / "first").exists() and (tmp_path / "first").read_text())
    own = supervisors(child.pid)
    child.pause()
    if "supervisor" in killed:
        for supervisor in own:
            supervisor.kill()
    child.kill()
    child.end()
    with app.worker(commands=True, poll=0.05, grace=0.2):
        finished = lambda: app.views.get(job_id).state is State.DONE  # noqa: E731
        wait_until(finished, seconds=120, failure="Y7 is broken: the lease of a dead worker has to expire")
    assert (tmp_path / "second").read_text() != "0\n", "I16 is broken: the program runs twice at a time"
    assert [attempt.reason for attempt in app.views.attempts(job_id)] == ["lease_lost", "done"]


def test_a_worker_that_is_suspended_keeps_its_commands(app, add, real_database, tmp_path):
    """Y7: it lives, and goes on one day."""
    child = Child(work_with_usual_leases, real_database.url, str(tmp_path))
    child.hear()
    job_id = add("sh", "-c", "touch begun; exec sleep 600", max_attempts=2)
    wait_until((tmp_path / "begun").exists)
    child.pause()
    assert list(take_over_from_dead(app.store, socket.gethostname())) == [], "Y7 is broken"
    assert app.views.get(job_id).state is State.RUNNING
    child.resume()
    child.kill()
    child.end()


def test_a_command_that_ignores_the_request_is_killed(app, add, tmp_path):
    job_id = add("sh", "-c", "trap '' TERM; touch begun; while :; do sleep 0.05; done")
    with app.worker(commands=True, poll=0.05, heartbeat=0.2):
        wait_until((tmp_path / "begun").exists)
        app.control.cancel(Selector(ids=(job_id,)), actor="ada")
        wait_until(lambda: app.views.get(job_id).state is State.CANCELLED)
    assert not [process for process in psutil.process_iter(["cwd"]) if process.info["cwd"] == str(tmp_path)]


# -- caps --------------------------------------------------------------------------------------

HUNGRY = "x = bytearray(300 * 1024 * 1024); print(len(x))"
CAP = 100 * 1024 * 1024


def test_a_command_beyond_its_memory_cap_is_killed(app, run):
    """Its reason differs from other kills and includes the cap, the peak and the enforcer."""
    job = run(*python(HUNGRY), memory=CAP)
    (attempt,) = app.views.attempts(job.id)
    assert (job.state, attempt.reason) == (State.DEAD, "oom")
    assert f"its memory limit of {CAP:,} bytes (peak " in job.error
    assert "killed by " in job.error


def test_a_shell_does_not_hide_the_kill(run):
    """The shell exits with 0, but the kernel's counter shows the kill of its child."""
    if enforcer_here() == "watch":
        pytest.fail("this machine has no control groups: run the tests where it has")
    assert run("sh", "-c", f"'{sys.executable}' -c '{HUNGRY}'; exit 0", memory=CAP).reason == "oom"


def test_a_command_within_its_cap_is_left_alone(run):
    job = run(*python("x = bytearray(20 * 1024 * 1024)"), memory=CAP)
    result = json.loads(job.result)
    assert job.state is State.DONE
    assert 20 * 1024 * 1024 < result["peak_bytes"] <= CAP
    assert result["enforcer"] in ("cgroup1", "cgroup2", "systemd", "watch")


def test_without_control_groups_the_tree_is_watched(app, run, monkeypatch):
    """The memory of grandchildren counts too."""
    monkeypatch.setenv("HOLDFAST_CAPS", "watch")
    job = run("sh", "-c", f"'{sys.executable}' -c '{HUNGRY}; import time; time.sleep(30)'; exit 0", memory=CAP)
    assert (job.reason, job.error.splitlines()[0].endswith("killed by watch")) == ("oom", True)


def test_a_required_cap_is_refused_where_there_is_none(run, monkeypatch):
    monkeypatch.setenv("HOLDFAST_CAPS", "watch")
    job = run("true", memory=CAP, require_cap=True)
    assert (job.state, job.reason) == (State.DEAD, "cannot_start")
    assert "--require-cap" in job.error


def test_a_required_cap_is_refused_where_the_supervisor_has_no_method(run, monkeypatch):
    """K82: a read-only check found a method of the host, but the supervisor could not use it."""
    monkeypatch.setenv("HOLDFAST_CAPS", "watch")
    monkeypatch.setattr("holdfast.worker.commands.executor.enforcer_here", lambda: "cgroup2")
    job = run("true", memory=CAP, require_cap=True)
    assert (job.state, job.reason) == (State.DEAD, "cannot_start")
    assert "--require-cap" in job.error


def groups():
    """Groups of this process and of dead ones; other processes may run commands at the same time."""
    return {group for group in Path("/sys/fs/cgroup").rglob("holdfast-*") if _is_ours(int(group.name.split("-")[2]))}


def _is_ours(pid):
    try:
        return os.getpid() in {parent.pid for parent in psutil.Process(pid).parents()}
    except psutil.NoSuchProcess:
        return True


def test_no_control_group_is_left_behind(run):
    before = groups()
    run("true", memory=CAP, cpus=0.5)
    run(*python(HUNGRY), memory=CAP)
    run("there-is-no-such-program", memory=CAP)
    run("true", memory=1)
    wait_until(lambda: groups() <= before)


def test_a_share_of_the_processors_is_kept(run):
    """Half of one processor: a second of work takes about two."""
    code = "import time; b = time.monotonic(); c = time.process_time()\nwhile time.process_time() - c < 0.5: pass\nprint(time.monotonic() - b)"
    job = run(*python(code), cpus=0.25)
    assert job.state is State.DONE
    log = Path(json.loads(job.result)["log"]).read_text()
    assert float(log) > 1.0


# -- among other jobs --------------------------------------------------------------------------


def test_commands_wait_for_each_other(app, add):
    first = add("sh", "-c", "exit 1")
    ok = add("true", after=After(ids=(first,)))
    failed = add("true", after=After(ids=(first,), when="failed"))
    drain(app)
    assert [str(app.views.get(job).state) for job in (first, ok, failed)] == ["dead", "cancelled", "done"]


def test_many_run_side_by_side(app, add):
    for _ in range(50):
        add("true")
    drain(app)
    assert app.views.count(Selector(states=(State.DONE,))).count == 50


def test_a_signal_for_the_worker_reaches_no_command(app, add, tmp_path):
    """Ctrl-C goes to the whole group of a terminal, but commands have their own session."""
    add("sh", "-c", "echo $$ > pid; exec sleep 60")
    with app.worker(commands=True, poll=0.05, grace=0.2):
        wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
        pid = int((tmp_path / "pid").read_text())
        assert os.getsid(pid) == pid != os.getsid(0)


# -- control groups, and a disk that is full late -----------------------------------------------


def test_control_groups_of_live_supervisors_are_left_alone(tmp_path):
    """An empty group may be one that a command is about to join: only those of dead supervisors are listed."""
    own = tmp_path / resource_caps.group_name("mine")
    prefix = own.name.partition(f"{os.getpid()}-")[0]
    finished = subprocess.Popen(["true"])
    finished.wait()
    left = tmp_path / f"{prefix}{finished.pid}-0-left"
    reused = tmp_path / f"{prefix}{os.getpid()}-1-left"  # this process began later
    theirs, elsewhere = f"{prefix}{os.getppid()}-0-theirs", f"holdfast-1-{finished.pid}-0-elsewhere"
    others = [own, left, reused, tmp_path / theirs, tmp_path / elsewhere]
    for folder in others:
        folder.mkdir()
    assert set(resource_caps.abandoned(tmp_path)) == {left, reused}


def test_detecting_caps_deletes_no_group_of_another_supervisor():
    """A new, empty group outlives the start of another supervisor on this host."""
    method = best_cap_method()
    group = None if method is None else method("young", 10**8, None)
    if not isinstance(group, resource_caps.Cgroup):
        pytest.skip("this host has no control groups that we may make")
    try:
        code = "from holdfast.worker.commands.resource_caps import best_cap_method; best_cap_method()"
        subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
        assert group.peak() is not None
    finally:
        group.delete()


def test_a_log_whose_close_fails_costs_nothing(tmp_path, monkeypatch, caplog):
    """Some file systems report a full disk at the close; that does not fail the command."""
    log = AttemptLog(tmp_path / "log")
    log.write(b"words")

    def full(descriptor):
        close(descriptor)
        raise OSError(errno.ENOSPC, "No space left on device")

    close = os.close
    monkeypatch.setattr(os, "close", full)
    log.close()
    monkeypatch.undo()
    assert "may have lost lines" in caplog.text
    log.close()


def test_a_start_is_on_record_before_the_command_starts(app, add, tmp_path):
    """K42: a command that must run once does not run again when its worker is lost in its first second."""
    job_id = add("sh", "-c", "echo hello; echo > began; exec sleep 60")
    worker = app.worker(commands=True, slots=1, poll=0.05)
    worker.start()
    try:
        wait_until((tmp_path / "began").exists)
        job = app.views.get(job_id)
        assert (job.attempts, job.started_at is not None) == (1, True), "K42 is broken: the start is not on record"
        (attempt,) = app.views.attempts(job_id)
        wait_until(log_path(log_folder(app.url), job_id, attempt.token, {}).exists)
    finally:
        app.control.cancel(Selector(), actor="ada")
        worker.stop()
        worker.join()


@pytest.mark.parametrize("fails", [False, True])
def test_a_command_ends_in_the_transaction_of_the_next_start(app, add, monkeypatch, fails):
    """On SQLite. If that cannot be written, the settler writes the end, and the next command is released."""
    leases, joint = app.store.leases, []
    settle_and_start = leases.settle_and_start

    def record(done, lease, duration):
        joint.append(done.lease.job_id)
        if fails and len(joint) == 1:
            raise StoreUnavailable("no answer")
        return settle_and_start(done, lease, duration)

    monkeypatch.setattr(leases, "settle_and_start", record)
    ids = [add("true") for _ in range(12)]
    drain(app, slots=1)
    assert [(app.views.get(each).state, app.views.get(each).attempts) for each in ids] == [(State.DONE, 1)] * 12
    assert bool(joint) == app.store.backend.single_writer


def test_a_command_that_must_run_once_does_not_run_again(app, add, real_database, tmp_path):
    """K42: its worker and supervisor are killed at once, in its first moment; the attempt is on record, with its log."""
    job_id = add("sh", "-c", "echo >> began; echo hello; exec sleep 60")
    child = Child(work, real_database.url, str(tmp_path))
    child.hear()
    wait_until(log_path(log_folder(app.url), job_id, 1, {}).exists)  # its worker has read the first output
    own = supervisors(child.pid)
    child.pause()
    for supervisor in own:
        supervisor.kill()
    child.kill()
    child.end()
    drain(app, heartbeat=0.2)
    job = wait_until(lambda: (job := app.views.get(job_id)).state is State.DEAD and job)
    (attempt,) = app.views.attempts(job_id)
    assert (job.attempts, attempt.reason) == (1, "lease_lost"), "K42 is broken"
    assert (tmp_path / "began").read_text() == "\n", "K42 is broken: it ran twice"
    assert log_path(log_folder(app.url), job_id, attempt.token, {}).exists()


@pytest.mark.parametrize("autoscaled", [False, True])
def test_a_command_outlives_an_outage_of_the_store(app, add, tmp_path, autoscaled):
    """K29: its lease is 300 s, so that a database that is away for 42 s, or for minutes, restarts no command."""
    if autoscaled:
        app.store.autoscaler.set_bounds("default", Bounds(1, 4))
    job_id = add("sh", "-c", "touch begun; exec sleep 60")
    with app.worker(commands=True, poll=0.05, grace=0.2) as worker:
        wait_until((tmp_path / "begun").exists)
        job = app.views.get(job_id)
        (run,) = worker.services.watchdog.service._active_runs.all()
        assert (job.lease_expires_at - datetime.now(UTC)).total_seconds() > 240, "K29 is broken"
        assert run.fenced_at - run.renewed_at == pytest.approx(180.0), "K29 is broken"


def test_a_store_may_forbid_commands(app, run, tmp_path):
    """E10.1: the command fails for good, and its program does not start; afterwards others run again."""
    app.store.command_switch.set(on=False)
    refused = run("touch", str(tmp_path / "proof"), max_attempts=3)
    assert (refused.state, refused.reason) == (State.DEAD, "cannot_start")
    assert "switched off" in refused.error
    assert not (tmp_path / "proof").exists()
    app.store.command_switch.set(on=True)
    assert run("true").state is State.DONE


def test_a_worker_of_an_application_runs_no_commands(app):
    """E10.1, B1: unless it is told to, also if the application has no kinds, as without the import of its jobs."""
    assert COMMAND not in app.worker().kinds
    app.job("mail")(lambda: None)
    assert COMMAND not in app.worker().kinds
    assert COMMAND in app.worker(commands=True).kinds
    assert COMMAND in app.worker(kinds=[COMMAND]).kinds


def test_the_environment_of_a_command_has_no_secrets_of_its_worker(run, tmp_path, monkeypatch):
    """E10.1: neither the URL of the store with its password, nor tokens."""
    for name in ("HOLDFAST_METRICS_TOKEN", "HOLDFAST_API_KEY", "PGPASSWORD", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "s3cr3t")
    done = run("sh", "-c", 'env > "$1"', "-", str(tmp_path / "env"))
    assert done.state is State.DONE
    assert "s3cr3t" not in (tmp_path / "env").read_text()

"""Handlers in child processes: they have the whole context, and a dying child costs only its own run."""

from __future__ import annotations

import gc
import json
import os
import signal
import stat
import subprocess
import sys
import threading

import psutil
import pytest

import holdfast
from holdfast import Selector, State
from holdfast.domain.jobs.new_job import NewJob
from holdfast.errors import InvalidKind
from holdfast.worker import clock
from holdfast.worker.executors import children
from holdfast.worker.shortage import WorkerShortage
from tests.support.processes import gone, wait_until
from tests.support.programs.process_jobs import register
from tests.support.workers import drain, working

#: How a child runs does not depend on the store. Children on both stores: tests/worker/batches, tests/chaos.
pytestmark = pytest.mark.one_backend


@pytest.fixture
def app(real_database):
    with holdfast.Holdfast(real_database.url) as app:
        yield app


@pytest.fixture
def jobs(app):
    return register(app)


def test_children_run_jobs_and_are_used_again(app, jobs):
    """There are as many children as slots, whatever the number of jobs."""
    doubles = jobs["double"].enqueue_many([{"n": n} for n in range(50)])
    refs = jobs["who"].enqueue_many([{}] * 20)
    worker = drain(app, slots=2)
    assert [ref.result() for ref in doubles] == [n * 2 for n in range(50)]
    results = [ref.result() for ref in refs]
    assert 1 <= len({pid for pid, *_ in results}) <= 2
    assert os.getpid() not in {pid for pid, *_ in results}
    assert [result[1:] for result in results] == [[ref.id, 1, 1, worker.id, True] for ref in refs]


def test_a_child_has_the_whole_context(app, jobs):
    """Progress, checkpoints, heartbeats, children and steps work over the channel to the worker."""
    ref = jobs["talk"].enqueue()
    drain(app)
    begin, child, step = ref.result()
    assert (begin, step) == (1, 7)
    assert app.get(child).job().parent_id == ref.id
    job = ref.job()
    assert (job.progress_done, job.progress_total, job.progress_message) == (1, 2, "half")


def test_a_call_that_a_signal_interrupts_leaves_no_answer_to_others(app, jobs):
    """S2: neither a later call of the run nor one of the next run gets the answer of another call."""
    refs = jobs["interrupted"].enqueue(), jobs["talk"].enqueue()
    drain(app, slots=1)
    assert [ref.state for ref in refs] == [State.DONE] * 2, "S2 is broken"
    answers = refs[0].result()
    assert [answer for answer in answers if answer is not None] == [
        n for n, answer in enumerate(answers) if answer is not None
    ], "S2 is broken"
    assert None in answers
    assert refs[1].result()[2] == 7


def test_a_child_refuses_a_payload_like_a_thread(app, jobs):
    """K13: a payload that its code cannot read costs no attempt, and the job is held with the reason."""
    job_id = app.store.jobs.enqueue(NewJob(kind="double", payload='{"n": 1, "unit": "m"}')).id
    drain(app)
    job = app.get(job_id).job()
    assert (job.state, job.attempts, "has no parameter 'unit'" in job.note) == (State.HELD, 0, True)


def test_coroutines_can_run_in_children(app, jobs):
    ref = jobs["rest"].enqueue(1)
    drain(app)
    assert ref.result() == 2


def test_a_child_is_replaced_at_its_limits(app, jobs):
    """After a number of jobs, or at a size in memory."""
    refs = jobs["who"].enqueue_many([{}] * 6)
    drain(app, slots=1, child_jobs=2)
    assert len({ref.result()[0] for ref in refs}) == 3
    refs = jobs["who"].enqueue_many([{}] * 3)
    drain(app, slots=1, child_memory="1M")
    assert len({ref.result()[0] for ref in refs}) == 3


def test_a_child_that_dies_is_a_crash_and_ends_dead(app, jobs):
    """Its neighbours lose nothing (SPEC 8.6)."""
    bad = jobs["kill_self"].enqueue()
    good = jobs["double"].enqueue_many([{"n": n} for n in range(10)])
    drain(app, slots=2)
    job = bad.job()
    assert (job.state, job.crashes, job.reason) == (State.DEAD, 2, "signal_9")
    assert [attempt.reason for attempt in app.views.attempts(bad.id)] == ["signal_9", "signal_9"]
    assert all(ref.job().attempts == 1 for ref in good)


def test_an_exit_of_the_child_is_recorded(app, jobs):
    ref = jobs["leave"].enqueue()
    drain(app)
    assert (ref.state, ref.job().reason) == (State.DEAD, "exit_3")


@pytest.mark.parametrize(("kind", "reason"), [("cut_the_line", "the line is cut"), ("babble", "cannot be read")])
def test_a_child_that_cannot_go_on_ends_with_its_reason(app, jobs, kind, reason):
    """K91: a thread of it fails, or it sends what the worker cannot read: the handler once waited until its timeout."""
    bad, good = jobs[kind].enqueue(), jobs["double"].enqueue(2)
    drain(app, slots=1)
    job = bad.job()
    assert (job.state, job.crashes) == (State.DEAD, 1), "K91 is broken"
    assert reason in job.error, "K91 is broken"
    assert good.result() == 4


def test_a_child_beyond_its_memory_is_killed_and_ends_dead(app, jobs):
    """It counts as a crash, with its own reason."""
    ref = jobs["grow"].enqueue()
    drain(app)
    job = ref.job()
    assert (job.state, job.crashes, job.reason) == (State.DEAD, 2, "oom")
    assert "120 MiB" in job.error


def test_a_cancel_reaches_the_child(app, jobs):
    ref = jobs["wait_for_stop"].enqueue()
    with working(app):
        wait_until(lambda: ref.job().progress_done == 1)
        app.control.cancel(Selector(ids=(ref.id,)), actor="ada")
        assert ref.wait(120).state is State.CANCELLED


def test_a_child_that_does_not_listen_is_killed_at_its_timeout(app, jobs, tmp_path):
    """Even if it holds the interpreter's lock."""
    path = tmp_path / "pid"
    ref = jobs["ignore_all"].enqueue(str(path))
    with working(app):
        job = ref.wait(120)
    assert (job.state, job.reason) == (State.DEAD, "run_timeout")
    assert wait_until(lambda: gone(int(path.read_text())))


def test_a_child_that_holds_the_interpreters_lock_loses_no_lease(app, jobs):
    """The worker renews in another process."""
    ref = jobs["hold_lock_briefly"].enqueue()
    with working(app, heartbeat=0.2):
        job = ref.wait(120)
    assert (job.state, job.token) == (State.DONE, 1)


def test_processes_that_a_child_leaves_are_killed(app, jobs, tmp_path):
    """Even processes that have left its session (I16)."""
    path = tmp_path / "pid"
    ref = jobs["daemonise"].enqueue(str(path))
    drain(app)
    assert ref.job().reason == "exit_0"
    assert wait_until(lambda: gone(int(path.read_text())))


def test_the_end_of_the_supervisor_costs_only_active_runs(app, jobs):
    """A new one is started with the next child."""
    first = jobs["wait_for_stop"].enqueue()
    with working(app, slots=1):
        wait_until(lambda: first.job().progress_done == 1)
        os.kill(supervisor_pid(), signal.SIGKILL)
        wait_until(lambda: first.job().crashes == 1)
        app.control.cancel(Selector(ids=(first.id,)), actor="ada")
        first.wait(120)
        assert jobs["double"].enqueue(4).result(120) == 8


def test_a_child_that_died_idle_costs_the_next_job_nothing(app, jobs, tmp_path):
    """K25: it is noticed before the run begins, also where a run must not be repeated."""
    with working(app, slots=1):
        first = jobs["die_later"].enqueue(str(tmp_path / "now"))
        first.wait(120)
        (child,) = children_of(supervisor_pid())
        (tmp_path / "now").touch()
        wait_until(lambda: gone(child))
        ref = jobs["once"].enqueue()
        job = wait_until(lambda: (job := ref.job()).state in (State.DONE, State.DEAD, State.HELD) and job)
    assert (job.state, job.attempts, job.crashes) == (State.DONE, 1, 0), f"K25 is broken: {job.reason} {job.note}"


def test_a_child_that_dies_before_it_begins_costs_nothing(app, jobs, monkeypatch):
    """K25: the message that begins the run reaches a process that is about to be killed."""
    begin, killed = children.BeginRun, []

    def begin_and_kill(lease):
        if not killed:
            (child,) = children_of(supervisor_pid())
            os.kill(child, signal.SIGSTOP)
            killed.append(child)
            threading.Timer(0.3, os.kill, [child, signal.SIGKILL]).start()
        return begin(lease)

    monkeypatch.setattr(children, "BeginRun", begin_and_kill)
    ref = jobs["once"].enqueue()
    drain(app, slots=1)
    job = ref.job()
    assert (job.state, job.attempts, job.crashes) == (State.DONE, 1, 0), f"K25 is broken: {job.reason} {job.note}"
    assert ref.result()[1] != killed[0]


def test_a_child_that_cannot_start_costs_no_job(app, jobs, monkeypatch, tmp_path):
    """K24: a deploy has replaced the interpreter. Jobs that run go on, and the next one waits for a better time."""
    interpreter = tmp_path / "python"
    interpreter.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    interpreter.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(interpreter))
    with working(app, slots=2) as worker:
        running = jobs["wait_for_stop"].enqueue()
        wait_until(lambda: running.job().progress_done == 1)
        interpreter.rename(tmp_path / "old")
        other = jobs["once"].enqueue()
        wait_until(lambda: not worker.ready)
        job = running.job()
        assert (job.state, job.crashes) == (State.RUNNING, 0), "K24 is broken: a running job was lost"
        (tmp_path / "old").rename(interpreter)
        job = other.wait(120)
        assert (job.state, job.attempts) == (State.DONE, 1), f"K24 is broken: {job.reason}"
        app.control.cancel(Selector(ids=(running.id,)), actor="ada")
        running.wait(120)


def test_a_fork_of_a_handler_keeps_no_connection_to_the_supervisor(app, jobs):
    """K78: the supervisor would take a killed worker for alive as long as the fork lives."""
    before = supervisor_clients()
    with working(app, slots=1):
        jobs["double"].enqueue(1).wait(120)
        (client,) = [each for each in supervisor_clients() if each not in before]
        channel = client._channel._connection.fileno()
        assert forked(lambda: [is_socket(channel), client._channel is None]) == [False, True], (
            "K78 is broken: a fork has the connection to the supervisor"
        )
        assert jobs["double"].enqueue(4).result(120) == 8


def test_a_supervisor_that_ends_at_once_is_a_shortage(monkeypatch):
    """Its end may be noticed before its start returns: the caller tries again, as after every end of a supervisor."""

    class Prompt(threading.Thread):
        """Has done its work when its start returns."""

        def start(self):
            super().start()
            self.join()

    client = children.SupervisorClient()
    with monkeypatch.context() as patched:
        patched.setattr(children.sys, "executable", "/bin/false")
        patched.setattr(children.threading, "Thread", Prompt)
        for _ in range(2):
            with pytest.raises(WorkerShortage, match="the supervisor of child processes is gone"):
                client.start(until=clock.now() + 60)
    child, connection = client.start(until=clock.now() + 60)
    connection.close()
    assert client.exit_of(child, timeout=60) is not None
    client.close()


def supervisor_clients() -> list[children.SupervisorClient]:
    # Not isinstance: some objects of other libraries answer it by loading their settings.
    return [each for each in gc.get_objects() if type(each) is children.SupervisorClient and each._channel]


def is_socket(descriptor: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:
        return False


def forked(call):
    """The answer of a call in a fork of this process."""
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        os.write(writing, json.dumps(call()).encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(pid, 0)
    with os.fdopen(reading) as file:
        return json.loads(file.read())


def children_of(pid: int) -> list[int]:
    return [child.pid for child in psutil.Process(pid).children()]


def supervisor_pid() -> int:
    """The newest supervisor: commands of units, in other tests, keep one of their own."""
    own = psutil.Process().children()
    supervisors = [child for child in own if "holdfast.worker.commands.supervisor" in child.cmdline()]
    return max(supervisors, key=psutil.Process.create_time).pid


def test_a_handler_that_cannot_be_imported_hurts_only_itself(app, jobs):
    """Its attempt records the reason."""
    broken = app.job(executor="process", max_attempts=1)(_from("tests.support.programs.broken_module"))
    bad, good = broken.enqueue(), jobs["double"].enqueue(2)
    drain(app)
    assert (bad.state, bad.job().reason) == (State.DEAD, "cannot_start")
    assert "raised at import" in bad.job().error
    assert good.result() == 4


def _from(module: str):
    def broken() -> None: ...

    broken.__module__ = module
    broken.__qualname__ = "broken"
    return broken


def test_a_fork_cannot_answer(app, jobs):
    """A copy of the child that a handler has left finishes no other job."""
    first = jobs["fork"].enqueue()
    rest = [jobs["outlast"].options(after=first).enqueue() for _ in range(2)]
    drain(app, slots=1)
    assert first.result() == "from the parent"
    assert [ref.result() for ref in rest] == [[ref.id, None] for ref in rest]


def test_a_thread_that_outlives_its_run_writes_nothing(app, jobs, monkeypatch, tmp_path):
    """Its token is old, though its process runs the next job."""
    monkeypatch.chdir(tmp_path)
    first = jobs["linger"].enqueue()
    after = jobs["outlast"].options(after=first).enqueue()
    drain(app, slots=1)
    assert after.result() == [after.id, None]
    assert (after.job().checkpoint, first.job().checkpoint) == (None, None)
    assert list(tmp_path.glob("stray-refused-*"))


def test_odd_messages_hurt_only_their_own_job(app, jobs):
    """Each gets its own error, and the slot continues."""
    refs = {case: jobs["odd"].enqueue(case) for case in ("float", "huge", "surrogate", "message", "none")}
    drain(app, slots=1)
    assert {case: ref.state for case, ref in refs.items()} == {
        "float": State.DEAD,
        "huge": State.DEAD,
        "surrogate": State.DEAD,
        "message": State.DONE,
        "none": State.DONE,
    }
    assert "whole numbers, not 0.5" in refs["float"].job().error
    assert refs["surrogate"].job().reason == "handler_error"
    assert "bad" in refs["surrogate"].job().error


def test_a_kind_that_no_child_could_find_is_refused_at_the_start(app):
    """Not only at every attempt of every job."""

    @app.job(executor="process")
    def inner() -> None: ...

    with pytest.raises(InvalidKind, match="top of its module"):
        app.worker()


def test_a_script_without_a_main_block_is_refused(tmp_path):
    """Its children would start workers of their own."""
    script = tmp_path / "main.py"
    script.write_text(
        "import holdfast\n"
        "app = holdfast.Holdfast('sqlite:///jobs.db')\n"
        "@app.job(executor='process', max_attempts=1)\n"
        "def double(n: int) -> int:\n    return n * 2\n"
        "ref = double.enqueue(1)\n"
        "app.worker(drain=True, poll=0.02).run()\n"
        "print(app.get(1).job().error)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], check=False, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert '__name__ == "__main__"' in done.stdout, done


def test_descendants_of_children_end_with_the_worker(app, jobs, tmp_path):
    """Even after a clean stop, and even if they have left the child's session."""
    path = tmp_path / "pid"
    jobs["background"].enqueue(str(path))
    drain(app)
    assert wait_until(lambda: gone(int(path.read_text())))

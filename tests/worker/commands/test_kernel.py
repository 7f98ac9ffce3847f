"""Processes as the kernel shows them: which children belong to a supervisor that lives."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager

import psutil
import pytest

from holdfast.worker.commands.identity import CHILD_VARIABLE, ChildId, ProcessId, pid_namespace
from holdfast.worker.commands.kernel import kill_abandoned, proc_problem, reap_orphans
from tests.support.processes import gone, wait_until


@contextmanager
def sleeper(value):
    """A process with the variable of a supervisor's child. Its parent, this test, is no supervisor."""
    process = subprocess.Popen(["sleep", "600"], env={**os.environ, CHILD_VARIABLE: str(value)})
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def finished():
    """A process that has ended."""
    process = subprocess.Popen(["true"])
    supervisor = ProcessId.of(process.pid)
    process.wait()
    return supervisor


def test_children_of_a_live_supervisor_are_spared():
    """K23: whoever their parent is, and whatever its title: a second worker killed helpers of a healthy job."""
    with sleeper(ChildId.here("x")) as process:
        kill_abandoned()
        assert process.poll() is None, "K23 is broken: a helper of a healthy job was killed"


def test_children_of_a_supervisor_that_is_gone_are_killed(finished):
    with sleeper(ChildId(finished, pid_namespace(), "x")) as process:
        kill_abandoned()
        assert wait_until(lambda: gone(process.pid))


def test_a_supervisor_that_nobody_has_collected_is_gone():
    """Its worker may be stopped."""
    with sleeper("") as supervisor:
        child = ChildId(ProcessId.of(supervisor.pid), pid_namespace(), "x")
        assert not child.is_abandoned()
        supervisor.kill()
        wait_until(lambda: psutil.Process(supervisor.pid).status() == psutil.STATUS_ZOMBIE)
        assert child.is_abandoned()


def test_a_number_that_is_used_again_is_another_process():
    """K23: the supervisor is gone, though a process has its number."""
    own = ProcessId.of(os.getpid())
    child = ChildId(ProcessId(own.pid, own.started - 1), pid_namespace(), "x")
    assert child.is_abandoned(), "K23 is broken: the start time does not count"
    with sleeper(child) as process:
        kill_abandoned()
        assert wait_until(lambda: gone(process.pid))


@pytest.mark.parametrize("value", ["", "x", "1:2:3", "::", "1:2:three:x", "99999999999999999999:1:{namespace}:x"])
def test_a_variable_that_is_none_of_ours_means_nothing(value):
    """Also the name alone, as earlier versions had it."""
    with sleeper(value.format(namespace=0)) as process:
        kill_abandoned()
        assert process.poll() is None


def test_children_of_another_namespace_are_spared(finished):
    """K23: their supervisor has its number elsewhere, in a container for instance."""
    with sleeper(ChildId(finished, pid_namespace() + 1, "x")) as process:
        kill_abandoned()
        assert process.poll() is None, "K23 is broken: a program of a container was killed"


def test_a_signal_reaches_no_later_process_with_the_same_number():
    """K78: ``down`` signals a pid from a file."""
    with sleeper("") as process:
        own = ProcessId.of(process.pid)
        ProcessId(own.pid, own.started - 1).send(15)
        assert process.poll() is None, "K78 is broken: the start time does not count"
        own.send(15)
        assert process.wait() == -15
        own.send(15)


def test_orphans_are_collected_and_children_are_not():
    """K76: also while a child of our own lives; its status is left for its owner."""
    code = """
import os, sys, time
from holdfast.worker.commands.kernel import reap_orphans
ends = [os.fork() for _ in range(3)]
if 0 in ends:
    os._exit(7)
for pid in ends:
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
reap_orphans({max(ends)})
left = [pid for pid in ends if os.path.exists(f"/proc/{pid}")]
assert max(ends) in left
print(os.waitstatus_to_exitcode(os.waitpid(max(ends), 0)[1]))
reap_orphans(())
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout.strip() == "7"
    reap_orphans({os.getpid()})


@pytest.mark.parametrize("kernel_lists_them", [True, False])
def test_all_children_are_listed(kernel_lists_them):
    """I16: also zombies, and more than fit into one read, by a kernel that lists them and by one that does not."""
    code = f"""
import os
from holdfast.worker.commands import kernel
if not {kernel_lists_them}:
    kernel.Path = lambda path: kernel.PROC / "missing"
pids = {{os.fork() or os._exit(0) for _ in range(1500)}}
assert set(kernel.own_children()) == pids
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert run.returncode == 0, run.stderr


NAMESPACE = """
from holdfast.worker.commands.kernel import parents, proc_problem
print(len(parents()), proc_problem())
"""


@pytest.mark.parametrize(
    ("options", "problem"),
    [(["--mount-proc"], "None"), ([], "/proc does not show the processes of this PID namespace")],
)
def test_a_foreign_proc_is_not_read(options, problem):
    """Its numbers mean other processes: to act on them would kill those of somebody else."""
    unshare = ["unshare", "--pid", "--fork", *options]
    if subprocess.run([*unshare, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this user may not make PID namespaces")
    run = subprocess.run([*unshare, sys.executable, "-c", NAMESPACE], capture_output=True, text=True, check=True)
    count, _, said = run.stdout.strip().partition(" ")
    assert (int(count) == 0, said.startswith(problem)) == (not options, True), run


def test_hidden_processes_are_a_problem_worth_a_message():
    """With hidepid, another user than root sees only its own processes."""
    setup = 'mount -o remount,hidepid=2 /proc && setpriv --reuid 65534 --regid 65534 --clear-groups -- "$@"; exit $?'
    command = ["unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", setup, "sh", sys.executable, "-c"]
    if subprocess.run([*command, "import holdfast"], check=False, capture_output=True).returncode:
        pytest.skip("this user may not hide processes from another user")
    run = subprocess.run([*command, NAMESPACE], capture_output=True, text=True, check=True)
    count, _, said = run.stdout.strip().partition(" ")
    assert (int(count) >= 1, "hidepid" in said) == (True, True), run
    assert proc_problem() is None

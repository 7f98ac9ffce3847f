"""The lifeline of a process: others on its host see that it has ended, and never take it for ended while it lives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from itertools import product

import msgspec
import psutil
import pytest
from msgspec import structs

from holdfast.worker.commands.identity import ProcessId
from holdfast.worker.commands.lifeline import Life, Space, is_dead, own_life, proves_death
from holdfast.worker.executors.children import SupervisorClient
from tests.support.processes import Child, wait_until

PRINT = "from holdfast.worker.commands.lifeline import own_life; print(own_life().encode(), flush=True); input()"
JUDGE = "import sys; from holdfast.worker.commands.lifeline import is_dead; print(is_dead(sys.argv[1]))"


def live_with_supervisor(pipe):
    supervisor = SupervisorClient()
    supervisor.prepare()
    life = own_life()
    assert life is not None
    (child,) = psutil.Process().children()
    pipe.send((life.encode(), child.pid))
    pipe.recv()


def live_with_fork(pipe):
    """A process whose forked child stays, as a helper of a handler does."""
    parent = own_life()
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        own = own_life()
        os.write(writing, b"same" if own == parent else b"own")
        signal.pause()  # until it is killed
    pipe.send((parent.encode(), pid, os.read(reading, 4)))
    pipe.recv()


@pytest.mark.parametrize(
    ("same", "started", "gone", "held"), [*product((True, False), (17, None), (True, False), (True, False, None))]
)
def test_only_the_whole_proof_counts(same, started, gone, held):
    """Y7: of another space, or without one of the three facts, a process counts as alive."""
    proven = proves_death(same_space=same, started=started, gone=gone, held=held)
    assert proven is ((same, started, gone, held) == (True, 17, True, False)), "Y7 is broken"


def test_this_process_lives():
    life = own_life()
    assert life is not None
    assert own_life() == life
    assert not is_dead(life.encode())


@pytest.mark.parametrize("text", ["", "{}", "null", '{"space": 1}', "garbage"])
def test_what_cannot_be_read_proves_nothing(text):
    assert not is_dead(text)


def dead_life() -> Life:
    """The life of a process that has ended."""
    process = subprocess.run([sys.executable, "-c", PRINT], input="\n", capture_output=True, text=True, check=True)
    life = msgspec.json.decode(process.stdout, type=Life)
    assert is_dead(life.encode())
    return life


def test_nothing_is_known_of_another_space():
    """Y7: another boot, another namespace or another user: the numbers mean other processes there."""
    life = dead_life()
    here = Space.here()
    spaces = [structs.replace(here, boot="another"), structs.replace(here, user=here.user + 1)]
    for place in range(len(here.namespaces)):
        numbers = list(here.namespaces)
        numbers[place] += 1
        spaces.append(structs.replace(here, namespaces=numbers))
    for space in spaces:
        assert not is_dead(structs.replace(life, space=space).encode()), "Y7 is broken"


def test_a_number_that_is_used_again_is_another_process():
    life = dead_life()
    own = ProcessId.of(os.getpid())
    assert is_dead(structs.replace(life, process=ProcessId(own.pid, own.started - 1)).encode())
    assert not is_dead(structs.replace(life, process=own).encode())
    assert not is_dead(structs.replace(life, process=ProcessId(life.process.pid, None)).encode())


def test_a_process_is_dead_with_its_supervisor_only():
    """Y7: until then the supervisor may have children to kill."""
    child = Child(live_with_supervisor)
    life, supervisor_pid = child.hear()
    supervisor = psutil.Process(supervisor_pid)
    assert not is_dead(life)
    child.pause()
    assert not is_dead(life), "Y7 is broken: a suspended process continues one day"
    supervisor.suspend()
    child.kill()
    assert not is_dead(life), "Y7 is broken: the supervisor still has children"
    supervisor.resume()
    wait_until(lambda: is_dead(life))
    child.end()


def test_a_process_that_nobody_has_collected_is_dead():
    process = subprocess.Popen([sys.executable, "-c", PRINT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    life = process.stdout.readline()
    assert not is_dead(life)
    process.kill()
    wait_until(lambda: is_dead(life))
    assert psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE
    process.communicate()


def test_a_forked_child_keeps_the_lifeline_and_has_its_own():
    """A helper that a handler has forked may go on with the job."""
    child = Child(live_with_fork)
    life, forked, answer = child.hear()
    assert answer == b"own"
    child.kill()
    assert not is_dead(life), "Y7 is broken: a fork of the process still works"
    psutil.Process(forked).kill()
    wait_until(lambda: is_dead(life))
    child.end()


def test_processes_of_another_namespace_are_never_ended():
    """Y7: two containers with one host name: the numbers of one mean nothing in the other, alive or not."""
    unshare = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if subprocess.run([*unshare, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no right to make a PID namespace")
    inner = subprocess.Popen(
        [*unshare, sys.executable, "-c", PRINT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    life = inner.stdout.readline()
    assert msgspec.json.decode(life, type=Life).process.pid == 1
    assert not is_dead(life)
    second = subprocess.run([*unshare, sys.executable, "-c", JUDGE, life], capture_output=True, text=True, check=True)
    inner.kill()
    inner.communicate()
    assert not is_dead(life), "Y7 is broken"
    own = subprocess.run(
        [*unshare, sys.executable, "-c", JUDGE, own_life().encode()], capture_output=True, text=True, check=True
    )
    assert (second.stdout, own.stdout) == ("False\n", "False\n"), "Y7 is broken"

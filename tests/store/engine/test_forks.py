"""Forks of a process in which other threads fork, open stores and use them for the first time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

import pytest

from holdfast.store.engine import forks
from tests.support.forks import Fork
from tests.support.processes import wait_until

#: The longest wait of a test for another thread or for a process.
PATIENCE_S = 60.0
#: How long a test watches that something does not happen.
MOMENT_S = 0.05

#: Each line of its output is the id of a job. Threads fork from the first moment on, while others enqueue.
FORKING = """
import os, sys, threading
import holdfast

app = holdfast.Holdfast(sys.argv[1])
app.job(name="mail")(lambda: None)
stop = threading.Event()

def enqueue():
    while not stop.is_set():
        os.write(1, b"%d\\n" % app.enqueue("mail").id)

def fork():
    for _ in range(2):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.write(1, b"%d\\n" % app.enqueue("mail").id)
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        codes.append(0)

codes = []
forking, enqueueing = ([threading.Thread(target=target) for _ in range(3)] for target in (fork, enqueue))
for thread in [*enqueueing, *forking]:
    thread.start()
for thread in forking:
    thread.join()
stop.set()
for thread in enqueueing:
    thread.join()
app.close()
sys.exit(codes != [0] * 6)
"""
#: Prints the modules that the first enqueue imports while another thread may fork.
FIRST_USE = """
import sys, threading
import holdfast
from holdfast.store.engine import forks

app = holdfast.Holdfast(sys.argv[1])
app.job(name="mail")(lambda: None)

class Finder:
    def find_spec(self, name, path=None, target=None):
        if not forks.first_use._is_owned():
            print(name)

sys.meta_path.insert(0, Finder())
app.enqueue("mail")
sys.meta_path.pop(0)
"""


@pytest.fixture
def member():
    """A member that notes its calls, and the thread that makes them."""
    member = Member()
    forks.survive_forks(member)
    return member


class Member(forks.ForkSafe):
    def __init__(self):
        self.calls = []
        #: Called before a fork.
        self.before = lambda: None

    def before_fork(self):
        self.calls.append(("before", threading.get_ident()))
        self.before()

    def after_fork_in_parent(self):
        self.calls.append(("after", threading.get_ident()))


def in_thread(function):
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def fork_once():
    assert Fork(lambda _: None).code() == 0


def test_threads_fork_one_after_the_other(member):
    """The end of one fork would let threads continue that the other has stopped."""
    waits, second = threading.Event(), []

    def fork_beside():
        waits.set()
        fork_once()

    def begin_another():
        if not second:
            second.append(in_thread(fork_beside))
            assert waits.wait(PATIENCE_S)
            threading.Event().wait(MOMENT_S)

    member.before = begin_another
    fork_once()
    second[0].join(PATIENCE_S)
    me, other = threading.get_ident(), second[0].ident
    order = [("before", me), ("after", me), ("before", other), ("after", other)]
    assert member.calls == order, "I18 is broken: two threads fork at once"


def test_a_member_is_added_before_a_fork_or_after_it(member):
    """A fork would not prepare one that is added meanwhile."""
    late, adding, is_late = Member(), [], []

    def add_late():
        adding.append(in_thread(lambda: forks.survive_forks(late)))
        adding[0].join(MOMENT_S)
        is_late.append(adding[0].is_alive())

    member.before = add_late
    with Fork(lambda wait: wait()) as child:
        adding[0].join(PATIENCE_S)
        assert not adding[0].is_alive()
        assert (is_late, late.calls) == ([True], []), "I18 is broken: a store is opened beside a fork"
        child.go()
        assert child.code() == 0
    member.before = lambda: None
    fork_once()
    assert [name for name, _ in late.calls] == ["before", "after"]


def test_a_fork_waits_for_first_uses(member):
    entered, leave, left = threading.Event(), threading.Event(), []

    def use():
        with forks.first_use:
            entered.set()
            leave.wait(PATIENCE_S)
            left.append(member.calls.copy())

    user = in_thread(use)
    assert entered.wait(PATIENCE_S)
    forking = in_thread(fork_once)
    forking.join(MOMENT_S)
    leave.set()
    forking.join(PATIENCE_S)
    user.join(PATIENCE_S)
    assert (left, len(member.calls)) == ([[]], 2), "I18 is broken: a fork does not wait for a first use"


def test_a_fork_does_not_wait_for_ever(member, monkeypatch):
    monkeypatch.setattr(forks, "FORK_TIMEOUT_S", MOMENT_S)
    entered, leave = threading.Event(), threading.Event()

    def use():
        with forks.first_use:
            entered.set()
            leave.wait(PATIENCE_S)

    user = in_thread(use)
    assert entered.wait(PATIENCE_S)
    fork_once()
    leave.set()
    user.join(PATIENCE_S)
    assert len(member.calls) == 2


def test_a_first_use_may_fork(member):
    with forks.first_use:
        fork_once()
    assert len(member.calls) == 2


def test_a_child_forks_and_opens_in_its_turn():
    def work(_):
        fork_once()
        forks.survive_forks(Member())

    assert Fork(work).code() == 0


def test_children_of_threads_enqueue(real_database):
    """Each of them hung for ever: for the lock of a module or of SQLite's memory, which a thread of its parent had."""
    program = subprocess.Popen(
        [sys.executable, "-c", FORKING, real_database.url], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    read = []
    reader = in_thread(lambda: read.extend(program.stdout))
    try:
        wait_until(lambda: program.poll() is not None, seconds=PATIENCE_S, failure="I18 is broken: a child hangs")
    finally:
        with suppress(ProcessLookupError):  # it and its children have ended
            os.killpg(program.pid, signal.SIGKILL)
        program.wait()
        reader.join(PATIENCE_S)
        program.stdout.close()
    ids = [int(line) for line in read]
    assert program.returncode == 0
    assert len(set(ids)) == len(ids) >= 6


def test_a_first_enqueue_imports_while_no_thread_forks(real_database):
    run = subprocess.run(
        [sys.executable, "-c", FIRST_USE, real_database.url], capture_output=True, text=True, check=True
    )
    assert run.stdout == "", "I18 is broken: a forked child waits for ever for the lock of a module"

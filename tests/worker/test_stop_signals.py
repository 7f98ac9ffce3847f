"""Stop signals: who receives them, and who does not."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from holdfast.worker.stop_signals import Signals
from tests.support.processes import wait_until


def kill_a_fork() -> int:
    """Fork a child, send it SIGTERM at once, and return its exit code."""
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    os.kill(pid, signal.SIGTERM)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("in_thread", [False, True])
def test_a_signal_to_a_forked_child_ends_the_child_and_not_its_parent(in_thread):
    """U1: the child has the handlers of before, and no wakeup descriptor; also when it is signalled at once."""
    received = []
    codes = []
    with Signals(lambda: received.append("first"), lambda: received.append("second")):
        while len(codes) < 20 and not received:
            if in_thread:
                thread = threading.Thread(target=lambda: codes.append(kill_a_fork()))
                thread.start()
                thread.join()
            else:
                codes.append(kill_a_fork())
        assert (set(codes), received) == ({-signal.SIGTERM}, [])
        os.kill(os.getpid(), signal.SIGTERM)
        wait_until(lambda: received == ["first"])


def test_a_forked_child_that_leaves_the_block_changes_nothing():
    """U1: it ends as any process does."""
    received = []
    pid = -1
    with Signals(lambda: received.append("first"), lambda: None):
        pid = os.fork()
    if pid == 0:
        os._exit(0 if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL else 1)
    assert (os.waitpid(pid, 0)[1], received) == (0, [])


def test_the_previous_handlers_return():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with Signals(lambda: None, lambda: None):
        assert signal.getsignal(signal.SIGTERM) not in before
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before

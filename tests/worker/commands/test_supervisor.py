"""The supervisor, spoken to as a worker does: over a socket, which the test may leave unread."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from holdfast.worker import clock
from holdfast.worker.commands.worker_channel import WorkerChannel
from holdfast.worker.executors import channel
from holdfast.worker.executors.channel import Channel, FromSupervisor, MemoryMeasured, ProcessExited, StartProcess
from tests.support.processes import PATIENCE, gone, wait_until

#: Small enough that a few reports fill it.
BUFFER_BYTES = 4608


class Worker:
    """This end of the sockets. Without :meth:`read` it is a worker that is stopped."""

    def __init__(self, process, connection, incoming):
        self.pid = process.pid
        self.connection = connection
        connection.settimeout(PATIENCE)
        incoming.settimeout(PATIENCE)
        self.channel = Channel(connection, FromSupervisor, incoming)

    def send(self, message):
        self.channel.send(message)

    def start(self, *argv, **options):
        """Start a process and return its name."""
        options = {"command": True, "cwd": "/", "env": {"PATH": os.environ["PATH"]}, **options}
        message = StartProcess(list(argv), **options)
        with Path(os.devnull).open("wb") as output:
            self.channel.send(message, [output.fileno()])
        return message.child

    def read(self, name="I16"):
        """The next report of an end; *name*: what is broken without one."""
        while not isinstance(report := self.channel.receive(), ProcessExited):
            assert report is not None, f"{name} is broken: the supervisor reports nothing"
        return report

    def below(self, name):
        """The processes below the supervisor with this program's name, and all zombies with any."""
        return [each for each in psutil.Process(self.pid).children(recursive=True) if _name_of(each) == name]

    def await_programs(self, count, name="sleep"):
        wait_until(lambda: len(self.below(name)) == count)
        return [each.pid for each in self.below(name)]


def _name_of(process):
    try:
        return process.name()
    except psutil.NoSuchProcess:  # it ended after it was listed
        return None


@contextmanager
def supervised(prepare=lambda: None):
    (connection, theirs), (incoming, reports) = socket.socketpair(), socket.socketpair()
    reports.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    numbers = [theirs.fileno(), reports.fileno()]
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast.worker.commands.supervisor", *map(str, numbers)],
        pass_fds=numbers,
        start_new_session=True,
        preexec_fn=prepare,  # noqa: PLW1509 - it only makes system calls
    )
    theirs.close()
    reports.close()
    try:
        yield Worker(process, connection, incoming)
    finally:
        connection.close()
        incoming.close()
        assert process.wait(60) == 0


@pytest.fixture
def worker():
    with supervised() as worker:
        yield worker


# -- a worker that is stopped --------------------------------------------------------------------


def test_programs_of_a_stopped_worker_end_with_their_lease(worker):
    """K71, I16: the supervisor waited for its worker to read, and killed nothing any more."""
    worker.start("sleep", "600", measured=True, until=clock.now() + 3)
    pids = worker.await_programs(1)
    failure = "I16 is broken: the supervisor waits for a stopped worker"
    try:
        for _ in range(60):
            worker.start("true")
    except TimeoutError:
        raise AssertionError(failure) from None
    wait_until(lambda: not worker.below("true"), failure=failure)
    wait_until(lambda: all(map(gone, pids)), failure=failure)
    assert len({worker.read().child for _ in range(61)}) == 61


def test_half_a_message_holds_up_no_deadline(worker):
    """K71: a worker can be stopped in the middle of a message, also between a start and its first limits."""
    worker.start("sleep", "600", until=clock.now() + 1)
    pids = worker.await_programs(1)
    half = channel.frame(StartProcess(["true"], command=True))
    worker.connection.sendall(half[: len(half) // 2])
    try:
        wait_until(lambda: all(map(gone, pids)))
    except AssertionError:
        raise AssertionError("I16 is broken: the supervisor waits for the rest of a message") from None
    assert worker.read().status == -signal.SIGKILL
    worker.connection.sendall(half[len(half) // 2 :])
    assert worker.read().status == channel.CANNOT_START  # no descriptor came with it


def test_only_the_newest_measurement_waits_for_a_stopped_worker():
    """K71: the memory of the supervisor is bounded, every end is reported, and no report is cut."""
    (connection, theirs), (ours, reports_to) = socket.socketpair(), socket.socketpair()
    with connection, theirs, ours, reports_to:
        reports_to.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        end = WorkerChannel(theirs, reports_to)
        for n in range(500):
            end.send_measured(MemoryMeasured({"x" * 100: n}))
            if n % 100 == 0:
                end.send(ProcessExited(f"child {n}", 0, oom=False))
        assert len(end._unsent) < 2000, "K71 is broken: measurements pile up"
        reader, reports = Channel(ours, FromSupervisor), []
        while not reports or reports[-1] != MemoryMeasured({"x" * 100: 499}):
            reports.append(reader.receive())
            end.flush()
        exits = [report.child for report in reports if isinstance(report, ProcessExited)]
        assert exits == [f"child {n}" for n in range(0, 500, 100)]


# -- children that cannot start -------------------------------------------------------------------


@pytest.mark.parametrize("command", [True, False])
@pytest.mark.parametrize("argv", [["/there/is/no/such/program"], ["/etc/passwd"], ["nul\0byte"], []])
def test_a_child_that_cannot_start_concerns_no_other(worker, command, argv):
    """K24: it ended the supervisor, and with it every process job of the worker."""
    worker.start("sleep", "600")
    (pid,) = worker.await_programs(1)
    name = worker.start(*argv, command=command)
    report = worker.read("K24")
    assert (report.child, report.status, report.error is not None) == (name, channel.CANNOT_START, True), (
        "K24 is broken"
    )
    assert not gone(pid)
    worker.start("true")
    assert worker.read().status == 0


# -- zombies, signals, descriptors ----------------------------------------------------------------


def zombies(of):
    return [each for each in psutil.Process(of).children() if _is_zombie(each)]


def _is_zombie(process):
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # it was buried after it was listed
        return False


def test_every_zombie_is_buried_while_others_live(worker):
    """K76: 200 programs that left a short helper each left 200 zombies while one long program ran."""
    worker.start("sleep", "600")
    worker.await_programs(1)
    for _ in range(10):
        worker.start("sh", "-c", "(setsid sleep 0.02 &); exit 0")
    assert [worker.read().status for _ in range(10)] == [0] * 10
    try:
        wait_until(lambda: not zombies(worker.pid) and len(worker.below("sleep")) == 1)
    except AssertionError:
        raise AssertionError("K76 is broken: zombies are left") from None


def test_a_parent_that_ignores_sigchld_does_no_harm():
    """K76: ignored signals are inherited, and the kernel then collects children itself."""

    def prepare():
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])

    with supervised(prepare) as worker:
        worker.start("sh", "-c", "exit 3")
        assert worker.read().status == 3, "K76 is broken: the exit status is lost"
        code = "import signal, sys; sys.exit(signal.getsignal(signal.SIGCHLD) is not signal.SIG_DFL)"
        worker.start(sys.executable, "-c", code)
        assert worker.read().status == 0


def test_few_descriptors_are_enough_for_many_programs():
    """K76: a running program needs none in the supervisor."""
    with supervised(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))) as worker:
        for _ in range(30):
            worker.start("sleep", "600")
        worker.await_programs(30)


def test_a_signal_to_the_supervisor_reaches_no_program(worker):
    worker.start("sleep", "600")
    (pid,) = worker.await_programs(1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(worker.pid, number)
    worker.start("true")
    assert worker.read().status == 0
    assert not gone(pid)

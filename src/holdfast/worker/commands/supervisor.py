"""The supervisor: a small process that kills children in time, even when their worker cannot.

It receives the deadline of each lease. It kills a child with its descendants when the deadline passes or when the
worker is gone, so a stopped, frozen or killed worker leaves nothing running past a lease. It opens no store, and it
never waits for its worker.
"""

from __future__ import annotations

import ctypes
import select
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property

from holdfast.store.engine.sockets import inherited_socket, socket_pair
from holdfast.worker import clock
from holdfast.worker.commands import kernel, supervised_process
from holdfast.worker.commands.resource_caps import CapMethod, best_cap_method
from holdfast.worker.commands.supervised_process import SupervisedProcess
from holdfast.worker.commands.worker_channel import WorkerChannel
from holdfast.worker.executors import channel
from holdfast.worker.executors.channel import ProcessExited, StartProcess, ToSupervisor

CHECK_INTERVAL_S = 0.1
#: Checks for orphans at the end of the supervisor: some cannot be killed at once.
LAST_CHECKS = 50
#: Interval between measurements of commands; one measurement reads all of /proc.
MEASURE_INTERVAL_S = 0.5
#: PR_SET_CHILD_SUBREAPER of prctl.
_SUBREAPER = 36


class Supervisor:
    """Starts and kills children for one worker. *wakeup* is readable after a signal, so after the end of a child."""

    def __init__(self, worker: WorkerChannel, wakeup: socket.socket) -> None:
        self._worker = worker
        self._wakeup = wakeup
        self._children: dict[str, SupervisedProcess] = {}
        #: When to kill orphans of ended children next; None: there are none.
        self._clean_at: float | None = None
        self._checked_at = self._measured_at = 0.0
        self._last_error = ""
        self._poll = select.poll()
        self._poll.register(wakeup, select.POLLIN)

    @cached_property
    def _cap_method(self) -> CapMethod | None:
        return best_cap_method()

    def run(self) -> None:
        """Serve until the worker is gone, then kill all children."""
        # Deadlines come first, and each turn starts one child at most.
        steps = (self._enforce, self._serve, self._check_memory, self._reap, self._clean)
        while not self._worker.closed:
            self._wait()
            for step in steps:
                self._survive(step)
        self._kill_all()

    def _wait(self) -> None:
        busy = self._children or self._clean_at is not None
        self._worker.register(self._poll)
        ready = self._poll.poll(0 if self._worker.has_message else CHECK_INTERVAL_S * 1000 if busy else None)
        if any(descriptor == self._wakeup.fileno() for descriptor, _ in ready):
            self._wakeup.recv(4096)

    def _survive(self, step: Callable[[], None]) -> None:
        """Take a step. An error, such as a lack of file descriptors, must not end the supervisor."""
        try:
            step()
        except Exception as error:  # noqa: BLE001 - see above; the next turn tries again
            if str(error) != self._last_error:
                import traceback

                self._last_error = str(error)
                traceback.print_exc()

    def _kill_all(self) -> None:
        for child in self._children.values():
            child.kill()
        for child in self._children.values():
            child.wait()
            child.close()
        for _ in range(LAST_CHECKS):
            killed = kernel.kill_orphans({})
            kernel.reap_orphans(())
            if not killed:
                break
            clock.sleep(CHECK_INTERVAL_S)

    def _enforce(self) -> None:
        now = clock.now()
        for child in self._children.values():
            if child.is_late(now):
                child.kill()

    def _serve(self) -> None:
        """Send reports, and apply one message."""
        self._worker.flush()
        if not self._worker.has_message:
            self._worker.read()
        message = self._worker.next_message()
        if isinstance(message, StartProcess):
            self._begin(message)
        elif message is not None and (child := self._children.get(message.child)) is not None:
            _apply(message, child)

    def _begin(self, message: StartProcess) -> None:
        """Start a child. One that cannot start concerns no other."""
        descriptors = self._worker.take_descriptors()
        try:
            self._children[message.child] = supervised_process.start(message, descriptors, self._cap_method)
        except Exception as error:  # noqa: BLE001 - its owner learns the reason
            number = getattr(error, "errno", None)
            text = str(error) or repr(error)
            exited = ProcessExited(message.child, channel.CANNOT_START, False, text, errno=number)
            self._worker.send(exited)

    def _check_memory(self) -> None:
        """Check memory limits, and report the memory of measured commands. One pass over /proc serves all."""
        now = clock.now()
        if now < self._checked_at + CHECK_INTERVAL_S:
            return
        self._checked_at = now
        reports = now >= self._measured_at + MEASURE_INTERVAL_S
        trees = {n for n, child in self._children.items() if child.watched is not None or (reports and child.measured)}
        known = kernel.parents() if trees else {}
        sizes = {name: kernel.tree_resident(self._children[name].pid, known) for name in trees}
        for name, child in self._children.items():
            child.check_memory(sizes.get(name))
        if reports:
            self._measured_at = now
            measured = {name: size for name, size in sizes.items() if self._children[name].measured}
            if measured:
                self._worker.send_measured(channel.MemoryMeasured(measured))

    def _reap(self) -> None:
        for name, child in list(self._children.items()):
            if (status := child.collect()) is None:
                continue
            del self._children[name]
            # Orphans of a killed child are killed now: another worker may take its job over at once.
            if child.exits_alone or self._kill_orphans():
                self._clean_at = self._clean_at or clock.now() + CHECK_INTERVAL_S
            self._worker.send(child.close(name, *status))
        kernel.reap_orphans({child.pid for child in self._children.values()})

    def _clean(self) -> None:
        """Kill orphans of commands that ended by themselves, until none is left: a killed one may leave others."""
        if self._clean_at is not None and clock.now() >= self._clean_at:
            self._clean_at = clock.now() + CHECK_INTERVAL_S if self._kill_orphans() else None

    def _kill_orphans(self) -> bool:
        """Kill orphans of ended children; returns whether there may be others."""
        try:
            return kernel.kill_orphans({name: child.pid for name, child in self._children.items()})
        except OSError:  # the host has no free file for /proc
            return True


def _apply(message: ToSupervisor, child: SupervisedProcess) -> None:
    match message:
        case channel.ProcessLimits():
            child.limits = message
        case channel.KillProcess():
            child.kill(signal.SIGTERM if message.gently else signal.SIGKILL)
        case channel.FreezeProcess():
            child.freeze(frozen=message.frozen)


def _receive_signals() -> socket.socket:
    """Set the signal handlers; returns a socket that is readable after a signal."""
    wakeup, sender = socket_pair()
    for each in (wakeup, sender):
        each.setblocking(False)
    signal.set_wakeup_fd(sender.detach(), warn_on_full_buffer=False)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        # A handler, not SIG_IGN: every child would inherit that. Who started us may have ignored or blocked SIGCHLD:
        # without it the kernel collects our children, and how they ended is lost.
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    return wakeup


def main() -> None:
    wakeup = _receive_signals()
    if sys.platform == "linux":
        # Inherit the orphans of our children; without this system call they go to init and are not found.
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    connection, reports, *lifeline = [inherited_socket(int(number)) for number in sys.argv[1:]]
    for each in (connection, reports, *lifeline):  # the lifeline is only held, until the last child has ended
        each.set_inheritable(False)
    with suppress(KeyboardInterrupt):
        Supervisor(WorkerChannel(connection, reports), wakeup).run()


if __name__ == "__main__":
    main()

"""The supervisor's end of the channel to its worker. It never waits: a stopped worker reads nothing."""

from __future__ import annotations

import select
import socket
from collections import deque

import msgspec

from holdfast.worker.executors.channel import LENGTH, MemoryMeasured, ProcessExited, ToSupervisor, frame

READ_BYTES = 64 * 1024
_CLOEXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class WorkerChannel:
    """Keeps reports until the worker reads them: the end of every child, and the newest measurement alone."""

    def __init__(self, connection: socket.socket, reports: socket.socket) -> None:
        """Messages come from *connection*, and *reports* go to their own socket."""
        for each in (connection, reports):
            each.setblocking(False)
        self._connection, self._reports = connection, reports
        self._decoder = msgspec.json.Decoder[ToSupervisor](ToSupervisor)
        self._received = bytearray()
        self._unsent = bytearray()
        self._measured: MemoryMeasured | None = None
        #: The descriptors of each start, which come with its first byte.
        self._descriptors: deque[list[int]] = deque()
        #: Whether the worker is gone.
        self.closed = False

    def register(self, poll: select.poll) -> None:
        """Make *poll* wake for messages, and for room if reports wait for it."""
        poll.register(self._connection, select.POLLIN)
        poll.register(self._reports, select.POLLOUT if self._unsent or self._measured else 0)

    @property
    def has_message(self) -> bool:
        """Whether a whole message has arrived."""
        return self._size is not None

    def read(self) -> None:
        """Read the messages that have arrived."""
        try:
            data, numbers, flags, _ = socket.recv_fds(self._connection, READ_BYTES, 2, _CLOEXEC)
        except BlockingIOError:
            return
        except OSError:
            data, numbers, flags = b"", [], 0
        self.closed = self.closed or not data
        self._received += data
        if numbers or flags & socket.MSG_CTRUNC:  # the kernel drops a descriptor that finds no room
            self._descriptors.append(numbers)

    def next_message(self) -> ToSupervisor | None:
        """The next message; None if none has arrived as a whole."""
        if (size := self._size) is None:
            return None
        body = bytes(self._received[LENGTH.size : size])
        del self._received[:size]
        message: ToSupervisor = self._decoder.decode(body)
        return message

    def take_descriptors(self) -> list[int]:
        """The descriptors of the next start; they are the caller's now."""
        return self._descriptors.popleft() if self._descriptors else []

    def send(self, report: ProcessExited) -> None:
        self._unsent += frame(report)
        self.flush()

    def send_measured(self, report: MemoryMeasured) -> None:
        """Send a measurement. It replaces one that the worker has not begun to read."""
        self._measured = report
        self.flush()

    def flush(self) -> None:
        """Send what fits into the socket."""
        while self._unsent or self._measured is not None:
            if not self._unsent and self._measured is not None:
                self._unsent += frame(self._measured)
                self._measured = None
            try:
                sent = self._reports.send(self._unsent)
            except BlockingIOError:
                return
            except OSError:
                self.closed = True
                return
            del self._unsent[:sent]

    @property
    def _size(self) -> int | None:
        """The size of the first message with its length; None if it has not arrived as a whole."""
        if len(self._received) < LENGTH.size:
            return None
        size: int = LENGTH.size + LENGTH.unpack_from(self._received)[0]
        return size if len(self._received) >= size else None

"""The supervisor's end of the channel to its worker. It never waits: a stopped worker reads nothing."""

from __future__ import annotations

import select
import socket

import msgspec

from holdfast.worker.executors.channel import LENGTH, MemoryMeasured, ProcessExited, ToSupervisor, frame

READ_BYTES = 64 * 1024


class WorkerChannel:
    """Keeps reports until the worker reads them: the end of every child, and the newest measurement alone."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._decoder = msgspec.json.Decoder[ToSupervisor](ToSupervisor)
        self._received = bytearray()
        self._unsent = bytearray()
        self._measured: MemoryMeasured | None = None
        #: Whether the worker is gone.
        self.closed = False

    def fileno(self) -> int:
        return self._connection.fileno()

    @property
    def events(self) -> int:
        """The events to poll for."""
        return select.POLLIN | (select.POLLOUT if self._unsent or self._measured else 0)

    @property
    def has_message(self) -> bool:
        """Whether a whole message has arrived."""
        return self._size is not None

    def read(self) -> None:
        """Read the messages that have arrived."""
        try:
            data = self._connection.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self.closed = self.closed or not data
        self._received += data

    def next_message(self) -> ToSupervisor | None:
        """The next message; None if none has arrived as a whole."""
        if (size := self._size) is None:
            return None
        body = bytes(self._received[LENGTH.size : size])
        del self._received[:size]
        message: ToSupervisor = self._decoder.decode(body)
        return message

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
                sent = self._connection.send(self._unsent)
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

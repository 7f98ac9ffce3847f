"""A channel for messages between two processes of one machine, over a socket."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from typing import Any, Generic, TypeVar

import msgspec

_LENGTH = struct.Struct("!I")

T = TypeVar("T")


class Channel(Generic[T]):
    """Sends values as JSON and receives values of one type. Any thread may send; only one may receive."""

    def __init__(self, connection: socket.socket, receives: Any) -> None:
        self._connection = connection
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(receives)
        self._sending = threading.Lock()

    def send(self, value: Any) -> None:
        """Raises OSError when the other side is gone."""
        body = msgspec.json.encode(value)
        with self._sending:
            self._connection.sendall(_LENGTH.pack(len(body)) + body)

    def receive(self) -> T | None:
        """Wait for the next value; None when the other side is gone."""
        head = self._exactly(_LENGTH.size)
        body = None if head is None else self._exactly(_LENGTH.unpack(head)[0])
        return None if body is None else self._decoder.decode(body)

    def shut(self) -> None:
        """Shut the connection down, from any thread; :meth:`receive` then returns None."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._connection.close()

    def _exactly(self, size: int) -> bytes | None:
        chunks: list[bytes] = []
        while size:
            try:
                chunk = self._connection.recv(min(size, 1 << 20))
            except OSError:
                return None
            if not chunk:
                return None
            chunks.append(chunk)
            size -= len(chunk)
        return b"".join(chunks)

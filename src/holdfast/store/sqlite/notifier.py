"""Notifications on SQLite: each worker listens on a datagram socket in a directory beside the file."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.store.engine.changes import MAX_TEXT_BYTES, Changes, Notification, decode, encode
from holdfast.store.engine.interrupts import uninterrupted

if TYPE_CHECKING:
    import socket

#: The longest path of a socket, in bytes, that every system allows.
MAX_PATH_BYTES = 100
#: How long closing a listener waits for its thread, in seconds.
JOIN_TIMEOUT_S = 2


class SqliteNotifier:
    """The directory of sockets. A process that has changed something sends the changes to each."""

    def __init__(self, database: Path) -> None:
        self.directory = Path(f"{database}-notify")
        self._sender: socket.socket | None = None
        self._lock = threading.Lock()

    def notification(self, changes: Changes) -> Notification:
        """A commit sends nothing."""
        return Notification(None, partial(self.notify, changes))

    @uninterrupted
    def notify(self, changes: Changes) -> None:
        """Send *changes* to all listeners. The socket of a dead process is deleted."""
        if not changes:
            return
        try:
            names = os.listdir(self.directory)  # noqa: PTH208 - names, not paths: this is called at every enqueue
        except OSError:
            return  # no worker has ever listened
        datagram = encode(changes).encode()
        for name in names:
            try:
                with _reachable(self.directory, name) as address:
                    self._socket().sendto(datagram, address)
            except (ConnectionRefusedError, FileNotFoundError):
                with suppress(OSError):
                    (self.directory / name).unlink()
            except OSError:
                continue  # its buffer is full: it will wake anyway

    def close(self) -> None:
        if self._sender is not None:
            self._sender.close()

    def _socket(self) -> socket.socket:
        with self._lock:
            if self._sender is None:
                self._sender = _datagram_socket()
                self._sender.setblocking(False)
            return self._sender


class SqliteListener:
    """Listens on a socket of its own."""

    def __init__(self, notifier: SqliteNotifier, *, wake: Callable[[Changes], None]) -> None:
        self.hears_all = False  # the commit of a caller's own transaction is not observed
        self._wake = wake
        self._path = notifier.directory / os.urandom(6).hex()
        self._closed = threading.Event()
        self._socket = _datagram_socket()
        self.works = self._bind(notifier.directory)
        if self.works:
            self._thread = threading.Thread(target=self._work, name="holdfast-listener", daemon=True)
            self._thread.start()

    def close(self) -> None:
        if self._closed.is_set():
            return
        self._closed.set()
        if self.works:
            import socket

            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._thread.join(JOIN_TIMEOUT_S)
            self._path.unlink(missing_ok=True)
        self._socket.close()

    def _bind(self, directory: Path) -> bool:
        try:
            directory.mkdir(mode=0o700, exist_ok=True)
            with _reachable(directory, self._path.name) as address:
                self._socket.bind(address)
        except OSError as error:
            import logging

            log = logging.getLogger("holdfast")
            log.warning("no notifier beside the SQLite file (%s); the worker polls for new jobs", error)
            return False
        return True

    def _work(self) -> None:
        with suppress(OSError):
            while datagram := self._socket.recv(2 * MAX_TEXT_BYTES):  # empty after a shutdown
                self._wake(decode(datagram.decode(errors="replace")))


def _datagram_socket() -> socket.socket:
    import socket  # it takes milliseconds, and a command that only reads sends nothing

    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)


@contextmanager
def _reachable(directory: Path, name: str) -> Iterator[str]:
    """The address of a socket; a path that is too long is replaced by one through an open directory."""
    path = str(directory / name)
    if len(os.fsencode(path)) <= MAX_PATH_BYTES:
        yield path
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)

"""Notifications on SQLite: each worker listens on a datagram socket in a directory beside the file."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.store.engine.changes import EVERYTHING, MAX_TEXT_BYTES, Changes, Notification, decode, encode
from holdfast.store.engine.interrupts import import_alone, uninterrupted

if TYPE_CHECKING:
    import logging
    import socket

#: The longest path of a socket, in bytes, that every system allows.
MAX_PATH_BYTES = 100
#: How long closing a listener waits for its thread, in seconds.
JOIN_TIMEOUT_S = 2
#: The pause between a failure of a listener and its next socket, in seconds.
RESTART_DELAY_S = 1.0


class SqliteNotifier:
    """The directory of sockets. A process that has changed something sends the changes to each."""

    def __init__(self, database: Path) -> None:
        self.directory = Path(f"{database}-notify")
        self._sender: socket.socket | None = None
        self._lock = threading.RLock()  # a finalizer that runs in its block may call the store

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
                weakref.finalize(self, self._sender.close).atexit = False
            return self._sender


class SqliteListener:
    """Listens on a socket of its own, and on another one after an error."""

    def __init__(self, notifier: SqliteNotifier, *, wake: Callable[[Changes], None]) -> None:
        self.hears_all = False  # the commit of a caller's own transaction is not observed
        self._wake = wake
        self._directory = notifier.directory
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._path, self._socket = self._bound()
        self._thread = threading.Thread(target=self._work, name="holdfast-listener", daemon=True)
        self._thread.start()

    @property
    def works(self) -> bool:
        return self._socket is not None

    def close(self) -> None:
        if self._closed.is_set():
            return
        self._closed.set()
        with self._lock:
            if self._socket is not None:
                import socket

                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(JOIN_TIMEOUT_S)
        self._unbind()

    def _bound(self) -> tuple[Path, socket.socket | None]:
        """A new socket, and its path; no socket where none can be bound."""
        path, bound = self._directory / os.urandom(6).hex(), None
        try:
            self._directory.mkdir(mode=0o700, exist_ok=True)
            bound = _datagram_socket()
            with _reachable(self._directory, path.name) as address:
                bound.bind(address)
        except OSError as error:
            if bound is not None:
                bound.close()
            log().warning("no notifier beside the SQLite file (%s); the worker polls for new jobs", error)
            return path, None
        return path, bound

    def _unbind(self) -> None:
        with self._lock:
            bound, self._socket = self._socket, None
            if bound is not None:
                bound.close()
                self._path.unlink(missing_ok=True)

    def _work(self) -> None:
        missed = False
        while (bound := self._socket) is not None and not self._closed.is_set():
            try:
                if missed:
                    self._wake(EVERYTHING)
                while datagram := bound.recv(2 * MAX_TEXT_BYTES):  # empty after a shutdown
                    self._wake(decode(datagram.decode(errors="replace")))
                reason = "its socket was shut down"
            except Exception as error:  # noqa: BLE001 - whatever it is, a worker must not believe that it listens
                reason = str(error) or type(error).__name__
            if not self._closed.is_set():
                missed = True
                self._listen_again(reason)

    def _listen_again(self, reason: str) -> None:
        self._unbind()
        log().warning("the notifier beside the SQLite file has failed (%s); the worker listens again", reason)
        self._closed.wait(RESTART_DELAY_S)
        with self._lock:
            if not self._closed.is_set():
                self._path, self._socket = self._bound()


def log() -> logging.Logger:
    import logging  # a command that only reads logs nothing

    return logging.getLogger("holdfast")


def _datagram_socket() -> socket.socket:
    import_alone("holdfast.store.engine.sockets")
    import socket  # it takes milliseconds, and a command that only reads sends nothing

    from holdfast.store.engine.sockets import new_socket

    return new_socket(socket.AF_UNIX, socket.SOCK_DGRAM)


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

"""Connections to PostgreSQL, and a limit on every call: a peer that is gone never says so."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg

from holdfast.errors import StoreUnavailable

#: A connection that nobody needed for so long, in seconds, is closed.
IDLE = 60.0
#: How often calls under way are looked at, in seconds.
LOOK_EVERY = 0.5

Connection = psycopg.Connection[Any]


class Pool:
    """Hands out connections, made in the caller's own thread: an error comes at once, with its reason.

    When one turns out to be broken, those that lie idle are not trusted either.
    """

    def __init__(self, url: str, options: dict[str, Any], *, size: int, patience: float) -> None:
        self._url = url
        self._options = options
        self._size = size
        self._patience = patience
        self._free = threading.BoundedSemaphore(size)
        self._idle: deque[tuple[Connection, float]] = deque()
        self._calls = Calls()
        self._closed = False

    @contextmanager
    def connection(self, *, limit: float) -> Iterator[Connection]:
        """A connection for one call, which is broken off after *limit* seconds."""
        if not self._free.acquire(timeout=self._patience):
            raise StoreUnavailable(
                f"all {self._size} connections to the database are in use", hint="Run fewer slots in one process."
            )
        try:
            connection = self._take()
            try:
                with self._calls.limited(connection, limit):
                    yield connection
            finally:
                self._put(connection)
        finally:
            self._free.release()

    def close(self) -> None:
        """Close what is idle; what is in use is closed when it comes back."""
        self._closed = True
        self._calls.close()
        self._close_idle()

    def _take(self) -> Connection:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        with suppress(IndexError):
            while True:
                connection, _ = self._idle.pop()
                if not connection.closed and _silent(connection):
                    return connection
                connection.close()
        return psycopg.connect(self._url, **self._options)

    def _put(self, connection: Connection) -> None:
        usable = not connection.closed and connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        if usable and not self._closed:
            self._idle.append((connection, time.monotonic()))
            self._close_idle(longer_than=IDLE)
            return
        connection.close()
        self._close_idle()

    def _close_idle(self, *, longer_than: float = 0.0) -> None:
        with suppress(IndexError):
            while self._idle[0][1] <= time.monotonic() - longer_than:
                self._idle.popleft()[0].close()


def _silent(connection: Connection) -> bool:
    """A server that has something to say to an idle connection says goodbye."""
    look = select.poll()
    look.register(connection.fileno(), select.POLLIN)
    return not look.poll(0)


class Calls:
    """The calls under way. One that passes its limit is broken off, and with it those that have waited half as long."""

    def __init__(self) -> None:
        self._under_way: dict[int, tuple[Connection, float, float]] = {}
        self._lock = threading.Lock()
        self._some = threading.Event()
        self._closed = threading.Event()
        self._watch: threading.Thread | None = None

    @contextmanager
    def limited(self, connection: Connection, limit: float) -> Iterator[None]:
        if self._watch is None:
            self._start()
        self._under_way[id(connection)] = (connection, time.monotonic(), limit)
        if not self._some.is_set():
            self._some.set()
        try:
            yield
        finally:
            del self._under_way[id(connection)]

    def close(self) -> None:
        self._closed.set()
        self._some.set()

    def _start(self) -> None:
        with self._lock:
            if self._watch is None:
                self._watch = threading.Thread(target=self._look, name="holdfast-calls", daemon=True)
                self._watch.start()

    def _look(self) -> None:
        while not self._closed.is_set():
            self._some.clear()
            if not self._under_way:
                self._some.wait()
            self._closed.wait(LOOK_EVERY)
            self.break_off(time.monotonic())

    def break_off(self, now: float) -> None:
        """Break off what waits in vain, and what has waited half as long: the peer is gone for all of them."""
        calls = list(self._under_way.values())
        late = [limit for _, since, limit in calls if now - since > limit]
        for connection, since, _ in calls:
            if late and now - since > min(late) / 2:
                _hang_up(connection)


def _hang_up(connection: Connection) -> None:
    """Wake the thread that waits for this connection: it finds the line dead."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)

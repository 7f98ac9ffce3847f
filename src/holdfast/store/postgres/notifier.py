"""Waking workers on PostgreSQL: NOTIFY after an enqueue, LISTEN in each worker."""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import select
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import sql

from holdfast.errors import HoldfastError

log = logging.getLogger("holdfast")

#: Rings closer together than this, in seconds, become one.
COALESCE = 0.005
#: How long the test of a new ear may take, and the waits before the next one, in seconds.
TEST = 2.0
BACKOFF = (0.1, 0.5, 1.0, 2.0)
#: Where rings do not arrive, so many seconds pass before the next try, and more after each.
DEAF = (5.0, 30.0, 300.0)


class Notifier:
    """Sends rings from a thread of its own, so that no enqueue waits for one.

    Every NOTIFY takes a lock that all of a server's notifying transactions share, so a busy
    enqueuer rings once for many jobs, and never in the transaction that writes them.
    """

    def __init__(self, send: Callable[[], Any]) -> None:
        self._send = send
        self._wanted = threading.Event()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def notify(self) -> None:
        if not self._wanted.is_set():
            self._wanted.set()
        if self._thread is None:
            self._start()

    def close(self) -> None:
        """Send what is still to be sent."""
        self._closed.set()
        self._wanted.set()
        if self._thread is not None:
            self._thread.join(1)
            atexit.unregister(self.close)

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._work, name="holdfast-ringer", daemon=True)
                self._thread.start()
                # A short-lived process enqueues and ends: its ring must not die with the thread.
                atexit.register(self.close)

    def _work(self) -> None:
        while not self._closed.is_set():
            self._wanted.wait()
            self._wanted.clear()
            with suppress(HoldfastError):  # a ring is a hint: workers look by themselves as well
                self._send()
            self._closed.wait(COALESCE)


class PostgresListener:
    """Listens on a connection of its own; where rings do not arrive it says so, and tries again later."""

    def __init__(
        self, connect: Callable[[], psycopg.Connection[Any]], channel: str, *, heard: Callable[[], None]
    ) -> None:
        self._connect = connect
        self._channel = channel
        self._heard = heard
        self._works = threading.Event()
        self._closed = threading.Event()
        self._deaf = 0
        self._end, self._finished = os.pipe()
        self._thread = threading.Thread(target=self._work, name="holdfast-ear", daemon=True)
        self._thread.start()

    @property
    def works(self) -> bool:
        return self._works.is_set()

    @property
    def hears_all(self) -> bool:
        return self.works

    def close(self) -> None:
        if not self._closed.is_set():
            self._closed.set()
            os.close(self._finished)
            self._thread.join(2)
            os.close(self._end)

    def _work(self) -> None:
        failures = 0
        while not self._closed.is_set():
            try:
                with self._connect() as connection:
                    failures = 0
                    self._listen(connection)
            except psycopg.Error:
                failures += 1
            self._works.clear()
            self._closed.wait(BACKOFF[min(failures, len(BACKOFF) - 1)])

    def _listen(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
        if not self._tested(connection):
            if self._deaf == 0:
                log.warning("NOTIFY does not reach this worker (is PgBouncer between?); new jobs are found by polling")
            self._closed.wait(DEAF[min(self._deaf, len(DEAF) - 1)])
            self._deaf += 1
            return
        self._deaf = 0
        self._works.set()
        # Listen first, then read: what came before the LISTEN was told to nobody.
        self._heard()
        while not self._closed.is_set():
            self._wait(connection)
            if list(connection.notifies(timeout=0)):
                self._heard()

    def _tested(self, connection: psycopg.Connection[Any]) -> bool:
        """Ring once, by another connection, and see whether it arrives."""
        word = secrets.token_hex(8)
        with self._connect() as other:
            other.execute("SELECT pg_notify(%s, %s)", (self._channel, word))
        return any(notify.payload == word for notify in connection.notifies(timeout=TEST, stop_after=1))

    def _wait(self, connection: psycopg.Connection[Any]) -> None:
        """Until the server has something to say, or the ear is closed."""
        look = select.poll()
        look.register(connection.fileno(), select.POLLIN)
        look.register(self._end, select.POLLIN | select.POLLHUP)
        look.poll()

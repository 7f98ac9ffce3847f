"""Notifications on PostgreSQL: NOTIFY after an enqueue, LISTEN in each worker."""

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

#: Notifications closer together than this become one.
COALESCE_WINDOW_S = 0.005
#: The time limit of the test of a new listener.
TEST_TIMEOUT_S = 2.0
#: Waits before a new connection after failures.
RECONNECT_DELAYS_S = (0.1, 0.5, 1.0, 2.0)
#: Waits before a new test where notifications do not arrive.
RETEST_DELAYS_S = (5.0, 30.0, 300.0)


class PostgresNotifier:
    """Sends notifications from a thread of its own, so that no enqueue waits for one.

    Every NOTIFY takes a lock that all notifying transactions of a server share. So a busy process
    notifies once for many jobs, and never in the transaction that writes them.
    """

    def __init__(self, send: Callable[[], Any]) -> None:
        self._send = send
        self._requested = threading.Event()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def notify(self) -> None:
        if not self._requested.is_set():
            self._requested.set()
        if self._thread is None:
            self._start()

    def close(self) -> None:
        """Send a pending notification and stop."""
        self._closed.set()
        self._requested.set()
        if self._thread is not None:
            self._thread.join(1)
            atexit.unregister(self.close)

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._work, name="holdfast-notifier", daemon=True)
                self._thread.start()
                # A short process may exit right after an enqueue: its notification must not die with the thread.
                atexit.register(self.close)

    def _work(self) -> None:
        while not self._closed.is_set():
            self._requested.wait()
            self._requested.clear()
            with suppress(HoldfastError):  # only a hint: workers poll as well
                self._send()
            self._closed.wait(COALESCE_WINDOW_S)


class PostgresListener:
    """Listens on a connection of its own; if notifications do not arrive it logs a warning and tests again later."""

    def __init__(
        self, connect: Callable[[], psycopg.Connection[Any]], channel: str, *, wake: Callable[[], None]
    ) -> None:
        self._connect = connect
        self._channel = channel
        self._wake = wake
        self._works = threading.Event()
        self._closed = threading.Event()
        self._failed_tests = 0
        self._close_signal, self._close_sender = os.pipe()
        self._thread = threading.Thread(target=self._work, name="holdfast-listener", daemon=True)
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
            os.close(self._close_sender)
            self._thread.join(2)
            os.close(self._close_signal)

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
            self._closed.wait(RECONNECT_DELAYS_S[min(failures, len(RECONNECT_DELAYS_S) - 1)])

    def _listen(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
        if not self._test(connection):
            if self._failed_tests == 0:
                log.warning("NOTIFY does not reach this worker (is PgBouncer between?); new jobs are found by polling")
            self._closed.wait(RETEST_DELAYS_S[min(self._failed_tests, len(RETEST_DELAYS_S) - 1)])
            self._failed_tests += 1
            return
        self._failed_tests = 0
        self._works.set()
        # Wake once: changes before the LISTEN sent no notification here.
        self._wake()
        while not self._closed.is_set():
            self._wait(connection)
            if list(connection.notifies(timeout=0)):
                self._wake()

    def _test(self, connection: psycopg.Connection[Any]) -> bool:
        payload = secrets.token_hex(8)
        with self._connect() as other:
            other.execute("SELECT pg_notify(%s, %s)", (self._channel, payload))
        return any(notify.payload == payload for notify in connection.notifies(timeout=TEST_TIMEOUT_S, stop_after=1))

    def _wait(self, connection: psycopg.Connection[Any]) -> None:
        """Wait until the server sends something, or the listener is closed."""
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN)
        poll.register(self._close_signal, select.POLLIN | select.POLLHUP)
        poll.poll()

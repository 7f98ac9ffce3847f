"""Notifications on PostgreSQL: NOTIFY after an enqueue, LISTEN in each worker."""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import select
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import psycopg
from psycopg import sql

from holdfast.store.engine.changes import EVERYTHING, Changes, Notification, decode, encode
from holdfast.store.engine.flags import Flag
from holdfast.store.engine.interrupts import uninterrupted

log = logging.getLogger("holdfast")

#: Notifications closer together than this become one. The thread waits a little longer: the next commit of a busy
#: process takes the notification along.
COALESCE_WINDOW_S, PATIENCE_S = 0.005, 0.003
#: A commit that notified and took longer than this, and twice as long as one that did not, may have waited for others:
#: the next may notify after many times the excess, and after a pause if it failed. This keeps waits for the lock short
#: with many processes and with slow disks. A commit that does not notify counts as this long at most.
QUICK_COMMIT_S, EXCESS_FACTOR, FAILED_COMMIT_S, USUAL_COMMIT_S = 0.005, 50, 1.0, 0.05
#: The time limit of the test of a new listener.
TEST_TIMEOUT_S = 2.0
#: Waits before a new connection after failures.
RECONNECT_DELAYS_S = (0.1, 0.5, 1.0, 2.0)
#: Waits before a new test where notifications do not arrive.
RETEST_DELAYS_S = (5.0, 30.0, 300.0)

#: Notifies in a caller's transaction, delivered with its commit. A setting switches it off.
NOTIFY = """SELECT pg_notify('holdfast.ready', %s)
WHERE current_setting('holdfast' || '.notify', true) IS DISTINCT FROM 'off'"""

#: Runs a statement on a connection of the pool.
Run = Callable[[str, tuple[str, ...]], None]


class PostgresNotifier:
    """Sends notifications: a few of them with the transactions of their changes, the others from a thread.

    Every NOTIFY takes a lock that all notifying transactions of a server share, until their commits are on the disk.
    So a busy process notifies once for many jobs. If its commits wait for those of others, the thread notifies instead,
    in a transaction that does not wait for the disk.
    """

    def __init__(self, channel: str, run: Run) -> None:
        self._channel = channel
        self._run = run
        self._pending: set[str] = set()
        self._requested = Flag()
        self._closed = Flag()
        self._lock = threading.RLock()  # a finalizer that runs in its block may call the store
        self._thread: threading.Thread | None = None
        #: When a notification was sent last, and from when on a commit may send one again, by the monotonic clock.
        self._sent_at = self._free_at = float("-inf")
        #: Changes of others that a commit under way has taken along.
        self._taken: Changes = frozenset()
        #: The seconds of the last commit that did not notify.
        self._usual = 0.0

    @uninterrupted
    def notification(self, changes: Changes) -> Notification:
        """Let the transaction of *changes* notify itself, unless another did just now, or this cost too much.

        It also notifies of the changes that wait for the thread, which does so if the commit takes long.
        """
        with self._lock:
            now = time.monotonic()
            if not changes or now < max(self._sent_at + COALESCE_WINDOW_S, self._free_at):
                return Notification(None, partial(self._committed, changes, now))
            self._sent_at, self._free_at = now, now + FAILED_COMMIT_S
            waiting = self._taken = self._taken | self._pending
            self._pending = set()

        def committed() -> None:
            with self._lock:
                if self._taken is waiting:
                    self._taken = frozenset()
            excess = max(0.0, time.monotonic() - now - max(QUICK_COMMIT_S, 2 * self._usual))
            self._free_at = time.monotonic() + EXCESS_FACTOR * excess

        return Notification(encode(changes | waiting), committed, partial(self.notify, waiting))

    def _committed(self, changes: Changes, began: float) -> None:
        self._usual = min(time.monotonic() - began, USUAL_COMMIT_S)
        self.notify(changes)

    @uninterrupted
    def notify(self, changes: Changes) -> None:
        if not changes:
            return
        with self._lock:
            self._pending |= changes
            if not self._closed.is_set():
                _PENDING.add(self)
        if not self._requested.is_set():
            self._requested.set()
        if self._thread is None:
            self._start()

    def close(self) -> None:
        """Send pending changes and stop."""
        self._closed.set()
        self._requested.set()
        if self._thread is not None:
            self._thread.join(1)
        self.abandon()

    def abandon(self) -> None:
        """Neither send what waits nor close at the exit, as in a forked child: its parent does."""
        _RUNNING.discard(self)
        _PENDING.discard(self)

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._closed.is_set():
                arguments = (weakref.ref(self), self._requested)
                self._thread = threading.Thread(target=_work, args=arguments, name="holdfast-notifier", daemon=True)
                self._thread.start()
                _RUNNING.add(self)

    def __del__(self) -> None:
        self._closed.set()
        self._requested.set()

    def send_pending(self) -> bool:
        """Send what waits for the thread, a little later; returns whether this was the last time."""
        while (wait := self._next_at() - time.monotonic()) > 0 and not self._closed.wait(wait):
            pass  # a commit has notified meanwhile
        # Read before the changes are taken: those that came before the close are sent.
        closing = self._closed.is_set()
        with self._lock:
            changes, self._pending, self._taken = self._pending | self._taken, set(), frozenset()
            _PENDING.discard(self)
            if changes:
                self._sent_at = time.monotonic()
        if changes:
            with suppress(Exception):  # only a hint: workers poll as well; the thread continues
                self.send(encode(frozenset(changes)))
        return closing

    def _next_at(self) -> float:
        """When the thread sends what waits."""
        patience = PATIENCE_S if self._free_at <= time.monotonic() else 0.0
        return self._sent_at + COALESCE_WINDOW_S + patience

    def send(self, text: str) -> None:
        """Send a notification now. It may be lost with the server, so the commit does not wait for the disk."""
        self._run("SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, %s)", (self._channel, text))


def _work(reference: weakref.ref[PostgresNotifier], requested: Flag) -> None:
    """Send notifications until the notifier is closed or gone; while this thread waits, it does not keep it alive."""
    closing = False
    while not closing:
        requested.wait()
        requested.clear()
        notifier = reference()
        closing = notifier is None or notifier.send_pending()
        del notifier


#: The notifiers with a thread. A short process may exit right after an enqueue: its notification must not die with it.
_RUNNING: weakref.WeakSet[PostgresNotifier] = weakref.WeakSet()
#: Those that have something to send: an application that is dropped right after an enqueue still does.
_PENDING: set[PostgresNotifier] = set()


@atexit.register
def _close_all() -> None:
    for notifier in list(_RUNNING):
        notifier.close()


class PostgresListener:
    """Listens on a connection of its own; if notifications do not arrive it logs a warning and tests again later."""

    def __init__(
        self,
        connect: Callable[[], psycopg.Connection[Any]],
        channel: str,
        *,
        send: Callable[[str], None],
        wake: Callable[[Changes], None],
    ) -> None:
        self._connect = connect
        self._channel = channel
        #: Sends a notification on another connection.
        self._send = send
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
            except Exception:  # noqa: BLE001 - whatever it is, a worker must not believe that a dead listener works
                failures += 1
            self._works.clear()
            self._closed.wait(RECONNECT_DELAYS_S[min(failures, len(RECONNECT_DELAYS_S) - 1)])

    def _listen(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
        if not self._test(connection):
            if self._failed_tests == 0:
                log.warning("NOTIFY does not reach this worker (behind PgBouncer?); it polls for new jobs")
            self._closed.wait(RETEST_DELAYS_S[min(self._failed_tests, len(RETEST_DELAYS_S) - 1)])
            self._failed_tests += 1
            return
        self._failed_tests = 0
        self._works.set()
        # Wake once: changes before the LISTEN sent no notification here.
        self._wake(EVERYTHING)
        while not self._closed.is_set():
            self._wait(connection)
            if texts := _received(connection):
                self._wake(frozenset().union(*map(decode, texts)))

    def _test(self, connection: psycopg.Connection[Any]) -> bool:
        """Whether a notification of another connection arrives; on a busy channel others may come first."""
        text = f"test:{secrets.token_hex(8)}"
        self._send(text)
        return any(notify.payload == text for notify in connection.notifies(timeout=TEST_TIMEOUT_S))

    def _wait(self, connection: psycopg.Connection[Any]) -> None:
        """Wait until the server sends something, or the listener is closed."""
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN)
        poll.register(self._close_signal, select.POLLIN | select.POLLHUP)
        poll.poll()


def _received(connection: psycopg.Connection[Any]) -> set[str]:
    """The texts of the notifications that have arrived; psycopg's own generator takes longer than the rest."""
    connection.pgconn.consume_input()
    texts = set()
    while (notification := connection.pgconn.notifies()) is not None:
        try:
            texts.add(notification.extra.decode(connection.info.encoding))
        except UnicodeDecodeError:
            texts.add("")  # anything may have changed
    return texts

"""Abandoned connections: they were given up here while the server may still work for them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import psycopg
from msgspec import Struct

from holdfast.errors import HoldfastError
from holdfast.store.postgres.connections import Connection

log = logging.getLogger("holdfast")

#: Waits before each check on the server; the last one repeats.
DELAYS_S = (0.05, 0.5, 1.0, 2.0, 5.0)
#: List the backends that still exist, and terminate them. Another backend may have the same pid, on this server or on
#: another one after a failover: ours began when its connection was opened. A backend that waits for a synchronous
#: standby has committed: to end its wait would show the transaction before the standby has it.
TERMINATE = """
SELECT pid, CASE WHEN wait_event IS DISTINCT FROM 'SyncRep' THEN pg_terminate_backend(pid) END
FROM unnest(%s::integer[], %s::double precision[]) AS abandoned (pid, age) JOIN pg_stat_activity USING (pid)
WHERE usename = session_user AND abs(extract(epoch FROM clock_timestamp() - backend_start) - age) < %s
"""
#: Seconds by which the start of a backend may differ from the opening of its connection, as the client measures it.
START_TOLERANCE_S = 10.0


class _Entry(Struct):
    pid: int
    opened_at: float
    closed: Callable[[], None]


class AbandonedConnections:
    """Ends abandoned connections on the server, and reports each that is gone. Its thread runs while there are any."""

    def __init__(self, connect: Callable[[], AbstractContextManager[Connection]], closed: threading.Event) -> None:
        self._connect = connect
        self._closed = closed
        self._lock = threading.RLock()  # a finalizer that runs in its block may call the store
        self._entries: list[_Entry] = []
        self._running = False
        self._checks = 0

    def add(self, pid: int, *, opened_at: float, closed: Callable[[], None]) -> None:
        """Watch the backend *pid*; *closed* is called when the server no longer has it.

        *opened_at* is when its connection was opened, by the monotonic clock.
        """
        with self._lock:
            self._entries.append(_Entry(pid, opened_at, closed))
            self._checks = 0
            if not self._running:
                self._running = True
                threading.Thread(target=self._work, name="holdfast-abandoned", daemon=True).start()

    def _work(self) -> None:
        more = True
        while more and not self._closed.wait(DELAYS_S[min(self._checks, len(DELAYS_S) - 1)]):
            with self._lock:
                self._checks += 1
                entries = list(self._entries)
            gone = self._find_gone(entries)
            with self._lock:
                self._entries = [entry for entry in self._entries if entry not in gone]
                more = self._running = bool(self._entries)
            for entry in gone:
                entry.closed()
            if more and self._checks == len(DELAYS_S):
                log.warning("%d connections got no answer and are still open on the server", len(entries))

    def _find_gone(self, entries: list[_Entry]) -> list[_Entry]:
        """The entries that the server no longer has; none while it cannot be reached."""
        now = time.monotonic()
        ages = [now - entry.opened_at for entry in entries]
        parameters = ([entry.pid for entry in entries], ages, START_TOLERANCE_S)
        try:
            with self._connect() as connection:
                known = {row[0] for row in connection.execute(TERMINATE, parameters)}
        except (psycopg.Error, HoldfastError):
            return []
        return [entry for entry in entries if entry.pid not in known]

"""Commits whose answer is lost: the server is queried for the status of the transaction.

The number of a transaction does not identify it. After a crash PostgreSQL reuses the numbers of transactions
that had not reached the disk, so the status could be that of another transaction. An unlogged table separates
the epochs of a server: recovery from a crash empties it, and a promoted standby lacks its row.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import NamedTuple

import psycopg

from holdfast.errors import StoreUnavailable
from holdfast.store.engine.backend import Timeouts
from holdfast.store.engine.interrupts import deliver
from holdfast.store.postgres.connections import Connection
from holdfast.store.postgres.statements import Statements

STATUS_INTERVAL = timedelta(milliseconds=100)

WRITTEN = "SELECT pg_current_xact_id_if_assigned()::text, (SELECT id::text FROM holdfast.epoch)"
BEGIN_TIMELINE = "SELECT holdfast.begin_timeline()"
#: The same, for sessions that a pooler lends for a transaction each: whether this one has begun a timeline.
BEGIN_TIMELINE_ONCE = BEGIN_TIMELINE + (
    " WHERE coalesce(current_setting('holdfast' || '.last_id_' || 'holdfast.timeline'::regclass::oid, true), '') = ''"
)
BEGIN_EPOCH = "INSERT INTO holdfast.epoch (id) VALUES (gen_random_uuid()) ON CONFLICT (single_row) DO NOTHING"
STATUS = "SELECT pg_xact_status(%s::xid8), (SELECT id::text FROM holdfast.epoch)"


class Written(NamedTuple):
    """A transaction that has written something: its number, and the epoch of its server."""

    transaction: str
    epoch: str


class Commits:
    """Commits transactions, and determines the status of those whose answer was lost."""

    def __init__(
        self, connect: Callable[[], AbstractContextManager[Connection]], statements: Statements, closed: threading.Event
    ) -> None:
        self._connect = connect
        self._closed = closed
        self._written = statements.in_schema(WRITTEN).encode()
        self._begin_epoch = statements.in_schema(BEGIN_EPOCH).encode()
        self._status = statements.in_schema(STATUS).encode()

    def written(self, connection: Connection) -> Written | None:
        """The identity of a transaction for a status query; None: it has written nothing."""
        row = connection.execute(self._written).fetchone()
        if row is None or row[0] is None:
            return None
        return Written(row[0], row[1] or self._new_epoch())

    def commit(self, connection: Connection, written: Written | None) -> None:
        """Commit; returns only if the transaction was committed.

        Raises:
            psycopg.OperationalError: It was not.
            StoreUnavailable: The status query failed, or the server does not know.
        """
        try:
            connection.execute("COMMIT")
        except psycopg.OperationalError:
            if written is None or not self._committed(written):
                raise

    def _new_epoch(self) -> str:
        """Begin a new epoch: the first writer after a crash does this, before its own commit."""
        with self._connect() as connection:
            connection.execute(self._begin_epoch)
            row = connection.execute(self._written).fetchone()
            assert row is not None
            return str(row[1])

    def _committed(self, written: Written) -> bool:
        deadline = time.monotonic() + Timeouts.statement.total_seconds()
        while time.monotonic() < deadline:
            status, epoch = self._query_status(written.transaction)
            if status is not None and epoch != written.epoch:
                raise StoreUnavailable("the database crashed and no longer knows whether the transaction was committed")
            if status in ("committed", "aborted"):
                return status == "committed"
            if self._closed.wait(STATUS_INTERVAL.total_seconds()):
                break
            deliver()
        raise StoreUnavailable("the database did not confirm whether the last transaction was committed")

    def _query_status(self, transaction: str) -> tuple[str | None, str | None]:
        """Query on a new connection: those of the pool may all be broken."""
        try:
            with self._connect() as connection:
                row = connection.execute(self._status, (transaction,)).fetchone()
                return (None, None) if row is None else row
        except psycopg.Error:
            return None, None


def begin_timeline(connection: Connection, statements: Statements) -> None:
    """Begin a new history after a failover or a restore, before anything else is done on a new connection.

    Ids and tokens of the lost end of the old history never come again.
    """
    connection.execute(statements.in_schema(BEGIN_TIMELINE).encode())

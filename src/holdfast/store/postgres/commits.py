"""Commits whose answer is lost: the server is asked what became of the transaction.

The number of a transaction is not enough to ask by. After a crash PostgreSQL gives the numbers of transactions
that had not reached the disk out again, and its answer would be about somebody else's. An unlogged table tells
the lives of a server apart: recovery from a crash empties it, and a promoted standby comes without its row.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import psycopg

from holdfast.errors import StoreUnavailable
from holdfast.store.engine.backend import Timeouts
from holdfast.store.postgres.statements import Statements

STATUS_EVERY = timedelta(milliseconds=100)

WRITTEN = "SELECT pg_current_xact_id_if_assigned()::text, (SELECT id::text FROM holdfast.epoch)"
BEGIN_EPOCH = "INSERT INTO holdfast.epoch (id) VALUES (gen_random_uuid()) ON CONFLICT (single_row) DO NOTHING"
STATUS = "SELECT pg_xact_status(%s::xid8), (SELECT id::text FROM holdfast.epoch)"

Connection = psycopg.Connection[Any]


class Written(NamedTuple):
    """A transaction that has written something: its number, and the life of the server that gave it out."""

    transaction: str
    epoch: str


class Commits:
    """Commits transactions, and finds out what became of those that nobody heard of again."""

    def __init__(self, connect: Callable[[], Connection], statements: Statements, closed: threading.Event) -> None:
        self._connect = connect
        self._closed = closed
        self._written = statements.in_schema(WRITTEN).encode()
        self._begin_epoch = statements.in_schema(BEGIN_EPOCH).encode()
        self._status = statements.in_schema(STATUS).encode()

    def written(self, connection: Connection) -> Written | None:
        """What to ask by if the answer to COMMIT is lost; None: nothing was written."""
        row = connection.execute(self._written).fetchone()
        if row is None or row[0] is None:
            return None
        return Written(row[0], row[1] or self._new_epoch())

    def commit(self, connection: Connection, written: Written | None) -> None:
        """Commit; comes back only if the transaction was committed.

        Raises:
            psycopg.OperationalError: It was not.
            StoreUnavailable: The server could not be asked, or does not know.
        """
        try:
            connection.execute("COMMIT")
        except psycopg.OperationalError:
            if written is None or not self._committed(written):
                raise

    def _new_epoch(self) -> str:
        """The first to write after a crash says that a new life has begun, before its own commit."""
        with self._connect() as connection:
            connection.execute(self._begin_epoch)
            row = connection.execute(self._written).fetchone()
            assert row is not None
            return str(row[1])

    def _committed(self, written: Written) -> bool:
        for _ in range(int(Timeouts.statement / STATUS_EVERY)):
            status, epoch = self._ask(written.transaction)
            if status is not None and epoch != written.epoch:
                raise StoreUnavailable("the database crashed and no longer knows whether the transaction was committed")
            if status in ("committed", "aborted"):
                return status == "committed"
            self._closed.wait(STATUS_EVERY.total_seconds())
        raise StoreUnavailable("the database did not say whether the last transaction was committed")

    def _ask(self, transaction: str) -> tuple[str | None, str | None]:
        """Ask on a new connection: those of the pool may have broken together."""
        try:
            with self._connect() as connection:
                row = connection.execute(self._status, (transaction,)).fetchone()
                return (None, None) if row is None else row
        except psycopg.Error:
            return None, None

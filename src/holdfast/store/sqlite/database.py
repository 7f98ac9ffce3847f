"""Work on a whole SQLite store: health, size, backup, and copies of its rows."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import NotAStore, StoreFull
from holdfast.store.engine.interrupts import uninterrupted
from holdfast.store.engine.migrations import TABLES, schema_problems
from holdfast.store.sqlite.checkpoints import MAX_LOG_BYTES
from holdfast.store.sqlite.files import create_private, is_busy, is_full, size_of, translated
from holdfast.store.sqlite.schema import list_tables, read_objects, read_record

if TYPE_CHECKING:
    from holdfast.domain.health_check import HealthCheck
    from holdfast.store.engine.backend import ConnectionUse
    from holdfast.store.sqlite.backend import SqliteBackend

#: Tables that a closed store still changes: tokens, sessions and the audit log.
_OPEN_TABLES = ("audit_entry", "credential", "session", "secret", "saved_filter", "idempotency_key")
#: Triggers that refuse every other change while a store is closed.
_TRIGGERS = {
    f"holdfast_closed_{table}_{event.lower()}": f"{event} ON holdfast_{table}"
    for table in TABLES
    if table not in _OPEN_TABLES
    for event in ("INSERT", "UPDATE", "DELETE")
}
LOW_DISK_BYTES = 500_000_000
#: A file with more free space than this, and more than rows, is reported. Maintenance returns space of files that
#: Holdfast has created.
FREE_BYTES = 100_000_000
#: A transaction that keeps the log from its restart for longer is reported; those of Holdfast take milliseconds.
LONG_TRANSACTION_S = 1.0
#: A file that is locked for longer is reported; transactions of workers take milliseconds.
LOCK_CHECK_S = 2.0
#: Pages that a backup copies before it lets writers continue.
BACKUP_PAGES = 1000


class SqliteDatabase:
    """Works on connections of its own."""

    def __init__(self, backend: SqliteBackend) -> None:
        self._backend = backend

    @property
    def server(self) -> str:
        return f"SQLite {sqlite3.sqlite_version}"

    def size(self) -> int:
        """The size of the file and of its log, in bytes."""
        total = 0
        for name in (self._backend.path, Path(f"{self._backend.path}-wal")):
            with suppress(FileNotFoundError):
                total += name.stat().st_size
        return total

    def damage(self) -> list[str]:
        with self._connection() as connection:
            return [row[0] for row in connection.execute("PRAGMA integrity_check(10)") if row[0] != "ok"]

    def schema_problems(self, *, essential: bool = False) -> list[str]:
        """Differences between the schema of this version and the present one."""
        with self._connection() as connection:
            record, present = read_record(connection), read_objects(connection)
        return schema_problems("sqlite", record, present, essential=essential)

    def health(self) -> Iterator[HealthCheck]:
        """Checks of the file, its disk and its log."""
        import shutil

        from holdfast.domain.health_check import fail, ok, warn

        path = self._backend.path
        mode = path.stat().st_mode & 0o777
        if mode & 0o077:
            yield warn("permissions", f"others may read {path} (mode {mode:o})", f"chmod 600 {path}")
        else:
            yield ok("permissions", f"only you can read {path}")
        free = shutil.disk_usage(path.parent).free
        if is_full(path):
            yield fail("disk", f"the disk of {path} is full: {free / 1e6:,.1f} MB are free", StoreFull.hint)
        elif free < LOW_DISK_BYTES:
            yield warn("disk", f"{free / 1e6:,.0f} MB are free", "Make room, or move the store: holdfast db copy.")
        else:
            yield ok("disk", f"{free / 1e9:,.0f} GB are free")
        size = size_of(f"{path}-wal")
        if size > MAX_LOG_BYTES and self._has_long_transaction():
            text = f"its log has {size / 1e6:,.0f} MB: a transaction stays open"
            yield warn("log", text, "End the program with the long read; then the log restarts.")
        elif size > MAX_LOG_BYTES:
            text = f"its log has {size / 1e6:,.0f} MB: transactions that read the file overlap"
            yield warn("log", text, "Make them shorter than 0.2 s: the log restarts when all have ended.")
        free, used = self._free_bytes()
        if free > max(used, FREE_BYTES):
            text = f"{free / 1e6:,.0f} MB of the file are free"
            yield warn("space", text, "New rows reuse it. To return it to the file system: holdfast db vacuum.")
        if self._is_locked():
            text = f"another program has kept the file locked for {LOCK_CHECK_S:.0f} s: no job can start or finish"
            yield warn("lock", text, "Find the program with an open write transaction, and commit it: fuser -v FILE.")

    def _free_bytes(self) -> tuple[int, int]:
        """The bytes of the file that are free, and those in use."""
        with self._connection() as connection:
            free, pages, size = (
                connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("freelist_count", "page_count", "page_size")
            )
        return free * size, (pages - free) * size

    def _has_long_transaction(self) -> bool:
        """Whether a transaction that reads an old state of the file lasts."""
        with self._connection() as connection:
            before = self._backend.checkpoint(connection)
            threading.Event().wait(LONG_TRANSACTION_S)
            after = self._backend.checkpoint(connection)
        # The log may have begun anew meanwhile: then it has fewer pages.
        return before is not None and after is not None and after[1] < before[0] <= after[0]

    def is_disk_full(self) -> bool:
        """Whether the disk of the file has no room."""
        return is_full(self._backend.path)

    def connection_use(self) -> list[ConnectionUse]:
        """Nothing: a file has no limit of connections."""
        return []

    def _is_locked(self) -> bool:
        """Whether another program keeps all others from writing."""
        with self._connection() as connection:
            connection.execute(f"PRAGMA busy_timeout = {int(LOCK_CHECK_S * 1000)}")
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                return is_busy(error)  # another error, of a read-only file for example, does not mean a lock
            connection.execute("ROLLBACK")
            return False

    def vacuum(self) -> None:
        """Rewrite the file without gaps. Writers wait meanwhile."""
        with self._backend.checkpointing(), self._connection() as connection:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("VACUUM")
            connection.execute("PRAGMA optimize")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def backup(self, file: Path) -> None:
        """Copy one snapshot into a file that needs no log; writers continue meanwhile.

        The copy is an installation of its own: an enqueue on a connection to it is not taken for one to the original.
        """
        create_private(file)
        with self._connection() as connection, closing(sqlite3.connect(file)) as target:
            # Without a snapshot of its own, the copy begins anew after each commit of another connection.
            connection.execute("BEGIN")
            connection.execute("SELECT installation FROM holdfast_meta").fetchone()
            connection.backup(target, pages=BACKUP_PAGES)
            connection.execute("COMMIT")
            target.execute("PRAGMA journal_mode = DELETE")
            if target.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                raise NotAStore(f"{self._backend.path} is damaged", hint="See holdfast db check; nothing was written.")
            target.execute("UPDATE holdfast_meta SET installation = lower(hex(randomblob(16)))")
            target.commit()
        with file.open("rb") as written:
            os.fsync(written.fileno())

    def tables(self) -> list[str]:
        """The tables of the store, without their prefix."""
        with self._connection() as connection:
            return list_tables(connection)

    def columns(self, table: str) -> list[str]:
        """The columns of a table that a copy writes."""
        with self._connection() as connection:
            return _columns(connection, table)

    def close_for(self, successor: str) -> None:
        """Refuse all changes from now on, also those to batches and inboxes: *successor* is the store to use."""
        message = f"E_STORE_MOVED: this store was copied to {successor}".replace("'", "''")
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            for name, event in _TRIGGERS.items():
                connection.execute(f"DROP TRIGGER IF EXISTS {name}")
                connection.execute(f"CREATE TRIGGER {name} BEFORE {event} BEGIN SELECT RAISE(ABORT, '{message}'); END")
            connection.execute("UPDATE holdfast_meta SET successor = ?", (successor,))
            connection.execute("COMMIT")

    def reopen(self) -> None:
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            for name in _TRIGGERS:
                connection.execute(f"DROP TRIGGER IF EXISTS {name}")
            connection.execute("UPDATE holdfast_meta SET successor = NULL")
            connection.execute("COMMIT")

    @property
    @uninterrupted
    def successor(self) -> str | None:
        """The store that this one was copied to."""
        if not self._backend.fits:
            return None  # early development versions had no such column
        # Every command reads it: a connection of its own would read the whole schema again.
        with self._backend.reader() as connection, translated(self._backend.path):
            (successor,) = connection.execute("SELECT successor FROM holdfast_meta").fetchone()
            return None if successor is None else str(successor)

    @contextmanager
    def snapshot(self) -> Iterator[Callable[[str], tuple[list[str], Iterator[Any]]]]:
        """A function from a table to its columns and rows, all of one snapshot."""
        with self._connection() as connection:
            connection.execute("BEGIN")

            def rows(table: str) -> tuple[list[str], Iterator[Any]]:
                columns = _columns(connection, table)
                order = "id" if table == "event" else ", ".join(columns[:2])
                chosen = f"SELECT {', '.join(columns)} FROM holdfast_{table} ORDER BY {order}"  # noqa: S608 - our own names
                return columns, connection.execute(chosen)

            yield rows
            connection.execute("COMMIT")

    def last_id(self) -> int:
        """The highest id of any job so far."""
        with self._connection() as connection:
            (last,) = connection.execute("SELECT last_job_id FROM holdfast_meta").fetchone()
            return int(last)

    @contextmanager
    def bulk_load(self, *, last_id: Callable[[], int]) -> Iterator[Callable[[str, list[str], Iterator[Any]], int]]:
        """A function that inserts the rows of a table; all tables are kept, or none.

        New ids follow the ids that were inserted and *last_id*, which is called after the last table.
        """
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")

            def load(table: str, columns: list[str], rows: Iterator[Any]) -> int:
                marks = ", ".join("?" * len(columns))
                insert = f"INSERT OR IGNORE INTO holdfast_{table} ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608
                return connection.executemany(insert, rows).rowcount

            try:
                yield load
                counter = "max(last_job_id, ?, (SELECT coalesce(max(id), 0) FROM holdfast_job))"
                connection.execute(f"UPDATE holdfast_meta SET last_job_id = {counter}", (last_id(),))  # noqa: S608
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        with self._backend.own_connection() as connection:
            yield connection


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    """The columns of a table; events get new ids in the target of a copy."""
    rows = connection.execute("SELECT name FROM pragma_table_info(?)", (f"holdfast_{table}",))
    return [name for (name,) in rows if (table, name) != ("event", "id")]

"""Work on a whole store: check, vacuum, back up, move."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from holdfast.domain.fleet.queue import WORKER_SILENCE
from holdfast.domain.health_check import HealthCheck
from holdfast.domain.store_url import sqlite_url
from holdfast.errors import InvalidInput, NotAStore, SchemaMismatch, StoreInUse, StoreMoved
from holdfast.store.engine.backend import Backend, ConnectionUse
from holdfast.store.engine.migrations import OTHER_TABLES, TABLES, require_same_names
from holdfast.store.engine.operation import query, single

#: Wrong rows whose ids a finding lists.
SHOWN_ROWS = 10
#: Live rows of each end that the doctor examines.
MAX_EXAMINED = 10_000

#: Columns and rows of a table.
TableReader = Callable[[str], tuple[list[str], Iterator[Any]]]
#: Inserts rows (table, columns, rows) and returns their number.
TableLoader = Callable[[str, list[str], Iterator[Any]], int]


class DatabaseTools(Protocol):
    """Operations of a backend on its whole database."""

    @property
    def server(self) -> str: ...
    @property
    def successor(self) -> str | None: ...
    def size(self) -> int: ...
    def damage(self) -> list[str]: ...
    def schema_problems(self, *, essential: bool = False) -> list[str]: ...
    def health(self) -> Iterator[HealthCheck]: ...
    def is_disk_full(self) -> bool: ...
    def connection_use(self) -> list[ConnectionUse]: ...
    def vacuum(self) -> None: ...
    def tables(self) -> list[str]: ...
    def columns(self, table: str) -> list[str]: ...
    def snapshot(self) -> AbstractContextManager[TableReader]: ...
    def last_id(self) -> int: ...
    def bulk_load(self, *, last_id: Callable[[], int]) -> AbstractContextManager[TableLoader]: ...


class CanBeCopied(Protocol):
    """What a copy reads of a store."""

    @property
    def last_id(self) -> Callable[[], int]: ...
    def snapshot(self) -> AbstractContextManager[TableReader]: ...


@runtime_checkable
class CanBackUp(Protocol):
    """A database that can copy itself into a file."""

    def backup(self, file: Path) -> None: ...


@runtime_checkable
class CanClose(Protocol):
    """A store that can refuse all changes after another store has replaced it."""

    def close_for(self, successor: str) -> None: ...
    def reopen(self) -> None: ...


class Finding(Struct, frozen=True):
    """The result of one check, with the problem if it failed."""

    check: str
    ok: bool
    detail: str = ""


class Vacuumed(Struct, frozen=True):
    before: int
    after: int


CHECKS = {
    "find_jobs_without_state": "every job is live or finished",
    "find_jobs_live_and_finished": "no job is both live and finished",
    "find_states_without_job": "every live or finished row belongs to a job",
    "find_tags_without_job": "every tag in the index belongs to a job",
    "find_waiting_without_dependencies": "every waiting job has a dependency",
    "find_jobs_past_limits": "no live job has exceeded its attempts",
    "find_keys_of_two_jobs": "a key belongs to one live job at most",
    "find_batches_miscounted": "the counters of a batch agree with its units",
    "find_units_without_batch": "units, counters and results belong to a batch",
    "find_holders_without_lease": "every holder of units has a lease",
    "find_results_without_unit": "a result in an inbox belongs to a unit that waits for it",
}


class ForeignStore:
    """The store of a development version, read as if it had the schema of this code.

    Tables and columns are matched by name. What this code does not have is left out; nothing that may have been
    renamed is.
    """

    def __init__(self, source: DatabaseTools, target: DatabaseTools) -> None:
        self.last_id = source.last_id
        self._source = source
        self._target = target

    @contextmanager
    def snapshot(self) -> Iterator[TableReader]:
        """A function from a table to its columns and rows, as far as this code knows them.

        Raises:
            SchemaMismatch: A table or a column may have been renamed: a copy would lose it.
        """
        theirs = self._source.tables()
        require_same_names("the tables", TABLES, set(theirs) - {*OTHER_TABLES})
        with self._source.snapshot() as read:

            def rows(table: str) -> tuple[list[str], Iterator[Any]]:
                if table not in theirs:
                    return self._target.columns(table), iter(())
                ours = self._target.columns(table)
                columns, cells = read(table)
                require_same_names(f"the columns of {table}", ours, columns)
                kept = [i for i, column in enumerate(columns) if column in ours]
                return [columns[i] for i in kept], ([row[i] for i in kept] for row in cells)

            yield rows


class Database:
    """Maintenance by the owner of a store."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.tools: DatabaseTools = backend.tools

    def check(self) -> list[Finding]:
        """Check all rows: that the database is not damaged and that its tables are consistent."""
        try:
            damage = self.tools.damage()
        except NotAStore as error:
            damage = [error.message]
        finding = Finding("the database is not damaged", not damage, "; ".join(damage))
        checks = (self._check(statement, text) for statement, text in CHECKS.items())
        return [finding, self._check_schema(), *checks]

    def live_orphans(self, *, limit: int = SHOWN_ROWS) -> list[int]:
        """The ids of live rows without a job, among the oldest and the newest ones: quick, unlike :meth:`check`."""
        return [row[0] for row in self._backend.run(query("find_live_orphans", examined=MAX_EXAMINED, limit=limit))]

    def _check_schema(self) -> Finding:
        text = "the schema is the one of its version"
        try:
            problems = self.tools.schema_problems()
        except NotAStore as error:
            return Finding(text, ok=False, detail=f"cannot be read: {error.message}")
        more = "" if len(problems) <= SHOWN_ROWS else f" and {len(problems) - SHOWN_ROWS} more"
        return Finding(text, not problems, "; ".join(problems[:SHOWN_ROWS]) + more)

    def require_schema(self) -> None:
        """Check that the statements of this code can work on the schema.

        Raises:
            SchemaMismatch: Something of it is missing, or a migration was changed after it was applied.
        """
        if problems := self.tools.schema_problems(essential=True):
            raise SchemaMismatch(f"the schema of the store is not the one of its version: {'; '.join(problems[:3])}")

    def refuse_moved(self) -> None:
        """Check that no other store has replaced this one.

        Raises:
            StoreMoved: It was copied; the message names the store to use.
        """
        if (successor := self.tools.successor) is not None:
            raise StoreMoved(f"this store was copied to {successor}")

    def _check(self, statement: str, text: str) -> Finding:
        try:
            rows = self._backend.read(single, query(statement, limit=SHOWN_ROWS + 1))
        except NotAStore as error:
            return Finding(text, ok=False, detail=f"cannot be read: {error.message}")
        ids = ", ".join(str(row[0]) for row in rows[:SHOWN_ROWS])
        more = " and more" if len(rows) > SHOWN_ROWS else ""
        return Finding(text, not rows, f"not so: {ids}{more}" if rows else "")

    def vacuum(self) -> Vacuumed:
        """Return the space of deleted rows to the file system."""
        before = self.tools.size()
        self.tools.vacuum()
        return Vacuumed(before, self.tools.size())

    def backup(self, file: Path) -> int:
        """Write a SQLite file with one snapshot of all rows; returns its size. Work continues meanwhile.

        Raises:
            InvalidInput: The file exists already.
        """
        from tempfile import TemporaryDirectory

        if file.exists():
            raise InvalidInput(f"{file} exists already", hint="Name a file that does not exist yet.")
        with TemporaryDirectory(dir=file.absolute().parent, prefix=".holdfast-backup-") as folder:
            draft = Path(folder) / file.name
            self._write_backup(draft)
            _publish(draft, file)
        return file.stat().st_size

    def _write_backup(self, file: Path) -> None:
        if isinstance(self.tools, CanBackUp) and self._backend.fits:
            self.tools.backup(file)
            return
        from holdfast.store import open_store

        with closing(open_store(sqlite_url(file))) as copy:
            target = copy.database.tools
            if self._backend.fits:
                copy_rows(self.tools, target, report=lambda *_: None)
            else:
                copy_rows(ForeignStore(self.tools, target), target, report=lambda *_: None)

    def move_to(self, target: Database, name: str, *, report: Callable[[str, int], None]) -> dict[str, int]:
        """Copy all rows into an empty store, and close this one: it refuses every change from now on.

        *report* receives each table and the number of its rows. If the copy fails, this store is
        open again and the target as empty as before.

        Raises:
            InvalidInput: Only a SQLite store can be moved, and only to PostgreSQL.
            StoreInUse: A worker of this store is alive, or the target has jobs.
        """
        source, there = self.tools, target.tools
        if not isinstance(source, CanClose) or isinstance(there, CanClose):
            raise InvalidInput("only a SQLite store can be copied, and only to PostgreSQL")
        if target.any_job():
            raise StoreInUse("the target has jobs already", hint="Copy into an empty database or schema.")
        self._refuse_holders()
        source.close_for(name)
        try:
            self._refuse_holders()  # a worker may have started before the store was closed
            return copy_rows(source, there, report=report)
        except BaseException:
            source.reopen()
            raise

    def any_job(self) -> bool:
        return bool(self._backend.fetch(query("find_any_job")))

    def _refuse_holders(self) -> None:
        rows = self._backend.fetch(query("find_any_holder", silence=WORKER_SILENCE))
        if rows:
            raise StoreInUse(
                f"worker {rows[0][0]} is alive", hint="Stop all workers (see holdfast workers), then try again."
            )


def _publish(draft: Path, file: Path) -> None:
    """Move a finished file to its name. A file that has appeared there meanwhile is never replaced.

    Not a link: some file systems have none. The empty file reserves the name.
    """
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        raise InvalidInput(f"{file} exists already", hint="Name a file that does not exist yet.") from None
    draft.replace(file)


def copy_rows(source: CanBeCopied, target: DatabaseTools, *, report: Callable[[str, int], None]) -> dict[str, int]:
    """Copy one snapshot of all rows into *target*, in one transaction; returns the number of rows by table."""
    copied = {}
    # The last id is read at the end: a counter that is read before the snapshot may be lower than ids in it.
    with source.snapshot() as read, target.bulk_load(last_id=source.last_id) as load:
        for table in TABLES:
            columns, rows = read(table)
            copied[table] = load(table, columns, rows)
            report(table, copied[table])
    return copied

"""The store as a whole: is it sound, make it small, keep a copy, move it elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, runtime_checkable
from urllib.parse import quote

from msgspec import Struct

from holdfast.domain.fleet.health import HealthCheck
from holdfast.domain.fleet.queue import SILENCE
from holdfast.errors import InvalidInput, NotAStore, StoreInUse
from holdfast.store.engine.backend import Backend
from holdfast.store.engine.operation import Operation, query

#: All tables but ``meta``, in an order in which they may be filled.
TABLES = (
    *(
        "kind",
        "queue",
        "worker",
        "job",
        "live",
        "finished",
        "dependency",
        "key",
        "attempt",
        "event",
        "progress",
        "step",
    ),
    *("batch", "unit", "unit_count", "in_flight", "inbox"),
    *("schedule", "plan", "skipped_plan"),
    *("memory_profile", "autoscaler_decision"),
    *("audit_entry", "credential", "secret", "saved_filter", "idempotency_key", "trace"),
)
#: Wrong rows that are named; the rest is only known to be there.
SHOWN = 10

Rows = Callable[[str], tuple[list[str], Iterator[Any]]]
TableFiller = Callable[[str, list[str], Iterator[Any]], int]


class DatabaseTools(Protocol):
    """What a backend can do with its database as a whole."""

    @property
    def server(self) -> str: ...
    def size(self) -> int: ...
    def damage(self) -> list[str]: ...
    def health(self) -> Iterator[HealthCheck]: ...
    def vacuum(self) -> None: ...
    def snapshot(self) -> AbstractContextManager[Rows]: ...
    def last_id(self) -> int: ...
    def filling(self, *, last_id: int) -> AbstractContextManager[TableFiller]: ...


@runtime_checkable
class CanBackUp(Protocol):
    """A database that can copy itself into a file."""

    def backup(self, file: Path) -> None: ...


@runtime_checkable
class CanClose(Protocol):
    """A store that can refuse new work, because another has taken its place."""

    def close_for(self, successor: str) -> None: ...
    def reopen(self) -> None: ...


class Finding(Struct, frozen=True):
    """One thing that was checked, and what is wrong with it."""

    check: str
    ok: bool
    detail: str = ""


class Vacuumed(Struct, frozen=True):
    before: int
    after: int


CHECKS = {
    "find_jobs_without_state": "every job is live or has ended",
    "find_jobs_live_and_finished": "no job is both live and ended",
    "find_states_without_job": "whatever is live or has ended is a job",
    "find_waiting_without_dependencies": "a waiting job needs another",
    "find_jobs_past_limits": "no live job is past its limits",
}


class Database:
    """For the owner of a store, seldom used."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @property
    def tools(self) -> DatabaseTools:
        tools: DatabaseTools = self._backend.tools
        return tools

    def check(self) -> list[Finding]:
        """Look at all rows: does the database trust its own pages, and do the tables agree with each other?"""
        try:
            damage = self.tools.damage()
        except NotAStore as error:
            damage = [error.message]
        found = [Finding("the database is not damaged", not damage, "; ".join(damage))]
        return found + [self._find(statement, text) for statement, text in CHECKS.items()]

    def _find(self, statement: str, text: str) -> Finding:
        try:
            rows = self._backend.read(_rows, statement)
        except NotAStore as error:
            return Finding(text, ok=False, detail=f"cannot be read: {error.message}")
        ids = ", ".join(str(row[0]) for row in rows[:SHOWN])
        more = " and more" if len(rows) > SHOWN else ""
        return Finding(text, not rows, f"not so: {ids}{more}" if rows else "")

    def vacuum(self) -> Vacuumed:
        """Give back the room of what was deleted; answers the size before and after."""
        before = self.tools.size()
        self.tools.vacuum()
        return Vacuumed(before, self.tools.size())

    def backup(self, file: Path) -> int:
        """A SQLite file with all rows as of one moment; answers its size. Work goes on meanwhile.

        Raises:
            InvalidInput: There is such a file already.
        """
        if file.exists():
            raise InvalidInput(f"{file} is there already", hint="Name a file that does not exist yet.")
        with TemporaryDirectory(dir=file.absolute().parent, prefix=".holdfast-backup-") as folder:
            part = Path(folder) / file.name
            self._write_backup(part)
            # A link, not a rename: it fails when somebody made the file meanwhile.
            os.link(part, file)
        return file.stat().st_size

    def _write_backup(self, part: Path) -> None:
        if isinstance(self.tools, CanBackUp):
            self.tools.backup(part)
            return
        from holdfast.store.engine.url import open_store

        copy = open_store(f"sqlite:///{quote(str(part))}")
        try:
            copy_rows(self.tools, copy.database.tools, told=lambda *_: None)
        finally:
            copy.close()

    def move_to(self, target: Database, name: str, *, told: Callable[[str, int], None]) -> dict[str, int]:
        """Copy everything into an empty store, and let this one take and start nothing any more.

        If the copy fails, this store is open again and the target as empty as before.

        Raises:
            InvalidInput: Only a SQLite store can be moved, and only to PostgreSQL.
            StoreInUse: A holder is alive here, or jobs are there.
        """
        source, there = self.tools, target.tools
        if not isinstance(source, CanClose) or isinstance(there, CanClose):
            raise InvalidInput("only a SQLite store can be copied, and only to PostgreSQL")
        if target.any_job():
            raise StoreInUse("there are jobs in the target already", hint="Copy into an empty database or schema.")
        self._refuse_holders()
        source.close_for(name)
        try:
            self._refuse_holders()  # one that came before the door was shut
            return copy_rows(source, there, told=told)
        except BaseException:
            source.reopen()
            raise

    def any_job(self) -> bool:
        return bool(self._backend.look(query("find_any_job")))

    def _refuse_holders(self) -> None:
        rows = self._backend.look(query("find_any_holder", silence=SILENCE))
        if rows:
            raise StoreInUse(
                f"worker {rows[0][0]} is alive", hint="Stop all workers (see holdfast workers), then try again."
            )


def _rows(statement: str) -> Operation[list[Any]]:
    return (yield query(statement, limit=SHOWN + 1))


def copy_rows(source: DatabaseTools, target: DatabaseTools, *, told: Callable[[str, int], None]) -> dict[str, int]:
    """All rows of *source*, of one moment, into *target*, in one transaction; answers how many of each table."""
    copied = {}
    with source.snapshot() as rows, target.filling(last_id=source.last_id()) as fill:
        for table in TABLES:
            columns, found = rows(table)
            copied[table] = fill(table, columns, found)
            told(table, copied[table])
    return copied

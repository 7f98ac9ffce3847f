"""Files meet a fault before every operation too: users' own files, logs of attempts, and the store's own."""

from __future__ import annotations

import errno
import io
import os
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import files
from holdfast.domain.jobs.new_job import NewJob
from holdfast.errors import HoldfastError
from holdfast.store import Store
from holdfast.store.sqlite.backend import SqliteBackend
from holdfast.worker.commands import log_files
from holdfast.worker.commands.log_files import CUT, LOST, AttemptLog
from tests.chaos.points import Crashed, Fault, Points, PostgresPoints, SqlitePoints
from tests.chaos.standing import Broken
from tests.support.backends import postgres_url

OLD, NEW = b"old" * 1000, b"new" * 2000


class Disk:
    """Stands for ``os`` and its neighbours before every operation. What was not synced is lost with the power."""

    def __init__(self, points: Points) -> None:
        self.points = points
        self.dirty: dict[int, str] = {}

    def before(self, what: str) -> None:
        self.points(what, lambda: OSError(errno.EIO, "the disk failed"))

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def call(self, name: str, *args: Any) -> Any:
        self.before(name)
        return getattr(os, name)(*args)

    def open(self, *args: Any) -> int:
        return self.call("open", *args)

    def write(self, descriptor: int, data: bytes) -> int:
        """Half of it at most: what is written in pieces can be cut between them."""
        self.before("write")
        return os.write(descriptor, data[: max(1, len(data) // 2)])

    def ftruncate(self, *args: Any) -> None:
        self.call("ftruncate", *args)

    def fchmod(self, *args: Any) -> None:
        self.call("fchmod", *args)

    def fsync(self, descriptor: int) -> None:
        self.call("fsync", descriptor)
        self.dirty.pop(descriptor, None)

    def fdopen(self, descriptor: int, mode: str) -> Any:
        self.before("fdopen")
        file = os.fdopen(descriptor, mode, buffering=0)
        self.dirty[descriptor] = f"/proc/self/fd/{descriptor}"
        return file

    def mkstemp(self, **options: Any) -> tuple[int, str]:
        self.before("mkstemp")
        return tempfile.mkstemp(**options)

    def paths(self) -> type[Path]:
        disk = self

        class DiskPath(type(Path())):  # type: ignore[misc] - the class of this system
            def replace(self, target: Any) -> Any:
                disk.before("replace")
                if disk.dirty:
                    # The new name would be on disk before its content.
                    raise Broken("C12", f"{self.name} takes its place before it was synced")
                return super().replace(target)

            def open(self, mode: str) -> Any:  # type: ignore[override] - as files opens them
                disk.before("open")
                return io.BufferedRandom(DiskFile(disk, str(self), mode))

            def unlink(self, *args: Any, **options: Any) -> None:
                disk.before("unlink")
                super().unlink(*args, **options)

        return DiskPath


class DiskFile(io.FileIO):
    """A file that a buffer writes to: half of it at most at a time, and a point before each."""

    def __init__(self, disk: Disk, path: str, mode: str) -> None:
        self.disk = disk
        super().__init__(path, mode)

    def write(self, data: Any) -> int:
        self.disk.before("write")
        self.disk.dirty[self.fileno()] = self.name
        return super().write(data[: max(1, len(data) // 2)])


def strike(monkeypatch, points: Points, act) -> BaseException | None:
    """Run *act* on a disk with points; answers what it raised."""
    disk = Disk(points)
    with monkeypatch.context() as patched:
        patched.setattr(files, "os", disk)
        patched.setattr(files, "tempfile", disk)
        patched.setattr(files, "Path", disk.paths())
        patched.setattr(log_files, "os", disk)
        try:
            act()
        except (Crashed, OSError) as raised:
            return raised
    if disk.dirty:
        raise Broken("C12", "it is told as written before it was synced")
    return None


@pytest.mark.parametrize("fault", [Fault.CRASH, Fault.ERROR])
def test_a_file_is_old_or_new_whenever_the_power_goes(tmp_path, monkeypatch, fault):
    """``files.write`` at every operation; after an error nothing else is left in the folder."""
    at, fired = 0, True
    while fired:
        at += 1
        folder = tmp_path / str(at)
        folder.mkdir()
        target = folder / "report.csv"
        target.write_bytes(OLD)
        points = Points(fault, at)
        raised = strike(monkeypatch, points, lambda target=target: files.write(target, NEW))
        found = target.read_bytes()
        if found not in (OLD, NEW) or (raised is None and found != NEW):
            raise Broken("C12", f"after {fault} before {points.before!r} the file is neither old nor new")
        if fault is Fault.ERROR and points.before != "unlink":
            assert [file.name for file in folder.iterdir()] == ["report.csv"], points.before
        fired = points.fired
    assert at > 5


@pytest.mark.parametrize("fault", [Fault.CRASH, Fault.ERROR])
def test_an_append_keeps_every_line_before_it(tmp_path, monkeypatch, fault):
    """``files.append`` at every operation; a line that was cut off ends where the next begins."""
    at, fired, struck = 0, True, set()
    while fired:
        at += 1
        target = tmp_path / f"{at}.log"
        files.append(target, "one")
        points = Points(fault, at)
        raised = strike(monkeypatch, points, lambda target=target: files.append(target, "two"))
        files.append(target, "three")
        first, *cut, last = target.read_text().splitlines()
        if (first, last) != ("one", "three") or (raised is None and cut != ["two"]):
            raise Broken("C12", f"{fault} before {points.before!r} left {[first, *cut, last]}")
        assert len(cut) <= 1
        assert "two".startswith("".join(cut))
        struck.add(points.before)
        fired = points.fired
    assert {"open", "write", "fsync"} <= struck


@pytest.mark.parametrize("fault", [Fault.CRASH, Fault.ERROR])
def test_a_log_never_costs_a_run_and_never_mixes(tmp_path, monkeypatch, fault):
    """The log of an attempt at every operation, shortened on its way; the next attempt's log holds its own lines only."""
    at, fired = 0, True
    while fired:
        at += 1
        points = Points(fault, at)
        raised = strike(monkeypatch, points, lambda at=at: _write_log(tmp_path / f"{at}-1.log", "first"))
        assert fault is Fault.CRASH or raised is None, f"a disk that fails before {points.before!r} ended the run"
        _write_log(tmp_path / f"{at}-2.log", "second")
        assert b"first" not in (tmp_path / f"{at}-2.log").read_bytes()
        first = tmp_path / f"{at}-1.log"
        if first.exists():
            assert set(first.read_bytes().split(b"\n")) <= {
                *_parts(b"first line"),
                *_parts(CUT.strip()),
                *_parts(LOST.strip()),
            }
        fired = points.fired
    assert at > 5


def _write_log(path: Path, word: str) -> None:
    log = AttemptLog(path, max_bytes=60)
    for _ in range(8):
        log.write(f"{word} line\n".encode())
    log.close()


def _parts(line: bytes) -> set[bytes]:
    """What may be left of a line that was cut: its beginning or its end."""
    return {line[:n] for n in range(len(line) + 1)} | {line[n:] for n in range(len(line))}


# -- the store's own files -------------------------------------------------------------------


@pytest.mark.parametrize(("fault", "stride"), [(Fault.CRASH, 3), (Fault.ERROR, 11)])
def test_a_migration_that_breaks_off_begins_anew(tmp_path, fault, stride):
    """SQLite, before every few statements: whoever opens the file next finds no store, or all of it."""
    for at in range(1, 1000, stride):
        path = tmp_path / f"{fault}-{at}.db"
        points = Points(fault, at)
        try:
            SqlitePoints(path, durability="fast", points=points).close()
        except (Crashed, HoldfastError):
            assert points.fired
        with closing(sqlite3.connect(path)) as connection:
            there = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            whole = connection.execute(
                "SELECT count(*) FROM sqlite_master WHERE name = 'holdfast_skipped_plan'"
            ).fetchone()[0]
        if bool(there) != bool(whole):
            raise Broken("I1", f"{fault} before {points.before!r} left half of a store")
        if not points.fired:
            break
    store = Store(SqliteBackend(path))
    assert store.jobs.enqueue(NewJob(kind="mail")).created
    store.close()


def test_a_migration_of_postgresql_that_breaks_off_goes_on(tmp_path):
    """Each migration is a transaction of its own; the next process goes on with the first that is missing."""
    backend = PostgresPoints(postgres_url("postgres"), schema="holdfast_points")
    aside = psycopg.connect(postgres_url("postgres"), autocommit=True)
    drop = "DROP SCHEMA IF EXISTS holdfast_points CASCADE"
    at, fired = 0, True
    try:
        while fired:
            at += 5  # a point of each migration
            aside.execute(drop)
            points = backend.points = Points(Fault.CRASH, at)
            try:
                backend.migrate()
            except Crashed:
                backend.vanish()
            backend.points = None
            backend.migrate()
            assert Store(backend).jobs.enqueue(NewJob(kind="mail")).created, points.before
            fired = points.fired
    finally:
        aside.execute(drop)
        aside.close()
        backend.close()
    assert at > 5

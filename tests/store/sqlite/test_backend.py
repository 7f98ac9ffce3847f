"""One SQLite file under many processes: it is never too busy, never damaged, and loses nothing it has acknowledged."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.domain.jobs.new_job import NewJob
from tests.support.jobs import claim_jobs
from tests.support.processes import children, connect, open_store, race, wait_until

WRITERS = 8


@pytest.fixture
def path(tmp_path) -> Path:
    """Where a store will be; there is no file yet."""
    return tmp_path / "jobs.db"


def test_processes_that_open_a_new_file_at_once_share_it(path):
    """Of many processes that start on an empty directory one makes the store, and all can use it."""
    ids = race(WRITERS, open_and_enqueue, f"sqlite:///{path}")

    assert sorted(ids) == list(range(1, WRITERS + 1))


def test_many_writers_are_never_told_that_the_store_is_busy(path):
    """Processes that write at once wait for each other; none gets an error and no job is missing."""
    url = f"sqlite:///{path}"
    written = race(WRITERS, enqueue_much, url, 100)

    ids = sorted(job_id for mine in written for job_id in mine)
    assert ids == list(range(1, WRITERS * 150 + 1))
    assert [row[0] for row in query(path, "SELECT id FROM holdfast_live ORDER BY id")] == ids


@pytest.mark.parametrize("round_", range(4))
def test_killed_writers_damage_and_lose_nothing(path, tmp_path, round_):
    """After kill -9 in mid-write the file is intact, nothing is half-written, and every acknowledged job is there."""
    url = f"sqlite:///{path}"
    with children(4, enqueue_until_killed, url, tmp_path) as writers:
        logs = [tmp_path / f"acknowledged-{index}" for index in range(4)]
        wait_until(lambda: all(log.exists() and log.read_bytes().count(b"\n") > 20 + 10 * round_ for log in logs))
        for writer in writers:
            writer.kill()

    acknowledged = {int(line) for log in logs for line in log.read_text().splitlines(keepends=True) if line[-1] == "\n"}
    assert query(path, "PRAGMA integrity_check") == [("ok",)]
    assert acknowledged <= {row[0] for row in query(path, "SELECT id FROM holdfast_live")}
    assert query(path, "SELECT id FROM holdfast_job EXCEPT SELECT id FROM holdfast_live") == []
    assert query(path, "SELECT count(*) % 7 FROM holdfast_job") == [(0,)]
    with closing(open_store(url)) as store:
        assert store.jobs.enqueue(NewJob(kind="mail")).id > max(acknowledged)


def test_a_lease_is_not_born_stale(path):
    """A renewal that had to wait for the file counts from when it got it, and does not lapse as it is written."""
    store = open_store(f"sqlite:///{path}")
    store.jobs.enqueue(NewJob(kind="mail"))
    (lease,) = claim_jobs(store, "w", queues=["default"], kinds=["mail"])
    with children(1, lock_file_until_told, f"sqlite:///{path}") as (writer,):
        assert writer.hear() == "locked"
        until = datetime.now(UTC) + timedelta(seconds=1)
        writer.tell(until)
        store.leases.renew([lease], lease_duration=timedelta(seconds=20))

    assert store.views.get(lease.job_id).lease_expires_at > until + timedelta(seconds=20)
    store.close()


def query(path, text):
    connection = sqlite3.connect(path)
    try:
        return connection.execute(text).fetchall()
    finally:
        connection.close()


def open_and_enqueue(index, barrier, url):
    barrier.wait()
    return open_store(url).jobs.enqueue(NewJob(kind="mail")).id


def enqueue_much(index, barrier, url, count):
    """In a child: single jobs, and a batch of five after every tenth."""
    store = open_store(url)
    ids = []
    barrier.wait()
    for number in range(count):
        ids.append(store.jobs.enqueue(NewJob(kind="mail")).id)
        if number % 10 == 0:
            ids += [answer.id for answer in store.jobs.enqueue_many([NewJob(kind="mail")] * 5)]
    return ids


def enqueue_until_killed(pipe, index, url, directory):
    """In a child: enqueue sevens for ever, and note each one's ids once it is acknowledged."""
    store = open_store(url)
    log = os.open(directory / f"acknowledged-{index}", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    while True:
        answers = store.jobs.enqueue_many([NewJob(kind="mail", payload='"' + "x" * 2000 + '"')] * 7)
        os.write(log, "".join(f"{answer.id}\n" for answer in answers).encode())


def lock_file_until_told(pipe, index, url):
    """In a child: hold the file's write lock until a moment that the parent names."""
    connection = connect(url, autocommit=True)
    connection.execute("BEGIN IMMEDIATE")
    pipe.send("locked")
    until = pipe.recv()
    wait_until(lambda: datetime.now(UTC) >= until)
    connection.execute("COMMIT")

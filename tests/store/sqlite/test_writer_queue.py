"""The queue of writers: turns in order, processes that die or stop in their turn, lock files that cannot be used."""

from __future__ import annotations

import os
import threading
import time
from contextlib import closing

import pytest

from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.jobs.selector import Selector
from holdfast.store import Store
from holdfast.store.sqlite.backend import SqliteBackend
from holdfast.store.sqlite.writer_queue import TURN_WAIT_S, WriterQueue
from tests.support.forks import Fork
from tests.support.processes import children, open_store, race, wait_until

JOB = NewJob(kind="mail")


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'jobs.db'}"


@pytest.fixture
def store(url):
    with closing(open_store(url)) as store:
        yield store


@pytest.fixture
def queue(tmp_path):
    return WriterQueue(str(tmp_path / "jobs.db"))


def has_turn(queue):
    """Whether no other writer has the turn at present; *queue* takes none."""
    queue.enter(0)
    try:
        return queue._descriptor is not None and (queue._wait is None or queue._wait.finished)
    finally:
        queue.leave()


def test_writers_take_turns_in_the_order_in_which_they_came(tmp_path, queue):
    order, threads = [], []

    def write(number):
        mine = WriterQueue(str(tmp_path / "jobs.db"))
        waiting.append(mine)
        mine.enter(60)
        order.append(number)
        mine.leave()

    waiting = []
    queue.enter(60)
    for number in range(4):
        threads.append(threading.Thread(target=write, args=(number,)))
        threads[-1].start()
        wait_until(lambda: [each._wait is not None for each in waiting] == [True] * len(threads))
        time.sleep(0.02)  # its thread waits for the lock
    queue.leave()
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3]


def test_a_turn_that_comes_too_late_ends_at_once(tmp_path, queue):
    other = WriterQueue(str(tmp_path / "jobs.db"))
    queue.enter(0)
    other.enter(0.01)
    assert not other._wait.finished
    other.leave()
    queue.leave()
    wait_until(lambda: other._wait.finished)
    assert has_turn(queue)
    assert has_turn(other)


def test_a_lock_file_that_cannot_be_used_is_done_without(tmp_path):
    (tmp_path / "jobs.db-writers").mkdir()
    with closing(Store(SqliteBackend(tmp_path / "jobs.db"))) as store:
        assert store.jobs.enqueue(JOB).created


def test_the_lock_file_is_private(store, tmp_path):
    store.jobs.enqueue(JOB)
    assert (tmp_path / "jobs.db-writers").stat().st_mode & 0o777 == 0o600


def _take_turn(pipe, _index, url, *, writes=False):
    """Keep the turn, with or without a transaction, until the process is told to go on."""
    store = open_store(url)
    store.backend._writer.queue.enter(60)
    connection = store.backend._writer._connected()
    connection.execute("BEGIN IMMEDIATE" if writes else "SELECT 1")
    pipe.send("has the turn")
    pipe.recv()
    store.backend._writer.queue.leave()
    pipe.send("left")
    pipe.recv()


def _take_turn_and_write(pipe, index, url):
    _take_turn(pipe, index, url, writes=True)


@pytest.mark.parametrize("work", [_take_turn, _take_turn_and_write])
def test_a_process_that_is_killed_in_its_turn_keeps_nothing(store, url, queue, work):
    with children(1, work, url) as (holder,):
        holder.hear()
        assert not has_turn(queue)
        holder.kill()
        wait_until(lambda: has_turn(queue), every=0.001)
        assert store.jobs.enqueue(JOB).created
    assert store.views.count(Selector()).count == 1


def test_a_process_that_is_stopped_in_its_turn_delays_others_once(store, url):
    with children(1, _take_turn, url) as (holder,):
        holder.hear()
        holder.pause()
        waits = []
        for _ in range(3):
            began = time.monotonic()
            assert store.jobs.enqueue(JOB).created
            waits.append(time.monotonic() - began)
        assert waits[0] >= TURN_WAIT_S * 0.9
        assert max(waits[1:]) < TURN_WAIT_S * 0.9
        wait = store.backend._writer.queue._wait
        assert not wait.finished
        holder.resume()
        holder.tell("go on")
        holder.hear()
        wait_until(lambda: wait.finished)
        assert store.jobs.enqueue(JOB).created
        holder.kill()


def test_a_forked_child_does_not_keep_the_turn_of_its_parent(store, queue):
    """The child inherits the descriptor when it is forked within a transaction."""
    mine = store.backend._writer.queue
    reading, writing = os.pipe()
    with store.backend.transaction():
        mine.enter(60)

        def work(wait):
            os.write(writing, b"!")
            wait()

        with Fork(work):
            os.read(reading, 1)
            assert not has_turn(queue)
            mine.close()  # as if the parent had died
            wait_until(lambda: queue._wait.finished)
            assert has_turn(queue)
    os.close(reading)
    os.close(writing)


def _enqueue_ones(_index, barrier, url, count):
    with closing(open_store(url)) as store:
        store.jobs.enqueue(JOB)
        barrier.wait()
        return [store.jobs.enqueue(JOB).id for _ in range(count)]


def test_eight_processes_enqueue_at_once(store, url):
    """No error, no id twice, nothing lost."""
    ids = [job_id for answers in race(8, _enqueue_ones, url, 40) for job_id in answers]
    assert len(set(ids)) == 320
    assert store.views.count(Selector()).count == 328

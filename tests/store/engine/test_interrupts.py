"""Exceptions of signal handlers: at whatever instruction a signal comes, no lock stays held and no connection is lost."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

import holdfast
from holdfast.errors import HoldfastError
from holdfast.store.engine import interrupts
from tests.support.forks import Fork
from tests.support.processes import wait_until

SOURCE = str(Path(holdfast.__file__).parent)
#: Seconds within which a call of another thread has to return.
PATIENCE_S = 20.0


class Interrupt(Exception):
    """What the handler raises."""


@pytest.fixture
def raising():
    """SIGALRM raises in the main thread."""

    def interrupt(*_):
        raise Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    yield interrupt
    assert signal.getsignal(signal.SIGALRM) is interrupt
    signal.signal(signal.SIGALRM, before)


def application(url):
    app = holdfast.Holdfast(url)

    @app.job()
    def double(n: int) -> int:
        return n * 2

    app.enqueuer = double
    double.enqueue(0)
    return app


@pytest.fixture
def app(real_database):
    with application(real_database.url) as app:
        yield app


@pytest.fixture
def postgres_app(postgres_database):
    with application(postgres_database.url) as app:
        yield app


@pytest.fixture
def sqlite_app(tmp_path):
    with application(f"sqlite:///{tmp_path}/jobs.db?durability=fast") as app:
        yield app


def signalled_at(line, call):
    """Run *call*, with SIGALRM at this line of it in the product, counted from 1. False if it has fewer lines."""
    seen = 0

    def trace(frame, event, _):
        nonlocal seen
        if not frame.f_code.co_filename.startswith(SOURCE):
            return None
        if event == "line":
            seen += 1
            if seen == line:
                sys.settrace(None)
                signal.raise_signal(signal.SIGALRM)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except Interrupt:
        pass
    finally:
        sys.settrace(before)
    return seen >= line


def in_thread(call):
    """The result of *call* in another thread, which must not wait for ever."""
    results = []
    thread = threading.Thread(target=lambda: results.append(call()), daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert results, "a call of another thread hangs, or has failed"
    return results[0]


def no_connection_is_lent(app):
    """Soon, as the notifier has one for a moment."""
    return app.store.backend.pool_stats().connections.get("in_use", 0) == 0


CALLS = {
    "enqueue": lambda app: app.enqueue("double", {"n": 1}),
    "enqueue with a key": lambda app: app.enqueue("double", {"n": 1}, key="k", on_conflict="replace"),
    "enqueue many": lambda app: app.enqueuer.enqueue_many([{"n": 1}, {"n": 2}]),
    "state": lambda app: app.get(1).state,
    "cancel": lambda app: app.control.cancel(holdfast.Selector(kinds=("double",)), actor="me"),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_interrupt_at_any_line_of_a_call_leaves_nothing_held(app, raising, name):
    """Each line in turn, as one crash point; other threads call the store in between."""
    line = 1
    while signalled_at(line, lambda: CALLS[name](app)):
        if line % 10 == 0:
            in_thread(lambda: app.enqueue("double", {"n": 3}))
            wait_until(lambda: no_connection_is_lent(app))
        line += 1
    assert line > 50
    in_thread(lambda: app.enqueue("double", {"n": 3}))
    assert app.enqueue("double", {"n": 4}).created
    wait_until(lambda: no_connection_is_lent(app))


def test_a_handler_that_enqueues_does_so_after_the_call(app):
    """Issue 36, E2: on SQLite it waited for the writer, which it had interrupted."""
    refs = []
    before = signal.signal(signal.SIGALRM, lambda *_: refs.append(app.enqueue("double", {"n": 7})))
    try:
        line = 1
        while signalled_at(line, lambda: app.enqueue("double", {"n": 1})):
            line += 7
    finally:
        signal.signal(signal.SIGALRM, before)
    assert len({ref.id for ref in refs}) >= line // 7


def test_the_last_handler_counts(app, raising):
    """A handler that is replaced between two calls is not put back."""
    raised = []
    app.enqueue("double", {"n": 1})
    signal.signal(signal.SIGALRM, lambda *_: raised.append("new"))
    assert signalled_at(60, lambda: app.enqueue("double", {"n": 1}))
    assert raised == ["new"]
    signal.signal(signal.SIGALRM, raising)


def test_all_signals_of_a_call_are_delivered(app):
    """Issue 36, E2: none of them within it, and also if the handler of the first one raises."""
    raised = []

    def first(*_):
        raised.append("first")
        raise Interrupt

    before = signal.signal(signal.SIGALRM, first), signal.signal(signal.SIGUSR1, lambda *_: raised.append("second"))
    try:

        @interrupts.uninterrupted
        def call():
            signal.raise_signal(signal.SIGALRM)
            signal.raise_signal(signal.SIGUSR1)
            signal.raise_signal(signal.SIGALRM)
            assert raised == []

        with pytest.raises(Interrupt):
            call()
    finally:
        signal.signal(signal.SIGALRM, before[0])
        signal.signal(signal.SIGUSR1, before[1])
    assert sorted(raised) == ["first", "second"], "E2 is broken: a handler ran within the call"


def interrupted_soon(call, *, once):
    """Run *call*, and send SIGALRM to this thread when *once* holds; it must raise."""
    main, sent_at = threading.get_ident(), []

    def send():
        wait_until(once)
        sent_at.append(time.monotonic())
        signal.pthread_kill(main, signal.SIGALRM)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        call()
    except Interrupt:
        # A statement ends by itself after 30 s, and a wait for the file as well.
        assert time.monotonic() - sent_at[0] < PATIENCE_S, "E2 is broken: the interrupt came after the wait"
        return
    except HoldfastError as error:
        pytest.fail(f"E2 is broken: the call ended by itself, with {error}")
    finally:
        thread.join()
    pytest.fail("E2 is broken: the call ended by itself")


def main_thread_is_in(function, package="holdfast"):
    """Whether the main thread runs a function of this name."""
    frame = sys._current_frames()[threading.main_thread().ident]
    while frame is not None:
        if frame.f_code.co_name == function and package in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


def test_an_interrupt_ends_a_wait_for_the_server(postgres_app, postgres_database, raising):
    """Issue 36, E2: somebody has locked the table for as long as the call lasts."""
    import psycopg

    with psycopg.connect(postgres_database.url) as other:
        other.execute("LOCK TABLE holdfast.job")
        interrupted_soon(
            lambda: postgres_app.enqueue("double", {"n": 1}), once=lambda: main_thread_is_in("wait", "psycopg")
        )
    wait_until(lambda: no_connection_is_lent(postgres_app))
    assert postgres_app.enqueue("double", {"n": 1}).created


def test_an_interrupt_ends_a_wait_for_a_connection(postgres_app, raising):
    pool = postgres_app.store.backend._pool
    with pool.connection(limit=60):
        pool._size = 1
        interrupted_soon(lambda: postgres_app.enqueue("double", {"n": 1}), once=lambda: main_thread_is_in("_take"))
    assert postgres_app.enqueue("double", {"n": 1}).created


def test_an_interrupt_ends_a_wait_for_another_thread_that_writes(sqlite_app, raising):
    writer, held, free = sqlite_app.store.backend._writer, threading.Event(), threading.Event()

    def hold():
        with writer.exclusive():
            held.set()
            free.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    interrupted_soon(lambda: sqlite_app.enqueue("double", {"n": 1}), once=lambda: main_thread_is_in("_is_woken"))
    free.set()
    thread.join()
    assert not writer._waiting
    assert sqlite_app.enqueue("double", {"n": 1}).created


def test_an_interrupt_ends_a_wait_for_another_program_that_writes(sqlite_app, tmp_path, raising):
    import sqlite3

    other = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    interrupted_soon(lambda: sqlite_app.enqueue("double", {"n": 1}), once=lambda: main_thread_is_in("_begin"))
    other.execute("ROLLBACK")
    other.close()
    assert sqlite_app.enqueue("double", {"n": 1}).created


def test_a_handler_that_returns_lets_a_wait_go_on(sqlite_app, tmp_path):
    """A handler that enqueues, too, while another program writes for a while: both jobs are there in the end."""
    import sqlite3

    other = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    refs, main = [], threading.get_ident()

    def handler(*_):
        other.execute("ROLLBACK")
        refs.append(sqlite_app.enqueue("double", {"n": 2}))

    def send():
        wait_until(lambda: main_thread_is_in("_begin"))
        signal.pthread_kill(main, signal.SIGALRM)

    before = signal.signal(signal.SIGALRM, handler)
    thread = threading.Thread(target=send)
    thread.start()
    try:
        refs.append(sqlite_app.enqueue("double", {"n": 1}))
    finally:
        thread.join()
        signal.signal(signal.SIGALRM, before)
        other.close()
    assert len({ref.id for ref in refs}) == 2


def test_a_fork_of_another_thread_has_the_handlers_of_the_program(raising):
    """The main thread may be in a call at that moment."""

    @interrupts.uninterrupted
    def call():
        assert signal.getsignal(signal.SIGALRM) is not raising
        return in_thread(lambda: [Fork(check).code()])

    def check(_):
        assert signal.getsignal(signal.SIGALRM) is raising

    assert call() == [0]


def test_calls_of_other_threads_leave_the_handlers_alone(raising):
    seen = []
    in_thread(interrupts.uninterrupted(lambda: seen.append(signal.getsignal(signal.SIGALRM)) or True))
    assert seen == [raising]
    with suppress(Interrupt):
        os.kill(os.getpid(), signal.SIGALRM)

"""Real processes for tests: each opens the database by itself, and tells the test what it saw."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any

import psutil

from holdfast.store import Store

#: Processes come from a clean one that has only imported: nothing of the test's own memory,
#: threads or connections is in them, and eight of them start as fast as one.
_CLEAN = multiprocessing.get_context("forkserver")
_PRELOAD = ["pytest", "holdfast.worker.worker", "holdfast.store.sqlite.backend", "holdfast.store.postgres.backend"]
_CLEAN.set_forkserver_preload(_PRELOAD)

#: How long a test waits for a process before it calls it hung, in seconds.
PATIENCE = float(os.environ.get("HOLDFAST_PATIENCE", "180"))


def preload(*modules: str) -> None:
    """Have the clean process import more, before the first process is started."""
    _CLEAN.set_forkserver_preload([*_PRELOAD, *modules])


def open_store(url: str) -> Store:
    """A store on the database of a test, in real time."""
    if url.startswith("sqlite:///"):
        from holdfast.store.sqlite.backend import SqliteBackend

        return Store(SqliteBackend(_path(url), durability="fast"))
    from holdfast.store.postgres.backend import PostgresBackend

    return Store(PostgresBackend(url))


class _SqliteConnection(sqlite3.Connection):
    """As those of psycopg, it is closed at the end of its block."""

    def __exit__(self, *error: object) -> Any:
        try:
            return super().__exit__(*error)
        finally:
            self.close()


def connect(url: str, *, autocommit: bool = False) -> Any:
    """A plain connection to the database of a test, as a user's own code would have."""
    if url.startswith("sqlite:///"):
        level = None if autocommit else "DEFERRED"
        return sqlite3.connect(_path(url), timeout=30, isolation_level=level, factory=_SqliteConnection)
    import psycopg

    return psycopg.connect(url, autocommit=autocommit)


def wait_until(
    condition: Callable[[], Any], *, every: float = 0.02, seconds: float = PATIENCE, failure: str = "waited in vain"
) -> Any:
    """Check *condition* again and again until it holds, for some seconds, and return its value."""
    never, deadline = threading.Event(), time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < deadline, failure
        never.wait(every)
    return answer


def gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has collected yet has."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


class Child:
    """A process that runs ``work(pipe, *arguments)`` and can be paused, resumed and killed."""

    def __init__(self, work: Callable[..., Any], *arguments: Any) -> None:
        self._pipe, theirs = _CLEAN.Pipe()
        self._process = _CLEAN.Process(target=_run, args=(work, theirs, arguments), daemon=True)
        self._process.start()
        theirs.close()

    def hear(self) -> Any:
        """The next thing that the process says; what it raises is raised here."""
        assert self._pipe.poll(PATIENCE), "the process says nothing"
        message = self._pipe.recv()
        assert not isinstance(message, _Trouble), message.text
        return message

    def says(self) -> bool:
        """Whether it has said something that nobody has heard."""
        return self._pipe.poll()

    def tell(self, message: Any) -> None:
        self._pipe.send(message)

    def pause(self) -> None:
        """Stop the process where it is; it has stopped when this returns."""
        self.signal(signal.SIGSTOP)
        wait_until(lambda: psutil.Process(self.pid).status() == psutil.STATUS_STOPPED, every=0.001)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """End the process at once, with no chance to tidy up."""
        self.signal(signal.SIGKILL)
        self._process.join(PATIENCE)

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def end(self) -> None:
        """Wait for the process, or kill it when it hangs; idempotent."""
        self._pipe.close()
        self._process.join(1)
        if self._process.is_alive():
            self.kill()
        self._process.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


@contextmanager
def children(count: int, work: Callable[..., Any], *arguments: Any) -> Iterator[list[Child]]:
    """*count* processes that run ``work(pipe, index, *arguments)``."""
    started = [Child(work, index, *arguments) for index in range(count)]
    try:
        yield started
    finally:
        for child in started:
            child.end()


def race(count: int, work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Run ``work(index, barrier, *arguments)`` in *count* processes at once, and return their answers."""
    barrier = _CLEAN.Barrier(count, timeout=PATIENCE)
    with children(count, _racer, work, barrier, *arguments) as racers:
        return [racer.hear() for racer in racers]


class _Trouble:
    """What a process raised."""

    def __init__(self, text: str) -> None:
        self.text = text


def _run(work: Callable[..., Any], pipe: Connection, arguments: tuple[Any, ...]) -> None:
    try:
        work(pipe, *arguments)
    except BaseException:  # noqa: BLE001 - whatever it was, the test must hear of it
        with suppress(OSError):
            pipe.send(_Trouble(traceback.format_exc()))
    finally:
        pipe.close()


def _racer(pipe: Connection, index: int, work: Callable[..., Any], barrier: Any, *arguments: Any) -> None:
    try:
        pipe.send(work(index, barrier, *arguments))
    except BaseException:
        barrier.abort()
        raise


def _path(url: str) -> str:
    return url.removeprefix("sqlite:///")

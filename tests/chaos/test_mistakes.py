"""Mistakes that show only in real processes and on real connections; each is named by its number in the specification."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast.admin.views.jobs import masked_job
from holdfast.domain.batches.batch import BatchId
from holdfast.domain.batches.checkpoint import MAX_UNWRITTEN
from holdfast.domain.commands.command import COMMAND, Command
from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.jobs.selector import Selector
from tests.chaos.standing import Broken
from tests.support.backends import open_database
from tests.support.processes import PATIENCE, Child, gone, open_store, wait_until
from tests.support.proxy import proxy_to


def await_or_break(name: str, what: str, condition: Callable[[], Any]) -> None:
    """Wait for what must come; that it does not is told under its *name*."""
    try:
        wait_until(condition)
    except AssertionError as error:
        raise Broken(name, what) from error


# -- checkpoints -------------------------------------------------------------------------------

UNITS, JOBS = 160, 4
#: The unit in which the first run is killed.
LAST = 130


def run_units(url: str, effects: str, *, kill: bool) -> int:
    """Run a batch whose effects are the lines of a file; answers its exit code."""
    with holdfast.Holdfast(url) as app:

        @app.unit()
        def effect(key: int) -> None:
            if kill and key == LAST:
                os.kill(os.getpid(), signal.SIGKILL)
            with Path(effects).open("a") as file:
                file.write(f"{key}\n")

        return app.run(effect, range(UNITS), jobs=JOBS, output="none").exit_code


def be_killed(_pipe: Any, url: str, effects: str) -> None:
    run_units(url, effects, kill=True)


@pytest.mark.one_backend
def test_a_kill_in_mid_batch_repeats_only_what_was_unwritten(real_database, tmp_path):
    """R27: a kill -9 costs one group of ends and the units under way, however long the run had gone on."""
    effects = tmp_path / "effects"
    child = Child(be_killed, real_database.url, str(effects))
    wait_until(lambda: not child.alive)
    child.end()
    assert run_units(real_database.url, str(effects), kill=False) == 0
    counts = Counter(map(int, effects.read_text().split()))
    assert set(counts) == set(range(UNITS))
    again = counts.total() - UNITS
    if again > MAX_UNWRITTEN + JOBS:
        raise Broken("R27", f"{again} units were run again: their ends were not written in time")


@pytest.mark.one_backend
def test_ends_are_written_while_another_unit_takes_its_time(real_database):
    """R27: a group that does not become full is written all the same, though nothing ends and nothing is stopped."""
    begun, go = threading.Event(), threading.Event()
    with holdfast.Holdfast(real_database.url) as app:

        @app.unit()
        def slow(key: int) -> None:
            if key == 5:
                begun.set()
                go.wait(2 * PATIENCE)

        thread = threading.Thread(target=lambda: app.run(slow, range(40), output="none"))
        thread.start()
        try:
            assert begun.wait(PATIENCE)
            what = "five units have ended, and the ledger does not tell of them"
            await_or_break("R27", what, lambda: app.store.batches.counters(BatchId(1)).done == 5)
        finally:
            go.set()
            thread.join(PATIENCE)
        assert app.store.batches.recount(BatchId(1)) == {"done": 40}


# -- rings ---------------------------------------------------------------------------------------


def test_what_comes_while_an_ear_begins_to_listen_again_is_found(tmp_path):
    """R25: listen first, then read: the ring of a job that came just before the LISTEN was told to nobody."""
    found: list[int] = []
    with open_database("postgres", tmp_path, real_time=True) as database, proxy_to(database.url) as proxy:
        outside, inside = database.open(), open_store(proxy.url)

        def enqueue() -> None:
            with psycopg.connect(database.url) as connection:  # whose commit rings
                outside.jobs.enqueue_on(connection, [NewJob(kind="mail")])

        def look(_changes: frozenset[str]) -> None:
            found.append(database.execute("SELECT count(*) FROM holdfast.live")[0][0])

        listener = inside.backend.listen(look)
        try:
            wait_until(lambda: listener.works and found)
            enqueued = proxy.meanwhile("LISTEN", enqueue)
            proxy.lead_to(database.url)  # which cuts the line of before
            assert enqueued.wait(PATIENCE)
            await_or_break("R25", "a job came before the LISTEN, and nobody looks for it", lambda: found[-1] == 1)
        finally:
            listener.close()
            inside.close()


# -- programs ------------------------------------------------------------------------------------

#: Tells its number, and that of a child which has left its session and its parents.
PROGRAM = """
import os, signal, sys
def tell(name):
    with open(name + ".part", "w") as file:
        file.write(str(os.getpid()))
    os.rename(name + ".part", name)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        tell("daemon")
        signal.pause()
    os._exit(0)
os.wait()
tell("program")
signal.pause()
"""


def work(pipe: Any, url: str, folder: str) -> None:
    os.environ["XDG_DATA_HOME"] = folder
    with holdfast.Holdfast(url) as app:
        worker = app.worker(commands=True, poll=0.05)
        pipe.send("up")
        worker.run()


@pytest.mark.one_backend
def test_no_program_outlives_a_killed_worker(real_database, tmp_path):
    """I16: kill -9 of a worker ends its program and what the program had sent away; nobody else has to come for that."""
    # Without an environment, so without the mark by which other workers of this machine would find and end it.
    bare = (shutil.which("env") or "env", "-i", sys.executable, "-ISc", PROGRAM)
    command = Command(argv=bare, cwd=str(tmp_path))
    real_database.open().jobs.enqueue(NewJob(kind=COMMAND, payload=command.dumps()))
    worker = Child(work, real_database.url, str(tmp_path))
    told = [tmp_path / "program", tmp_path / "daemon"]
    pids: list[int] = []
    try:
        worker.hear()
        wait_until(lambda: all(path.exists() for path in told))
        pids = [int(path.read_text()) for path in told]
        worker.kill()
        await_or_break("I16", "a program outlives its worker", lambda: all(map(gone, pids)))
    finally:
        worker.kill()
        worker.end()
        for pid in pids:
            if not gone(pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


# -- code of two publications ------------------------------------------------------------------

#: The secret fields of the releases and applications that publish one kind in turns, and the versions of its payload.
PUBLICATIONS = ((("card",), 1), ((), 1), (("iban",), 2), ((), 2), (("card", "iban"), 1))
CARD, IBAN = "4111-1111-1111", "DE02-1203-0000"


def publish(url: str, secrets: tuple[str, ...], version: int) -> None:
    """What a process of one release does: open the store, enqueue, end."""
    with holdfast.Holdfast(url) as app:

        @app.job(name="pay", secrets=list(secrets), version=version)
        def pay(card: str, iban: str) -> None: ...

        pay.enqueue(card=CARD, iban=IBAN)


def test_no_publication_shows_what_another_one_hides(real_database):
    """W2: releases that are rolled out and back, and a second application with a kind of the same name."""
    publish(real_database.url, ("card", "iban"), 1)
    threads = [
        threading.Thread(target=publish, args=(real_database.url, *PUBLICATIONS[n % len(PUBLICATIONS)]))
        for n in range(10)
    ]
    for thread in threads:
        thread.start()
    while True:
        running = any(thread.is_alive() for thread in threads)
        with holdfast.Holdfast(real_database.url) as reader:  # a fresh one: declarations are cached for some seconds
            shown = [str(masked_job(job, reader.store)) for job in reader.store.views.all(Selector())]
        if any(CARD in text or IBAN in text for text in shown):
            raise Broken("E10", "a view shows a field that another publication declares as secret")
        if not running:
            break
    for thread in threads:
        thread.join()
    assert len(shown) == 11

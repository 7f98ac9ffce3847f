"""The application under test: every sort of handler, each of which tells the history what it does.

Workers, their children and clients import this module. :func:`prepare` says where the store and the history are;
what a worker starts finds both in its environment.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import holdfast
from tests.chaos.audit import EFFECTS
from tests.chaos.history import Recorder, to_file

#: Nothing sets it: to wait for it is to take one's time.
NEVER = threading.Event()
LEASE = float(os.environ.get("CHAOS_LEASE", "2"))
#: A queue that runs two at a time, and one that is paused now and then.
NARROW, MOODY = "narrow", "moody"
#: A queue that an autoscaler serves: its programs are measured.
MEASURED = "measured"
LIMIT = 2
SCHEDULE = "beat"
#: How the names of batches in ``tx`` mode begin.
TX_KINDS = ("count_tx", "session tx")

#: The job that runs in this context.
OWNER: ContextVar[int | None] = ContextVar("owner", default=None)


class Text(str):
    """A text of another class, as templates and parsers make them."""

    __slots__ = ()


app = holdfast.Holdfast(os.environ.get("CHAOS_URL"))


def prepare(url: str, history: str, role: str) -> None:
    """Work on this store from now on, and tell the history of this process in *history*."""
    os.environ.update(CHAOS_URL=url, CHAOS_FOLDER=history, CHAOS_ROLE=role)
    recorder.cache_clear()
    app.use(url)


def forget() -> None:
    """Leave this process as it was."""
    app.use(None)
    for name in ("CHAOS_URL", "CHAOS_FOLDER", "CHAOS_ROLE"):
        os.environ.pop(name, None)


def folder() -> Path:
    """Where the history is."""
    return Path(os.environ["CHAOS_FOLDER"])


@cache
def recorder() -> Recorder:
    """That of this process."""
    return to_file(folder(), f"{os.environ.get('CHAOS_ROLE', 'child')}-{os.getpid()}-{os.urandom(3).hex()}")


@contextmanager
def told(kind: str, me: holdfast.Context, queue: str = "default") -> Iterator[None]:
    """A run whose effect is made at its end. It tells the run whose context variable it sees, if any."""
    seen = OWNER.get()
    OWNER.set(me.id)
    with recorder().running("run", job=me.id, token=me.token, kind=kind, queue=queue, seen=seen):
        yield
        recorder().tell("effect", job=me.id, token=me.token)


#: Work that is tried until it succeeds, however often its workers are lost.
PATIENT = {"lease": LEASE, "retry": ["0s", "0.2s"], "max_attempts": None, "max_crashes": None}


@app.job(**PATIENT)
def quick(name: str, me: holdfast.Context, token: int = 0) -> dict[str, int]:
    with told("quick", me):
        return {"token": me.token}


@app.job(**PATIENT)
def slow(name: str, seconds: float, me: holdfast.Context) -> dict[str, int]:
    """Does not look whether it should stop: what it says too late must be refused."""
    with told("slow", me):
        NEVER.wait(seconds)
        return {"token": me.token}


@app.job(lease=LEASE, retry=["0s"], max_attempts=4, max_crashes=3)
def flaky(name: str, fails: int, me: holdfast.Context) -> dict[str, int]:
    """Fails a few times; when workers are lost too, it may end dead."""
    with told("flaky", me):
        if me.attempt <= fails:
            raise ValueError(f"attempt {me.attempt} of {name}")
        return {"token": me.token}


@app.job(**PATIENT)
def parent(name: str, me: holdfast.Context) -> dict[str, int]:
    """Has one child, however often it runs."""
    with told("parent", me):
        child = f"{name}/child"
        facts = {"name": child, "kind": "quick", "parent": me.id, "token": me.token, "key_for": "ever"}
        with recorder().asking("enqueue", **facts) as answer:
            made = me.enqueue("quick", {"name": child, "token": me.token}, key=Text(child), key_for="ever")
            answer.update(id=made.id, created=made.created)
        return {"token": me.token}


@app.job(**PATIENT)
def no_prefetch(name: str, me: holdfast.Context) -> dict[str, int]:
    """Goes on from its checkpoint, and keeps new ones."""
    with told("no_prefetch", me):
        begun = me.checkpointed or {"at": 0}
        for at in range(begun["at"], 4):
            with recorder().asking("checkpoint", job=me.id, token=me.token):
                me.checkpoint({"at": at + 1, "token": me.token})
            if me.stopping.wait(0.02):
                me.check()
        return {"token": me.token}


@app.job(**{**PATIENT, "lease": 10 * LEASE})
def unhurried(name: str, seconds: float, me: holdfast.Context) -> dict[str, int]:
    """Has a longer lease than the others."""
    with told("unhurried", me):
        me.stopping.wait(seconds)
        return {"token": me.token}


@app.job(lease=LEASE, max_attempts=None, max_crashes=None, retry=["0s"], on_lost="hold")
def cautious(name: str, seconds: float, me: holdfast.Context) -> dict[str, int]:
    """Is never claimed ahead."""
    with told("cautious", me):
        me.stopping.wait(seconds)
        return {"token": me.token}


@app.job(lease=60, max_attempts=1, max_crashes=1)
def reporter(name: str, me: holdfast.Context) -> dict[str, int]:
    """Speaks to the store all the time. An outage within its lease must not cost its only attempt."""
    with told("reporter", me):
        for n in range(20):
            me.progress(n + 1, 20)
            me.checkpoint({"at": n, "token": me.token})
            me.stopping.wait(0.1)
            me.check()
        return {"token": me.token}


@app.job(**PATIENT)
def forker(name: str, mode: str, me: holdfast.Context) -> dict[str, int]:
    """Forks as users' code does: none of it may reach the worker."""
    with told("forker", me):
        context = multiprocessing.get_context("fork")
        if mode == "pool":
            with context.Pool(2) as pool:
                assert pool.map(abs, [-1, -2]) == [1, 2]
            return {"token": me.token}
        target, arguments = (_enqueue_apart, (f"{name}/{me.token}",)) if mode == "enqueue" else (NEVER.wait, (30,))
        child = context.Process(target=target, args=arguments)
        child.start()
        if mode == "terminate":
            child.terminate()
        child.join(30)
        assert not child.is_alive()
        return {"token": me.token}


def _enqueue_apart(name: str) -> None:
    """In a forked child, with the application that it has inherited."""
    recorder.cache_clear()
    with recorder().asking("enqueue", name=name, kind="quick") as answer:
        made = app.enqueue("quick", {"name": name})
        answer.update(id=made.id, created=made.created)


@app.job(**PATIENT, queue=NARROW)
def narrow(name: str, me: holdfast.Context) -> dict[str, int]:
    with told("narrow", me, NARROW):
        me.stopping.wait(0.02)
        return {"token": me.token}


@app.job(**PATIENT, queue=MOODY)
def moody(name: str, me: holdfast.Context) -> dict[str, int]:
    with told("moody", me, MOODY):
        return {"token": me.token}


@app.job(**PATIENT)
async def aside(name: str, me: holdfast.Context) -> dict[str, int]:
    with told("aside", me):
        return {"token": me.token}


@app.job(**PATIENT, executor="process")
def apart(name: str, me: holdfast.Context) -> dict[str, int]:
    with told("apart", me):
        me.progress(1, 2, Text("half"))
        me.stopping.wait(0.02)
        return {"token": me.token}


@app.job(lease=LEASE, max_attempts=2, max_crashes=2, retry=["0s"], executor="process", memory="64M")
def hungry(name: str, me: holdfast.Context) -> dict[str, int]:
    """Takes more than it may, and is killed for it; it ends dead."""
    with told("hungry", me):
        taken = bytearray()
        while not me.stopping.is_set():
            taken += bytes(8 * 1024 * 1024)
            NEVER.wait(0.01)
        me.check()
        return {"token": me.token}


@app.schedule("every 2s", name=SCHEDULE, catch_up="every", scopes=["one", "two"])
@app.job(**PATIENT)
def planned(plan: holdfast.Plan, me: holdfast.Context) -> dict[str, int]:
    with told("planned", me):
        return {"token": me.token}


@app.scopes()
def hanging() -> list[str]:
    NEVER.wait(3600)
    return []


@app.scopes()
def raising() -> list[str]:
    raise ValueError("nobody knows the tenants")


@app.scopes()
def slow_to_tell() -> list[str]:
    NEVER.wait(os.getpid() % 7 * 0.3)
    return ["one", "two"]


@app.scopes()
def quick_to_tell() -> list[str]:
    return ["one", "two"]


def _made(key: int, run: str, unit: holdfast.Unit) -> None:
    with recorder().running("unit", unit=unit.idempotency_key, batch=run, key=key):
        if key % 17 == 3 and unit.attempt == 1:
            raise ValueError("a bad first try")
        if key % 13 == 5:
            _end_a_fork()
        NEVER.wait(0.002)


def _end_a_fork() -> None:
    """A unit forks, and ends its child with a signal: neither the run nor the worker may notice."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # its parent may be killed before it ends it
        signal.pause()
        os._exit(0)
    os.kill(child, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM


def make(key: int, run: str, unit: holdfast.Unit, *, tx: bool) -> None:
    """Run a unit; in ``tx`` mode its effect is a row in the store's own database, in the transaction that ends it."""
    if not tx:
        _made(key, run, unit)
        return
    with unit.transaction() as connection:
        connection.execute(f"INSERT INTO {EFFECTS} (unit) VALUES ('{unit.idempotency_key}')")
        _made(key, run, unit)


TRIED: dict[str, Any] = {"retries": 3, "retry": ["0s"], "lease": LEASE, "max_failures": 0}


@app.unit(**TRIED)
def count(key: int, run: str, unit: holdfast.Unit) -> None:
    make(key, run, unit, tx=False)


@app.unit(**TRIED)
def count_tx(key: int, run: str, unit: holdfast.Unit) -> None:
    make(key, run, unit, tx=True)


@app.unit(**TRIED, executor="process")
def count_apart(key: int, run: str, unit: holdfast.Unit) -> None:
    make(key, run, unit, tx=False)


@app.unit(**TRIED, executor="process")
def count_tx_apart(key: int, run: str, unit: holdfast.Unit) -> None:
    make(key, run, unit, tx=True)


def fail_if_bad(key: int, run: str, bad: list[int], unit: holdfast.Unit) -> None:
    """Fail for ever, or have an effect."""
    with recorder().running("unit", unit=unit.idempotency_key, batch=run, key=key):
        NEVER.wait(0.01)
        if key in bad:
            raise ValueError(f"unit {key} is bad for ever")


@app.unit(lease=LEASE)
def scattered(key: int, run: str, bad: list[int], unit: holdfast.Unit) -> None:
    fail_if_bad(key, run, bad, unit)


@app.unit(lease=LEASE, executor="process")
def scattered_apart(key: int, run: str, bad: list[int], unit: holdfast.Unit) -> None:
    fail_if_bad(key, run, bad, unit)


def register_version(version: int) -> None:
    """Register the kind ``deployed`` as one version of an application has it. Version 2 has another field."""
    if version == 1:

        @app.job(**PATIENT, name="deployed")
        def deployed(name: str, size: int, me: holdfast.Context) -> dict[str, int]:
            with told("deployed", me):
                return {"token": me.token}

        return

    @app.job(**PATIENT, name="deployed", version=2, upgrade={1: _with_colour})
    def deployed_later(name: str, colour: str, me: holdfast.Context) -> dict[str, int]:
        with told("deployed", me):
            return {"token": me.token}


def _with_colour(payload: dict[str, Any]) -> dict[str, Any]:
    return {"name": payload["name"], "colour": str(payload["size"])}


def narrow_sockets() -> None:
    """Small buffers between workers and supervisors: who waits for the other is found within a lease."""
    from holdfast.worker.executors import children

    def pair() -> tuple[socket.socket, socket.socket]:
        ends = wide()
        for end in ends:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        return ends

    wide = socket.socketpair
    children.socket.socketpair = pair


def shorten_commands() -> None:
    """Programs of a lost worker are taken over as soon as other jobs."""
    from functools import partial

    from holdfast.worker.commands import executor

    executor.command_kind = partial(executor.command_kind, lease=timedelta(seconds=LEASE))

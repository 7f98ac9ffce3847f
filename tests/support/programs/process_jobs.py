"""Kinds for the process executor: children import this module."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import holdfast
import holdfast.errors
from holdfast.worker.executors.channel import Channel, frame

#: Nothing sets it: to wait for it is to take one's time.
NEVER = threading.Event()


def double(n: int) -> int:
    return n * 2


def who(me: holdfast.Context) -> list[object]:
    return [os.getpid(), me.id, me.attempt, me.token, me.worker, me.deadline is not None]


def talk(me: holdfast.Context) -> object:
    """Uses everything that a context can do."""
    begin = me.checkpointed or 0
    me.progress(1, 2, "half")
    me.checkpoint(begin + 1)
    me.heartbeat()
    if me.attempt == 1:
        raise holdfast.Retry("again", after=0)
    child = me.enqueue("double", {"n": 4}, label="kids")
    return [begin, child.id, me.step("once", lambda: 7)]


def report(path: str, me: holdfast.Context) -> list[object]:
    """Uses the context while the store may be away; a file says when."""
    Path(f"{path}-begun").touch()
    while not Path(path).exists():
        NEVER.wait(0.01)
    me.progress(1, 2)
    me.checkpoint("half")
    me.heartbeat()
    child = me.enqueue("double", {"n": 4})
    return [me.attempt, me.token, child.created, me.step("once", lambda: 7)]


async def rest(n: int) -> int:
    return n + 1


def wait_for_stop(me: holdfast.Context) -> None:
    me.progress(1)
    me.stopping.wait(60)
    me.check()


def ignore_all(path: str) -> None:
    """Holds the interpreter's lock in C: no thread of this process can do anything."""
    Path(path).write_text(str(os.getpid()))
    ctypes.PyDLL(None).sleep(60)


def hold_lock_briefly() -> str:
    ctypes.PyDLL(None).sleep(8)
    return "done"


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def leave() -> None:
    os._exit(3)


def die_later(path: str) -> None:
    """Ends well, but leaves something behind that ends its process when a file appears."""

    def later() -> None:
        while not Path(path).exists():
            NEVER.wait(0.01)
        os._exit(3)

    threading.Thread(target=later, daemon=True).start()


def once(me: holdfast.Context) -> list[int]:
    """Must not run twice."""
    return [me.attempt, os.getpid()]


def grow() -> None:
    held = []
    while True:
        held.append(bytearray(8 << 20))
        NEVER.wait(0.005)


def daemonise(path: str) -> None:
    """Leaves a process behind that left the session, and dies."""
    background(path)
    os._exit(0)


def background(path: str) -> None:
    """Leaves a process behind that left the session, and ends well."""
    code = f"import os, signal; open({path!r}, 'w').write(str(os.getpid())); signal.pause()"
    subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    while not Path(path).exists() or not Path(path).read_text():
        NEVER.wait(0.01)


def fork() -> str:
    """Leaves a copy of this process behind, which goes on where it stands."""
    if os.fork() == 0:
        NEVER.wait(0.3)
        return "from the fork"
    return "from the parent"


def linger(me: holdfast.Context) -> str:
    """Leaves a thread behind that speaks for a job that has ended."""

    def later() -> None:
        NEVER.wait(0.3)
        try:
            me.checkpoint("stray")
        except holdfast.errors.LeaseLost:
            Path(f"stray-refused-{os.getpid()}").touch()

    threading.Thread(target=later, daemon=True).start()
    return "finished"


def outlast(me: holdfast.Context) -> list[object]:
    """Runs long enough to meet what others left behind."""
    NEVER.wait(0.8)
    return [me.id, me.checkpointed]


def odd(what: str, me: holdfast.Context) -> str:
    if what == "float":
        me.progress(0.5, 1.0)  # type: ignore[arg-type]
    if what == "huge":
        me.progress(10**30)
    if what == "surrogate":
        raise ValueError("bad \udc80 text")
    if what == "message":
        me.progress(1, 2, "x\udc80")
    return "fine"


class Late(Exception):
    """Raised by a signal handler."""


def interrupted(me: holdfast.Context) -> list[object]:
    """A timer interrupts some calls of the context, as ``signal.alarm`` does for a time limit."""

    def ring(*_: object) -> None:
        raise Late

    signal.signal(signal.SIGALRM, ring)
    answers: list[object] = [None] * 100
    for n in range(100):
        with suppress(Late):  # also right after the answer
            signal.setitimer(signal.ITIMER_REAL, 0.0001 + n * 0.00001)
            answers[n] = me.step(f"step {n}", lambda n=n: n)
            signal.setitimer(signal.ITIMER_REAL, 0)
    return answers


def cut_the_line(me: holdfast.Context) -> None:
    """The thread that sends its messages fails."""
    original = Channel.send_frame

    def fail(channel: object, data: bytes) -> None:
        del channel, data
        Channel.send_frame = original  # type: ignore[method-assign]
        raise RuntimeError("the line is cut")

    me.progress(1)
    Channel.send_frame = fail  # type: ignore[method-assign, assignment]
    me.progress(2)  # the thread has taken the method for this one already
    me.progress(3)


def babble() -> None:
    """Writes to the connection of its child what the worker cannot read."""
    with socket.socket(fileno=os.dup(int(sys.argv[1]))) as connection:
        connection.sendall(frame({"type": "Babble"}))
    NEVER.wait()


def register(app: holdfast.Holdfast) -> dict[str, object]:
    """Register all of them; answers the handlers by name."""
    options = {"executor": "process", "retry": ["0s"]}
    handlers = {f.__name__: app.job(**options)(f) for f in (double, who, talk, report, rest, wait_for_stop)}
    once_only = {"executor": "process", "max_attempts": 1}
    handlers |= {f.__name__: app.job(**once_only)(f) for f in (background, daemonise, fork, interrupted, leave)}
    crashing = {"executor": "process", "retry": ["0s"], "max_crashes": 1, "timeout": 5}
    handlers |= {f.__name__: app.job(**crashing)(f) for f in (cut_the_line, babble)}
    handlers |= {f.__name__: app.job(**once_only)(f) for f in (linger, odd, outlast, die_later)}
    handlers["once"] = app.job(**once_only, on_lost="hold")(once)
    handlers["hold_lock_briefly"] = app.job(executor="process", lease=5)(hold_lock_briefly)
    handlers["kill_self"] = app.job(**options, max_crashes=2)(kill_self)
    handlers["ignore_all"] = app.job(executor="process", max_attempts=1, timeout=0.5, lease=60)(ignore_all)
    handlers["grow"] = app.job(**options, max_crashes=2, memory="120M")(grow)
    return handlers


APP = holdfast.Holdfast("sqlite:///never-opened.db")
register(APP)

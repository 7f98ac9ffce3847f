"""Holdfast in the comparison and in its situations, by its public interface: ``python -m bench.racer_holdfast URL``."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import holdfast
from bench.racer import FEED, LOOK_S, PAUSE_S, Tally, needed, obey, settings, sizes

app = holdfast.Holdfast(sys.argv[1])
waits: list[float] = []
SETTINGS = settings(slots=8, tally="", kinds=0, queues=0)
SLOTS = SETTINGS["slots"]
QUEUES = [f"q{n}" for n in range(SETTINGS["queues"])] or ["default"]


@app.job()
def nothing(n: int) -> None:
    """Do nothing."""


@app.job()
def stamp(sent: float) -> None:
    """Note the time from the enqueue to here."""
    waits.append(time.time() - sent)


def enqueue_one(count: int, _size: int) -> None:
    for n in range(count):
        nothing.enqueue(n=n)


def enqueue_bulk(count: int, size: int) -> None:
    for calls in sizes(count, size):
        nothing.enqueue_many([{"n": n} for n in range(calls)])


def enqueue_lanes(count: int, _size: int) -> None:
    """Jobs of every kind in every queue: a lane is a kind in a queue."""
    lanes = [(f"k{kind}", queue) for kind in range(SETTINGS["kinds"]) for queue in QUEUES]
    for calls in sizes(count, len(lanes)):
        jobs = [app.request(kind, {"n": 1}, {"queue": queue}) for kind, queue in lanes[:calls]]
        app.store.jobs.enqueue_many(jobs)


def enqueue_timed(count: int, _size: int) -> dict[str, Any]:
    """The seconds of each call, and the number of those that a busy store refused."""
    took, busy = list[float](), 0
    for n in range(count):
        began = time.perf_counter()
        try:
            nothing.enqueue(n=n)
        except holdfast.HoldfastError:
            busy += 1
        took.append(time.perf_counter() - began)
    return {"waits": took, "busy": busy}


def drain(_count: int, _size: int) -> dict[str, Any]:
    worker = app.worker(drain=True, slots=SLOTS, queues=QUEUES)
    worker.run()
    return {"jobs": worker.counts.results.get("done", 0)}


def serve(count: int, _size: int) -> dict[str, Any]:
    """Work until *count* jobs have reported their latency."""
    waits.clear()
    with app.worker(slots=SLOTS):
        while len(waits) < count:
            time.sleep(PAUSE_S)
    return {"waits": waits[:count]}


def idle(count: int, _size: int) -> None:
    """Run a worker for *count* seconds."""
    with app.worker(slots=SLOTS):
        time.sleep(count)


def send(count: int, _size: int) -> None:
    pause = threading.Event()
    for _ in range(count):
        pause.wait(PAUSE_S)
        stamp.enqueue(sent=time.time())


def work(count: int, _size: int) -> None:
    """Work for *count* seconds on what a producer sends."""
    tally, end = Tally(SETTINGS["tally"]), time.monotonic() + count
    with app.worker(slots=SLOTS) as worker:
        while time.monotonic() < end:
            tally.write(worker.counts.results.get("done", 0))
            time.sleep(LOOK_S)


def feed(count: int, _size: int) -> None:
    """Keep a worker busy for *count* seconds."""
    tally, end, sent = Tally(SETTINGS["tally"]), time.monotonic() + count, 0
    while time.monotonic() < end:
        if needed(tally, sent):
            nothing.enqueue_many([{"n": n} for n in range(FEED)])
            sent += FEED
        else:
            time.sleep(LOOK_S)


def add_kinds() -> None:
    for kind in range(SETTINGS["kinds"]):

        @app.job(name=f"k{kind}")
        def no_op(n: int) -> None:
            """Do nothing."""


if __name__ == "__main__":
    add_kinds()
    app.store.jobs.enqueue_many([])  # the schema exists from here on
    acts = {"one": enqueue_one, "bulk": enqueue_bulk, "drain": drain, "serve": serve, "send": send}
    obey(acts | {"lanes": enqueue_lanes, "timed": enqueue_timed, "idle": idle, "work": work, "feed": feed})

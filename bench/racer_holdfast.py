"""Holdfast in the comparison, by its public interface: ``python -m bench.racer_holdfast URL``."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import holdfast
from bench.racer import PAUSE_S, obey, settings, sizes

app = holdfast.Holdfast(sys.argv[1])
waits: list[float] = []
SLOTS = settings(slots=8)["slots"]


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


def drain(_count: int, _size: int) -> dict[str, Any]:
    worker = app.worker(drain=True, slots=SLOTS)
    worker.run()
    return {"jobs": worker.counts.results.get("done", 0)}


def serve(count: int, _size: int) -> dict[str, Any]:
    """Work until *count* jobs have reported their latency."""
    waits.clear()
    with app.worker(slots=SLOTS):
        while len(waits) < count:
            time.sleep(PAUSE_S)
    return {"waits": waits[:count]}


def send(count: int, _size: int) -> None:
    pause = threading.Event()
    for _ in range(count):
        pause.wait(PAUSE_S)
        stamp.enqueue(sent=time.time())


if __name__ == "__main__":
    app.store.jobs.enqueue_many([])  # the schema exists from here on
    obey({"one": enqueue_one, "bulk": enqueue_bulk, "drain": drain, "serve": serve, "send": send})

"""A program over a range of units, for tests that interrupt it: every effect is a row in a table of its own.

``python -m tests.support.programs.batch_program URL EFFECTS --count N --jobs N …``; with ``--work`` it is a worker instead.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import holdfast
from holdfast.worker.stop_signals import Signals

#: Nothing sets it: to wait for it is to take one's time.
NEVER = threading.Event()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("effects")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--nap", type=float, default=0.001)
    parser.add_argument("--gate", type=Path, help="units from 10 on wait until this file is there")
    parser.add_argument("--fail", default="", help="keys that fail, divided by commas")
    parser.add_argument("--kill", type=int, help="the key that kills the process")
    parser.add_argument("--tx", action="store_true")
    parser.add_argument("--max-failures", type=int, default=0)
    parser.add_argument("--deadline", type=float)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--allow-concurrent", action="store_true")
    parser.add_argument("--wait", action="store_true")
    parser.add_argument("--version", default="1")
    parser.add_argument("--where", default="here")
    parser.add_argument("--shards", type=int, default=3)
    parser.add_argument("--work", action="store_true")
    parser.add_argument("-o", "--output", default="json")
    asked = parser.parse_args()
    app = holdfast.Holdfast(asked.url)
    failing = {int(key) for key in asked.fail.split(",") if key}

    @app.unit(version=asked.version, lease=2)
    def effect(key: int, unit: holdfast.Unit) -> None:
        if key == asked.kill:
            os.kill(os.getpid(), 9)
        if key in failing:
            raise ValueError(f"no {key}")
        if asked.nap > 1:
            Path(f"{asked.effects}-begun").touch()
        while asked.gate and key >= 10 and not asked.gate.exists():
            NEVER.wait(0.02)
        NEVER.wait(asked.nap)
        if asked.tx:
            with unit.transaction() as connection:
                connection.execute(_insert(asked.url), {"key": key})
            return
        with closing(sqlite3.connect(asked.effects, timeout=60)) as connection, connection:
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("INSERT INTO effect VALUES (?)", (key,))

    if asked.work:
        worker = app.worker(slots=4, grace=5, poll=0.1, heartbeat=0.4)
        with Signals(worker.stop, lambda: os._exit(130)):
            worker.run(exits=True)
        return

    options = {"deadline": asked.deadline, "limit": asked.limit, "fresh": asked.fresh, "wait": asked.wait}
    app.run(
        effect,
        range(asked.first, asked.first + asked.count),
        name="effects",
        jobs=asked.jobs if asked.where == "here" else 1,
        output=asked.output,
        max_failures=asked.max_failures,
        allow_concurrent=asked.allow_concurrent,
        where=asked.where,
        shards=asked.shards,
        **options,
    ).exit()


def _insert(url: str) -> str:
    return "INSERT INTO effect VALUES (:key)" if url.startswith("sqlite") else "INSERT INTO effect VALUES (%(key)s)"


if __name__ == "__main__":
    main()

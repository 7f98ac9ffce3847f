"""huey on SQLite, as durable as Holdfast (``fsync=True``). It has neither bulk nor batches.

Runs in the peers' environment: ``python -m bench.racer_huey FILE``. Its consumer is left out: a loop takes and executes
jobs, which is faster. huey deletes the row before the job runs (at most once), so it writes one transaction per job where
the others write two.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

from huey import SqliteHuey

from bench.racer import obey

huey = SqliteHuey(filename=sys.argv[1], fsync=True)
logging.getLogger("huey").setLevel(logging.WARNING)


@huey.task()
def nothing(n: int) -> None:
    """Do nothing."""


def enqueue_one(count: int, _size: int) -> None:
    for n in range(count):
        nothing(n)


def drain(_count: int, _size: int) -> dict[str, Any]:
    done = 0
    while (task := huey.dequeue()) is not None:
        huey.execute(task)
        done += 1
    return {"jobs": done}


if __name__ == "__main__":
    obey({"one": enqueue_one, "drain": drain})

"""huey on SQLite, as durable as Holdfast (``fsync=True``). It has neither bulk nor batches.

Runs in the peers' environment: ``python -m bench.peer_huey FILE``. huey deletes the row
before the job runs (at most once), so it writes one transaction per job where the others
write two.
"""

from __future__ import annotations

import logging
import sys
import time

from huey import SqliteHuey

from bench.peer_loop import obey
from bench.work import PAYLOAD

huey = SqliteHuey(filename=sys.argv[1], fsync=True)
logging.getLogger("huey").setLevel(logging.WARNING)


@huey.task()
def mail(payload: str) -> None:
    """Do nothing with *payload*."""


def act(name: str, count: int, _batch: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        if name == "one":
            mail(PAYLOAD)
        else:
            huey.execute(huey.dequeue())
    return time.perf_counter() - began


if __name__ == "__main__":
    obey(act)

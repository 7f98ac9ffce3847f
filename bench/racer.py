"""The racer's side of the comparison: one JSON order per line in, one answer per line out.

Only the standard library is imported: the peers load this file in an environment of their own.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

#: Seconds between two jobs whose latency is measured: the worker is idle when the next one comes.
PAUSE_S = 0.03

#: An act gets the number of jobs and the size of a call. It returns what it has to report, or nothing.
Act = Callable[[int, int], dict[str, Any] | None]


def obey(acts: dict[str, Act]) -> None:
    """Obey orders until the other side closes. The answer has wall time and CPU time of the act."""
    for line in sys.stdin:
        order = json.loads(line)
        began, used = time.perf_counter(), time.process_time()
        report = acts[order["act"]](order["count"], order.get("size", 1)) or {}
        answer = {"seconds": time.perf_counter() - began, "cpu": time.process_time() - used, "jobs": order["count"]}
        print(json.dumps(answer | report), flush=True)


def sizes(count: int, size: int) -> Iterator[int]:
    """The sizes of the calls that make up *count* jobs."""
    for start in range(0, count, size):
        yield min(size, count - start)

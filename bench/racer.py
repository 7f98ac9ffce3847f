"""The racer's side of the comparison: one JSON order per line in, one answer per line out.

Only the standard library is imported: the peers load this file in an environment of their own.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

#: Seconds between two jobs whose latency is measured: the worker is idle when the next one comes.
PAUSE_S = 0.03
#: Seconds between two looks whether any job is left, and looks without one at the end.
QUIET_S, LAST_LOOKS = 0.01, 50

#: Jobs in a call of a producer that keeps a worker busy, and seconds between two looks at the tally.
FEED, LOOK_S = 5000, 0.05

#: An act gets the number of jobs and the size of a call. It returns what it has to report, or nothing.
Act = Callable[[int, int], dict[str, Any] | None]


def settings(**best: Any) -> dict[str, Any]:
    """The best settings, or others that the command line has as JSON after the place of the store."""
    return best | (json.loads(sys.argv[2]) if len(sys.argv) > 2 else {})


def obey(acts: dict[str, Act]) -> None:
    """Obey orders until the other side closes. The answer has wall time and CPU time of the act."""
    for line in _orders():
        order = json.loads(line)
        began, used = time.perf_counter(), time.process_time()
        report = acts[order["act"]](order["count"], order.get("size", 1)) or {}
        answer = {"seconds": time.perf_counter() - began, "cpu": time.process_time() - used, "jobs": order["count"]}
        print(json.dumps(answer | report), flush=True)


def _orders() -> Iterator[str]:
    """Orders as they come. This process ends with the one that orders, also in the midst of an act."""
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            lines.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield lines.get()


class Tally:
    """The number of finished jobs in a file, for the producer and for the benchmark: no query disturbs the store."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def write(self, done: int) -> None:
        os.pwrite(self._file, done.to_bytes(8, "little"), 0)

    def read(self) -> int:
        return int.from_bytes(os.pread(self._file, 8, 0), "little")


def needed(tally: Tally, sent: int) -> bool:
    """Whether a producer must send :data:`FEED` jobs more, so that 5,000 to 20,000 wait."""
    return sent - tally.read() < 2 * FEED


class Progress:
    """What the handlers of a worker have done that cannot say when its queue is empty."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.done, self.waits, self.began = 0, list[float](), time.perf_counter()

    async def drain(self, left: Callable[[], Awaitable[bool]]) -> dict[str, Any]:
        """Wait until nothing is left and no job comes any more; jobs may be on their way to the handlers.

        The store is queried only when no job came since the last look. The time ends with the first look after the last job.
        """
        seen, looks, ended = -1, 0, 0.0
        while looks < LAST_LOOKS:
            if seen != self.done or await left():
                looks, ended = 0, time.perf_counter()
            else:
                looks += 1
            seen = self.done
            await asyncio.sleep(QUIET_S)
        return {"jobs": self.done, "seconds": ended - self.began}


def sizes(count: int, size: int) -> Iterator[int]:
    """The sizes of the calls that make up *count* jobs."""
    for start in range(0, count, size):
        yield min(size, count - start)

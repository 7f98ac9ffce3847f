"""A program whose main thread is interrupted in its calls: ``python -m tests.chaos.interrupted URL SEED COUNT``.

SIGALRM raises at random moments of a call, while other threads enqueue. It prints what came of it as JSON.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import holdfast
from holdfast import Selector

#: The moments of a signal after the start of a call, in seconds.
EARLIEST_S, LATEST_S = 0.00003, 0.003
#: A main thread that makes no progress for this long hangs, in seconds.
HANGS_S = 60.0
THREADS = 3
PAUSE_S = 0.002


def batched(items: list[int], size: int) -> list[list[int]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


class Interrupt(Exception):
    """What the handler raises."""


class Program:
    def __init__(self, url: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.app = holdfast.Holdfast(url)
        self.job = self.app.job("interrupted")(lambda n: n)
        self.acknowledged: list[int] = [self.job.enqueue(0).id]
        self.errors: list[str] = []
        self.interrupts = 0
        self.progress_at = time.monotonic()
        self.stopped = threading.Event()
        self._armed = False

    def calls(self) -> list[Callable[[], list[int]]]:
        """Each sort of call, with the ids of the jobs that it acknowledges."""
        newest = self.acknowledged[-1]
        return [
            lambda: [self.job.enqueue(1).id],
            lambda: [self.job.enqueue(2).id],
            lambda: [ref.id for ref in self.job.enqueue_many([{"n": n} for n in range(5)])],
            lambda: [self.job.options(key=f"k{newest % 50}", on_conflict="replace").enqueue(3).id],
            lambda: [self.app.get(newest).id],
            lambda: [*self.app.control.cancel(Selector(ids=(newest,)), actor="me")] and [],
        ]

    def run(self, count: int) -> dict[str, Any]:
        signal.signal(signal.SIGALRM, self._interrupt)
        threads = [threading.Thread(target=self._enqueue, daemon=True) for _ in range(THREADS)]
        for thread in [*threads, threading.Thread(target=self._watch, daemon=True)]:
            thread.start()
        while self.interrupts < count:
            self._call()
        self.stopped.set()
        for thread in threads:
            thread.join(HANGS_S)
        hung = sum(thread.is_alive() for thread in threads)
        return {
            "interrupts": self.interrupts,
            "acknowledged": len(self.acknowledged),
            "broken": self._broken(hung),
        }

    def _call(self) -> None:
        call = self.random.choice(self.calls())
        self.progress_at = time.monotonic()
        try:
            self._armed = True
            signal.setitimer(signal.ITIMER_REAL, self.random.uniform(EARLIEST_S, LATEST_S))
            ids = call()
            self._armed = False
            self.acknowledged += ids
        except Interrupt:
            self.interrupts += 1
        except Exception as error:  # noqa: BLE001 - no call may fail for another reason
            self.errors.append(f"{type(error).__name__}: {error}")
        finally:
            self._armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _interrupt(self, *_: object) -> None:
        if self._armed:
            self._armed = False
            raise Interrupt

    def _enqueue(self) -> None:
        while not self.stopped.wait(PAUSE_S):
            try:
                self.acknowledged.append(self.job.enqueue(4).id)
            except Exception as error:  # noqa: BLE001 - of a call that nobody interrupts
                self.errors.append(f"in another thread: {type(error).__name__}: {error}")

    def _watch(self) -> None:
        while not self.stopped.wait(1):
            if time.monotonic() - self.progress_at > HANGS_S:
                faulthandler.dump_traceback(all_threads=True)
                os._exit(3)

    def _broken(self, hung: int) -> list[str]:
        broken = [f"{hung} other threads hang"] if hung else []
        broken += sorted(set(self.errors))[:5]
        lost = set(self.acknowledged)
        for chunk in batched(sorted(lost), 1000):
            lost -= self.app.views.existing(chunk)
        broken += [f"lost: {sorted(lost)[:5]} and more, {len(lost)} in all"] if lost else []
        lent, until = 1, time.monotonic() + 10
        while lent and time.monotonic() < until:
            lent = self.app.store.backend.pool_stats().connections.get("in_use", 0)
        return broken + ([f"{lent} connections are lent to nobody"] if lent else [])


def main() -> None:
    url, seed, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    program = Program(url, seed)
    sys.stdout.write(json.dumps(program.run(count)))
    program.app.close()


if __name__ == "__main__":
    main()

"""Workers for tests, in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast import Holdfast
from holdfast.worker.worker import Worker


def drain(app: Holdfast, **options) -> Worker:
    """Work until nothing is left."""
    worker = app.worker(commands=True, **{"drain": True, "poll": 0.02, **options})
    worker.run()
    return worker


@contextmanager
def working(app: Holdfast, **options) -> Iterator[Worker]:
    """A worker in a thread, stopped at the end."""
    worker = app.worker(commands=True, **{"poll": 0.02, "heartbeat": 0.05, "grace": 5, **options})
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join(120)
        assert not thread.is_alive()

"""Worker processes for tests: started from a clean one, killed and replaced at will."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import holdfast
from tests.support.processes import Child

LEASE = 1.0


def make_app(url: str, *, lease: float = LEASE) -> holdfast.Holdfast:
    """An app whose jobs are short, long, or deadly."""
    app = holdfast.Holdfast(url)
    patient = {"lease": lease, "retry": ["0s"], "max_attempts": None, "max_crashes": None}

    @app.job(**patient)
    def quick(n: int) -> int:
        return n

    @app.job(**patient)
    def slow(n: int) -> int:
        threading.Event().wait(0.02)
        return n

    @app.job(**patient)
    def parent(n: int, me: holdfast.Context) -> int:
        return me.enqueue("quick", {"n": n}, key=f"child of {n}", key_for="1h").id

    @app.job(lease=lease, retry=["0s"], max_crashes=2)
    def poison(n: int) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    @app.job(**patient)
    def patience(path: str, me: holdfast.Context) -> str:
        """Tells that it has begun, and waits until a file is there, or until it is told to stop."""
        Path(f"{path}-begun").touch()
        while not Path(path).exists():
            if me.stopping.wait(0.02):
                Path(f"{path}-stopped").touch()
                me.check()
        return "patient"

    return app


def work(pipe, url: str, options: dict[str, Any]) -> None:
    """What a worker process does."""
    lease = options.pop("lease", LEASE)
    app = make_app(url, lease=lease)
    worker = app.worker(commands=True, **{"poll": 0.05, "slots": 4, **options})
    pipe.send(worker.id)
    worker.run()
    app.close()


class Fleet:
    """Some worker processes on one store."""

    def __init__(self, url: str, size: int, *, seed: int = 1, **options: Any) -> None:
        self.random = random.Random(seed)
        self._url = url
        self._options = options
        self.workers = [self._start() for _ in range(size)]

    def kill_one(self, *, after: float) -> None:
        """Let them work for some seconds; then kill -9 one of them, and start another."""
        threading.Event().wait(after)
        place = self.random.randrange(len(self.workers))
        self.workers[place].kill()
        self.workers[place].end()
        self.workers[place] = self._start()

    def replace_dead(self) -> None:
        for place, worker in enumerate(self.workers):
            if not worker.alive:
                worker.end()
                self.workers[place] = self._start()

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()
            worker.end()

    def _start(self) -> Child:
        return Child(work, self._url, dict(self._options))


@contextmanager
def fleet(url: str, size: int, **options: Any) -> Iterator[Fleet]:
    made = Fleet(url, size, **options)
    try:
        yield made
    finally:
        made.close()


class Audit:
    """Counts accepted ends behind the store's back: a trigger writes each of them down."""

    def __init__(self, database) -> None:
        self._database = database
        if database.name == "sqlite":
            database.execute("CREATE TABLE audit_end (id INTEGER, token INTEGER)")
            database.execute(
                "CREATE TRIGGER audit_ends AFTER INSERT ON holdfast_finished "
                "BEGIN INSERT INTO audit_end VALUES (new.id, new.token); END"
            )
            return
        database.execute("DROP TABLE IF EXISTS audit_end")
        database.execute("CREATE TABLE audit_end (id bigint, token bigint)")
        database.execute(
            "CREATE OR REPLACE FUNCTION audit_ends() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN INSERT INTO audit_end VALUES (new.id, new.token); RETURN new; END $$"
        )
        database.execute(
            "CREATE TRIGGER audit_ends AFTER INSERT ON holdfast.finished FOR EACH ROW EXECUTE FUNCTION audit_ends()"
        )

    def ends(self) -> dict[int, int]:
        """How often each job has ended."""
        return dict(self._database.execute("SELECT id, count(*) FROM audit_end GROUP BY id"))

    def close(self) -> None:
        if self._database.name != "sqlite":
            self._database.execute("DROP TRIGGER audit_ends ON holdfast.finished")
            self._database.execute("DROP TABLE audit_end")

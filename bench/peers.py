"""The peers run in processes and in an environment of their own, with pinned versions."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HOME = Path(__file__).resolve().parent.parent
ENVIRONMENT = HOME / ".venv-bench"
PINS = HOME / "requirements" / "bench.txt"


def python() -> Path:
    """The interpreter of the peers' environment; it is made anew when the pins have changed."""
    program = ENVIRONMENT / "bin" / "python"
    stamp = ENVIRONMENT / "pins"
    digest = hashlib.sha256(PINS.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != digest:
        subprocess.run([sys.executable, "-m", "venv", "--clear", ENVIRONMENT], check=True)
        install = [program, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", PINS]
        subprocess.run(install, check=True, stderr=subprocess.DEVNULL)
        stamp.write_text(digest)
    return program


class Process:
    """A system in a process of its own. It measures itself: the pipe is not part of its time."""

    def __init__(self, module: str, place: str, *, program: Path | str = sys.executable) -> None:
        self._process = subprocess.Popen(
            [program, "-m", module, place], cwd=HOME, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def order(self, **order: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process has ended: {self._process.args}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        self._process.communicate(timeout=60)


class Peer(Process):
    """A peer of the contest, in the environment of the peers. Each method answers the seconds that it took."""

    def __init__(self, module: str, place: str) -> None:
        super().__init__(module, place, program=python())

    def enqueue_one(self, count: int) -> float:
        return self._order(act="one", count=count)

    def enqueue_bulk(self, count: int) -> float:
        return self._order(act="bulk", count=count)

    def drain(self, count: int, batch: int) -> float:
        return self._order(act="drain", count=count, batch=batch)

    def _order(self, **order: object) -> float:
        self.order(**order)
        seconds: float = self.answer()["seconds"]
        return seconds

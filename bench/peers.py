"""The peers run in processes and in an environment of their own, with pinned versions."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

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


class Peer:
    """A system in another process. It measures itself: the pipe is not part of its time."""

    def __init__(self, module: str, place: str) -> None:
        self._process = subprocess.Popen(
            [python(), "-m", module, place], cwd=HOME, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def enqueue_one(self, count: int) -> float:
        return self._order(act="one", count=count)

    def enqueue_bulk(self, count: int) -> float:
        return self._order(act="bulk", count=count)

    def drain(self, count: int, batch: int) -> float:
        return self._order(act="drain", count=count, batch=batch)

    def close(self) -> None:
        self._process.communicate(timeout=30)

    def _order(self, **order: object) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the peer has ended: {self._process.args}")
        seconds: float = json.loads(answer)["seconds"]
        return seconds

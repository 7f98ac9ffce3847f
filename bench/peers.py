"""The peers run in processes and in environments of their own, with pinned versions."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HOME = Path(__file__).resolve().parent.parent
NEWEST_MINOR = 14


class PeerMissing(Exception):
    """A peer cannot take part on this machine; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The packages of requirements/NAME.txt, on a Python that is new enough for them."""

    name: str
    python: tuple[int, int] = (3, 11)

    def program(self) -> Path:
        """The interpreter; the environment is made anew when the pins have changed."""
        folder, pins = HOME / f".venv-{self.name}", HOME / "requirements" / f"{self.name}.txt"
        program, stamp = folder / "bin" / "python", folder / "pins"
        digest = hashlib.sha256(pins.read_bytes()).hexdigest()
        if not stamp.exists() or stamp.read_text() != digest:
            subprocess.run([self._interpreter(), "-m", "venv", "--clear", folder], check=True)
            install = [program, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", pins]
            done = subprocess.run(install, check=False, capture_output=True, text=True)
            if done.returncode != 0:
                raise PeerMissing(f"requirements/{self.name}.txt cannot be installed: {done.stderr[-300:]}")
            stamp.write_text(digest)
        return program

    def _interpreter(self) -> str:
        if sys.version_info[:2] >= self.python:
            return sys.executable
        major, oldest = self.python
        for minor in range(oldest, NEWEST_MINOR + 1):
            installed = sorted(Path.home().glob(f".pyenv/versions/{major}.{minor}.*/bin/python"))
            for program in (shutil.which(f"python{major}.{minor}"), *map(str, installed)):
                # A shim may stand for a version that is not chosen.
                if program and subprocess.run([program, "-V"], check=False, capture_output=True).returncode == 0:
                    return program
        raise PeerMissing(f"needs Python {major}.{oldest} or later, and none was found")


BENCH = Environment(name="bench")


def python() -> Path:
    """The interpreter of the environment that most peers share."""
    return BENCH.program()


class Process:
    """A system in a process of its own. It measures itself: the pipe is not part of its time."""

    def __init__(self, module: str, *arguments: str, program: Path | str = sys.executable) -> None:
        self._process = subprocess.Popen(
            [program, "-m", module, *arguments], cwd=HOME, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    @property
    def pid(self) -> int:
        return self._process.pid

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

    def perform(self, act: str, count: int = 0, size: int = 1) -> dict[str, Any]:
        self.order(act=act, count=count, size=size)
        return self.answer()

    def close(self) -> None:
        self._process.communicate(timeout=60)

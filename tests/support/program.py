"""The ``holdfast`` program as a user runs it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


class Program:
    """One run of the program, with what it said."""

    def __init__(self, *arguments: str, url: str, **environment: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", *arguments],
            cwd=ROOT,
            env={**os.environ, "HOLDFAST_URL": url, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def said(self, text: str) -> str:
        """Read stderr until a line holds *text*, and return it."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if text in line:
                return line
        raise AssertionError(f"the program ended without saying {text!r}")

    def end(self) -> tuple[int, str]:
        """Its exit code, and the rest of what it said."""
        _, err = self._process.communicate(timeout=60)
        return self._process.returncode, err

    def read(self) -> tuple[str, str]:
        """All that it printed until its end: to stdout, and to stderr."""
        return self._process.communicate(timeout=60)

    @property
    def code(self) -> int:
        return self._process.wait(60)

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


@contextmanager
def program(*arguments: str, url: str, **environment: str) -> Iterator[Program]:
    started = Program(*arguments, url=url, **environment)
    try:
        yield started
    finally:
        started.close()


@contextmanager
def programs(*line: str, **options: Any) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Gives a function that starts a Python program, *line* and then its words; what is left at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: object) -> subprocess.Popen[str]:
        told = {"cwd": ROOT, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
        process: subprocess.Popen[str] = subprocess.Popen([sys.executable, *line, *map(str, words)], **told)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def clean_environment(folder: Path, **variables: str) -> dict[str, str]:
    """The environment of a reader who has set nothing but the store, in *folder*."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return {**kept, "HOLDFAST_URL": f"sqlite:///{folder}/jobs.db", **variables}


def finished(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Its exit code, and what it printed."""
    out, _ = process.communicate(timeout=60)
    return process.returncode, out


@contextmanager
def bundled_server(file: str) -> Iterator[str]:
    """The server of an example, on a port of its own; answers its address."""
    line = [sys.executable, file, "--port", "0"]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    yield process.stdout.readline().strip()
    process.terminate()
    process.communicate()

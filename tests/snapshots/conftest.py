"""The fixed store, built once in each process, and commands that run on copies of it."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import holdfast
from holdfast.cli.main import main
from holdfast.web import asgi
from tests.snapshots.fixed import Clock, fixed
from tests.snapshots.plain import plain
from tests.snapshots.scene import build
from tests.snapshots.site import Site


class Scenery(NamedTuple):
    """The folder with the fixed store, the time in it, and a token of each role."""

    folder: Path
    clock: Clock
    tokens: dict[str, str]

    def copy(self, home: Path) -> None:
        """Make *home* a fresh copy of the folder."""
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(self.folder, home)


class Ended(NamedTuple):
    """The exit code of a command, and what it printed."""

    code: object
    out: str
    err: str


@pytest.fixture(scope="session")
def scenery(tmp_path_factory: pytest.TempPathFactory) -> Scenery:
    folder = tmp_path_factory.mktemp("scenery")
    return Scenery(folder, *build(folder))


@pytest.fixture
def call(scenery: Scenery, tmp_path: Path) -> Callable[..., Ended]:
    """Calls ``holdfast`` on a fresh copy of the store, in this process."""
    home = tmp_path / "home"

    def call(words: list[str], stdin: str = "") -> Ended:
        scenery.copy(home)
        with fixed(home, Clock(scenery.clock.at)):
            return Ended(*(plain(part, home) if isinstance(part, str) else part for part in _called(words, stdin)))

    return call


@pytest.fixture
def sites(scenery: Scenery, tmp_path: Path) -> Callable[[], Any]:
    """Opens the site on a fresh copy of the store."""

    @contextmanager
    def opened() -> Iterator[Site]:
        home = tmp_path / "home"
        scenery.copy(home)
        with fixed(home, Clock(scenery.clock.at)), holdfast.Holdfast("sqlite:///jobs.db") as app:
            site = Site(asgi(app), scenery.tokens)
            with site.client:
                yield site

    return opened


def _called(words: list[str], stdin: str) -> tuple[object, str, str]:
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
    modules, path = set(sys.modules), list(sys.path)
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8"))
        with pytest.raises(SystemExit) as ended:
            main(words)
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name == "units":
            del sys.modules[name]
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())
    return ended.value.code, *texts

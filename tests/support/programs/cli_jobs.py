"""An application for ``holdfast worker`` in tests. The store comes from HOLDFAST_URL."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import holdfast

app = holdfast.Holdfast(version="1.2.3")


@app.job()
def double(n: int) -> int:
    return n * 2


@app.job()
def deaf(path: str) -> None:
    """Tells that it runs, and never stops."""
    Path(path).touch()
    threading.Event().wait(60)


@app.job()
def obedient(path: str, me: holdfast.Context) -> None:
    Path(path).touch()
    me.log.info("hello")
    me.stopping.wait(60)
    me.check()


@app.job(executor="process")
def child(path: str) -> None:
    Path(path).write_text(str(os.getpid()))
    threading.Event().wait(60)


@app.job(executor="process", lease=2)
def brief_child(path: str) -> None:
    child(path)


@app.job(max_attempts=1)
def broken() -> None:
    raise ValueError("no good")

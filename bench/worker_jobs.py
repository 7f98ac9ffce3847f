"""The application that the worker benchmark runs; its store comes from HOLDFAST_URL."""

from __future__ import annotations

import threading
import time

import holdfast

app = holdfast.Holdfast()


@app.job()
def nothing(n: int) -> None:
    """Do nothing."""


@app.job()
def nap(n: int) -> None:
    """Wait for five milliseconds, as for another machine."""
    del n
    threading.Event().wait(0.005)


@app.job()
def stamp(sent: float) -> float:
    """How long it took from enqueueing to here."""
    return time.time() - sent

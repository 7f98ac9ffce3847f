"""An application whose libraries set a default time limit of sockets, as many scripts do."""

from __future__ import annotations

import socket
import threading

import holdfast

#: Shorter than each of the jobs here.
LIMIT_S = 0.2

socket.setdefaulttimeout(LIMIT_S)
app = holdfast.Holdfast()


@app.job(executor="process", max_crashes=1)
def slow_process() -> bool:
    return threading.Event().wait(5 * LIMIT_S)


@app.job()
def slow_thread() -> bool:
    return threading.Event().wait(5 * LIMIT_S)

"""The exit of a process that must not wait for its threads, nor run what a fork has inherited."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

log = logging.getLogger("holdfast")

#: Longest wait for the line that says why, in seconds: its reader may hang, and a thread that is gone may hold a lock.
REPORT_TIMEOUT_S = 1.0


def exit_process(code: int, reason: str, *, report: Callable[[str], object] = log.warning) -> NoReturn:
    """End this process at once, after *report* was called with the reason."""
    with suppress(RuntimeError):  # no more threads
        line = threading.Thread(target=report, args=(reason,), daemon=True)
        line.start()
        line.join(REPORT_TIMEOUT_S)
    os._exit(code)

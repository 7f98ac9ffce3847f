"""A fixed world: time, random numbers, host and environment are the same in every run."""

from __future__ import annotations

import ctypes
import gc
import getpass
import hashlib
import os
import random
import secrets
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from holdfast.domain.fleet.autoscaler import HostLoad

START = datetime(2030, 1, 1, 6, tzinfo=UTC)
#: The environment of every command. Nothing else is set.
ENVIRONMENT = {
    "COLUMNS": "240",
    "HOLDFAST_CAPS": "watch",
    "HOLDFAST_URL": "sqlite:///jobs.db",
    "LANG": "C.UTF-8",
    "LOGNAME": "ada",
    "PATH": "/usr/bin:/bin",
    "TZ": "UTC",
}
MEMORY_PAGES, PAGE, CORES = 4 * 2**20, 4096, 8


class Clock:
    """The time of the fixed world: it moves only when somebody moves it."""

    def __init__(self, at: datetime = START) -> None:
        self.at = at

    def advance(self, **parts: float) -> None:
        self.at += timedelta(**parts)

    def now(self, tz: Any = None) -> datetime:
        return self.at.replace(tzinfo=None) if tz is None else self.at.astimezone(tz)

    def seconds(self, *_: Any) -> float:
        """For clocks that count seconds since some moment."""
        return (self.at - START).total_seconds() + 1000.0


class Chance:
    """Random texts that come in the same order in every run."""

    def __init__(self) -> None:
        self._drawn = 0

    def token_hex(self, size: int = 32) -> str:
        return self._digest()[: size * 2]

    def token_urlsafe(self, size: int = 32) -> str:
        return self._digest()[: size * 4 // 3]

    def _digest(self) -> str:
        self._drawn += 1
        return hashlib.sha256(str(self._drawn).encode()).hexdigest()


@contextmanager
def fixed(home: Path, clock: Clock, *, still: bool = False) -> Iterator[None]:
    """The fixed world, with *home* as the current folder. *still*: clocks that count seconds stand still, too."""
    with pytest.MonkeyPatch.context() as patch, _datetime_now(clock):
        for name in list(os.environ):
            if not name.startswith(("PYTEST", "COV")):
                patch.delenv(name)
        for name, value in {**ENVIRONMENT, "HOME": str(home), "XDG_DATA_HOME": str(home / "data")}.items():
            patch.setenv(name, value)
        time.tzset()
        patch.chdir(home)
        _fix_host(patch)
        _fix_chance(patch)
        if still:
            patch.setattr(time, "monotonic", clock.seconds)
            patch.setattr(time, "clock_gettime", clock.seconds)
        yield
    time.tzset()


def _fix_host(patch: pytest.MonkeyPatch) -> None:
    """The host and its user."""
    known = {"SC_PHYS_PAGES": MEMORY_PAGES, "SC_PAGE_SIZE": PAGE}
    sysconf = os.sysconf
    patch.setattr(os, "sysconf", lambda name: known[name] if name in known else sysconf(name))
    patch.setattr(os, "cpu_count", lambda: CORES)
    patch.setattr(os, "sched_getaffinity", lambda _: set(range(CORES)), raising=False)
    load = HostLoad(total=MEMORY_PAGES * PAGE, used=2**30, cores=CORES)
    patch.setattr("holdfast.worker.autoscaler.host.read_host", lambda: load)
    patch.setattr(os, "geteuid", lambda: 1000)
    patch.setattr(psutil, "swap_memory", lambda: SimpleNamespace(total=0, sin=0))
    patch.setattr(socket, "gethostname", lambda: "host-1")
    patch.setattr(getpass, "getuser", lambda: "ada")
    patch.setattr("holdfast.admin.actions.actions.os_user", lambda: "ada (1000)")
    patch.setattr("holdfast.worker.store_metrics.SCRAPE_WAIT_S", 60.0)
    patch.setattr("holdfast.admin.doctor.fleet.is_gone", lambda worker: worker.pid is None)
    patch.setattr(sys, "executable", "/usr/bin/python3")
    patch.setattr(sys, "orig_argv", ["holdfast"])


def _fix_chance(patch: pytest.MonkeyPatch) -> None:
    """Random numbers."""
    chance = Chance()
    patch.setattr(secrets, "token_hex", chance.token_hex)
    patch.setattr(secrets, "token_urlsafe", chance.token_urlsafe)
    random.seed(7)


@contextmanager
def _datetime_now(clock: Clock) -> Iterator[None]:
    """Every ``datetime.now()`` tells the fixed time, whichever module calls it.

    The class is written in C, so that its method is replaced in the table of the class itself. A subclass in its
    place would not do: values of the class are compared by their exact type when they are encoded.
    """
    table = gc.get_referents(datetime.__dict__)[0]
    real = table["now"]
    table["now"] = clock.now
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(datetime))
    try:
        yield
    finally:
        table["now"] = real
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(datetime))

"""The log files of attempts on this host: those of deleted and pruned jobs are deleted, too."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from holdfast.domain.jobs.job import JobId
from holdfast.domain.retention import ZERO
from holdfast.store import Store

#: A log that was written to more recently stays, whatever the store says.
MIN_AGE_S = 60.0
_NAME = re.compile(r"(\d{1,18})-\d+\.log")


class _LogFile(NamedTuple):
    path: Path
    job_id: JobId
    age_s: float


class LogFiles:
    """The folder of logs. :meth:`prune` walks through it in small steps.

    A log is deleted when its job is gone, or when nothing was written to it for *max_age*; zero is no limit.
    """

    def __init__(self, store: Store, folder: Path, *, max_age: timedelta = ZERO) -> None:
        self._store = store
        self._folder = folder
        self._max_age_s = max_age.total_seconds() or math.inf
        self._rest: Iterator[_LogFile] = iter(())

    def prune(self, *, limit: int) -> tuple[int, bool]:
        """Check up to *limit* logs; returns the number of deleted ones, and whether there are more to check."""
        files = list(islice(self._rest, limit))
        if not files:
            self._rest = self._old_files()
            files = list(islice(self._rest, limit))
        existing = self._store.views.existing([file.job_id for file in files])
        gone = [file.path for file in files if file.job_id not in existing or file.age_s > self._max_age_s]
        for path in gone:
            with suppress(OSError):  # another worker on this host was faster
                path.unlink()
                path.parent.rmdir()  # only an empty folder goes
        return len(gone), len(files) == limit

    def _old_files(self) -> Iterator[_LogFile]:
        for path in self._folder.rglob("*.log"):
            match = _NAME.fullmatch(path.name)
            with suppress(OSError):
                if match and (age_s := time.time() - path.stat().st_mtime) > MIN_AGE_S:
                    yield _LogFile(path, JobId(int(match[1])), age_s)

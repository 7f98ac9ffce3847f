"""The log files of attempts on this host: those of deleted and pruned jobs are deleted, too."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from holdfast.domain.jobs.job import JobId
from holdfast.store import Store

#: A log that was written to more recently stays, whatever the store says.
MIN_AGE_S = 3600.0
_NAME = re.compile(r"(\d{1,18})-\d+\.log")


class LogFiles:
    """The folder of logs. :meth:`prune` walks through it in small steps."""

    def __init__(self, store: Store, folder: Path) -> None:
        self._store = store
        self._folder = folder
        self._rest: Iterator[tuple[Path, JobId]] = iter(())

    def prune(self, *, limit: int) -> tuple[int, bool]:
        """Check up to *limit* logs and delete those whose job no longer exists; whether there are more to check."""
        files = list(islice(self._rest, limit))
        if not files:
            self._rest = self._old_files()
            files = list(islice(self._rest, limit))
        existing = self._store.views.existing([job_id for _, job_id in files])
        gone = [path for path, job_id in files if job_id not in existing]
        for path in gone:
            with suppress(OSError):  # another worker on this host was faster
                path.unlink()
                path.parent.rmdir()  # only an empty folder goes
        return len(gone), len(files) == limit

    def _old_files(self) -> Iterator[tuple[Path, JobId]]:
        for path in self._folder.rglob("*.log"):
            match = _NAME.fullmatch(path.name)
            with suppress(OSError):
                if match and path.stat().st_mtime < time.time() - MIN_AGE_S:
                    yield path, JobId(int(match[1]))

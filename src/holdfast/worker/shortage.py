"""Shortages of the worker's process: file descriptors, processes, threads, memory, or a store that takes no starts.

They are not failures of a job.
"""

from __future__ import annotations

import errno
import logging
import resource

from holdfast.domain.jobs.verdict import Released
from holdfast.errors import ConfigurationError
from holdfast.worker import clock

log = logging.getLogger("holdfast")

#: Errors of the operating system: the process or the host has run out of a resource.
SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM})
#: Seconds without claims after the first, second, ... start in a row that failed.
BACKOFF_S = (1.0, 2.0, 5.0, 10.0, 30.0)
#: File descriptors of a worker without jobs, and those of each job: its output, its log, its process.
BASE_DESCRIPTORS, DESCRIPTORS_PER_SLOT = 64, 4


#: What to do about a shortage.
SHORTAGE_HINT = "Raise its limits (ulimit -n, -u, -v; LimitNOFILE=, TasksMax=, MemoryMax=), or use fewer slots."


class WorkerShortage(OSError):
    """The worker cannot start a process for any job."""


class Shortage:
    """Stops claims for a while after a run could not start because the worker lacked something."""

    def __init__(self) -> None:
        self._error = ""
        self._failures = 0
        self._until = 0.0

    @property
    def reason(self) -> str | None:
        """The shortage that keeps the worker from claims; None if there is none."""
        return self._error if clock.now() < self._until else None

    def release(self, error: BaseException, *, lacks: str = "the worker has run out of resources") -> Released:
        """Note that a run could not start; its job is released at no cost."""
        if self.reason is None:  # runs that fail together count once
            delay = BACKOFF_S[min(self._failures, len(BACKOFF_S) - 1)]
            self._failures += 1
            self._error = f"{lacks}: {error}"
            self._until = clock.now() + delay
            log.warning("%s; its jobs are released, and it claims nothing for %.0f s", self._error, delay)
        return Released()

    @property
    def lasts(self) -> bool:
        """Whether several starts in a row have failed: the next one is not likely to succeed."""
        return self._failures >= len(BACKOFF_S)

    def lasting_error(self) -> ConfigurationError:
        """The error of a worker that ends because of it."""
        return ConfigurationError(f"{self._error}; {self._failures} starts in a row have failed", hint=SHORTAGE_HINT)

    def recovered(self) -> None:
        """A run has started."""
        if self._failures and self.reason is None:
            self._failures = 0


def is_shortage(error: BaseException) -> bool:
    """Whether *error* means that this process lacks a resource, independent of the job."""
    if isinstance(error, OSError):
        return isinstance(error, WorkerShortage) or error.errno in SHORTAGES
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and "can't start new thread" in str(error)


def needed_descriptors(slots: int) -> int:
    """File descriptors that a worker with this number of slots may use."""
    return BASE_DESCRIPTORS + DESCRIPTORS_PER_SLOT * slots


def warn_if_low(slots: int) -> None:
    """Log a warning if the limit of open files is too low for the slots."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < needed_descriptors(slots):
        text = "%d slots may need %d open files, but the limit is %d; raise it (ulimit -n, LimitNOFILE=)"
        log.warning(text, slots, needed_descriptors(slots), limit)

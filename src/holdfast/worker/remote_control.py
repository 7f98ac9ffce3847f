"""What people ask of a worker from afar; it hears of it with its heartbeats."""

from __future__ import annotations

import logging
from collections.abc import Callable

from holdfast.domain.jobs.job import WorkerRequest

log = logging.getLogger("holdfast")


class RemoteControl:
    """Obeys: a *quiet* worker claims nothing, and goes on when nobody wants that any more."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self.quiet = False
        self._stop = stop
        self._stopped = False

    def hear(self, request: WorkerRequest | None) -> None:
        """Do what is wanted now; hearing it again changes nothing."""
        quiet = request is WorkerRequest.QUIET
        if quiet != self.quiet:
            self.quiet = quiet
            log.info("asked to be quiet: nothing more is claimed" if quiet else "asked to go on")
        if request is WorkerRequest.STOP and not self._stopped:
            self._stopped = True
            log.info("asked to stop")
            self._stop()

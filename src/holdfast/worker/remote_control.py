"""Remote control: the worker's reaction to requests that arrive with its heartbeats."""

from __future__ import annotations

import logging
from collections.abc import Callable

from holdfast.domain.jobs.job import WorkerRequest

log = logging.getLogger("holdfast")


class RemoteControl:
    """Applies requests. A *quiet* worker claims nothing until the request is withdrawn."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self.quiet = False
        self._stop = stop
        self._stopped = False

    def apply(self, request: WorkerRequest | None) -> None:
        """Apply the current request; a repeated request changes nothing."""
        quiet = request is WorkerRequest.QUIET
        if quiet != self.quiet:
            self.quiet = quiet
            log.info("asked to be quiet: nothing more is claimed" if quiet else "asked to go on")
        if request is WorkerRequest.STOP and not self._stopped:
            self._stopped = True
            log.info("asked to stop")
            self._stop()

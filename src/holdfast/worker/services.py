"""The services of one worker, by name."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from holdfast.worker.claimer import Claimer
from holdfast.worker.heartbeat import Heartbeat
from holdfast.worker.service import ServiceThread
from holdfast.worker.settler import Settler
from holdfast.worker.watchdog import Watchdog


class Services(Struct, frozen=True, kw_only=True):
    """The services of one worker. Its own thread ticks the claimer; each of the others has a thread."""

    claimer: ServiceThread[Claimer]
    watchdog: ServiceThread[Watchdog]
    heartbeat: ServiceThread[Heartbeat]
    settler: ServiceThread[Settler]
    #: The services that stop first.
    helpers: list[ServiceThread[Any]]

    @property
    def keepers(self) -> list[ServiceThread[Any]]:
        """The services that keep leases; they run until the last handler has finished."""
        return [self.watchdog, self.heartbeat, self.settler]

    def on_notify(self) -> None:
        """Wake all services: something in the store has changed."""
        self.claimer.service.on_notify()
        self.heartbeat.service.on_notify()
        for thread in self.helpers:
            thread.service.on_notify()

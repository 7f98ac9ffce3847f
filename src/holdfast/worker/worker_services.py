"""The services of one worker, and which of them a notification wakes."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from holdfast.store.engine.changes import Change, Changes, may_be_ready
from holdfast.worker.claims.claimer import Claimer
from holdfast.worker.heartbeat import Heartbeat
from holdfast.worker.served_lanes import ServedLanes
from holdfast.worker.service import ServiceThread
from holdfast.worker.settler import Settler
from holdfast.worker.watchdog import Watchdog


class Services(Struct, frozen=True, kw_only=True):
    """The services of one worker. Its own thread ticks the claimer; each of the others has a thread."""

    served: ServedLanes
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

    def on_notify(self, changes: Changes) -> None:
        """Wake the services whose data has changed: an enqueue costs the others no transaction."""
        if may_be_ready(changes, self.served.named):
            self.claimer.service.on_notify(changes)
        if Change.REQUESTS in changes:
            self.heartbeat.service.on_notify()
        for thread in self.helpers:
            if thread.service.wakes_on in changes:
                thread.service.on_notify()

"""The check of a worker's names: whether other live workers have different code behind them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from msgspec import Struct

from holdfast.domain.fleet.served_names import ServedNames, SharedName, shared_names
from holdfast.domain.jobs.job import WorkerId
from holdfast.store import Store
from holdfast.worker.served_lanes import ServedLanes

log = logging.getLogger("holdfast")


class ApplicationCode(Struct, frozen=True, kw_only=True):
    """The code of an application besides its kinds: its name, and the origins of schedules and scope functions.

    *declare_refused* stores declarations that were refused, as soon as it may.
    """

    name: str | None = None
    schedules: Mapping[str, str] = {}
    scopes: Mapping[str, str] = {}
    declare_refused: Callable[[Store], None] = lambda _: None


class NameCheck:
    """Publishes the names of a worker, and logs each name that has different code elsewhere, once."""

    def __init__(self, store: Store, worker: WorkerId, served: ServedLanes, code: ApplicationCode) -> None:
        self._store = store
        self._worker = worker
        self._served = served
        self._code = code
        self._published = self.names
        self._known = set[SharedName]()

    @property
    def names(self) -> ServedNames:
        """The names that the worker serves now."""
        kinds = {name: kind.origin for name, kind in self._served.kinds.items() if kind.origin is not None}
        schedules, scopes = dict(self._code.schedules), dict(self._code.scopes)
        return ServedNames(application=self._code.name, kinds=kinds, schedules=schedules, scopes=scopes)

    def check(self) -> None:
        """Compare the names with those of other live workers."""
        names = self.names
        if names != self._published:
            self._store.workers.update_names(self._worker, names)
            self._published = names
        shared = shared_names([names, *self._store.workers.names(apart_from=names)], of=names)
        for each in shared:
            if each not in self._known:
                log.log(logging.ERROR if each.across else logging.WARNING, "%s. %s", each.text, each.fix)
        self._known = set(shared)
        self._code.declare_refused(self._store)

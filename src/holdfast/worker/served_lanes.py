"""The lanes that a worker serves: its queues and its kinds."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from hashlib import sha256

import msgspec

from holdfast.domain.fleet.queue import ALL_QUEUES, serves_queue
from holdfast.domain.jobs.kind import Kind

#: Heartbeats within a lease: it survives several failed ones.
LEASE_BEATS = 5


class ServedLanes:
    """The queues and kinds that a worker serves. Both may grow while it runs.

    The attributes are replaced, never changed: threads read them without a lock.
    """

    def __init__(self, kinds: Mapping[str, Kind], queues: Collection[str], *, version: str | None = None) -> None:
        self._version = version
        #: As they were named; ``*`` stands for every queue, also for those that do not exist yet.
        self.named = list(queues)
        #: The queues to claim from. With ``*``, those that had ready jobs when the claimer last read them.
        self.queues = [] if self.every_queue else list(queues)
        self._set_kinds(dict(kinds))

    @property
    def every_queue(self) -> bool:
        return ALL_QUEUES in self.named

    def serves(self, queue: str) -> bool:
        return serves_queue(self.named, queue)

    @property
    def beat_interval(self) -> float:
        """Seconds between heartbeats for the shortest lease."""
        return min((lease.total_seconds() for lease in self.leases.values()), default=math.inf) / LEASE_BEATS

    def add(self, kind: Kind) -> None:
        """Serve one more kind, under all its names."""
        self._set_kinds({**self.kinds, **dict.fromkeys(kind.names, kind)})

    def _set_kinds(self, kinds: dict[str, Kind]) -> None:
        digests = sorted({kind.digest for kind in kinds.values()})
        #: Names the code of this worker: workers of one build read the same payloads.
        self.build = sha256(msgspec.json.encode([self._version, digests])).hexdigest()[:16]
        self.leases = {name: kind.options.lease for name, kind in kinds.items()}
        #: By name and by alias. Set last: a reader that finds a kind here also finds its lease.
        self.kinds: Mapping[str, Kind] = kinds

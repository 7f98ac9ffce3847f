"""The shards of a worker and their turns: when one has to make room for other jobs."""

from __future__ import annotations

import threading
from collections import Counter

from holdfast.domain.batches.turns import ShardTurn, shards_to_stop
from holdfast.domain.jobs.job import JobId
from holdfast.worker import clock
from holdfast.worker.active_runs import ActiveRuns
from holdfast.worker.options import WorkerSetup

#: Pause between two queries for jobs that wait and for paused queues.
CHECK_INTERVAL_S = 1.0


class ShardTurns:
    """Decides which shards of one worker make room. All of them share one query a second."""

    def __init__(self, setup: WorkerSetup, active_runs: ActiveRuns) -> None:
        self._setup = setup
        self._active_runs = active_runs
        self._shards: dict[JobId, ShardTurn] = {}
        self._stopped: set[JobId] = set()
        self._checked_at = clock.now()
        self._lock = threading.Lock()

    def begin(self, shard: ShardTurn) -> None:
        """Begin the turn of a shard."""
        with self._lock:
            self._shards[shard.job_id] = shard

    def end(self, job_id: JobId) -> None:
        """End the turn of a shard that runs no longer."""
        with self._lock:
            self._shards.pop(job_id, None)
            self._stopped.discard(job_id)

    def is_over(self, job_id: JobId) -> bool:
        """Whether a shard has to make room; the answer is at most a second old."""
        with self._lock:
            if clock.now() - self._checked_at >= CHECK_INTERVAL_S:
                self._checked_at = clock.now()  # also if the query fails
                self._check()
            return job_id in self._stopped

    def _check(self) -> None:
        """Stop the shards of paused queues, and those that have to make room for a job that waits."""
        shards = [shard for job_id, shard in self._shards.items() if job_id not in self._stopped]
        queues = Counter(shard.queue for shard in shards)
        paused = self._setup.store.batches.paused_queues(list(queues))
        self._stopped |= {shard.job_id for shard in shards if shard.queue in paused}
        runs = self._active_runs.all()
        # A shard that makes room already will free its slot.
        leaving = sum(job_id in self._stopped for job_id in self._shards)
        free = self._setup.options.slots - sum(not run.finished for run in runs) + leaving
        waiting = self._setup.store.batches.waiting_jobs(
            self._setup.worker,
            queues=self._setup.served.queues,
            kinds=list(self._setup.served.kinds),
            shards=queues,
            build=self._setup.served.build,
            unfinished=self._active_runs.without_lease,
            limit=len(shards) + max(0, free),
        )
        self._stopped |= shards_to_stop(shards, waiting, free=free, now=clock.now())

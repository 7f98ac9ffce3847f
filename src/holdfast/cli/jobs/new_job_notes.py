"""Notes about new jobs: queues that nobody serves, jobs that will not run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import msgspec

from holdfast.cli.session import CliSession
from holdfast.domain.fleet.queue import serves_queue
from holdfast.domain.jobs.job import JobId, State
from holdfast.domain.jobs.selector import Selector

#: Cancelled jobs that are named one by one.
MAX_WARNINGS = 5


def warn_unserved(session: CliSession, queues: set[str]) -> None:
    """Name queues that no live worker serves, if there are live workers at all."""
    served = {name for worker in session.store.workers.list() for name in msgspec.json.decode(worker.queues)}
    for queue in sorted(queues) if served else ():
        if serves_queue(served, queue):
            continue
        session.output.note(f"no worker that is alive serves the queue {queue!r}: start one with --queue {queue}")


def warn_cancelled(session: CliSession, ids: Sequence[JobId]) -> None:
    """Name new jobs that will not run: what they should start after has failed already."""
    if not ids:
        return
    cancelled = list(islice(session.store.views.all(Selector(ids=tuple(ids), states=(State.CANCELLED,))), MAX_WARNINGS))
    for job in reversed(cancelled):
        session.output.note(f"job {job.id} was cancelled at once: {job.error or job.note}")
    if len(cancelled) == MAX_WARNINGS and len(ids) > MAX_WARNINGS:
        session.output.note("others may be cancelled too: see holdfast ls --state cancelled")

"""Notes about new jobs: queues that no worker serves, jobs that will not run."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.admin.actions.actions import CancelledJob
from holdfast.admin.actions.enqueue import cancelled_at_once
from holdfast.cli.session import CliSession
from holdfast.domain.fleet.queue import serves_queue
from holdfast.domain.jobs.new_job import Enqueued, NewJob

#: Cancelled jobs that are named one by one.
MAX_WARNINGS = 5


def warn_unserved(session: CliSession, queues: set[str]) -> None:
    """Name queues that no live worker serves, if there are live workers at all."""
    served = {name for worker in session.store.workers.list() for name in msgspec.json.decode(worker.queues)}
    for queue in sorted(queues) if served else ():
        if serves_queue(served, queue):
            continue
        session.output.note(f"no worker that is alive serves the queue {queue!r}: start one with --queue {queue}")


def warn_cancelled(session: CliSession, requests: Sequence[NewJob], jobs: Sequence[Enqueued]) -> list[CancelledJob]:
    """Find and name new jobs that will not run because a dependency has failed already."""
    cancelled = cancelled_at_once(session.store, requests, jobs)
    for job in cancelled[:MAX_WARNINGS]:
        session.output.note(f"job {job.id} was {job.state} at once: {job.reason}")
    if len(cancelled) > MAX_WARNINGS:
        session.output.note("others are cancelled too: see holdfast ls --state cancelled")
    return cancelled

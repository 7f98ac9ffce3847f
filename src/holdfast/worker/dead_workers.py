"""Workers of this host that are dead: their leases need not expire."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.domain.fleet.queue import WORKER_SILENCE
from holdfast.store import Store
from holdfast.store.jobs.settlement import TakenOver
from holdfast.worker.commands.kernel import kill_abandoned
from holdfast.worker.commands.lifeline import is_dead

#: Interval between two searches for leases that nobody holds any more.
TAKE_OVER_INTERVAL_S = 5.0
#: Leases that one step finishes, of one worker or of all.
TAKE_OVER_LIMIT = 100


def take_over_from_dead(store: Store, host: str) -> Iterator[list[TakenOver]]:
    """Finish the leases of workers of this *host* that are proven to be dead, worker by worker.

    Their commands are killed before, where their supervisors were killed too.
    """
    dead = [worker for worker in store.workers.on_host(host) if is_dead(worker.process)]
    if not dead or not kill_abandoned():
        return
    for worker in dead:
        taken_over = store.leases.take_over_from(worker.id, limit=TAKE_OVER_LIMIT)
        yield taken_over
        # The server may still grant a claim that was sent just before the end.
        if not taken_over and worker.silent_for > WORKER_SILENCE:
            store.workers.delete_process(worker.id)

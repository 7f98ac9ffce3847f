"""The heartbeat of a local run of a batch."""

from __future__ import annotations

from holdfast.worker.batches.driver import DriverHeartbeat
from tests.support.jobs import put, take_one
from tests.support.processes import connect


class Runner:
    """Counts the renewals that it learns of."""

    def __init__(self):
        self.renewals = 0

    def renewed(self, timestamp):
        self.renewals += 1


class Opened:
    """A run of a batch, as far as the heartbeat reads it."""

    def __init__(self, lease):
        self.lease = lease


def test_a_skipped_renewal_does_not_extend_the_lease_of_a_run(postgres_database):
    """K6: the row was locked, so the children of the run must not outlive the old date of the lease."""
    store, runner, lost = postgres_database.open(), Runner(), []
    job_id = put(store)
    heartbeat = DriverHeartbeat(store, Opened(take_one(store)), runner, lost=lambda: lost.append(1))
    with connect(postgres_database.url) as user:
        user.execute("SELECT FROM holdfast.live WHERE id = %s FOR UPDATE", (job_id,))
        heartbeat.tick()
    assert (runner.renewals, lost) == (0, [])
    heartbeat.tick()
    assert (runner.renewals, lost) == (1, [])

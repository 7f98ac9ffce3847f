"""Live rows without their job: what a person, a damaged backup or another program left in the table."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec import ValidationError

from holdfast.admin.doctor.checks import check_fleet
from holdfast.admin.views.jobs import job_page
from holdfast.admin.views.overview import overview
from holdfast.domain.jobs.dependencies import After
from holdfast.domain.jobs.job import State
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.verdict import Done
from holdfast.errors import NoSuchJob
from tests.support.jobs import lapse, only, put, states, take, take_one


@pytest.fixture
def orphans(store, database, clock):
    """One in every state, and a finished one; the leases of the running ones have expired, or not."""
    done = put(store)
    store.leases.settle(take_one(store), Done())
    expired, running = put(store, queue="runs"), put(store, queue="runs")
    take_one(store, queues=("runs",))
    lapse(clock)
    take_one(store, queues=("runs",))
    other = put(store, queue="other")
    ids = {
        "done": done,
        "expired": expired,
        "running": running,
        "ready": put(store, priority=2**31 - 1),
        "scheduled": put(store, delay=timedelta(days=1)),
        "waiting": put(store, after=After(ids=(other,))),
        "held": put(store, hold=True),
    }
    database.execute(f"DELETE FROM holdfast.job WHERE id IN ({', '.join(map(str, ids.values()))})")
    store.control.cancel(only(other), actor="ada")
    return ids


def test_an_orphan_breaks_no_view(store, orphans):
    """W3: one row took every page and `ls` down."""
    real = put(store)
    try:
        listed = states(store)
    except ValidationError:
        pytest.fail("I21 is broken: one row without its job breaks every list")
    assert real in listed
    assert not set(orphans.values()) & set(listed)
    page = [job.id for job in job_page(store, Selector()).jobs]
    assert (real in page, set(page) & set(orphans.values())) == (True, set())
    assert overview(store).queues
    assert store.dashboard.running()
    with pytest.raises(NoSuchJob):
        store.views.get(orphans["ready"])


def test_the_doctor_names_orphans(store, orphans):
    """W3: until then only `db check` did."""
    (found,) = [check for check in check_fleet(store) if "have no job" in check.message]
    live = sorted(job_id for name, job_id in orphans.items() if name != "done")
    assert found.message.endswith(": " + ", ".join(map(str, live)))


def test_orphans_hold_up_no_queue(store, orphans):
    """W3: those that take a place are deleted, with the slots that they had of a limited queue; jobs stay."""
    store.queues.set_limits("runs", limit=2)
    jobs = {put(store), put(store, queue="runs"), put(store, queue="other", kind="import")}
    assert take(store) == [], "an orphan of the highest priority takes the place"
    deleted = {orphan.id for orphan in store.leases.delete_orphans()}
    assert deleted == {orphans["ready"], orphans["expired"]}
    assert store.leases.delete_orphans() == []
    assert jobs <= set(states(store))
    assert {lease.job_id for lease in take(store, 3, queues=("default", "runs"))} == jobs - {max(jobs)}


def test_orphans_of_a_whole_lane_are_deleted_in_rounds(store, database):
    first = [put(store, priority=9) for _ in range(50)]
    job = put(store)
    database.execute(f"DELETE FROM holdfast.job WHERE id <= {first[-1]}")
    rounds = [len(store.leases.delete_orphans(limit=20)) for _ in range(4)]
    assert rounds == [20, 20, 10, 0]
    assert states(store) == {job: State.READY}

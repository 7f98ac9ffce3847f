"""Views of queues and workers: all that exist are shown, with their states."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.admin.actions.actions import Actions
from holdfast.admin.views import fleet
from holdfast.admin.views.fleet import Liveness, queue_view, queue_views, worker_views
from holdfast.admin.views.overview import overview
from holdfast.domain.access.audit import Via
from holdfast.domain.jobs.dependencies import After
from holdfast.domain.jobs.job import WorkerId
from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.kind_options import KindOptions
from holdfast.domain.jobs.verdict import Done, Failed
from holdfast.errors import NotFound
from tests.support.jobs import prune, put, take_one


@pytest.fixture
def queues(store):
    return Actions(store, actor="ada", via=Via.CLI).queues


def test_queues_whose_jobs_are_not_ready_are_shown(store):
    """E1.5: with only running, scheduled, waiting or held jobs."""
    first = put(store, queue="running")
    take_one(store, queues=("running",))
    put(store, queue="scheduled", delay=timedelta(hours=1))
    put(store, queue="waiting", after=After(ids=(first,)))
    put(store, queue="held", hold=True)
    views = {view.name: view for view in queue_views(store)}
    assert set(views) == {"default", "held", "running", "scheduled", "waiting"}
    for name in ("running", "scheduled", "waiting", "held"):
        assert (getattr(views[name], name), views[name].jobs, queue_view(store, name).name) == (1, 1, name)


def test_what_lies_before_the_newest_finished_jobs_is_unknown_and_not_zero(store, clock, monkeypatch):
    """W1: of a busy store 2,000 jobs are counted. The other queues are listed all the same."""
    handler = Kind("old", lambda: None, KindOptions(queue="a"))
    store.kinds.publish([handler.published()])
    for queue, kind, minutes in (("a", "old", 10), ("b", "mail", 1), ("b", "mail", 0)):
        for _ in range(2):
            put(store, kind, queue=queue)
            store.leases.settle(take_one(store, kinds=(kind,), queues=(queue,)), Done())
        clock.advance(minutes=minutes)
    whole = {view.name: view for view in queue_views(store)}
    assert (sum(whole["a"].done), whole["a"].dead_lately, whole["a"].counted_newest) == (2, 0, None)
    monkeypatch.setattr(fleet, "RECENT_CAP", 4)
    cut = {view.name: view for view in queue_views(store, tallies=store.dashboard.tallies(most=4))}
    assert {"a", "b"} <= set(cut)
    series = [*[None] * 58, 0, 0]
    assert (cut["a"].done_per_minute, cut["a"].done) == (None, series), "I21 is broken: zero where jobs finished"
    assert (cut["b"].done_per_minute, cut["b"].done) == (2.0, [*[None] * 58, 2, 2])
    assert {view.counted_newest for view in cut.values()} == {4}
    assert {view.dead_lately for view in cut.values()} == {0}, "all dead jobs of the hour were counted"


def test_the_queue_of_a_run_is_shown_until_it_has_finished(store):
    """``holdfast run`` has a queue of its own each time; finished ones would bury the others."""
    put(store, queue="holdfast.run-1")
    assert "holdfast.run-1" in {view.name for view in queue_views(store)}
    store.leases.settle(take_one(store, queues=("holdfast.run-1",)), Failed(error="x", permanent=True))
    assert {view.name for view in queue_views(store)} == {"default"}


def test_an_unknown_queue_is_not_paused(store, queues):
    """E1.5: a typo is refused with a hint. A queue of a worker is known before it has jobs."""
    put(store, queue="imports")
    with pytest.raises(NotFound, match="there is no queue 'import'") as refused:
        queues.perform("pause", "import")
    assert refused.value.hint == "Did you mean 'imports'?"
    with pytest.raises(NotFound):
        queues.perform("resume", "import")
    assert store.queues.list() == []
    assert queues.perform("pause", "later", create=True).changed
    store.workers.announce(WorkerId("w"), host="h", pid=1, queues=["served"], kinds=["mail"])
    assert queues.perform("pause", "served").changed


def test_the_settings_of_a_queue_without_jobs_are_deleted(store, queues):
    """E1.5: jobs in any state keep them."""
    queues.perform("set", "old", limit=3)
    assert queues.perform("rm", "old").changed
    assert store.queues.list() == []
    with pytest.raises(NotFound):
        queues.perform("rm", "old")
    for number, options in enumerate(({}, {"hold": True}, {"delay": timedelta(hours=1)})):
        store.queues.set_limits(f"q{number}", limit=3)
        put(store, queue=f"q{number}", **options)
        refused = queues.perform("rm", f"q{number}")
        assert (refused.failed, refused.unchanged[0].why) == (True, "open: it has jobs, or no settings")
    assert len(store.queues.list()) == 3
    assert [entry.action for entry in store.audit_log.page()][:1] == ["queue rm"]


def test_a_silent_worker_is_late_then_lost_and_stays_for_a_day(store, clock):
    """E1.8: retention keeps its row as long, even if jobs are kept for less."""
    from holdfast.store.jobs.retention import Retention

    store.workers.announce(WorkerId("w"), host="h", pid=1, queues=["default"], kinds=["mail"])
    for wait, heartbeat in ((0, Liveness.FRESH), (29, Liveness.FRESH), (2, Liveness.LATE), (30, Liveness.LOST)):
        clock.advance(seconds=wait)
        (view,) = worker_views(store)
        assert (view.heartbeat, view.alive) == (heartbeat, heartbeat is not Liveness.LOST)
    attention = [each for each in overview(store).attention if each.category == "lost_worker"]
    assert [each.name for each in attention] == ["w"]
    assert store.workers.list() == []
    clock.advance(hours=23)
    prune(store, "workers", retention=Retention(workers=timedelta(hours=1)))
    assert len(worker_views(store)) == 1
    clock.advance(hours=1)
    assert worker_views(store) == []


def test_a_worker_that_stopped_is_not_lost(store, clock):
    store.workers.announce(WorkerId("w"), host="h", pid=1, queues=["default"], kinds=["mail"])
    store.workers.record_stop(WorkerId("w"))
    clock.advance(minutes=5)
    assert worker_views(store) == []

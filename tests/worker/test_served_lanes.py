"""The lanes that a worker serves: some kinds, every queue, and what is added while it runs."""

from __future__ import annotations

import pytest

import holdfast
from holdfast import Selector, State
from holdfast.domain.commands.command import COMMAND
from holdfast.domain.fleet.queue import PRIVATE_PREFIX
from holdfast.domain.fleet.stop_switch import StopMode
from holdfast.domain.jobs.new_job import NewJob
from holdfast.errors import UnknownKind
from tests.support.processes import wait_until


@pytest.fixture
def app(real_database):
    with holdfast.Holdfast(real_database.url) as app:

        @app.job(aliases=["post"])
        def mail(n: int = 0) -> int:
            return n

        @app.job(queue="slow")
        def report() -> None: ...

        yield app


def states(app):
    return {(job.kind, job.queue): str(job.state) for job in app.views.all(Selector())}


def test_a_worker_can_be_restricted_to_kinds(app):
    """E9.4: by name or alias; jobs of other kinds wait for other workers."""
    for kind in ("mail", "report", "mail"):
        app.enqueue(kind, {}, queue="default")
    app.store.jobs.enqueue(NewJob(kind="post", payload='{"n": 7}'))
    worker = app.worker(kinds=["post"], drain=True)
    assert (worker.kinds, worker.queues) == (["mail", "post"], ["default"])
    worker.run()
    assert states(app) == {("mail", "default"): "done", ("post", "default"): "done", ("report", "default"): "ready"}
    assert app.worker(kinds=["report"]).queues == ["slow"]
    assert app.worker(kinds=[COMMAND]).kinds == [COMMAND]


def test_an_unknown_kind_is_refused(app):
    with pytest.raises(UnknownKind, match="mial") as refused:
        app.worker(kinds=["mial"])
    assert "mail" in refused.value.hint


def test_a_worker_serves_every_queue(app):
    """E9.4: in one order over all of them, with limits, pauses and the stop switch; but no private queue."""
    for place, queue in enumerate(("a", "b", "limited", "paused", f"{PRIVATE_PREFIX}run-1")):
        app.enqueue("mail", {"n": place}, queue=queue, priority=place)
        app.enqueue("mail", {"n": place}, queue=queue, priority=place)
    app.queues.set_limits("limited", limit=1)
    app.queues.pause("paused")
    worker = app.worker(queues=["*"], slots=4, poll=0.05)
    app.store.stop_switch.set(StopMode.DRAIN, actor="ada")
    assert worker.tick().processed == 0
    app.store.stop_switch.clear()
    claimed = app.store.leases.claim
    seen = []
    app.store.leases.claim = lambda *args, **options: seen.append(claimed(*args, **options)) or seen[-1]
    worker.tick()
    order = [(lease.queue, lease.priority) for lease in seen[0]]
    assert sorted(order, key=lambda pair: -pair[1]) == [("limited", 2), ("b", 1), ("b", 1), ("a", 0)], "E9 is broken"
    left = {states(app)["mail", "paused"], states(app)["mail", f"{PRIVATE_PREFIX}run-1"]}
    assert left == {"ready"}, "E9 is broken"


def test_a_queue_that_is_made_later_is_served(app):
    """E9.4: without a restart."""
    with app.worker(queues=["*"], poll=0.05, plans=False) as worker:
        wait_until(app.store.workers.list)
        assert app.enqueue("mail", {"n": 3}, queue="new-one").result(120) == 3
        assert app.store.workers.list()[0].queues == '["*"]'
        assert app.store.views.why(app.enqueue("mail", {}, queue="other", hold=True).id)
    assert worker.queues == ["*"]


def test_every_queue_counts_as_served(app):
    """E9.4: why, the doctor and refusals see a worker for every queue."""
    jobs = [app.enqueue("mail", {}, queue=queue) for queue in ("other", f"{PRIVATE_PREFIX}run-1")]
    app.queues.pause("other")
    with app.worker(queues=["*"], poll=0.05, plans=False):
        wait_until(app.store.workers.list)
        reasons = [{str(reason.because) for reason in app.views.why(job.id)} for job in jobs]
    assert reasons == [{"queue_paused"}, {"no_worker"}]


def test_a_kind_that_is_registered_later_is_served(app):
    """E9.4: by workers that are not restricted to others; its lease and its name are known at once."""
    with app.worker(poll=0.05, plans=False) as worker, app.worker(kinds=["mail"], poll=0.05, plans=False) as restricted:
        wait_until(lambda: len(app.store.workers.list()) == 2)
        builds = {worker.served.build, restricted.served.build}

        @app.job(lease="5s")
        def late(n: int) -> int:
            return n + 1

        assert late.enqueue(1).result(120) == 2
        assert ("late" in worker.kinds, "late" in restricted.kinds) == (True, False)
        assert sum('"late"' in each.kinds for each in app.store.workers.list()) == 1
        assert worker.served.build not in builds
        assert worker.services.heartbeat.service.tick().next_in <= 1.0


def test_drain_ends_for_every_queue(app):
    app.enqueue("mail", {"n": 1}, queue="far")
    app.worker(queues=["*"], drain=True, poll=0.05).run()
    assert states(app) == {("mail", "far"): str(State.DONE)}

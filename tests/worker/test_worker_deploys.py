"""Rolling deploys: two versions of an application on one store."""

from __future__ import annotations

import json
import threading
from contextlib import ExitStack, closing

import holdfast
from holdfast.domain.jobs.job import LIVE, State
from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.jobs.selector import Selector
from tests.support.fleet import Audit
from tests.support.processes import Child, wait_until
from tests.support.workers import drain, working

#: Jobs of each kind that each version enqueues.
JOBS = 100


def add_receiver(payload):
    return {"n": payload["n"], "to": payload["address"]}


def make_app(url: str, version: int) -> holdfast.Holdfast:
    """An application whose second version removes the parameter ``address`` and adds ``to``.

    ``mail`` says so, with a version and an upgrade; ``note`` does not.
    """
    app = holdfast.Holdfast(url)
    fast = {"retry": ["0s"], "max_attempts": 1, "lease": 2}
    if version == 1:

        @app.job(**fast)
        def mail(n: int, address: str) -> list:
            return [1, n, address]

        @app.job(**fast)
        def note(n: int, address: str) -> list:
            return [1, n, address]
    else:

        @app.job(name="mail", version=2, upgrade={1: add_receiver}, **fast)
        def new_mail(n: int, to: str) -> list:
            return [2, n, to]

        @app.job(name="note", **fast)
        def new_note(n: int, to: str) -> list:
            return [2, n, to]

    return app


def work(pipe, url: str, version: int) -> None:
    """A worker process; it stops when it receives a message."""
    with make_app(url, version) as app:
        worker = app.worker(poll=0.05, slots=4, heartbeat=0.5, grace=5)

        def stop() -> None:
            pipe.recv()
            worker.stop()

        threading.Thread(target=stop, daemon=True).start()
        worker.run()
        pipe.send("stopped")


def roll(worker: Child, url: str, version: int) -> Child:
    """Replace a worker: the old process stops before the new one starts."""
    worker.tell("stop")
    assert worker.hear() == "stopped"
    worker.end()
    return Child(work, url, version)


def enqueue(url: str, version: int, count: int) -> dict[int, tuple[str, int]]:
    """Enqueue jobs of both kinds with the code of *version*; returns the kind and the version by id."""
    field = "address" if version == 1 else "to"
    with make_app(url, version) as app:
        return {
            app.enqueue(kind, {"n": n, field: f"person {n}"}).id: (kind, version)
            for n in range(count)
            for kind in ("mail", "note")
        }


def test_two_versions_under_load_run_every_job_once_with_code_that_reads_it(real_database):
    """K13: a field is added and a field removed; workers are replaced meanwhile. No job is lost, dead or misread."""
    url, store = real_database.url, real_database.open()
    with ExitStack() as stack:
        audit = stack.enter_context(closing(Audit(real_database)))
        workers = [Child(work, url, 1), Child(work, url, 2)]
        stack.callback(lambda: [worker.end() for worker in workers])
        written = enqueue(url, 1, JOBS // 2) | enqueue(url, 2, JOBS // 2)
        workers[0] = roll(workers[0], url, 1)
        written |= enqueue(url, 2, JOBS // 2) | enqueue(url, 1, JOBS // 2)
        workers[1] = roll(workers[1], url, 2)
        unfinished = Selector(states=tuple(LIVE))
        wait_until(lambda: store.views.count(unfinished, cap=1).count == 0)
        jobs = {job.id: job for job in store.views.all(Selector())}
        assert {job.state for job in jobs.values()} == {State.DONE}
        assert audit.ends() == dict.fromkeys(written, 1)
        for job_id, (kind, version) in written.items():
            ran, _, receiver = json.loads(jobs[job_id].result)
            assert receiver.startswith("person ")
            # Old mail is upgraded by the new code; everything else runs on the code that wrote it.
            assert ran == version or (kind, version) == ("mail", 1)
            assert jobs[job_id].attempts == 1


def test_the_last_old_worker_leaves_upgraded_jobs_to_new_ones(real_database):
    """K13: jobs of old code that waited through the deploy run on the new code, through the upgrade."""
    with make_app(real_database.url, 1) as old, make_app(real_database.url, 2) as new:
        ref = old.enqueue("mail", {"n": 1, "address": "ann"})
        drain(new)
        assert ref.result() == [2, 1, "ann"]


def test_a_job_without_a_reader_is_held_until_its_code_comes_back(real_database):
    """K13: the new worker cannot read it, and no old one is alive; a worker of the old code then gets it by itself."""
    with make_app(real_database.url, 1) as old, make_app(real_database.url, 2) as new:
        ref = old.enqueue("note", {"n": 1, "address": "ann"})
        drain(new)
        assert (ref.state, "'note' has no parameter 'address'" in ref.job().note) == (State.HELD, True)
        with working(old):
            assert ref.result(60) == [1, 1, "ann"]


def test_new_payloads_do_not_reach_old_handlers(real_database):
    """K13: a payload of a newer version is not run by old code even where it would fit."""
    with make_app(real_database.url, 1) as old:
        newer = NewJob(kind="mail", payload='{"n": 1, "address": "ann"}', kind_version=2)
        job_id = old.store.jobs.enqueue(newer).id
        drain(old)
        job = old.get(job_id).job()
        assert (job.state, "has version 2" in job.note) == (State.HELD, True)

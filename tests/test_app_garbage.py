"""Applications that are dropped without close(): they leave no thread, no connection and no descriptor behind."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import pytest

import holdfast
from holdfast import State
from tests.support.processes import Child, wait_until
from tests.support.workers import working

APPLICATIONS = 40


def application(url):
    app = holdfast.Holdfast(url)

    @app.job()
    def double(n: int) -> int:
        return n * 2

    return app, double


def use(url):
    """As a request that makes an application of its own: enqueue, read, and forget all of it."""
    app, double = application(url)
    ref = double.enqueue(1)
    assert ref.state is State.READY
    assert app.views.get(ref.id).kind == "double"


def resources():
    """The threads of the product, and the number of descriptors: files, and connections to a server."""
    gc.collect()
    threads = sorted(each.name for each in threading.enumerate() if each.name.startswith("holdfast-"))
    return threads, len(list(Path("/proc/self/fd").iterdir()))


def make_forty(pipe, url):
    """In a process of its own: applications and connections of other tests may end at any time, or never."""
    use(url)
    wait_until(lambda: resources()[0] == [], seconds=30, failure="E6 is broken: a thread outlives its application")
    before = resources()
    for _ in range(APPLICATIONS):
        use(url)
    wait_until(lambda: resources() == before, seconds=30, failure=f"E6 is broken: {resources()}, not {before}")
    pipe.send("nothing is left")


def test_forty_applications_leave_nothing_behind(real_database):
    """Issue 36, E6 and S2: each kept a thread and a connection on PostgreSQL, and a descriptor on SQLite."""
    child = Child(make_forty, real_database.url)
    wait_until(child.says, seconds=180)  # it waits twice for a while
    assert child.hear() == "nothing is left"
    child.end()


def test_the_server_has_no_session_of_them(postgres_database):
    count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'holdfast'"

    def sessions():
        gc.collect()
        return postgres_database.execute(count)[0][0]

    before = sessions()
    for _ in range(APPLICATIONS):
        use(postgres_database.url)
    wait_until(lambda: sessions() <= before, seconds=30)


def test_what_refers_to_an_application_keeps_it_open(real_database):
    """A handler, a reference to a job, a view."""
    app, double = application(real_database.url)
    ref, views = double.enqueue(1), app.views
    app = None
    gc.collect()
    assert double.enqueue(2).created
    double = None
    gc.collect()
    assert ref.state is State.READY
    job_id, ref = ref.id, None
    gc.collect()
    assert views.get(job_id).kind == "double"


def test_a_worker_keeps_its_application_open(real_database):
    app, double = application(real_database.url)
    with working(app):
        app = None
        gc.collect()
        assert double.enqueue(21).result(60) == 42


@pytest.mark.parametrize("count", [20])
def test_a_notification_of_a_dropped_application_is_sent(postgres_database, count):
    """Its thread sends it a little later than the enqueue."""
    received = []
    store = postgres_database.open()
    listener = store.backend.listen(received.append)
    try:
        wait_until(lambda: listener.works and received)
        for _ in range(count):
            received.clear()
            use(postgres_database.url)
            gc.collect()
            wait_until(lambda: any("jobs" in change for changes in received for change in changes), seconds=30)
    finally:
        listener.close()

"""A store that is closed beside its worker: the worker goes on; without connections it ends and says so."""

from __future__ import annotations

import threading

import pytest

import holdfast
from holdfast import State
from holdfast.errors import StoreUnavailable
from tests.support.processes import wait_until
from tests.support.workers import working


@pytest.fixture
def app(real_database):
    with holdfast.Holdfast(real_database.url) as app:

        @app.job()
        def double(n: int) -> int:
            return n * 2

        yield app


def close_in_block(app):
    with app:
        pass


@pytest.mark.parametrize("close", [holdfast.Holdfast.close, close_in_block], ids=["close", "with"])
def test_a_handler_that_closes_its_application_stops_nothing(app, close):
    """Issue 36, E3: its worker stayed alive, claimed nothing more, and its job stayed running."""

    @app.job()
    def closer() -> str:
        close(app)
        return "closed"

    with working(app) as worker:
        first = closer.enqueue()
        refs = [app.enqueue("double", {"n": n}) for n in range(10)]
        assert first.result(60) == "closed"
        assert [ref.result(60) for ref in refs] == [n * 2 for n in range(10)]
        assert not worker._store.backend.closed
    assert worker._store.backend.closed, "the last one who holds it closes it"
    assert app.store is not worker._store
    assert app.enqueue("double", {"n": 1}).state is State.READY, "the next use has opened the store again"


def test_another_thread_closes_the_application_while_a_job_runs(app):
    """Issue 36, E3: as the teardown of a web framework does."""
    begun, free = threading.Event(), threading.Event()

    @app.job()
    def slow() -> str:
        begun.set()
        free.wait(60)
        return "done"

    with working(app) as worker:
        ref = slow.enqueue()
        assert begun.wait(60)
        thread = threading.Thread(target=app.close)
        thread.start()
        thread.join(60)
        is_open = not worker._store.backend.closed
        free.set()
        assert is_open, "E3 is broken: the application has closed the connections of its worker"
        assert ref.result(60) == "done"


def test_the_store_of_a_handler_that_outlasts_its_worker_stays_open(app):
    """An embedded worker renews the lease of a thread until it has finished."""
    begun, free = threading.Event(), threading.Event()

    @app.job()
    def deaf() -> str:
        begun.set()
        free.wait(60)
        return "done"

    with working(app, grace=0.2) as worker:
        ref = deaf.enqueue()
        assert begun.wait(60)
    app.close()
    assert not worker._store.backend.closed
    free.set()
    assert ref.result(60) == "done"
    wait_until(lambda: worker._store.backend.closed)


def test_a_switch_to_another_store_leaves_the_worker_on_its_own(app, tmp_path):
    with working(app) as worker:
        ref = app.enqueue("double", {"n": 4})
        app.use(f"sqlite:///{tmp_path}/other.db")
        wait_until(lambda: worker._store.views.state(ref.id) is State.DONE)


def test_a_worker_whose_connections_are_closed_ends_with_an_error(app, caplog):
    """Issue 36, E3: it must not stay alive without work."""
    worker, errors = app.worker(poll=0.02, grace=1), []

    def run():
        try:
            worker.run()
        except StoreUnavailable as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert app.enqueue("double", {"n": 1}).result(60) == 2
    worker._store.backend.close()
    thread.join(60)
    assert [str(error) for error in errors] == ["the store was closed under this worker"], "E3 is broken"
    assert any("was closed under this worker: it ends" in record.message for record in caplog.records)


def test_a_worker_that_cannot_begin_holds_nothing(app):
    worker = app.worker()
    app.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        worker.run()
    assert worker._store._holders == set()

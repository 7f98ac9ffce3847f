"""What only a real server can do to a worker's parts."""

from __future__ import annotations

import pytest

import holdfast
from holdfast import State
from tests.support.backends import open_database
from tests.support.proxy import proxy_to


@pytest.fixture
def database(tmp_path):
    with open_database("postgres", tmp_path, real_time=True) as database:
        database.open()
        yield database


def make_app(url):
    app = holdfast.Holdfast(url)

    @app.job(retry=["1h"])
    def double(n: int) -> int:
        return n * 2

    return app


def test_a_claim_whose_answer_was_lost_is_given_back(database):
    """At once, not when its leases lapse; it cost no attempt."""
    with proxy_to(database.url) as proxy, make_app(proxy.uri) as app:
        refs = [app.enqueue("double", {"n": n}) for n in range(3)]
        worker = app.worker()
        proxy.lose_answer("WITH limited AS")
        worker.tick()
        assert proxy.cuts == 1
        assert [ref.state for ref in refs] == [State.RUNNING] * 3
        worker.tick()
        assert [ref.state for ref in refs] == [State.DONE] * 3
        assert {ref.job().attempts for ref in refs} == {1}


def test_an_outcome_that_cannot_be_kept_holds_up_no_other(database):
    """The job fails with the reason, its neighbours are settled."""
    with make_app(database.url) as app:
        bad, *good = [app.enqueue("double", {"n": n}) for n in range(5)]
        database.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'no room for this' USING ERRCODE = '22000'; END $$"
        )
        database.execute(
            f"CREATE TRIGGER refuse BEFORE INSERT ON holdfast.ended FOR EACH ROW WHEN (new.id = {bad.id}) "
            "EXECUTE FUNCTION refuse()"
        )
        try:
            app.worker().tick()
            assert [ref.state for ref in good] == [State.DONE] * 4
            assert "no room for this" in app.views.attempts(bad.id)[0].error
        finally:
            database.execute("DROP TRIGGER refuse ON holdfast.ended")
            database.execute("DROP FUNCTION refuse")

"""Schedules that code declares."""

from __future__ import annotations

import logging

import pytest

import holdfast
from holdfast import Plan
from holdfast.errors import InvalidInput, InvalidKind, InvalidPayload
from tests.support.processes import wait_until
from tests.support.schedules import declare


@pytest.fixture
def app(database):
    with holdfast.Holdfast(database.url) as app:
        app.use(database.url, database.open())
        yield app


def test_a_schedule_is_declared_above_a_job(app):
    with pytest.raises(InvalidKind, match="fires a job"):
        app.schedule("@daily")(lambda: None)
    declare(app)
    with pytest.raises(InvalidKind, match="declared already"):
        app.schedule("@daily", name="rollup")(app.job(name="other")(lambda: None))


@pytest.mark.parametrize("make", ["worker", "scheduler"])
def test_a_schedule_that_is_declared_beside_a_worker_fires(real_database, make):
    """O8: it never did, and nothing said so. Its scopes come from a function that is registered later, too."""
    fired = []
    with holdfast.Holdfast(real_database.url) as app:
        planner = app.worker(poll=0.1) if make == "worker" else app.scheduler()
        with planner, app.worker(poll=0.1, plans=False):

            @app.schedule("every 1s", name="late", scopes=lambda: ["a"])
            @app.job(name="late")
            def late(plan: Plan) -> None:
                fired.append(plan.scope)

            assert [each.name for each in app.store.schedules.all()] == ["late"], "O8 is broken: it is not stored"
            wait_until(lambda: fired)
    assert set(fired) == {"a"}


def test_a_payload_that_does_not_fit_is_refused_at_once(app):
    with pytest.raises(InvalidPayload):
        app.schedule("@daily", payload={"to": "x"})(app.job(name="one")(_takes_int))
    with pytest.raises(InvalidInput, match="overlap"):
        app.schedule("@daily", overlap="never")(app.job(name="two")(_takes_int))
    for wrong in ({"scopes": 5}, {"scopes": []}, {"tz": None}, {"runs": 2**40}, {"name": ""}, {"catch_up": None}):
        with pytest.raises(InvalidInput):
            app.schedule("@daily", payload={"to": 1}, **wrong)(app.job(name=f"four {wrong}")(_takes_int))
    with pytest.raises(InvalidInput, match="catch_up"):
        app.schedule("@daily", cach_up="every", payload={"to": 1})(app.job(name="three")(_takes_int))


def _takes_int(to: int) -> None: ...


def test_a_plan_parameter_without_its_type_is_refused(app):
    with pytest.raises(InvalidPayload) as raised:
        app.schedule("@daily")(app.job(name="one")(lambda plan: None))
    assert "holdfast.Plan" in raised.value.hint


def test_a_schedule_that_a_person_created_is_left_alone_with_a_warning(app, caplog):
    @app.job()
    def rollup(plan: Plan) -> None: ...

    app.schedules.create("rollup", "rollup", "@yearly")
    app.schedule("@daily")(rollup)
    with caplog.at_level(logging.WARNING, logger="holdfast"):
        app.declare_schedules()
    assert "a person created it" in caplog.text
    assert app.schedules.get("rollup").defined.expression == "@yearly"

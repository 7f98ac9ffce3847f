"""Schedules that code declares."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

import holdfast
from holdfast import Plan, testing
from holdfast.admin.actions.actions import Actions
from holdfast.domain.access.audit import Via
from holdfast.domain.schedules.definition import takes_time
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


def _bound_method():
    class Tenants:
        def names(self, time):
            return [str(time)]

    return Tenants().names


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda: ["a"], False),
        (lambda time: [], True),
        (lambda known=(): [], False),
        (lambda time, known=(): [], True),
        (lambda *_, **__: [], False),
        (_bound_method(), True),
        (partial(lambda known, time: [], ["a"]), True),
        (list, False),
        (lambda one, other: [], None),
        (lambda *, time: [], None),
    ],
)
def test_a_scope_function_takes_nothing_or_the_time(app, function, expected):
    """OPS 4.12: another signature is refused when it is registered; it failed at every plan."""
    if expected is None:
        with pytest.raises(InvalidKind, match="no parameter, or one"):
            app.scopes("tenants")(function)
    else:
        app.scopes("tenants")(function)
        assert takes_time(function) is expected


def test_a_backfill_asks_for_the_scopes_of_each_time(app):
    """In Python, and by an action, whose dry run calls no function of the application."""
    noon = datetime(2030, 1, 1, 12, tzinfo=UTC)
    with testing.isolated(app, at=noon) as clock:
        declare(app, "@hourly", scopes=lambda time: ["a", "b"] if time.hour == 13 else ["a"])
        testing.plan(app)
        clock.advance("3h")
        done = app.schedules.backfill("rollup", noon, noon + timedelta(hours=2), dry_run=True)
        assert [(plan.scope, plan.time.hour) for plan in done.plans] == [("a", 13), ("a", 14), ("b", 13)]
        actions = Actions(app.store, actor="ada", via=Via.CLI, providers=app.providers)
        for dry_run in (True, False):
            answer = actions.schedules.perform(
                "backfill", "rollup", first=noon, last=noon + timedelta(hours=2), dry_run=dry_run
            )
            assert answer.changed == 3
        assert actions.schedules.perform("trigger", "rollup").changed == 1


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

"""Schedules of one name that several applications declare."""

from __future__ import annotations

from datetime import timedelta

import pytest

import holdfast
from holdfast import DeclarationResult, Plan
from holdfast.domain.fleet.served_names import ServedNames
from holdfast.domain.jobs.job import WorkerId


@pytest.fixture
def declaring(database):
    """Makes an application that declares the schedule ``cleanup``."""

    def make(name, expression, *, version=1):
        app = holdfast.Holdfast(database.url, name=name)
        app.use(database.url, database.open())

        @app.schedule(expression, version=version)
        @app.job()
        def cleanup(plan: Plan) -> None: ...

        return app

    return make


def alive(database, application, worker="w", schedules=("cleanup",)):
    names = ServedNames(application=application, schedules=dict.fromkeys(schedules, f"{application}:cleanup"))
    database.open().workers.announce(WorkerId(worker), host="h", pid=1, queues=[], kinds=[], names=names)


def expression(app):
    return app.store.schedules.get("cleanup").defined.expression


def test_the_schedule_of_a_live_application_is_not_replaced(database, declaring, caplog):
    """D2: the schedule belonged to whichever worker started last, and the other one was gone in silence."""
    shop, crm = declaring("shop", "every 2s"), declaring("crm", "every 3s", version=2)
    assert shop.declare_schedules() == {"cleanup": DeclarationResult.MADE}
    alive(database, "shop")
    assert crm.declare_schedules() == {"cleanup": DeclarationResult.REFUSED}, "I23 is broken"
    assert expression(shop) == "every 2s", "I23 is broken"
    (record,) = caplog.records
    assert (record.levelname, "another application" in record.getMessage()) == ("ERROR", True)
    changed = declaring("shop", "every 4s")
    assert changed.declare_schedules() == {"cleanup": DeclarationResult.CHANGED}, "its own code may change it"


@pytest.mark.parametrize("other", ["shop", "crm", "", "plain"])
def test_only_live_workers_that_declare_it_count(database, declaring, other):
    """A renamed application, a schedule that has moved to another application, a worker that has stopped."""
    declaring("shop", "every 2s").declare_schedules()
    match other:
        case "shop":
            alive(database, "shop")
            database.open().workers.record_stop(WorkerId("w"))
        case "plain":
            alive(database, "shop", schedules=())
        case name if name:
            alive(database, name)
    assert declaring("crm", "every 3s").declare_schedules() == {"cleanup": DeclarationResult.CHANGED}


def test_a_refused_schedule_is_declared_when_the_other_application_is_gone(database, declaring):
    """A restart of the other application is shorter than ten minutes, and must not lose it its schedule."""
    shop, crm = declaring("shop", "every 2s"), declaring("crm", "every 3s")
    shop.declare_schedules()
    alive(database, "shop")
    worker = crm.worker()
    store = crm.store
    store.workers.record_stop(WorkerId("w"))
    for minutes, expected in ((0, "every 2s"), (9, "every 2s"), (2, "every 3s")):
        database.clock.advance(minutes=minutes)
        worker._name_check.check()
        assert expression(crm) == expected
    alive(database, "crm", worker="w2")
    assert shop.store.schedules.get("cleanup").application == "crm"


def test_code_without_an_application_replaces_no_schedule_of_one(database, declaring):
    """A notebook beside production."""
    declaring("shop", "every 2s").declare_schedules()
    alive(database, "shop")
    notebook = holdfast.Holdfast(database.url)
    notebook._registry.name = None
    notebook.use(database.url, database.open())

    @notebook.schedule("every 9s")
    @notebook.job()
    def cleanup(plan: Plan) -> None: ...

    assert notebook.declare_schedules() == {"cleanup": DeclarationResult.REFUSED}
    database.clock.advance(minutes=1)
    assert expression(notebook) == "every 2s"


def test_an_equal_declaration_is_no_change(database, declaring):
    declaring("shop", "every 2s").declare_schedules()
    alive(database, "shop")
    assert declaring("crm", "every 2s").declare_schedules() == {"cleanup": DeclarationResult.SAME}


def test_an_edit_of_a_person_keeps_the_application(database, declaring):
    shop = declaring("shop", "every 2s")
    shop.schedules.update("cleanup", expression="every 5s")
    assert shop.store.schedules.get("cleanup").application == "shop"
    assert timedelta(seconds=5) == shop.store.schedules.get("cleanup").defined.every

"""Workers that have different code behind one name."""

from __future__ import annotations

import logging

import pytest

import holdfast
from holdfast import Plan
from holdfast.domain.fleet.served_names import ServedNames
from holdfast.domain.jobs.job import WorkerId
from tests.support.processes import wait_until


@pytest.fixture
def worker(database, caplog):
    """A worker of the application shop, whose kind ``mail`` lives in the module ``shop.jobs``."""
    caplog.set_level(logging.WARNING, "holdfast")
    app = holdfast.Holdfast(database.url, name="shop")
    app.use(database.url, database.open())
    app.job(name="mail")(in_module("shop.jobs"))
    app.unit(name="sync")(in_module("shop.jobs"))
    yield app.worker()
    app.close()


def in_module(module):
    def mail(key: int = 0) -> None: ...

    mail.__module__ = module
    return mail


def beside(database, worker="w", **names):
    database.open().workers.announce(
        WorkerId(worker), host="h", pid=1, queues=["default"], kinds=["mail"], names=ServedNames(**names)
    )


def check(worker, caplog):
    caplog.clear()
    worker._name_check.check()
    return [(record.levelname, record.getMessage().partition(".")[0]) for record in caplog.records]


def test_a_worker_knows_where_its_code_lives(worker):
    """Without the kinds of Holdfast itself, which every application has."""
    assert worker._name_check.names == ServedNames(
        application="shop", kinds={"mail": "shop.jobs:in_module.<locals>.mail", "shard:sync": "shop.jobs"}
    )


def test_another_application_is_an_error(database, worker, caplog):
    """D2: each ran the jobs of the other, and nothing said so."""
    assert check(worker, caplog) == []
    beside(database, application="crm", kinds={"mail": "crm:mail", "other": "crm:other"})
    text = "the kind 'mail' belongs to several applications: crm of crm and shop"
    assert check(worker, caplog) == [("ERROR", text)], "I23 is broken"
    assert check(worker, caplog) == [], "it is told once"
    worker._store.workers.record_stop(WorkerId("w"))
    assert check(worker, caplog) == []
    beside(database, "again", application="crm", kinds={"mail": "crm:mail"})
    assert [level for level, _ in check(worker, caplog)] == ["ERROR"]


def test_another_module_of_the_application_is_a_warning(database, worker, caplog):
    """A rolling move of a module is a deploy."""
    beside(database, application="shop", kinds={"shard:sync": "shop.units", "mail": "shop.jobs:send"})
    assert check(worker, caplog) == [
        ("WARNING", "the kind 'shard:sync' lives in several modules: shop"),
    ]


@pytest.mark.parametrize(
    "names",
    [
        {},
        {"application": "crm", "kinds": {"other": "crm:other"}},
        {"application": "crm", "kinds": {"mail": "shop.jobs:mail"}},
        {"application": "shop", "kinds": {"mail": "shop.jobs:mail"}},
    ],
)
def test_what_is_not_shared_is_no_finding(database, worker, caplog, names):
    """A worker for commands, another application with other kinds or with the same library, an older version."""
    beside(database, **names)
    assert check(worker, caplog) == []


def test_a_silent_worker_does_not_count(database, worker, caplog):
    beside(database, application="crm", kinds={"mail": "crm:mail"})
    database.clock.advance(seconds=31)
    assert check(worker, caplog) == []


def test_names_that_come_later_are_published(real_database, caplog):
    """A real worker publishes its names when it starts, and compares them."""
    caplog.set_level(logging.ERROR, "holdfast")
    with holdfast.Holdfast(real_database.url, name="shop") as shop, holdfast.Holdfast(real_database.url) as crm:
        shop.job(name="mail")(in_module("shop.jobs"))
        crm.schedule("@daily", name="nightly")(crm.job(name="mail")(in_module("crm.jobs")))
        with shop.worker(poll=0.1):
            wait_until(shop.store.workers.names)
            with crm.worker(poll=0.1) as later:
                wait_until(lambda: any("several applications" in each.getMessage() for each in caplog.records))
                crm.job(name="later")(in_module("crm.jobs"))
                later._name_check.check()
                names = {each.application: each for each in crm.store.workers.names()}
    assert set(names) == {"shop", "tests"}, "the second one is named by its package"
    assert set(names["tests"].kinds) == {"mail", "later"}
    assert names["tests"].schedules == {"nightly": "crm.jobs:in_module.<locals>.mail"}


def test_a_scope_function_has_a_place_too(real_database):
    with holdfast.Holdfast(real_database.url) as app:

        @app.scopes()
        def accounts() -> list[str]:
            return ["a"]

        @app.schedule("@daily", name="nightly", scopes="accounts")
        @app.job()
        def clean(plan: Plan) -> None: ...

        names = app.worker()._name_check.names
        assert set(names.scopes) == {"accounts"}

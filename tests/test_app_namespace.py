"""Applications with a namespace: several of them on one store."""

from __future__ import annotations

import pytest

import holdfast
from holdfast import Context, Plan
from holdfast.errors import InvalidInput, InvalidKind, UnknownKind
from holdfast.testing import drain


@pytest.fixture
def application(real_database):
    """Makes an application with a job, a unit function and a schedule of the same names; runs are listed in *ran*."""
    apps = []

    def make(namespace):
        app = holdfast.Holdfast(real_database.url, namespace=namespace)
        apps.append(app)

        @app.scopes()
        def accounts() -> list[str]:
            return [namespace]

        @app.schedule("every 1h", scopes="accounts")
        @app.schedule("@daily", name="nightly")
        @app.job()
        def cleanup(plan: Plan) -> None:
            ran.append((namespace, plan.schedule, plan.scope))

        @app.job()
        def mail(to: str, context: Context) -> None:
            ran.append((namespace, to))
            if to == "first":
                context.enqueue("mail", {"to": "second"})

        @app.unit()
        def sync(key: int) -> None:
            ran.append((namespace, key))

        app.handlers = mail, sync
        return app

    ran = make.ran = []
    yield make
    for app in apps:
        app.close()


def test_two_applications_share_a_store(application):
    """D2: each runs its own jobs, units and plans, although all names are the same."""
    shop, crm = application("shop"), application("crm")
    assert set(shop.kinds) == {"shop.cleanup", "shop.mail"}, "I23 is broken"
    for app in (shop, crm):
        app.handlers[0].enqueue(to="first")
        app.enqueue("mail", {"to": f"own of {app.name}"})
    shop.enqueue("shop.mail", {"to": "in full"})
    assert drain(crm) == 3, "I23 is broken"
    assert {each[0] for each in application.ran} == {"crm"}
    assert drain(shop) == 4
    assert sorted(application.ran) == sorted(
        [(name, to) for name in ("shop", "crm") for to in ("first", "second", f"own of {name}")] + [("shop", "in full")]
    )


def test_their_schedules_and_scopes_are_apart(application):
    shop, crm = application("shop"), application("crm")
    for app in (shop, crm):
        app.declare_schedules()
    names = ["crm.cleanup", "crm.nightly", "shop.cleanup", "shop.nightly"]
    assert [each.name for each in shop.schedules.all()] == names
    for app, name in ((shop, "shop.cleanup"), (crm, "crm.cleanup")):
        app.schedules.trigger(name)
        assert drain(app) == 1
    assert application.ran == [(name, f"{name}.cleanup", name) for name in ("shop", "crm")]


def test_their_batches_are_apart(application):
    shop, crm = application("shop"), application("crm")
    first = shop.run(shop.handlers[1], [1, 2], output="none")
    second = crm.run(crm.handlers[1], [1, 2], output="none", once=True)
    assert (first.batch.kind, second.batch.kind, second.exit_code) == ("shop.sync", "crm.sync", 0)
    assert len(application.ran) == 4
    for app in (shop, crm):
        with app.session("resync", output="none") as run:
            assert list(run.pending([1])) == [1]


def test_the_prefixed_name_works_without_the_application(application, real_database):
    """On the command line, in SQL and over HTTP, names are those of the store."""
    shop = application("shop")
    shop.store.kinds.publish([shop.kinds["shop.mail"].published()])
    assert {"shop.cleanup", "shop.mail"} <= set(shop.store.kinds.names())
    worker = shop.worker(kinds=["mail"])
    assert worker.kinds == ["shop.mail"]
    assert shop.worker(kinds=["shop.mail"]).kinds == ["shop.mail"]
    with pytest.raises(UnknownKind):
        shop.worker(kinds=["crm.mail"])
    assert "shard:shop.sync" in shop.worker().kinds


def test_aliases_are_full_names(real_database):
    """An application that moves into a namespace runs its old jobs too."""
    with holdfast.Holdfast(real_database.url) as before:
        before.job(name="mail")(lambda to: None).enqueue(to="x")
    with holdfast.Holdfast(real_database.url, namespace="shop") as after:
        after.job(name="mail", aliases=["mail"])(lambda to: None)
        assert drain(after) == 1


def test_an_application_has_a_name(real_database):
    url = real_database.url
    assert holdfast.Holdfast(url).name == "tests", "the top-level package of the module that makes it"
    assert holdfast.Holdfast(url, namespace="shop").name == "shop"
    assert holdfast.Holdfast(url, namespace="shop", name="web shop").name == "web shop"

    class Own(holdfast.Holdfast):
        def __init__(self):
            super().__init__(url)

    assert Own().name == "tests"
    with pytest.raises(InvalidInput):
        holdfast.Holdfast(url, name=" ")


@pytest.mark.parametrize("namespace", ["", "a.b", "shard", "unit", "holdfast", "1a", "ä", "x" * 51, 5])
def test_a_namespace_is_a_short_plain_word(namespace):
    """That of a kind of Holdfast itself is refused."""
    with pytest.raises(InvalidKind, match="namespace"):
        holdfast.Holdfast("sqlite:///never-opened.db", namespace=namespace)

"""The kinds of an application: names and aliases."""

from __future__ import annotations

import psycopg
import pytest

import holdfast
from holdfast.errors import InvalidKind
from holdfast.testing import drain


@pytest.fixture
def app(real_database):
    app = holdfast.Holdfast(real_database.url)
    yield app
    app.close()


def test_jobs_of_an_old_name_run_on_the_handler_that_lists_it(app):
    """K13: jobs, retries and the command line keep the old name; the new code runs them."""
    old = holdfast.Holdfast(app.url)

    @old.job()
    def mail(n: int) -> int:
        return -n

    ref = mail.enqueue(7)

    @app.job(aliases=["mail"], retry=["0s"])
    def send_mail(n: int) -> int:
        return n

    assert drain(app) == 1
    assert (ref.result(), ref.job().kind) == (7, "mail")
    assert app.enqueue("mail", {"n": 8}).job().kind == "send_mail"
    assert app.store.kinds.get("mail").payload_schema == app.store.kinds.get("send_mail").payload_schema
    old.close()


def test_a_name_belongs_to_one_kind(app):
    """K13: a name that is a kind and an alias, or an alias twice, is refused at registration."""
    app.job(name="mail")(lambda: None)
    app.job(name="send", aliases=["post"])(lambda: None)
    refused = [("other", ["mail"]), ("post", []), ("third", ["post"]), ("same", ["same"]), ("twice", ["a", "a"])]
    for name, aliases in refused:
        with pytest.raises(InvalidKind):
            app.job(name=name, aliases=aliases)(lambda: None)
    with pytest.raises(InvalidKind, match="aliases is a list"):
        app.job(name="text", aliases="old")


def test_a_schedule_of_an_old_name_fires_jobs_for_the_new_handler(app):
    """K13: a renamed kind keeps the schedules that people created for its old name."""

    @app.job(name="mail")
    def mail(n: int) -> int:
        return n

    app.schedules.create("daily", "mail", "@daily", payload={"n": 3})
    renamed = holdfast.Holdfast(app.url)

    @renamed.job(aliases=["mail"], version=2, upgrade={1: lambda payload: {"number": payload["n"]}})
    def send_mail(number: int) -> int:
        return number * 2

    (job_id,) = renamed.schedules.trigger("daily")
    assert drain(renamed) == 1
    assert renamed.get(job_id).result() == 6
    renamed.close()


def test_a_long_transaction_with_the_first_enqueue_of_a_kind_holds_up_no_other_process(postgres_database):
    """S2: the kind is published beside the caller's transaction: its row would stay locked as long as that is open."""
    with (
        holdfast.Holdfast(postgres_database.url) as app,
        holdfast.Holdfast(postgres_database.url) as other,
        psycopg.connect(postgres_database.url) as connection,
    ):
        for each in (app, other):
            each.job("mail")(_mail)
        app.enqueue("mail", {"to": 1}, connection=connection)
        names = postgres_database.open().kinds.names()
        assert "mail" in names, "S2 is broken: others wait for the caller to publish the kind"
        assert other.enqueue("mail", {"to": 2}).created
        other.worker()
        connection.rollback()


def _mail(to: int) -> None: ...


@pytest.mark.parametrize(
    ("decorator", "option", "hint"),
    [("job", "prioritty", "'priority'"), ("job", "bogus", "There are: aliases, "), ("unit", "retires", "'retries'")],
)
def test_an_unknown_option_is_refused_with_the_nearest(decorator, option, hint):
    """O13: a bare TypeError."""
    app = holdfast.Holdfast("sqlite:///never-opened.db")
    with pytest.raises(InvalidKind, match=f"a {decorator} has no option '{option}'") as refused:
        getattr(app, decorator)(**{option: 1})
    assert hint in refused.value.hint

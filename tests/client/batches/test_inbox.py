"""Inboxes from Python: results, and receipts that another process settles."""

from __future__ import annotations

import pytest

import holdfast
from holdfast.errors import HoldfastError, InvalidInput, ResultLost
from tests.support.processes import PATIENCE


@pytest.fixture
def opened(real_database):
    """Opens applications on one store, like the processes of an API behind a balancer."""
    apps = []

    def open_app():
        apps.append(holdfast.Holdfast(real_database.url))
        return apps[-1]

    yield open_app
    for app in apps:
        app.close()


@pytest.fixture
def app(opened):
    app = opened()

    @app.unit()
    def fetch(key: str, unit: holdfast.Unit) -> None:
        unit.hand_over({"key": key}, inbox="pages")

    app.run(fetch, ["a", "b", "c"], output="none")
    return app


def outcome(settle, *words):
    try:
        settle(*words)
    except HoldfastError as error:
        return error.code
    return "settled"


def states(app):
    return {unit.key: str(unit.state) for unit in app.store.batches.units(1)}


def test_a_process_settles_what_another_one_took(app, opened):
    """OPS 1.55: the receipt is a text; it needs no object of the process that took the result."""
    one, two, three = app.inbox("pages").take(3)
    elsewhere = opened().inbox("pages")
    elsewhere.accept(one.receipt)
    elsewhere.refuse(two.receipt, "no headline")
    three.accept()
    assert states(app) == {'"a"': "done", '"b"': "failed", '"c"': "done"}


def test_a_stale_receipt_settles_nothing(app, opened):
    """The fence: once another consumer has the result, only its receipt counts."""
    inbox, other = app.inbox("pages"), opened().inbox("pages")
    (mine,) = inbox.take(1, lease_duration="1ms")
    theirs = {result.key: result for result in other.take(3, wait=PATIENCE)}
    while mine.key not in theirs:
        theirs |= {result.key: result for result in other.take(3, wait=PATIENCE)}
    found = [outcome(inbox.accept, mine.receipt), outcome(inbox.refuse, mine.receipt, "late")]
    assert found == ["E_RESULT_LOST"] * 2, f"B13 is broken: a stale receipt is {found}"
    other.accept(theirs[mine.key].receipt)
    assert outcome(other.accept, theirs[mine.key].receipt) == "E_RESULT_LOST", "a receipt settles once"


def test_a_receipt_belongs_to_its_inbox(app):
    (one,) = app.inbox("pages").take(1)
    with pytest.raises(ResultLost):
        app.inbox("other").accept(one.receipt)
    for text in ("", "one", "1", "1.2.3", "-1.2", f"{one.receipt}0" * 9):
        with pytest.raises(InvalidInput, match="receipt"):
            app.inbox("pages").accept(text)
    app.inbox("pages").accept(one.receipt)

"""Batches over HTTP: filters, history, actions on many, and new ones."""

from __future__ import annotations

import pytest

from holdfast.domain.batches.batch import AbortedBy
from tests.store.batches.test_batches import begin, leave


@pytest.fixture
def greet(app):
    """A function that a worker has registered."""

    @app.unit(operational=["loud"])
    def greet(name: str, *, tone: str = "kind", loud: bool = False) -> str:
        return name

    with app.worker(poll=0.1):
        pass
    return greet


def test_batches_are_selected(operator, app):
    """E4: by state, function, name, owner and time, page by page."""
    leave(app.store, begin(app.store, "a", name="spring"), total=0)
    begin(app.store, "b")

    def ids(**query):
        return [batch["id"] for batch in operator.read("/batches", **query)["batches"]]

    assert (ids(state="done"), ids(state="done,running"), ids(name="spr*")) == ([1], [2, 1], [1])
    assert (ids(function="resync", owner="ada", since="1h"), ids(until="1h"), ids(owner="bob")) == ([2, 1], [], [])
    first = operator.read("/batches", limit=1)
    assert (first["next"], ids(before=first["next"])) == (2, [1])
    assert operator.get("/api/v1/batches?state=sleepy").status_code == 400


def test_the_history_of_a_batch(operator, app):
    """E4: who paused, which runs, why it stopped."""
    run = begin(app.store)
    operator.change("/batches/1/action", action="pause")
    leave(app.store, run, AbortedBy.PAUSE, complete=False)
    history = operator.read("/batches/1/history", limit=2)
    assert [(each["event"], each["actor"], each["aborted_by"]) for each in history["events"]] == [
        ("paused", None, "pause"),
        ("pause_requested", "operator", None),
    ]
    (oldest,) = operator.read("/batches/1/history", before=history["next"])["events"]
    assert (oldest["event"], oldest["actor"], oldest["run"]) == ("started", "ada", 1)


def test_many_batches_change_at_once(operator, admin, app):
    """E4: cancel and rm take a filter; rm needs an admin; a dry run changes nothing."""
    for name in "ab":
        leave(app.store, begin(app.store, name), total=0)
    operator.change("/batches/action", 403, action="rm", state="done")
    admin.change("/batches/action", 400, action="rm")
    admin.change("/batches/action", 400, action="pause", state="done")
    admin.change("/batches/action", 404, action="cancel", owner="ada")
    assert admin.change("/batches/action", action="rm", older_than="0s", dry_run=True)["ids"] == [2, 1]
    assert admin.change("/batches/action", action="rm", ids=[2])["ids"] == [2]
    assert admin.change("/batches/action", action="rm", state="done")["ids"] == [1]
    assert admin.read("/batches")["batches"] == []


def test_a_batch_is_started_on_the_workers(operator, app, greet):
    """E4: the ledger has its units; the same batch as one that Python starts; the audit names the person."""
    started = operator.change("/batches", 201, function="greet", keys=["a", "b"], arguments={"tone": "warm"})
    assert (started["batch"], started["created"], started["units"], started["state"]) == (1, True, 2, "running")
    with app.worker(poll=0.1) as worker:
        result = app.run(greet.bind(tone="warm", loud=True), ["a", "b"], where="workers", wait=True, output="none")
        del worker
    assert (result.batch.identity, result.summary.succeeded) == (app.store.batches.get(1).identity, 2)
    entry = app.store.audit_log.page()[-1]
    assert (entry.action, entry.target, entry.actor, entry.note) == ("batch start", "batch=1", "operator", "greet")
    assert app.store.ledger.history(1)[-1].actor == "operator"


@pytest.mark.parametrize(
    "body",
    [
        {"function": "greet", "keys": [1]},
        {"function": "greet", "keys": ["a"], "arguments": {"colour": "red"}},
        {"function": "greet", "keys": ["a"], "arguments": {"tone": 5}},
        {"function": "greet", "keys": ["a"], "arguments": {"name": "b"}},
        {"function": "greet", "keys": []},
        {"function": "greet", "keys": ["a"], "range": "1-2"},
        {"function": "greet", "range": "1-2"},
        {"function": "greet", "keys": ["a"], "shards": 0},
        {"function": "greet"},
    ],
)
def test_a_batch_that_does_not_fit_its_function_is_refused(operator, app, greet, body):
    """E4: keys and arguments are checked before anything is written."""
    operator.change("/batches", 400, **body)
    assert app.store.batches.page().batches == []
    assert app.store.audit_log.page() == []


def test_only_registered_functions_start(operator, viewer, app, greet):
    """E4: and only for operators."""
    operator.change("/batches", 404, function="mail", keys=["a"])
    operator.change("/jobs", 400, kind="unit:greet", payload={"name": "a"})
    assert "unit:greet" not in [kind["name"] for kind in operator.read("/kinds")["kinds"]]
    viewer.change("/batches", 403, function="greet", keys=["a"])
    tried = operator.change("/batches", 200, function="greet", keys=["a", "b"], dry_run=True)
    assert (tried["batch"], tried["units"], app.store.batches.page().batches) == (None, 2, [])


def test_a_repeated_request_starts_one_batch(operator, app, greet):
    """E4: the Idempotency-Key covers the batch, its units, its audit entry and the answer."""
    body = {"function": "greet", "keys": ["a", "b"], "fresh": True}
    headers = {"Idempotency-Key": "one"}
    first = operator.change("/batches", 201, headers=headers, **body)
    assert operator.change("/batches", 201, headers=headers, **body) == first
    assert [batch.id for batch in app.store.batches.page().batches] == [first["batch"]]
    assert len(app.store.audit_log.page()) == 1
    assert app.store.batches.recount(first["batch"]) == {"pending": 2}
    operator.change("/batches", 409, function="greet", keys=["a", "b"])

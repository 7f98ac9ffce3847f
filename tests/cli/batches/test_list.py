"""``batch ls``, ``batch show``, ``batch units`` and ``batch history``."""

from __future__ import annotations

import getpass

from holdfast.domain.batches.batch import AbortedBy
from holdfast.domain.batches.unit import UnitState
from tests.store.batches.test_batches import WORKER, begin, done, finish, leave, take


def ids(answer):
    return [batch["id"] for batch in answer.data["batches"]]


def test_batches_are_selected(fitting, run, app):
    """E4: by state, function, name, owner and time, page by page."""
    leave(app.store, begin(app.store, "a", name="spring"), total=0)
    begin(app.store, "b")
    ls = ("batch", "ls")
    assert ids(fitting(ls, "--state", "done")) == [1]
    assert ids(fitting(ls, "--state", "done", "--state", "running")) == [2, 1]
    assert ids(fitting(ls, "--function", "res*", "--name", "spr*", "--owner", "ada", "--since", "1h")) == [1]
    assert ids(fitting(ls, "--until", "1h")) == []
    assert ids(fitting(ls, "--before", "2")) == [1]
    assert run("batch", "ls", "--since", "yesteryear").code == 2
    assert "ada" in run("batch", "ls").out
    assert [line["id"] for line in run("batch", "ls", "-o", "ndjson").lines[:-1]] == [2, 1]


def test_a_list_goes_on_until_it_has_enough(fitting, app, monkeypatch):
    """E4: a page of the store examines few batches; the command reads further ones."""
    monkeypatch.setattr("holdfast.store.batches.batches.WINDOW_SIZE", 1)
    for name in "abc":
        begin(app.store, name, name=name)
    assert ids(fitting(("batch", "ls"), "--name", "a", "-n", "1")) == [1]


def test_units_tell_their_last_attempt_and_earlier_errors(fitting, run, app, monkeypatch):
    """E4: time, worker, the errors before; masked like the others."""
    first = begin(app.store)
    finish(app.store, first, 1, state=UnitState.FAILED, error="login failed: password=hunter22")
    leave(app.store, first, total=1)
    again = begin(app.store)
    (unit,) = take(app.store, again, 1).taken
    app.store.batches.flush(again, [done(unit, UnitState.FAILED, error="no network")])
    (shown,) = fitting(("batch", "units"), "1").data["units"]
    assert (shown["worker"], shown["earlier_errors"]) == (WORKER, ["login failed: password=***"])
    assert shown["attempted_at"] is not None
    monkeypatch.setenv("COLUMNS", "200")
    text = run("batch", "units", "1").out
    assert "no network; 1 earlier, the last: login failed: password=***" in text
    assert "hunter22" not in text


def test_keys_and_results_of_units_are_masked(fitting, app):
    """E1.1: a secret argument of the batch, and what looks like a secret."""
    run = begin(app.store, arguments='{"token":"s3cr3t-value"}')
    finish(app.store, run, "a s3cr3t-value", data='{"password":"hunter22","n":1}')
    (unit,) = fitting(("batch", "units"), "1").data["units"]
    assert (unit["key"], unit["data"]) == ("a ***", {"password": "***", "n": 1})


def test_the_history_of_a_batch(fitting, run, app):
    """E4: who paused, which runs, why it stopped."""
    one = begin(app.store)
    run("batch", "pause", "1")
    leave(app.store, one, AbortedBy.PAUSE, complete=False)
    run("batch", "resume", "1")
    leave(app.store, begin(app.store), AbortedBy.DEADLINE, complete=False)
    events = fitting(("batch", "history"), "1").data["events"]
    me = getpass.getuser()
    assert [(event["event"], event["actor"], event["run"]) for event in events] == [
        ("stopped", None, 2),
        ("started", "ada", 2),
        ("resumed", me, 1),
        ("paused", None, 1),
        ("pause_requested", me, 1),
        ("started", "ada", 1),
    ]
    assert events[0]["text"] == "stopped by deadline"
    assert "pause requested" in run("batch", "history", "1").out
    assert len(fitting(("batch", "history"), "1", "-n", "2").data["events"]) == 2
    assert run("batch", "history", "9").code == 3


def test_a_batch_with_many_labels_is_short(run, app):
    """K93: text shows the 20 largest labels, JSON 100 of them."""
    opened = begin(app.store)
    units = [unit for span in (range(100), range(100, 130)) for unit in take(app.store, opened, *span).taken]
    outcomes = [done(unit, label=f"label {n:03}") for n, unit in enumerate(units)]
    app.store.batches.flush(opened, outcomes)
    lines = [line.strip() for line in run("batch", "show", "1").out.splitlines()]
    assert sum(line.startswith("label ") for line in lines) == 20, "K93 is broken"
    assert "and 110 more labels" in lines
    summary = run("batch", "show", "1", "-o", "json").data["summary"]
    assert (len(summary["labels"]), summary["other_labels"]) == (100, 30)

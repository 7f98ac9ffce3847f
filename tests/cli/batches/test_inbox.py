"""``holdfast inbox``."""

from __future__ import annotations

from holdfast.domain.batches.unit import UnitState
from tests.store.batches.test_batches import leave
from tests.store.batches.test_inbox import BOX, hand_over


def test_a_shell_consumes_results(fitting, run, app):
    """E4, B13: take, accept, refuse; the units are done or failed, and the batch ends."""
    batch = hand_over(app.store, 1, 2, 3)
    leave(app.store, batch)
    (listed,) = fitting(("inbox", "ls")).data["inboxes"]
    assert (listed["inbox"], listed["results"], listed["taken"]) == (BOX, 3, 0)
    first, second = fitting(("inbox", "take"), BOX, "-n", "2").data["results"]
    assert (first["batch"], first["key"], first["value"]) == (1, 1, {"n": 1})
    (third,) = fitting(("inbox", "take"), BOX, "-n", "9").data["results"]
    assert fitting(("inbox", "take"), BOX).data["results"] == []
    assert fitting(("inbox", "ls")).data["inboxes"][0]["taken"] == 3
    accepted = fitting(("inbox", "accept"), first["receipt"], second["receipt"]).data
    assert (accepted["ids"], accepted["unchanged"]) == ([first["receipt"], second["receipt"]], [])
    run("inbox", "refuse", third["receipt"], "--note", "not for us")
    assert [(unit.state, unit.error) for unit in app.store.batches.units(batch.batch.id)] == [
        (UnitState.DONE, None),
        (UnitState.DONE, None),
        (UnitState.FAILED, "not for us"),
    ]
    assert app.store.batches.get(batch.batch.id).state == "partial"
    assert [entry.action for entry in app.store.audit_log.page()] == [
        *("result refuse", "result accept", "result take", "result take"),
    ]


def test_a_lost_result_is_exit_9(run, app):
    """E4: a result has one consumer; a receipt of an earlier one settles nothing."""
    hand_over(app.store, 1)
    (result,) = run("inbox", "take", BOX, "-o", "json").data["results"]
    number, _, token = result["receipt"].partition(".")
    assert run("inbox", "accept", f"{number}.{int(token) - 1}").code == 9
    assert run("inbox", "accept", "seventeen").code == 2
    assert run("inbox", "accept", result["receipt"]).code == 0
    assert run("inbox", "accept", result["receipt"]).code == 9


def test_looking_takes_nothing_and_masks_secrets(fitting, run, app):
    """E4: show is for people, take for programs."""
    hand_over(app.store, 1)
    (shown,) = fitting(("inbox", "show"), BOX).data["results"]
    assert (shown["batch"], shown["value"], shown["taken"]) == (1, {"n": 1}, False)
    assert "free" in run("inbox", "show", BOX).out
    assert BOX in run("inbox", "ls").out
    assert len(fitting(("inbox", "take"), BOX).data["results"]) == 1
    assert fitting(("inbox", "show"), BOX).data["results"][0]["taken"]

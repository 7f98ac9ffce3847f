"""The actions on batches that a filter selects."""

from __future__ import annotations

import pytest

from tests.store.batches.test_batches import begin, finish, leave


@pytest.fixture
def batches(app):
    """Two that are done, and one that runs."""
    for name in "ab":
        leave(app.store, begin(app.store, name, name=name), total=0)
    begin(app.store, "c", name="c")
    return lambda: [batch.id for batch in app.store.batches.page().batches]


@pytest.mark.parametrize("action", ["cancel", "rm"])
def test_an_action_on_many_batches_requires_yes(run, batches, action):
    """E4: as the actions on jobs do."""
    refused = run("batch", action, "--state", "done", "--state", "running")
    assert (refused.code, "--yes" in refused.err) == (2, True)
    assert batches() == [3, 2, 1]


def test_finished_batches_are_deleted_by_filter(fitting, batches):
    """E4: rm takes finished batches, cancel the others; a dry run is the same and changes nothing."""
    tried = fitting(("batch", "rm"), "--function", "resync", "--dry-run").data
    assert (tried["matched"], tried["ids"], tried["dry_run"]) == (2, [2, 1], True)
    assert batches() == [3, 2, 1]
    done = fitting(("batch", "rm"), "--function", "resync", "--yes").data
    assert (done["ids"], done["unchanged"], batches()) == ([2, 1], [], [3])


def test_a_deletion_counts_the_units(fitting, run, app):
    """E4, E1.3: it said that 0 units go with their batches; the prompt, the dry run and the action agree."""
    for name in "ab":
        batch = begin(app.store, name)
        finish(app.store, batch, 1, 2)
        leave(app.store, batch, total=2)
    assert "delete batch 1 2 (4 units)" in run("batch", "rm", "1", "2").err
    assert fitting(("batch", "rm"), "1", "2", "--dry-run").data["units"] == 4
    assert "batch 1, 2 deleted, 4 units" in run("batch", "rm", "1", "2", "--yes").out


def test_old_batches_are_deleted(fitting, run, batches):
    """E4: --older-than is an age; nothing that matches is exit 3."""
    assert run("batch", "rm", "--older-than", "1h").code == 3
    assert fitting(("batch", "rm"), "--older-than", "0s", "--name", "a", "--yes").data["ids"] == [1]
    assert batches() == [3, 2]


def test_open_batches_are_cancelled_by_filter(fitting, run, app, batches):
    """E4: without --state, cancel takes those that are not finished. Exit 9: nothing could change."""
    assert fitting(("batch", "cancel"), "--owner", "ada", "--yes").data["requested"] == [3]
    assert app.store.ledger.history(3)[0].name == "cancel_requested"
    assert run("batch", "cancel", "1", "2", "--yes").code == 9
    assert run("batch", "rm", "3", "--yes").code == 9
    mixed = fitting(("batch", "rm"), "3", "2", "--yes").data
    assert (mixed["ids"], [group["ids"] for group in mixed["unchanged"]]) == ([2], [[3]])
    assert "unchanged: batch 3" in run("batch", "rm", "3", "1", "--yes").out


def test_an_action_without_a_condition_takes_no_batch(run, batches):
    assert run("batch", "rm", "--yes").code == 2
    assert run("batch", "rm", "1", "--state", "done", "--yes").code == 2
    assert batches() == [3, 2, 1]

"""Metrics as a server answers them: of queues, batches, units and inboxes."""

from __future__ import annotations

import pytest

from holdfast.domain.batches.unit import UnitState
from tests.store.batches.test_batches import begin, finish, leave
from tests.store.batches.test_inbox import BOX, hand_over
from tests.web.conftest import Client


@pytest.mark.usefixtures("patient_scrapes")
def test_metrics_need_a_token(site, viewer, app):
    """That of a viewer is enough."""
    assert Client(site).get("/metrics").status_code in (303, 401)
    app.enqueue("mail", {"to": 1})
    text = viewer.get("/metrics").text
    assert 'holdfast_queue_depth{queue="default",state="ready"} 1.0' in text
    assert 'holdfast_unserved_seconds{kind="mail",queue="default"}' in text
    assert "holdfast_workers_alive 0.0" in text
    assert "holdfast_store_up 1.0" in text


def test_metrics_of_batches_match_the_store(operator, app):
    """E1.11: cancelled units, labels, results in inboxes, and batches that a consumer finished."""
    run = begin(app.store, "a")
    finish(app.store, run, 1, label="new password=hunter22")
    finish(app.store, run, 2, state=UnitState.FAILED, error="x")
    app.store.batches.plan(run, [("3", 3)])
    leave(app.store, run, complete=False)
    app.store.batches.cancel(run.batch.id)
    leave(app.store, hand_over(app.store, 1, 2))
    app.store.inbox.accept(app.store.inbox.take(BOX)[0])
    text = operator.get("/metrics").text
    for line in (
        'holdfast_store_batches{state="cancelled"} 1.0',
        'holdfast_store_batches{state="running"} 1.0',
        'holdfast_store_batches{state="stopped"} 0.0',
        'holdfast_store_units{function="resync",result="in_doubt"} 0.0',
        'holdfast_store_units{function="resync",result="done"} 2.0',
        'holdfast_store_units{function="resync",result="failed"} 1.0',
        'holdfast_store_units{function="resync",result="cancelled"} 1.0',
        'holdfast_store_units{function="resync",result="in_inbox"} 1.0',
        'holdfast_store_unit_labels{function="resync",label="new password=***"} 1.0',
        f'holdfast_store_inbox_depth{{inbox="{BOX}",state="free"}} 1.0',
        f'holdfast_store_inbox_depth{{inbox="{BOX}",state="taken"}} 0.0',
    ):
        assert line in text
    assert f'holdfast_store_inbox_oldest_free_seconds{{inbox="{BOX}"}}' in text
    app.store.inbox.accept(app.store.inbox.take(BOX)[0])
    text = operator.get("/metrics").text
    assert 'holdfast_store_batches{state="done"} 1.0' in text
    assert 'holdfast_store_units{function="resync",result="in_inbox"} 0.0' in text

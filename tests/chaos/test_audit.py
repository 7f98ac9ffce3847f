"""The facts of a real store, read behind its back."""

from __future__ import annotations

import pytest

import holdfast
from tests.chaos import audit
from tests.chaos.checker import check
from tests.chaos.facts import Step
from tests.chaos.history import to_list
from tests.support.workers import drain


@pytest.fixture
def watched(real_database):
    """A database whose moves are written down."""
    real_database.open()
    audit.install(real_database)
    yield real_database
    audit.remove(real_database)


def test_what_a_store_says(watched):
    """A job that fails once, with a child, and a batch: each move, effect and count is there, and nothing is broken."""
    ops = []
    recorder = to_list("test", ops)
    with holdfast.Holdfast(watched.url) as app:

        @app.job(retry=["0s"])
        def work(name: str, me: holdfast.Context) -> dict[str, int]:
            with recorder.running("run", job=me.id, token=me.token, kind="work", queue="default"):
                if me.attempt == 1:
                    raise ValueError
                if not name.endswith("child"):
                    with recorder.asking("enqueue", name=f"{name} child", kind="work", parent=me.id) as answer:
                        child = me.enqueue("work", {"name": f"{name} child"})
                        answer.update(id=child.id, created=child.created)
                recorder.tell("effect", job=me.id, token=me.token)
                return {"token": me.token}

        @app.unit()
        def count(key: int, unit: holdfast.Unit) -> None:
            with recorder.running("unit", unit=unit.idempotency_key):
                pass

        with recorder.asking("enqueue", name="a", kind="work") as answer:
            ref = app.enqueue("work", {"name": "a"})
            answer.update(id=ref.id, created=ref.created)
        drain(app)
        with recorder.asking("batch", name="b") as answer:
            result = app.run(count, range(5), output="none")
            answer.update(id=result.batch.id, exit_code=result.exit_code)
    facts = audit.read_facts(watched)
    moves = [(move.step, move.state, move.token) for move in facts.moves if move.job == ref.id]
    assert moves[:2] == [(Step.IN, "ready", 0), (Step.MOVE, "running", 1)]
    assert moves[-1] == (Step.END, "done", 2)
    assert facts.events[ref.id][-2:] == ["started", "done"]
    assert facts.batches[result.batch.id].counters["done"] == facts.batches[result.batch.id].recount["done"] == 5
    assert {job.kind for job in facts.jobs.values()} == {"work", "holdfast.driver"}
    assert check(ops, facts) == []
    assert {violation.invariant for violation in check([], facts)} == {"I2", "I5"}

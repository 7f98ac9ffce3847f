"""Durable steps: the next attempt does not repeat a finished step."""

from __future__ import annotations

from datetime import timedelta

import pytest

import holdfast
from holdfast import State
from holdfast.errors import InvalidInput
from tests.support.workers import drain, working


@pytest.fixture
def app(real_database):
    with holdfast.Holdfast(real_database.url) as app:
        yield app


def test_a_step_runs_once_per_job(app):
    """The second attempt gets the stored result, as decoded from JSON."""
    calls = []

    def charge(amount: int) -> tuple[str, int]:
        calls.append(amount)
        return ("paid", amount)

    @app.job(retry=["0s"])
    def order(me: holdfast.Context) -> object:
        receipt = me.step("charge", charge, 7)
        if me.attempt == 1:
            raise ConnectionError
        return receipt

    ref = order.enqueue()
    drain(app)
    assert (ref.result(), calls) == (["paid", 7], [7])


def test_the_first_attempt_sees_the_same_value_as_later_ones(app):
    """A tuple is a list in both."""

    @app.job()
    def order(me: holdfast.Context) -> str:
        return type(me.step("pair", lambda: (1, 2))).__name__

    ref = order.enqueue()
    drain(app)
    assert ref.result() == "list"


def test_a_step_that_fails_runs_again(app):
    calls = []

    def fragile() -> int:
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError
        return len(calls)

    @app.job(retry=["0s"])
    def order(me: holdfast.Context) -> int:
        return me.step("fragile", fragile)

    ref = order.enqueue()
    drain(app)
    assert ref.result() == 2


def test_a_name_is_used_once(app):
    """Two steps of one name would share a result."""

    @app.job(max_attempts=1)
    def order(me: holdfast.Context) -> None:
        me.step("same", lambda: 1)
        with pytest.raises(InvalidInput):
            me.step("same", lambda: 2)

    ref = order.enqueue()
    drain(app)
    assert ref.state is State.DONE


def test_a_sleep_frees_the_slot_and_continues_later(app):
    """It costs no attempt; steps before it are not repeated; a second sleep is another one."""
    calls = []

    @app.job()
    def reminder(me: holdfast.Context) -> list[int]:
        me.step("first", lambda: calls.append(1))
        me.sleep(0.05)
        me.step("second", lambda: calls.append(2))
        me.sleep(0.05)
        return [me.attempt, me.token]

    @app.job()
    def other() -> str:
        return "ran meanwhile"

    ref = reminder.enqueue()
    other.enqueue()
    with working(app, slots=1):
        attempt, token = ref.result(120)
    assert (attempt, calls) == (1, [1, 2])
    assert token == 3


def test_a_sleep_is_not_cut_short_by_a_crash(app):
    """The next attempt sleeps for the remaining time."""

    @app.job()
    def reminder(me: holdfast.Context) -> None:
        me.sleep("1h")

    ref = reminder.enqueue()
    drain(app)
    job = ref.job()
    assert job.state is State.SCHEDULED
    assert timedelta(minutes=59) < job.due_at - job.created_at < timedelta(minutes=61)
    app.control.retry(holdfast.Selector(ids=(ref.id,)), actor="ada")
    drain(app)
    assert ref.job().state is State.SCHEDULED


def test_coroutines_have_steps_too(app):
    """Under names that begin with a."""
    calls = []

    async def fetch(n: int) -> int:
        calls.append(n)
        return n + 1

    @app.job(retry=["0s"])
    async def order(me: holdfast.Context) -> list[object]:
        value = await me.astep("fetch", fetch, 1)
        await me.aprogress(1, 2)
        await me.acheckpoint({"at": value})
        await me.aheartbeat()
        await me.asleep(0.02)
        child = await me.aenqueue("leaf", {"n": 3})
        return [value, me.checkpointed, child.id]

    @app.job()
    async def leaf(n: int) -> int:
        return n

    ref = order.enqueue()
    with working(app):
        value, checkpoint, child = ref.result(120)
        assert app.get(child).result(120) == 3
    assert (value, checkpoint, calls) == (2, {"at": 2}, [1])

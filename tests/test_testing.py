"""Tools for tests of applications."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import holdfast
from holdfast import State, testing
from holdfast.errors import InvalidPayload

app = holdfast.Holdfast("sqlite:///never-opened.db")


@app.job(retry=["10m"])
def mail(to: int, me: holdfast.Context) -> str:
    if me.attempt == 1:
        raise ConnectionError
    return f"sent to {to}"


@app.job()
async def chain(n: int, me: holdfast.Context) -> int:
    me.progress(n, 10)
    me.checkpoint({"n": n})
    me.enqueue("mail", {"to": n})
    await me.asleep("1h")
    return await me.astep("add", add, n)


async def add(n: int) -> int:
    return n + 1


def test_a_job_is_retried_when_it_is_due():
    """The test moves the clock."""
    with testing.isolated(app, at=datetime(2030, 1, 1, tzinfo=UTC)) as clock:
        ref = mail.enqueue(7)
        assert testing.drain(app) == 1
        assert (ref.state, testing.drain(app)) == (State.SCHEDULED, 0)
        clock.advance("15m")
        assert testing.drain(app) == 1
        assert ref.result() == "sent to 7"
        assert clock.now() == datetime(2030, 1, 1, 0, 15, tzinfo=UTC)


def test_each_isolated_store_is_empty_and_the_app_gets_its_own_back():
    for _ in range(2):
        with testing.isolated(app):
            mail.enqueue(1)
            testing.assert_enqueued(app, "mail", times=1)
    assert app.url == "sqlite:///never-opened.db"


def test_assertions_list_the_enqueued_jobs():
    with testing.isolated(app):
        mail.enqueue(7)
        testing.assert_enqueued(app, "mail")
        testing.assert_enqueued(app, "mail", to=7)
        testing.assert_enqueued(app, "mail", to=8, times=0)
        with pytest.raises(AssertionError, match=r'expected a job mail\(to=8\), found 0.*\n  mail {"to":7}'):
            testing.assert_enqueued(app, "mail", to=8)
        with pytest.raises(AssertionError, match="expected 2 jobs"):
            testing.assert_enqueued(app, "mail", times=2)
        assert [job.payload for job in testing.enqueued(app)] == ['{"to":7}']


def test_a_handler_can_be_called_alone():
    """Its payload is checked, and a context records its calls."""
    with pytest.raises(ConnectionError):
        testing.run_inline(mail, 7)
    assert testing.run_inline(mail, to=7, context=testing.FakeContext(attempt=2)) == "sent to 7"
    with pytest.raises(InvalidPayload):
        testing.run_inline(mail, "seven")


def test_a_context_records_calls():
    context = testing.FakeContext()
    assert testing.run_inline(chain, 4, context=context) == 5
    assert context.progress_calls == [(4, 10, None)]
    assert context.checkpoints == [{"n": 4}]
    assert context.children == [("mail", {"to": 4})]
    assert context.steps == {"add": 5}
    assert [duration.total_seconds() for duration in context.slept] == [3600]

"""The outcome of a run by the return value or the exception of its handler."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

import holdfast
from holdfast import State
from holdfast.domain.jobs.context import Cancelled, Fail, Release, Retry, Snooze
from holdfast.domain.jobs.json_values import MAX_RESULT
from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.kind_options import KindOptions
from holdfast.domain.jobs.verdict import Done, Failed, Released, Stopped
from holdfast.errors import JobLocked, LeaseLost, StoreBusy, StoreUnavailable
from holdfast.worker.active_runs import StopReason
from holdfast.worker.handler_call import OUTAGE_DELAY, describe_error, done, first_line, outcome_of
from tests.support.jobs import put, take_one
from tests.support.workers import drain

MINUTE = timedelta(minutes=1)


def boom(error: BaseException) -> BaseException:
    """The error as a handler would raise it, with a traceback."""
    with pytest.raises(type(error)) as caught:
        raise error
    return caught.value


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Retry("later", after="1m"), {"after": MINUTE, "permanent": False}),
        (Retry(), {"after": None}),
        (Fail("never"), {"permanent": True}),
        (Fail("perhaps", permanent=False), {"permanent": False}),
        (ValueError("x"), {"reason": "handler_error"}),
        (SystemExit(3), {"reason": "handler_error"}),
        (KeyboardInterrupt(), {"reason": "handler_error"}),
    ],
)
def test_failures(error, expected):
    """Anything raised is a failure of the job, SystemExit too."""
    outcome = outcome_of(boom(error), None)
    assert isinstance(outcome, Failed)
    assert {name: getattr(outcome, name) for name in expected} == expected


def test_releases_and_cancels():
    """A release is not the job's fault; a cancel was requested."""
    assert outcome_of(Release(delay=60), None) == Released(delay=MINUTE)
    assert outcome_of(Snooze("1m"), None) == Released(delay=MINUTE)
    assert outcome_of(Cancelled(), StopReason.CANCELLED) == Stopped()
    assert outcome_of(Cancelled(), None) == Stopped()


@pytest.mark.parametrize("reason", [StopReason.SHUTDOWN, StopReason.LEASE_LOST])
def test_a_handler_that_stopped_at_a_shutdown_is_released(reason):
    """As interrupted: its effect may be incomplete."""
    assert outcome_of(Cancelled(), reason) == Released(interrupted=True)


@pytest.mark.parametrize("error", [StoreUnavailable("away"), LeaseLost("late"), JobLocked("locked"), StoreBusy("full")])
def test_a_store_that_does_not_answer_is_no_failure_of_the_handler(error):
    """S12: a lock of a user's transaction is no failure either. S5: effects that the run had are in doubt."""
    raised = boom(error)
    assert outcome_of(raised, None) == Released(delay=OUTAGE_DELAY, interrupted=True, error=describe_error(raised))


def test_work_that_must_not_run_twice_is_held_after_an_outage(real_database, monkeypatch):
    """S5: with ``on_lost="hold"`` no outage in the middle of a run makes it run again. Others do, at no cost.

    A worker that drains waits for the second run, not for a third.
    """
    monkeypatch.setattr("holdfast.worker.handler_call.OUTAGE_DELAY", timedelta(seconds=1))
    ran = []
    with holdfast.Holdfast(real_database.url) as app:

        @app.job(on_lost="hold", max_attempts=1)
        def pay() -> None:
            ran.append("paid")
            raise LeaseLost("what progress() raises when the store is away for longer than the lease")

        @app.job(max_attempts=1)
        def mail() -> None:
            ran.append("mail")
            raise StoreUnavailable("away")

        refs = [pay.enqueue(), mail.enqueue()]
        drain(app)
        jobs = [ref.job() for ref in refs]
    assert [job.state for job in jobs] == [State.HELD, State.SCHEDULED], "S5 is broken"
    assert ("in doubt" in jobs[0].note, jobs[1].attempts, sorted(ran)) == (True, 0, ["mail", "mail", "paid"])


def test_a_handler_that_always_reports_an_outage_fails(real_database, monkeypatch):
    """It ran every five seconds for ever: the store answers after each run, so it is not away."""
    monkeypatch.setattr("holdfast.worker.handler_call.OUTAGE_DELAY", timedelta(0))
    ran = []
    with holdfast.Holdfast(real_database.url) as app:

        @app.job(max_attempts=1)
        def mail() -> None:
            ran.append("mail")
            raise StoreUnavailable("away")

        ref = mail.enqueue()
        drain(app)
        job = ref.job()
    assert (job.state, job.error.splitlines()[0], len(ran)) == (
        State.DEAD,
        "holdfast.errors.store.StoreUnavailable: away",
        11,
    )


@pytest.mark.parametrize("error", [Cancelled(), ValueError("x")])
def test_a_run_out_of_time(error):
    """The reason is the timeout, whatever the handler raised."""
    outcome = outcome_of(boom(error), StopReason.RUN_TIMEOUT)
    assert isinstance(outcome, Failed)
    assert outcome.reason == "run_timeout"


def test_errors_include_the_traceback():
    """The last line first, then the traceback."""
    text = describe_error(boom(ValueError("bad number")))
    assert text.splitlines()[0] == "ValueError: bad number"


def test_an_exception_without_text_is_described_by_its_type():
    """Only its own job fails."""

    class Awful(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert "Awful" in describe_error(boom(Awful()))


def test_results():
    """JSON as it is; nothing for None."""
    assert done(None) == Done()
    assert done({"n": [1, "x"]}) == Done('{"n":[1,"x"]}')


def test_a_large_result_stays_a_success():
    """The result is dropped, with the reason (SPEC 8.12)."""
    outcome = done("x" * (MAX_RESULT + 1))
    assert outcome.result is None
    assert "at most 262,144" in outcome.dropped


def test_a_result_with_nan_is_dropped_with_its_path():
    """K40: NaN does not become null."""
    assert done({"items": [{"price": float("nan")}]}) == Done(
        dropped="the result cannot be stored: items[0].price is NaN"
    )


@pytest.mark.parametrize("value", ["half an emoji \ud83d", {"k": "\ud83d"}, ["nul \0"]])
def test_odd_text_stays_a_success(value):
    """It is converted (SPEC 8.12)."""
    outcome = done(value)
    assert isinstance(outcome, Done)
    json.loads(outcome.result)


@pytest.mark.parametrize("value", [object(), {1: object()}, lambda: None])
def test_a_result_that_is_not_json_stays_a_success(value):
    """The stored reason names its type."""
    assert "cannot be written" in done(value).dropped


@pytest.mark.one_backend
def test_a_coroutine_is_no_result():
    """U3: the wrapper of a decorator returned it, and nothing of the handler has run."""

    async def hidden() -> None:
        raise AssertionError

    with pytest.raises(TypeError, match="returned a coroutine, so nothing of it has run"):
        done(hidden())


def test_the_line_for_the_log_holds_no_secret(store):
    """Neither declared secrets nor values with a secret's name appear."""
    put(store, payload='{"iban": "DE02-1203", "password": "hunter22"}')
    lease, failed = take_one(store), Failed(error="DE02-1203 hunter22 token=abc\nmore")
    kind = Kind("mail", lambda iban, password: None, KindOptions(secrets=("iban",)))
    assert first_line(lease, failed, kind) == "*** *** token=***"
    assert first_line(lease, failed, None) == "DE02-1203 *** token=***"

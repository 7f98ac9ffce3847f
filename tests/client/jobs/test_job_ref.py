"""References to jobs: results that were not stored (K41), values that JSON does not have (K40)."""

from __future__ import annotations

import math

import pytest

import holdfast
from holdfast.domain.jobs.job import State
from holdfast.domain.jobs.json_values import MAX_RESULT
from holdfast.errors import InvalidPayload, ResultDropped
from holdfast.testing import drain


@pytest.fixture
def app(real_database):
    with holdfast.Holdfast(real_database.url) as app:
        yield app


def test_a_result_that_was_dropped_raises(app):
    """K41: the caller does not receive the reason in place of a value. The job stays done."""

    @app.job()
    def large() -> str:
        return "x" * MAX_RESULT

    ref = large.enqueue()
    drain(app)
    assert ref.state is State.DONE
    with pytest.raises(ResultDropped, match="at most 262,144") as dropped:
        ref.result()
    assert (dropped.value.code, dropped.value.context) == ("E_RESULT_DROPPED", {"job_id": ref.id})
    assert "256 KiB" in dropped.value.hint


def test_a_result_may_look_like_a_dropped_one(app):
    """K41: a dropped result is recognised by the job, not by its value."""

    @app.job()
    def honest() -> dict[str, str]:
        return {"dropped": "stone"}

    ref = honest.enqueue()
    drain(app)
    assert ref.result() == {"dropped": "stone"}


def test_nan_is_refused_in_payloads_checkpoints_and_steps(app):
    """K40: with the path of the value; it does not become null."""
    errors = []

    @app.job()
    def measure(context: holdfast.Context, values: list[float | None]) -> None:
        for write in (context.checkpoint, lambda value: context.step("s", lambda: value)):
            with pytest.raises(InvalidPayload) as refused:
                write({"rows": [math.inf]})
            errors.append(str(refused.value))

    with pytest.raises(InvalidPayload, match=r"values\[1\] is NaN"):
        measure.enqueue(values=[1.0, math.nan])
    measure.enqueue(values=[1.0, None])
    drain(app)
    assert [error.endswith("rows[0] is infinity") for error in errors] == [True, True]


def test_messages_name_parameters_and_reasons(app):
    """A5: they said "Object contains unknown field"."""

    @app.job()
    def mail(to: int) -> None: ...

    @app.job()
    def stop() -> None: ...

    with pytest.raises(holdfast.InvalidPayload) as caught:
        mail.enqueue(to=1, too=2)
    assert (caught.value.message, caught.value.hint) == ("'mail' has no parameter 'too'", "It takes: to.")
    with pytest.raises(holdfast.InvalidPayload) as caught:
        app.enqueue("stop", {"x": 2})
    assert (caught.value.message, caught.value.hint) == ("'stop' has no parameter 'x'", "It takes no parameters.")
    ref = stop.enqueue()
    app.control.cancel(holdfast.Selector(ids=(ref.id,)), actor="ada")
    with pytest.raises(holdfast.JobCancelled) as cancelled:
        ref.result(60)
    assert cancelled.value.message == f"job {ref.id} was cancelled: cancelled by ada"

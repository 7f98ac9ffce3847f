"""Exceptions whose own code raises: each fails its own job, and nothing else."""

from __future__ import annotations

import pytest

import holdfast
from holdfast import State
from holdfast.domain.batches.unit import UnitState
from holdfast.domain.jobs.verdict import Failed
from holdfast.worker.active_runs import StopReason
from holdfast.worker.handler_call import describe_error, outcome_of, safe_text
from tests.support.programs.hostile_errors import ERRORS, register
from tests.support.workers import drain

#: How handlers are called does not depend on the store.
pytestmark = pytest.mark.one_backend

#: Nobody can fail with these: they are no failures of a unit or a job.
NO_FAILURES = {"skip"}


@pytest.fixture
def app(real_database):
    with holdfast.Holdfast(real_database.url) as app:
        yield app


@pytest.mark.parametrize("name", ERRORS)
def test_every_exception_has_a_description_and_an_outcome(name):
    error = ERRORS[name]()
    try:
        assert describe_error(error)
    except BaseException as raised:  # noqa: BLE001 - SystemExit would end the tests
        pytest.fail(f"K94 is broken: {type(raised)}")
    assert isinstance(safe_text(error), str)
    for reason in (None, *StopReason):
        assert isinstance(outcome_of(error, reason), Failed)


@pytest.mark.parametrize("executor", ["thread", "coroutine", "process"])
def test_an_exception_fails_its_own_job(app, executor):
    """K94: a metaclass that raises in ``__name__`` once ended the child of its handler."""
    handler = register(app)[f"in_{executor}"]
    refs = {name: handler.enqueue(name) for name in ERRORS}
    drain(app, slots=2)
    for name, ref in refs.items():
        job = ref.job()
        assert (name, job.state, job.reason, job.crashes) == (name, State.DEAD, "handler_error", 0), "K94 is broken"


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_an_exception_fails_its_own_unit(app, executor):
    unit = register(app)[f"unit_in_{executor}"]
    result = app.run(unit, ERRORS, output="none")
    units = app.store.batches.units(result.batch.id)
    assert len(units) == len(ERRORS)
    for row in units:
        name = row.key.strip('"')
        expected = UnitState.SKIPPED if name in NO_FAILURES else UnitState.FAILED
        assert (name, row.state, row.crashes) == (name, expected, 0)

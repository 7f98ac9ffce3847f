"""Context variables: each run begins without those of other runs."""

from __future__ import annotations

import contextvars
from datetime import UTC, datetime

import pytest

import holdfast
from holdfast.domain.jobs.new_job import NewJob
from holdfast.worker.schedules.scopes import read_scopes
from tests.support.programs.context_jobs import KINDS, UNITS, enter, register, tenant
from tests.support.workers import drain

#: How handlers are called does not depend on the store.
pytestmark = pytest.mark.one_backend


@pytest.fixture
def app(real_database):
    with holdfast.Holdfast(real_database.url) as app:
        yield app


@pytest.mark.parametrize("kind", [function.__name__ for function in KINDS])
def test_a_run_does_not_see_the_variables_of_another(app, kind):
    """K92: a tenant, the fields of structlog, or a current span of one job were once those of the next."""
    handler = register(app)[kind]
    refs = [handler.enqueue(f"job {n}") for n in range(10)]
    contextvars.copy_context().run(lambda: (tenant.set("the worker's"), drain(app, slots=2)))
    assert [ref.result() for ref in refs] == [[None, f"job {n}"] for n in range(10)], "K92 is broken"


@pytest.mark.parametrize("unit", [function.__name__ for function in UNITS])
@pytest.mark.parametrize("timeout", [None, "30s"])
def test_a_unit_does_not_see_the_variables_of_another(app, unit, timeout):
    """K92."""
    result = app.run(register(app, timeout=timeout)[unit], range(10), jobs=2, output="none")
    assert result.exit_code == 0
    assert {row.data for row in app.store.batches.units(result.batch.id)} == {None}, "K92 is broken"


def test_a_unit_that_is_tried_again_begins_anew(app):
    seen = []

    @app.unit(retries=2, retry=[0])
    def fragile(key: int) -> None:
        seen.append(enter(f"unit {key}"))
        if len(seen) < 3:
            raise ValueError

    assert app.run(fragile, [1], output="none").exit_code == 0
    assert seen == [None] * 3


def test_a_provider_of_scopes_does_not_see_the_variables_of_another_call():
    def provider():
        return [str(enter("a provider"))]

    async def coroutine():
        return [str(enter("a provider"))]

    assert [read_scopes(each, datetime.now(UTC)) for each in (provider, provider, coroutine, coroutine)] == [
        ["None"]
    ] * 4


def test_a_run_sees_no_variable_that_reading_its_payload_has_set_for_another(app):
    """An upgrade function of the application runs in the context of the run."""
    seen = []

    def upgrade(payload: dict[str, object]) -> dict[str, object]:
        seen.append(enter("an upgrade"))
        return payload

    @app.job(version=2, upgrade={1: upgrade})
    def job(n: int) -> str | None:
        del n
        return tenant.get()

    jobs = [app.store.jobs.enqueue(NewJob(kind="job", payload='{"n": 1}')) for _ in range(4)]
    drain(app, slots=1)
    assert [app.get(each.id).result() for each in jobs] == ["an upgrade"] * 4
    assert seen == [None] * 4

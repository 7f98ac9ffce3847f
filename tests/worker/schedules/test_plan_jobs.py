from __future__ import annotations

import tracemalloc

import msgspec
import pytest

from holdfast.domain.jobs.kind_options import KindOptions, PublishedKind, dump_options
from holdfast.domain.schedules.definition import Definition
from holdfast.domain.schedules.plan import Plan
from holdfast.errors import InvalidText
from holdfast.worker.schedules.plan_jobs import PlanJobs, jobs_of
from tests.support.backends import START

PLANS = [Plan('a "nightly" \\ é', START), Plan("b", START, "north")]


def kind(parameter="plan", **options):
    return PublishedKind("rollup", dump_options(KindOptions(**options), plan=parameter), "{}")


def definition(**payload):
    return Definition(kind="rollup", cron="@daily", payload=payload)


@pytest.mark.parametrize("payload", [{}, {"region": 'eu "\\', "deep": {"plan": [1]}}, {"plan": "an old value", "x": 1}])
def test_each_payload_has_its_plan(payload):
    for fire in PlanJobs(definition(**payload), kind()).fires(PLANS):
        assert msgspec.json.decode(fire.request.payload) == {**payload, "plan": msgspec.to_builtins(fire.plan)}
        assert msgspec.json.decode(fire.request.plan, type=Plan) == fire.plan
        assert fire.request.label == fire.plan.schedule


def test_a_job_has_the_tag_of_its_scope():
    """OPS 4.38: those of a schedule without scopes have none."""
    plain, scoped = PlanJobs(definition(), kind()).fires([*PLANS])
    assert (plain.request.tags, scoped.request.tags) == (None, '["scope=north"]'), "S5 is broken: a scope has no jobs"


def test_a_kind_without_a_plan_parameter_keeps_its_payload():
    (fire, _) = PlanJobs(definition(x=1), kind(parameter=None)).fires(PLANS)
    assert fire.request.payload == '{"x":1}'


def test_a_unique_key_of_the_plan_differs_for_each_plan():
    requests = [fire.request for fire in PlanJobs(definition(x=1), kind(unique=("x", "plan"))).fires(PLANS)]
    assert len({request.unique.key for request in requests}) == 2


def test_an_invalid_payload_is_refused():
    with pytest.raises(InvalidText):
        PlanJobs(definition(x="\0"), kind())


def test_a_changed_kind_changes_the_jobs():
    text = definition(x=1).dumps()
    queues = [jobs_of(text, kind(queue=queue)).fires(PLANS)[0].request.queue for queue in ("mail", "other")]
    assert queues == ["mail", "other"]


def memory_of(calls):
    """The memory that *calls* keep, in bytes."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for call in calls:
            call()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def test_long_definitions_are_not_kept():
    """A schedule that gets another payload each day leaves nothing in a planner."""
    texts = [definition(x=f"{n}" + "x" * 10_000).dumps() for n in range(200)]
    published = kind()
    assert memory_of(lambda text=text: jobs_of(text, published) for text in texts) < 100_000, "K93 is broken"


def test_equal_kinds_are_kept_once():
    """Each tick reads the kind of a schedule anew; its schema may be long."""
    texts = [definition(equal=n).dumps() for n in range(200)]

    def read():
        return PublishedKind("rollup", kind().options, '"' + "x" * 10_000 + '"')

    assert memory_of(lambda text=text: jobs_of(text, read()) for text in texts) < 1_000_000, "K93 is broken"


def test_short_definitions_are_kept():
    text, published = definition(kept=1).dumps(), kind()
    assert jobs_of(text, published) is jobs_of(text, kind())

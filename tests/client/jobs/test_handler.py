"""Handlers: what an enqueue answers (K14)."""

from __future__ import annotations

import sqlite3

import psycopg
import pytest

import holdfast
from holdfast.domain.jobs.job import State
from holdfast.testing import drain
from tests.support.jobs import claim_jobs


@pytest.fixture
def app(real_database):
    with holdfast.Holdfast(real_database.url) as app:
        yield app


def test_the_last_trigger_gets_a_run_that_sees_it(app):
    """K14: a job that is triggered while it runs runs once more, with the newest payload."""
    seen: list[int] = []
    refs: list[holdfast.JobRef] = []

    @app.job(unique=["site"])
    def build(site: str, revision: int) -> int:
        seen.append(revision)
        if revision == 1:
            again = build.options(on_conflict="rerun")
            refs.extend([again.enqueue("main", 2), again.enqueue("main", 3)])
            refs.append(build.options(on_conflict="replace").enqueue("main", 4))
        return revision

    first = build.options(on_conflict="rerun").enqueue("main", 1)
    assert (first.outcome, first.created) == ("created", True)
    assert drain(app) == 2
    assert seen == [1, 4]
    assert [ref.outcome for ref in refs] == ["rerun", "replaced", "replaced"]
    assert {ref.id for ref in refs} == {refs[0].id}
    assert (first.result(), refs[0].result()) == (1, 4)


@pytest.mark.parametrize("commits", [False, True])
def test_a_rerun_follows_the_callers_transaction(app, real_database, commits):
    """K14: a rollback leaves the key with the running job."""

    @app.job()
    def build(revision: int) -> None: ...

    first = build.options(key="k").enqueue(1)
    claim_jobs(app.store, "w", queues=["default"], kinds=["build"])
    connection = (
        sqlite3.connect(real_database.path) if real_database.name == "sqlite" else psycopg.connect(real_database.url)
    )
    connection.execute("BEGIN") if real_database.name == "sqlite" else None
    ref = build.options(key="k", on_conflict="rerun", connection=connection).enqueue(2)
    assert ref.outcome == "rerun"
    connection.commit() if commits else connection.rollback()
    connection.close()
    kept = build.options(key="k").enqueue(3)
    assert (kept.outcome, kept.id) == ("existing", ref.id if commits else first.id)
    assert kept.state is (State.WAITING if commits else State.RUNNING)


def test_jobs_of_one_call_differ_in_their_payloads_alone(app):
    """Each payload is checked, and the options are those of all jobs."""

    @app.job()
    def typed(to: int) -> None: ...

    refs = typed.options(label="x", tags=["a"], priority=3).enqueue_many([{"to": n} for n in range(3)])
    jobs = [ref.job() for ref in refs]
    assert [job.payload for job in jobs] == [f'{{"to":{n}}}' for n in range(3)]
    assert {(job.label, job.tags, job.priority) for job in jobs} == {("x", '["a"]', 3)}
    with pytest.raises(holdfast.InvalidPayload, match="Expected `int`"):
        typed.enqueue_many([{"to": 1}, {"to": "two"}])
    assert app.views.count(holdfast.Selector()).count == 3
    assert typed.enqueue_many([]) == []


def test_unique_fields_tell_the_jobs_of_one_call_apart(app):
    @app.job(unique=["to"])
    def unique(to: int) -> None: ...

    refs = unique.enqueue_many([{"to": n} for n in (1, 2, 1)])
    assert [ref.outcome for ref in refs] == ["created", "created", "existing"]
    assert refs[0].id == refs[2].id

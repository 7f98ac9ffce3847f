"""Charts: they match the tables next to them, without inline style or foreign markup."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree as ET

import pytest
from msgspec import structs

from holdfast.domain.jobs.dependencies import DependencyEdge
from holdfast.domain.jobs.history import Attempt, Event
from holdfast.domain.jobs.job import Job, JobId, State
from holdfast.web.pages import charts
from tests.support.jobs import put, take_one

T0 = datetime(2030, 1, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


@pytest.fixture
def job(store) -> Job:
    return structs.replace(store.views.get(put(store)), created_at=T0)


def attempt(number: int, begin: float, end: float | None, reason: str | None = "handler_error") -> Attempt:
    return Attempt(
        number=number, token=number, worker="w", host=None, pid=None, version=None, started_at=at(begin),
        finished_at=None if end is None else at(end), reason=None if end is None else reason, exit_code=None, error=None,
    )  # fmt: skip


def spans(stretches: list[charts.Stretch], now: float) -> list[tuple[str, float, float]]:
    return [(each.state, (each.begin - T0).total_seconds(), each.length(at(now)).total_seconds()) for each in stretches]


@pytest.mark.one_backend
class TestTimeline:
    def test_one_attempt(self, job):
        """A job that succeeded at once: a wait and a run."""
        done = structs.replace(job, state=State.DONE, finished_at=at(5))
        stretches = charts.timeline(done, [attempt(1, 2, 5, "done")], [Event(at(5), "done", "w")], at(9))
        assert spans(stretches, 9) == [("ready", 0, 2), ("done", 2, 3)]

    def test_retries(self, job):
        """Waits for a retry are between the attempts."""
        events = [Event(at(3), "failed", "w"), Event(at(60), "due", "w"), Event(at(70), "failed", "w")]
        dead = structs.replace(job, state=State.DEAD, finished_at=at(70), attempts=2)
        stretches = charts.timeline(dead, [attempt(1, 1, 3), attempt(2, 65, 70)], events, at(99))
        assert spans(stretches, 99) == [
            ("ready", 0, 1),
            ("failed", 1, 2),
            ("scheduled", 3, 57),
            ("ready", 60, 5),
            ("failed", 65, 5),
        ]

    def test_pause(self, job):
        """A job is held until it is resumed."""
        events = [Event(at(10), "held", "ada"), Event(at(40), "resumed", "ada")]
        stretches = charts.timeline(structs.replace(job, state=State.READY), [], events, at(50))
        assert spans(stretches, 50) == [("ready", 0, 10), ("held", 10, 30), ("ready", 40, 10)]
        assert stretches[-1].end is None

    def test_running(self, job):
        """A run lasts until now."""
        running = structs.replace(job, state=State.RUNNING)
        stretches = charts.timeline(running, [attempt(1, 4, None)], [], at(10))
        assert spans(stretches, 10) == [("ready", 0, 4), ("running", 4, 6)]
        assert [each.end is None for each in stretches] == [False, True]

    def test_waiting_for_others(self, job):
        """A job that waits for others has a text for it."""
        stretches = charts.timeline(structs.replace(job, state=State.WAITING), [], [], at(10))
        assert [each.text for each in stretches] == ["waited for other jobs"]

    def test_of_a_real_job(self, store, clock):
        """The stretches of a stored job do not overlap."""
        job_id = put(store)
        lease = take_one(store, started=True)
        clock.advance(seconds=30)
        record = store.dashboard.job_record(job_id)
        stretches = charts.timeline(record.job, record.attempts, record.events, record.now)
        assert stretches[-1].state == "running"
        assert all(a.end == b.begin for a, b in itertools.pairwise(stretches))
        assert lease.job_id == job_id

    def test_bars(self, job):
        """A bar is at its time; a run is high, a wait is low, and a short one is still visible."""
        run = charts.Stretch("done", "attempt 1: done", at(50), at(75))
        svg = str(charts.stretch_bar(run, T0, at(100)))
        assert 'x="500.0" y="2" width="250.0" height="12"' in svg
        wait = charts.Stretch("ready", "waited", T0, at(0.001))
        assert 'width="4.0" height="4"' in str(charts.stretch_bar(wait, T0, at(100)))
        assert "nan" not in str(charts.stretch_bar(wait, T0, T0))


@pytest.mark.one_backend
class TestGraph:
    def edge(self, way, job_id, dependency_id, depth, label=None, state=State.DONE):
        return DependencyEdge(way, JobId(job_id), JobId(dependency_id), depth, state, "kind", label)

    def test_places(self, job):
        """Dependencies on the left, dependents on the right, one column per step."""
        edges = [
            self.edge("dependencies", job.id, 100, 1),
            self.edge("dependencies", 100, 101, 2),
            self.edge("dependents", 200, job.id, 1),
        ]
        columns = {node.id: node.column for node in charts.nodes(job, edges)}
        assert columns == {job.id: 0, 100: -1, 101: -2, 200: 1}

    def test_drawing(self, job):
        """Every job is a link and every dependency a line; hostile labels are text."""
        edges = [
            self.edge("dependencies", job.id, 100, 1, label="</title><script>alert(1)</script>\u202e"),
            self.edge("dependencies", job.id, 101, 1),
        ]
        svg = str(charts.graph(charts.nodes(job, edges), edges, "/base"))
        tree = ET.fromstring(svg)
        assert [link.get("href") for link in tree.iter("a")] == [
            "/base/jobs/100",
            "/base/jobs/101",
            f"/base/jobs/{job.id}",
        ]
        assert len(list(tree.iter("path"))) == 4
        assert "<script" not in svg
        assert "\u202e" not in svg
        assert "style=" not in svg

    def test_a_need_that_is_gone(self, job):
        """A deleted dependency is drawn as gone."""
        edges = [DependencyEdge("dependencies", job.id, JobId(100), 1, None, None, None)]
        assert "gone" in str(charts.graph(charts.nodes(job, edges), edges, ""))


def test_strip():
    """One mark per plan, with a tooltip; skipped plans are low."""
    svg = str(charts.strip([charts.PlanMark("done", "a <b>"), charts.PlanMark("skipped", "b")]))
    tree = ET.fromstring(svg)
    assert [mark.get("height") for mark in tree.iter("rect")] == ["28", "10"]
    assert [title.text for title in tree.iter("title")] == ["a <b>", "b"]


def test_spark():
    """Done upwards, dead downwards; an hour without jobs is a line."""
    assert str(charts.spark([0] * 60, [0] * 60)).count("<rect") == 1
    assert str(charts.spark([0, 5], [1, 0])).count('class="good"') == 1


def test_bar():
    """The parts of a bar add up to the total; an empty total has no parts."""
    svg = str(charts.bar([("good", 50), ("bad", 25), ("idle", 0)], 100))
    assert 'width="500.00"' in svg
    assert 'x="500.00"' in svg
    assert svg.count("<rect") == 2
    assert charts.bar([("good", 0)], 0).count("<rect") == 0

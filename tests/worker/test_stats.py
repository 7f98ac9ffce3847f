"""Histograms, and run-time estimates: how many jobs a worker claims ahead of its slots."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import pytest

from holdfast.domain.batches.unit import MAX_LABELS, UnitOutcome, UnitState, unit_key
from holdfast.domain.jobs.job import JobId, Lease, Token
from holdfast.worker.stats import (
    AHEAD_OF_NEW,
    ENOUGH_KINDS,
    MAX_AHEAD,
    MAX_FUNCTIONS,
    MAX_LANES,
    OTHER,
    RUN_BUCKETS,
    Histogram,
    RunTimes,
    Stats,
)

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def leases(**counts: int) -> list[Lease]:
    kinds = [kind for kind, count in counts.items() for _ in range(count)]
    return [Lease(JobId(n), Token(1), kind, "default", "{}", 1, False, 0, 0, NOW, None) for n, kind in enumerate(kinds)]


def learned(**seconds: float) -> RunTimes:
    run_times = RunTimes()
    for kind, duration in seconds.items():
        run_times.learn(kind, duration)
    return run_times


def test_without_claims_the_slowest_kind_counts():
    assert learned(quick=0.001, slow=0.01).ahead(["quick", "slow"], 10) == 100


def test_a_slow_kind_that_is_rare_does_not_shrink_claims():
    """They keep the slots busy for 0.1 s in the mixture of the last claims."""
    run_times = learned(quick=0.001, slow=0.01)
    run_times.learn_claim(leases(quick=999, slow=1))
    assert run_times.ahead(["quick", "slow"], 1) == 40
    assert run_times.ahead(["quick"], 1) == 100


def test_jobs_of_the_slowest_kind_alone_never_wait_long():
    """The bound is 0.4 s, so that they are not released after 0.5 s."""
    run_times = learned(quick=0.0001, slow=0.04)
    run_times.learn_claim(leases(quick=1000))
    assert run_times.ahead(["quick", "slow"], 8) == 80


def test_a_new_mixture_replaces_the_last_one():
    run_times = learned(quick=0.001, slow=0.01)
    run_times.learn_claim(leases(quick=100))
    for _ in range(20):
        run_times.learn_claim(leases(slow=100))
    assert run_times.ahead(["quick", "slow"], 10) in (100, 101)
    run_times.learn_claim(leases(unknown=5))
    assert run_times.ahead(["quick", "slow"], 10) in (100, 101)


def test_a_new_kind_is_long_until_many_others_are_short():
    """Of 200 kinds, each would have a claim of its own for its first run otherwise."""
    few = {f"k{n}": 0.001 for n in range(ENOUGH_KINDS - 1)}
    assert not learned(**few).is_short("new")
    run_times = learned(**few, last=0.001)
    assert run_times.is_short("new")
    run_times.learn("slow", 1.0)
    assert not run_times.is_short("slow")
    assert not run_times.is_short("new"), "where some are long, a new one may be"
    for _ in range(40):
        run_times.learn("slow", 0.001)
    assert run_times.is_short("slow")
    assert run_times.is_short("new")


def test_few_jobs_of_new_kinds_are_claimed_ahead():
    """Some may turn out to be long: the fewer kinds are known, the likelier. A kind that never has jobs bounds nothing."""
    run_times = learned(**{f"k{n}": 1e-5 for n in range(ENOUGH_KINDS)})
    assert run_times.ahead(["k1", "never"], 4) == MAX_AHEAD
    run_times.learn_claim(leases(k1=5, new=1))
    assert run_times.ahead(["k1", "new"], 4) == 4 * AHEAD_OF_NEW * ENOUGH_KINDS
    run_times.learn("new", 1e-5)
    run_times.learn_claim(leases(k1=5, new=1))
    assert run_times.ahead(["k1", "new"], 4) == MAX_AHEAD


@pytest.mark.parametrize("groups", [1, 3, 100])
def test_a_histogram_counts_the_same_in_groups_of_any_size(groups):
    """A value on the limit of a bucket belongs to it. Groups of few values are counted one by one."""
    values = [0.0, *RUN_BUCKETS, 0.0011, 0.5, 4000.0, 4000.0] * 10
    histogram = Histogram(RUN_BUCKETS)
    for start in range(groups):
        histogram.add(("mail",), values[start::groups])
    limits = [0.0, *RUN_BUCKETS, float("inf")]
    expected = [sum(low < value <= high for value in values) for low, high in pairwise(limits)]
    expected[0] += values.count(0.0)
    assert histogram.counts == {("mail",): expected}
    assert histogram.sums["mail",] == pytest.approx(sum(values))


def labelled(count: int) -> list[UnitOutcome]:
    return [
        UnitOutcome(key=unit_key(n), position=n, state=UnitState.DONE, label=f"label {n}", duration_ms=1)
        for n in range(count)
    ]


def test_labels_of_units_count_by_name_up_to_a_hundred(caplog):
    """K93: a label for each unit once made a scrape of 14 MB, and memory that never came back."""
    stats = Stats()
    for kind in ("f", "g"):
        for _ in range(2):
            stats.units_finished(kind, labelled(1000))
    for kind in ("f", "g"):
        labels = {label: count for (name, label), count in stats.unit_labels.items() if name == kind}
        assert len(labels) == MAX_LABELS + 1, "K93 is broken"
        assert (labels["label 0"], labels[OTHER]) == (2, 2 * (1000 - MAX_LABELS))
        assert stats.units[kind, UnitState.DONE] == 2000
    assert [record.args[1] for record in caplog.records] == ["labels of the units of 'f'", "labels of the units of 'g'"]


def test_functions_of_units_count_by_name_up_to_a_limit():
    stats = Stats()
    for n in range(2 * MAX_FUNCTIONS):
        stats.units_finished(f"function {n}", labelled(1))
    assert len(stats.units) == len(stats.unit_runs.counts) == len(stats.unit_labels) == MAX_FUNCTIONS + 1
    assert stats.units[OTHER, UnitState.DONE] == MAX_FUNCTIONS


def test_pairs_of_queue_and_kind_count_by_name_up_to_a_limit(caplog):
    """K93: each pair is 37 lines of a scrape, for as long as the worker runs."""
    stats = Stats()
    for _ in range(2):
        lanes = [stats.lane(f"queue {n}", "kind") for n in range(MAX_LANES + 10)]
        assert lanes[:MAX_LANES] == [(f"queue {n}", "kind") for n in range(MAX_LANES)]
        assert lanes[MAX_LANES:] == [(OTHER, OTHER)] * 10
    assert len(caplog.records) == 1

"""Admission: what programs will take, and who may begin."""

from __future__ import annotations

from math import sqrt
from statistics import mean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.fleet.admission import (
    MAX_FORECAST_SHARE,
    MAX_OVERTAKEN_S,
    MAX_SAMPLES,
    MIN_SAMPLES,
    Candidate,
    ExpectedMemory,
    MemoryRoom,
    Profile,
    Refusal,
    RunningCommand,
    add_sample,
    choose,
    describe_refusal,
    expected_memory,
    forecast,
    host_limit_text,
    profile_name,
    refusal,
    room,
)
from holdfast.domain.quantities import host_limit
from holdfast.errors import InvalidInput

GB = 10**9
PEAKS = st.lists(st.integers(1, 10**12), min_size=1, max_size=MAX_SAMPLES)


def profile(*peaks, name="a"):
    learned = Profile(name)
    for peak in peaks:
        learned = add_sample(learned, peak)
    return learned


def known(gb, *, deviation=0.0, name="a", sure=True):
    return ExpectedMemory(name, gb * GB, deviation * GB, sure, "5 runs")


@given(PEAKS)
def test_a_profile_has_mean_and_variance_of_its_runs(peaks):
    """Mean and deviation, up to as many runs as are remembered."""
    found = profile(*peaks)
    assert found.samples == len(peaks)
    assert found.mean == pytest.approx(mean(peaks), rel=1e-6)
    assert sqrt(found.variance) == pytest.approx(pstdev(peaks), rel=1e-3, abs=1)
    assert found.largest == max(peaks)


def test_old_runs_fade():
    """A program that has changed is known by what it takes now."""
    found = profile(*[GB] * 500, *[3 * GB] * 500)
    assert found.mean == pytest.approx(3 * GB, rel=0.02)


@pytest.mark.parametrize(
    ("label", "words", "name"),
    [
        ("nightly", ["python", "x.py"], "nightly"),
        ("sweep/symbol=A/year=2020", ["./run"], "sweep"),
        (None, ["/usr/bin/python", "/srv/x.py", "--n", "3"], "python x.py"),
        (None, ["python3.11", "-W", "ignore", "-u", "x.py"], "python3.11 x.py"),
        (None, ["python", "-m", "train", "7"], "python -m train"),
        (None, ["sh", "-c", "sort < in | uniq"], "sh -c sort"),
        (None, ["/usr/bin/env", "A=1", "python", "x.py"], "python x.py"),
        (None, ["python"], "python"),
        (None, ["./train", "x.py"], "train"),
        ("/odd", ["/bin/"], "/bin/"),
    ],
)
def test_commands_of_one_label_share_a_profile(label, words, name):
    """That of its label without the parameters, or of the program; K82: an interpreter is no program by itself."""
    assert profile_name(label, words) == name


def test_expected_memory():
    """A declared figure rules, then what was measured, then the cap, then what little is known, then a guess."""
    five, two = profile(*[2 * GB] * 3, *[4 * GB] * 3), profile(GB, 3 * GB)

    def expect(profile, cap=None, declared=()):
        answer = expected_memory(profile, cap=cap, declared=dict(declared), limit=40 * GB)
        return round(answer.mean / GB, 3), round(answer.deviation / GB, 3), answer.known

    assert expect(five, cap=9 * GB, declared=[("b", 1), ("a*", 7 * GB)]) == (7, 0, True)
    assert expect(five) == (3, 1, True)
    assert expect(five, cap=int(3.5 * GB)) == (3, 0.5, True)
    assert expect(two, cap=6 * GB) == (6, 0, True)
    assert expect(two) == (3, 0, False)
    assert expect(Profile("a")) == (5, 0, False)


def test_the_forecast_is_the_sum_of_the_peaks_and_one_deviation_of_it():
    """A program that already takes more than the mean counts with what it takes."""
    running = [RunningCommand(GB, known(4, deviation=3)), RunningCommand(6 * GB, known(4, deviation=4))]
    assert forecast(running) == pytest.approx((4 + 6 + 5) * GB)
    assert forecast(running, known(2, deviation=12)) == pytest.approx((4 + 6 + 2 + 13) * GB)


@given(
    st.lists(st.tuples(st.floats(0, 50), st.floats(0.1, 50), st.floats(0, 10)), max_size=20),
    st.floats(0.1, 60),
    st.floats(0, 10),
)
def test_nothing_that_does_not_fit_begins(running, peak, deviation):
    """Whoever is admitted, the forecast is within the limit."""
    commands = [RunningCommand(int(now * GB), known(will, deviation=dev)) for now, will, dev in running]
    free = MemoryRoom(50 * GB, 50 * GB)
    newcomer = known(peak, deviation=deviation)
    if refusal(newcomer, commands, free) is None:
        assert forecast(commands, newcomer) <= MAX_FORECAST_SHARE * free.now


def test_an_unknown_label_runs_one_at_a_time():
    """Another one may run beside it."""
    free = MemoryRoom(50 * GB, 50 * GB)
    running = [RunningCommand(0, known(5, sure=False))]
    assert refusal(known(5, sure=False), running, free) is Refusal.UNKNOWN
    assert refusal(known(5, sure=False, name="b"), running, free) is None
    assert refusal(known(5), running, free) is None


def test_room_is_less_when_others_take_more_than_is_theirs():
    """The rest of the host must fit beside the limit; what other workers have yet to take is promised."""
    assert room(80, 100, 50, own=40) == MemoryRoom(80, 80)
    assert room(80, 100, 70, own=40) == MemoryRoom(80, 70)
    assert room(80, 100, 70, own=40, promised=20) == MemoryRoom(80, 50)
    assert room(80, 100, 100, own=0, promised=20) == MemoryRoom(80, 0)


def test_who_fits_may_pass_until_the_head_has_waited_too_long():
    """A blocked head is not overtaken for more than half an hour."""
    running = [RunningCommand(30 * GB, known(30))]
    line = [Candidate(1, known(20)), Candidate(2, known(5))]
    free = MemoryRoom(50 * GB, 50 * GB)
    early = choose(line, running, free, waited={1: MAX_OVERTAKEN_S - 1})
    assert (early.chosen.job_id, early.refused) == (2, {1: Refusal.MEMORY})
    late = choose(line, running, free, waited={1: MAX_OVERTAKEN_S})
    assert (late.chosen, late.refused) == (None, {1: Refusal.MEMORY})
    assert choose(line, [], free, waited={1: MAX_OVERTAKEN_S}).chosen.job_id == 1


def test_a_command_that_never_fits_blocks_no_other():
    """However long it has waited."""
    line = [Candidate(1, known(60)), Candidate(2, known(5))]
    choice = choose(line, [], MemoryRoom(50 * GB, 10 * GB), waited={1: 10 * MAX_OVERTAKEN_S})
    assert (choice.chosen.job_id, choice.refused) == (2, {1: Refusal.NEVER})


def test_a_refusal_says_its_figures():
    """For people, in words."""
    running, free = [RunningCommand(0, known(30))], MemoryRoom(50 << 30, 40 << 30)
    dependencies = ExpectedMemory("a", 20 << 30, 0.0, True, "7 runs")
    assert "20 GiB (7 runs); 1 commands are forecast" in describe_refusal(Refusal.MEMORY, dependencies, running, free)
    assert "at most 47.5 GiB here: it can never start" in describe_refusal(Refusal.NEVER, dependencies, running, free)
    assert f"fewer than {MIN_SAMPLES} runs of 'a'" in describe_refusal(Refusal.UNKNOWN, dependencies, running, free)


def test_limits_of_hosts():
    """By the host's name, by a pattern, or 80 %; never more than there is."""
    limits = {"big": "48G", "node-*": "50%"}
    assert (host_limit_text("big", limits), host_limit_text("node-7", limits), host_limit_text("x", limits)) == (
        "48G",
        "50%",
        "80%",
    )
    assert host_limit("80%", 1000) == 800
    assert host_limit("48G", 64 << 30) == 48 << 30
    assert host_limit("48G", 1000) == 1000
    for wrong in ("0%", "101%", "-5%", "much"):
        with pytest.raises(InvalidInput):
            host_limit(wrong, 1000)

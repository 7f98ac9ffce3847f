"""Verdicts after a run, with the delays of retries."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.jobs.job import TRANSITIONS, ControlRequest, JobId, OnLost, State, Token, WorkerId
from holdfast.domain.jobs.retry_curve import DEFAULT_CURVE, Curve, delay_after, steps
from holdfast.domain.jobs.verdict import Done, Failed, JobNumbers, Lost, Outcome, Released, Stopped, judge
from holdfast.errors import InvalidInput

MINUTE = timedelta(minutes=1)


def numbers(**changes) -> JobNumbers:
    values = {
        "job_id": JobId(1),
        "kind": "k",
        "queue": "default",
        "token": Token(1),
        "attempts": 1,
        "max_attempts": 3,
        "crashes": 0,
        "losses": 0,
        "no_prefetch": False,
        "max_crashes": 3,
        "on_lost": OnLost.RETRY,
        "retry": None,
        "started": True,
        "requested": None,
        "has_dependents": False,
        "worker": WorkerId("w"),
        "claimed_at": None,
        "started_at": None,
    }
    return JobNumbers(**{**values, **changes})


def verdict(outcome: Outcome, **changes):
    return judge(numbers(**changes), outcome, chance=0.5)


def test_a_success_finishes_the_job():
    """A run that succeeds makes its job done, with its result."""
    result = verdict(Done('{"n":1}'))
    assert (result.state, result.result, result.attempts) == (State.DONE, '{"n":1}', 1)


def test_a_failure_is_retried_with_a_delay():
    """A failure before the last attempt schedules the next one by the curve."""
    result = verdict(Failed(error="boom"))
    assert (result.state, result.delay, result.attempts, result.error) == (State.SCHEDULED, MINUTE, 1, "boom")


def test_a_failure_out_of_attempts_is_dead():
    """The last failure is the end."""
    assert verdict(Failed(error="boom"), attempts=3).state is State.DEAD


def test_an_unrecorded_run_counts_its_own_attempt():
    """A start that was not marked is not in the row's number yet, and is judged as if it were."""
    assert verdict(Failed(error="boom"), attempts=2, started=False).state is State.DEAD


def test_a_permanent_failure_is_not_retried():
    """A permanent failure is dead at its first attempt."""
    assert verdict(Failed(error="boom", permanent=True)).state is State.DEAD


def test_a_handler_can_name_its_own_delay():
    """A failure may say after how long it wants to be retried; at once means ready."""
    assert verdict(Failed(error="x", after=MINUTE * 7)).delay == MINUTE * 7
    assert verdict(Failed(error="x", after=timedelta(0))).state is State.READY


def test_no_limit_means_no_end():
    """A job without a limit of attempts is retried for ever."""
    assert verdict(Failed(error="x"), attempts=10_000, max_attempts=None).state is State.SCHEDULED


def test_a_release_costs_nothing():
    """A release gives the attempt back, marked or not."""
    assert verdict(Released(), attempts=2).attempts == 1
    assert verdict(Released(), attempts=2, started=False).attempts == 2
    assert verdict(Released()).state is State.READY
    assert verdict(Released(delay=MINUTE)).state is State.SCHEDULED


@pytest.mark.parametrize(("on_lost", "state"), [(OnLost.HOLD, State.HELD), (OnLost.DEAD, State.DEAD)])
def test_work_that_must_not_run_twice_is_never_rerun_by_itself(on_lost, state):
    """After a crash or an interruption such work waits for a person, or is dead."""
    assert verdict(Lost(), on_lost=on_lost).state is state
    assert verdict(Released(interrupted=True), on_lost=on_lost).state is state


def test_a_handler_that_chose_to_release_is_trusted():
    """A release by the handler's own choice is no doubt about its effect."""
    assert verdict(Released(), on_lost=OnLost.HOLD).state is State.READY


def test_a_lost_recorded_start_costs_an_attempt_and_counts_as_a_crash():
    """The loss of a holder is judged like a failure."""
    result = verdict(Lost())
    assert (result.state, result.attempts, result.crashes) == (State.SCHEDULED, 1, 1)


def test_a_lost_unrecorded_start_costs_nothing():
    """A prefetched job goes back as it was, suspect."""
    result = verdict(Lost(), started=False, attempts=1)
    assert (result.state, result.attempts, result.crashes, result.losses) == (State.READY, 1, 0, 1)


@pytest.mark.parametrize(("before", "after"), [(0, 1), (2, 3), (3, 3)])
def test_each_unrecorded_loss_raises_suspicion(before, after):
    """K18: up to the highest level. A failure clears it, a release and a loss that is paid keep it."""
    assert verdict(Lost(), started=False, losses=before).losses == after
    assert verdict(Failed(error="boom"), losses=before).losses == 0
    assert verdict(Released(), losses=before).losses == before
    assert verdict(Lost(), losses=before).losses == before


def test_a_job_that_certainly_had_not_begun_is_no_suspect():
    """K21: its start would have been recorded before it began."""
    result = verdict(Lost(), started=False, no_prefetch=True, on_lost=OnLost.DEAD, attempts=0)
    assert (result.state, result.attempts, result.losses) == (State.READY, 0, 0)


def test_a_holder_that_saw_the_run_die_requires_no_recorded_start():
    """A run that its own worker saw crash costs an attempt, marked or not."""
    result = verdict(Lost("crashed", begun=True), started=False, attempts=0)
    assert (result.attempts, result.crashes, result.reason) == (1, 1, "crashed")


def test_a_job_that_kills_its_worker_ends_dead():
    """Crashes have a limit of their own, however many attempts are left."""
    assert verdict(Lost(), max_attempts=None, crashes=2).state is State.DEAD


@pytest.mark.parametrize("outcome", [Failed(error="x"), Released(), Lost(), Stopped()])
def test_a_requested_cancel_wins_over_another_attempt(outcome):
    """A job that shall be cancelled is not tried again."""
    assert verdict(outcome, requested=ControlRequest.CANCEL).state is State.CANCELLED


def test_a_success_counts_though_a_cancel_was_requested():
    """A run that finished has finished."""
    assert verdict(Done(), requested=ControlRequest.CANCEL).state is State.DONE


@pytest.mark.parametrize("outcome", [Failed(error="x"), Released(), Lost(), Lost(begun=True)])
def test_a_requested_pause_holds_a_job_with_another_attempt(outcome):
    """Whatever became of the run, the job waits for a person; what it cost stays as it is without."""
    paused, plain = verdict(outcome, requested=ControlRequest.PAUSE), verdict(outcome)
    assert (paused.state, paused.attempts, paused.crashes) == (State.HELD, plain.attempts, plain.crashes)


@pytest.mark.parametrize(("outcome", "state"), [(Done(), State.DONE), (Failed(error="x", permanent=True), State.DEAD)])
def test_a_requested_pause_holds_no_finished_job(outcome, state):
    assert verdict(outcome, requested=ControlRequest.PAUSE).state is state


@pytest.mark.parametrize("on_lost", OnLost)
def test_a_paused_run_is_held_whatever_its_on_lost(on_lost):
    """A person lets it go on, so nothing runs twice by itself."""
    result = verdict(Released(interrupted=True), requested=ControlRequest.PAUSE, on_lost=on_lost)
    assert (result.state, result.attempts) == (State.HELD, 0)


OUTCOMES = st.one_of(
    st.builds(Done),
    st.builds(Stopped),
    st.builds(Lost, begun=st.booleans()),
    st.builds(Failed, error=st.just("x"), permanent=st.booleans()),
    st.builds(Released, interrupted=st.booleans(), delay=st.sampled_from([timedelta(0), MINUTE])),
)


@given(
    outcome=OUTCOMES,
    attempts=st.integers(1, 5),
    crashes=st.integers(0, 5),
    started=st.booleans(),
    requested=st.sampled_from([None, *ControlRequest]),
    on_lost=st.sampled_from(OnLost),
    chance=st.floats(0, 1),
)
def test_a_verdict_is_a_legal_transition(outcome, attempts, crashes, started, requested, on_lost, chance):
    """Whatever the outcome, the job moves where it may, and attempts never pass their limit to live on."""
    job = numbers(
        attempts=attempts if started else attempts - 1,
        max_attempts=5,
        crashes=crashes,
        max_crashes=5,
        started=started,
        requested=requested,
        on_lost=on_lost,
    )
    result = judge(job, outcome, chance=chance)
    assert result.state in TRANSITIONS[State.RUNNING]
    assert result.attempts <= job.attempt
    assert result.delay is None or result.delay >= timedelta(0)
    if result.state in (State.SCHEDULED, State.READY):
        assert result.attempts < 5


def test_the_default_curve_doubles_to_an_hour():
    """60 s, doubling, at most an hour, before jitter."""
    seconds = [delay_after(DEFAULT_CURVE, attempt, chance=0.5).total_seconds() for attempt in range(1, 9)]
    assert seconds == [60, 120, 240, 480, 960, 1920, 3600, 3600]


def test_an_attempt_below_one_counts_as_one():
    """Odd numbers do no harm."""
    assert delay_after(DEFAULT_CURVE, 0, chance=0.5) == delay_after(DEFAULT_CURVE, 1, chance=0.5)
    assert delay_after(DEFAULT_CURVE, -7, chance=0.5) == timedelta(seconds=60)


def test_a_huge_attempt_number_overflows_nothing():
    """The millionth attempt waits an hour too."""
    assert delay_after(DEFAULT_CURVE, 1_000_000, chance=0.5) == timedelta(hours=1)


@given(attempt=st.integers(1, 100), chance=st.floats(0, 1))
def test_jitter_stays_within_a_fifth(attempt, chance):
    """Each delay lies within 20 % of the curve."""
    middle = delay_after(DEFAULT_CURVE, attempt, chance=0.5).total_seconds()
    assert (
        middle * 0.8 - 1e-5 <= delay_after(DEFAULT_CURVE, attempt, chance=chance).total_seconds() <= middle * 1.2 + 1e-5
    )


def test_a_list_is_used_as_it_is_and_its_last_delay_repeats():
    """1m/5m/15m waits exactly that, then 15m again and again."""
    curve = steps([timedelta(minutes=n) for n in (1, 5, 15)])
    minutes = [delay_after(curve, attempt, chance=0.0).total_seconds() / 60 for attempt in range(1, 6)]
    assert minutes == [1, 5, 15, 15, 15]


def test_a_curve_survives_the_store():
    """The default needs no text; every other curve reads back as it was."""
    assert DEFAULT_CURVE.dumps() is None
    for curve in (Curve(base=1, cap=9, jitter=0), steps([timedelta(seconds=3)])):
        assert Curve.loads(curve.dumps()) == curve


def test_a_senseless_curve_is_refused():
    """Negative delays and an empty list cannot be meant."""
    for make in (lambda: Curve(base=-1), lambda: Curve(jitter=2), lambda: steps([])):
        with pytest.raises(InvalidInput):
            make()

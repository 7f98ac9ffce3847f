"""Batches in one process: outcomes, retries, and the unit that a function sees."""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
import time
from contextlib import contextmanager
from datetime import date

import pytest

import holdfast
from holdfast import Fatal, Skip, Unit
from holdfast.admin.views.batches import BatchReader
from holdfast.client.batches.batch_claim import source_of
from holdfast.domain.batches.batch import AbortedBy, BatchId, BatchState, FailureLimits, identity
from holdfast.domain.batches.breaker import MIN_UNITS_FOR_RATE, Breaker
from holdfast.domain.batches.unit import unit_key
from holdfast.errors import InputFailed, InvalidInput, InvalidKind, StoreUnavailable
from holdfast.store.batches.batches import Batches
from tests.support.processes import PATIENCE, wait_until


@pytest.fixture
def app(real_database):
    with holdfast.Holdfast(real_database.url) as app:
        yield app


def run(app, function, keys, **options):
    return app.run(function, keys, output="none", **options)


def test_a_cancelled_run_leaves_no_key_out(app):
    """B12: units that were taken and did not begin are cancelled too, although the ledger has no row of them."""
    running = threading.Barrier(2)

    @app.unit()
    def wait(key: int, unit: Unit) -> None:
        if running.wait(PATIENCE) == 0:
            (batch, *_) = app.store.batches.page().batches
            app.store.batches.cancel(batch.id)
        unit.stopping.wait(PATIENCE)

    result = run(app, wait, range(100), jobs=2)
    assert result.exit_code == 12
    counted = app.store.batches.counters(result.batch.id)
    assert (counted.done + counted.cancelled, counted.cancelled >= 90) == (100, True), "B12 is broken"


def test_units_have_outcomes(app):
    """Done with a label, a warning, data; skipped; failed."""

    @app.unit()
    def work(key: str, unit: Unit) -> object:
        match key:
            case "skip":
                raise Skip("no need")
            case "fail":
                raise ValueError("bad")
            case "warn":
                unit.warn("odd")
            case "label":
                unit.done("duplicate", {"of": 1})
            case "exit":
                raise SystemExit(3)
        return key

    result = run(app, work, ["skip", "fail", "warn", "label", "plain", "exit"], max_failures=0)
    units = {unit.key: unit for unit in app.store.batches.units(result.batch.id)}
    assert {key: str(unit.state) for key, unit in units.items()} == {
        '"skip"': "skipped", '"fail"': "failed", '"warn"': "done", '"label"': "done", '"plain"': "done", '"exit"': "failed",
    }  # fmt: skip
    assert units['"fail"'].error.startswith("ValueError: bad")
    assert (units['"label"'].label, units['"label"'].data) == ("duplicate", '{"of":1}')
    assert (units['"warn"'].warning, units['"skip"'].warning) == ("odd", "no need")
    summary = result.summary
    assert (summary.succeeded, summary.failed, summary.skipped, summary.warned) == (3, 2, 1, 1)
    assert (result.exit_code, summary.labels, result.batch.state) == (6, {"duplicate": 1}, BatchState.PARTIAL)


def test_a_run_can_be_silent(app, capfd):
    """For callers that use the result themselves."""

    @app.unit()
    def work(key: int) -> None:
        assert key

    assert run(app, work, [0, 1]).exit_code == 6
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("retries", [0, 1])
def test_a_unit_with_an_unknown_commit_is_done_once(app, monkeypatch, retries):
    """Its row is in the ledger: no failure overwrites it, and the rest of the run checks for rows."""
    real, unknown = Batches.unit_transaction, {unit_key(2), unit_key(5)}

    @contextmanager
    def transaction(batches, opened, end):
        with real(batches, opened, end) as connection:
            yield connection
        key = end().key
        if key in unknown:
            unknown.remove(key)
            raise StoreUnavailable("nobody heard")

    monkeypatch.setattr(Batches, "unit_transaction", transaction)

    @app.unit(retries=retries, retry=["0s"])
    def work(key: int, unit: Unit) -> None:
        with unit.transaction():
            pass

    result = run(app, work, range(1, 81), max_failures=0)
    assert (result.summary.succeeded, result.summary.failed, result.exit_code) == (80, 0, 0)
    assert app.store.batches.recount(result.batch.id) == {"done": 80}
    assert not unknown


def test_a_unit_is_tried_again_within_a_run(app):
    tries = []

    @app.unit(retries=2, retry=["0s"])
    def flaky(key: int, unit: Unit) -> None:
        tries.append(unit.attempt)
        if len(tries) < 3:
            raise ValueError

    result = run(app, flaky, [1])
    (unit,) = app.store.batches.units(result.batch.id)
    assert (result.exit_code, tries, unit.attempts) == (0, [1, 2, 3], 3)


def test_fatal_stops_the_whole_run(app):
    """Exit 8: fix the cause, then resume."""

    @app.unit()
    def work(key: int) -> None:
        if key == 5:
            raise Fatal("the disk is gone")

    result = run(app, work, range(1000))
    assert (result.exit_code, result.summary.aborted_by) == (8, AbortedBy.FATAL)
    assert result.summary.pending > 900


def test_arguments_reach_the_function_and_the_identity(app):
    seen = []

    @app.unit(operational=["speed"])
    def work(key: int, *, replace: bool = False, speed: int = 1) -> None:
        seen.append((key, replace, speed))

    first = run(app, work.bind(replace=True, speed=1), [1])
    again = run(app, work.bind(replace=True, speed=9), [1])
    other = run(app, work.bind(replace=False), [1])
    assert seen == [(1, True, 1), (1, True, 9), (1, False, 1)]
    assert (again.batch.generation, again.batch.identity) == (2, first.batch.identity)
    assert other.batch.identity != first.batch.identity
    with pytest.raises(InvalidInput, match="no argument 'nope'"):
        work.bind(nope=1)
    assert work(7, replace=True) is None, "it can be called as before"


def test_a_unit_has_an_idempotency_key(app):
    """It is the same for every attempt, and differs between units."""
    seen = {}

    @app.unit()
    def work(key: list[int], unit: Unit) -> None:
        assert unit.key == key
        if unit.idempotency_key not in seen:
            seen[unit.idempotency_key] = unit.attempt
            raise ValueError

    result = run(app, work, [[1, 2], [3]], max_failures=0)
    assert result.exit_code == 1
    assert run(app, work, [[1, 2], [3]]).exit_code == 0
    assert len(seen) == 2


def test_an_empty_batch_ends_at_once(app):
    @app.unit()
    def work(key: int) -> None: ...

    result = run(app, work, [])
    assert (result.exit_code, result.batch.state, result.summary.total) == (0, BatchState.DONE, 0)


def test_a_key_that_comes_twice_is_one_unit(app):
    seen = []

    @app.unit()
    def work(key: int) -> None:
        seen.append(key)

    result = run(app, work, [1, 2, 1, 1])
    assert (sorted(seen), result.summary.total) == ([1, 2], 2)


def test_a_run_in_another_thread_gets_no_signals(app):
    """It still runs, and can be paused from outside."""
    begun = threading.Event()

    @app.unit()
    def work(key: int, unit: Unit) -> None:
        begun.set()
        unit.sleep(30)

    results = []
    thread = threading.Thread(target=lambda: results.append(run(app, work, range(3))))
    thread.start()
    begun.wait(120)
    (batch,) = app.store.batches.page().batches
    app.store.batches.pause(batch.id)
    thread.join(120)
    (result,) = results
    assert (result.exit_code, result.summary.pending) == (11, 3)
    assert wait_until(lambda: app.store.batches.get(batch.id).state is BatchState.PAUSED)


def test_a_pause_that_is_withdrawn_leaves_the_batch_resumable(app):
    """B12: the run has obeyed, and finishes its unit after the resume: exit 7, and the same call continues."""
    begun, go = threading.Event(), threading.Event()

    @app.unit()
    def work(key: int, unit: Unit) -> None:
        if key == 0 and not go.is_set():
            begun.set()
            unit.stopping.wait(120)
            assert app.store.batches.resume(batch.id)
            go.set()

    results = []
    thread = threading.Thread(target=lambda: results.append(run(app, work, range(3))))
    thread.start()
    begun.wait(120)
    (batch,) = app.store.batches.page().batches
    assert app.store.batches.pause(batch.id)
    thread.join(120)
    known = app.store.batches.get(batch.id)
    assert (results[0].exit_code, known.state, known.aborted_by) == (7, BatchState.STOPPED, "signal")
    assert run(app, work, range(3)).exit_code == 0


def test_a_cancel_after_the_last_unit_was_taken_is_exit_12(app):
    """The run learns of it only at its end: its exit code is that of the store (I14), not 0."""

    @app.unit()
    def work(key: int) -> None:
        if key == 2:
            app.store.batches.cancel(BatchId(1))

    result = run(app, work, range(3), checkpoint="60s")
    assert (result.exit_code, result.summary.aborted_by) == (12, AbortedBy.CANCEL)
    assert (result.batch.state, result.batch.aborted_by) == (BatchState.CANCELLED, AbortedBy.CANCEL)
    counted, rows = app.store.batches.counters(BatchId(1)), app.store.batches.recount(BatchId(1))
    assert (counted.done, rows) == (3, {"done": 3}), "what had run is told as it was"


def test_units_run_side_by_side(app):
    together = threading.Barrier(4, timeout=120)

    @app.unit()
    def work(key: int) -> None:
        together.wait()

    assert run(app, work, range(8), jobs=4).exit_code == 0


def test_a_rate_of_failures_trips_the_breaker():
    breaker = Breaker(FailureLimits(in_a_row=0, rate=0.5))
    ends = [breaker.count(failed=n % 3 != 0) for n in range(MIN_UNITS_FOR_RATE + 10)]
    assert ends[MIN_UNITS_FOR_RATE - 2] is None
    assert ends[-1] is AbortedBy.MAX_FAILURE_RATE
    total = Breaker(FailureLimits(in_a_row=0, total=3))
    assert [total.count(failed=n % 2 == 0) for n in range(5)][-1] is AbortedBy.MAX_TOTAL_FAILURES


def test_a_success_resets_the_streak():
    breaker = Breaker(FailureLimits(in_a_row=2))
    assert [breaker.count(failed=failed) for failed in (True, False, True)] == [None, None, None]
    assert breaker.count(failed=True) is AbortedBy.MAX_FAILURES


@pytest.mark.parametrize("bad", [{"in_a_row": -1}, {"total": -1}, {"rate": 2.0}])
def test_senseless_limits_are_refused(bad):
    with pytest.raises(InvalidInput):
        FailureLimits(**bad)


def test_keys_and_identities():
    assert (unit_key(5), unit_key("5"), unit_key([1, "a"])) == ("5", '"5"', '[1,"a"]')
    for bad in (object(), "x" * 2000, "a\0b"):
        with pytest.raises(InvalidInput):
            unit_key(bad)
    assert identity("f", {"a": 1, "b": 2}, "s") == identity("f", {"b": 2, "a": 1}, "s")
    assert identity("f", {"a": 1}, "s") != identity("f", {"a": 2}, "s")
    assert source_of(range(5, 8)) == "range 5-7"


def test_a_function_without_a_key_is_refused(app):
    with pytest.raises(InvalidKind, match="has no parameter for the key"):

        @app.unit()
        def work(unit: Unit) -> None: ...

    with pytest.raises(InvalidKind, match="on_lost"):
        app.unit(on_lost="maybe")(lambda key: None)
    with pytest.raises(InvalidInput, match="jobs"):
        run(app, app.unit(name="x")(lambda key: None), [1], jobs=0)


# -- the loop form -----------------------------------------------------------------------------


def loop(app, keys, *, fail=(), stop_at=None, **options):
    """Run a loop of the caller. Returns the keys it did, and the session."""
    did = []
    with app.session("looped", {"replace": True}, output="none", **options) as run:
        for key in run.pending(keys):
            with run.unit(key) as unit:
                if key == stop_at:
                    run.stop()
                if key in fail:
                    raise ValueError(key)
                unit.done("seen")
                did.append(key)
    return did, run


def test_a_loop_becomes_resumable(app):
    """It skips finished units, runs failed ones again, and has an exit code."""
    did, run = loop(app, range(120), fail={7}, stop_at=60)
    assert (run.exit_code, run.summary.aborted_by, run.summary.failed) == (7, AbortedBy.SIGNAL, 1)
    more, run = loop(app, range(120))
    assert (run.exit_code, run.summary.succeeded, run.summary.labels) == (0, 120, {"seen": 120})
    assert sorted(did + more) == list(range(120))
    again, run = loop(app, range(120))
    assert len(again) == 120, "it ended clean: a new generation"


def test_the_breaker_of_a_loop(app):
    did, run = loop(app, range(120), fail=set(range(50, 120)), max_failures=5)
    assert (len(did), run.exit_code, run.summary.returned, run.summary.failed) == (50, 8, 5, 0)
    counted, rows = app.store.batches.counters(1), app.store.batches.recount(1)
    assert (counted.done, rows["done"], rows["pending"]) == (50, 50, 5)


def test_skips_and_other_outcomes_of_a_loop(app):
    with app.session("looped", output="none") as run:
        for key in run.pending(["a", "b", "c"]):
            with run.unit(key):
                if key == "a":
                    raise Skip("no")
                if key == "b":
                    raise Fatal("stop")
    assert (run.exit_code, run.summary.skipped, run.summary.aborted_by) == (8, 1, AbortedBy.FATAL)


def test_an_exception_that_leaves_a_loop_leaves_it_resumable(app):
    def broken():
        with app.session("looped", output="none") as run:
            for key in run.pending(range(3)):
                with run.unit(key):
                    raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken()
    (batch,) = app.store.batches.page().batches
    assert batch.state is BatchState.STOPPED
    assert app.store.batches.holders(batch.id) == []


def test_two_loops_of_one_identity_conflict(app):
    with app.session("looped", output="none") as run:
        with pytest.raises(holdfast.HoldfastError, match="held by another run"):
            app.session("looped", output="none")
        for key in run.pending([1]):
            with run.unit(key):
                pass
    assert run.exit_code == 0


def test_a_key_that_does_not_fit_fails_its_unit_alone(app):
    """A string where the function takes integers fails; the others run."""
    made = []

    @app.unit(max_failures=0)
    def work(key: int) -> None:
        made.append(key)

    result = run(app, work, [1, "two", [3], 4])
    assert (result.exit_code, made) == (6, [1, 4])
    errors = [unit.error for unit in app.store.batches.units(result.batch.id, state="failed")]
    assert all(error.startswith("the key does not fit the function") for error in errors)


def test_only_some_keys_are_run_and_the_others_left_alone(app):
    made = []

    @app.unit()
    def work(key: int) -> None:
        made.append(key)

    assert run(app, work, range(10), limit=3).exit_code == 0
    result = run(app, work, range(10), only=[7, "8"])
    assert (result.exit_code, made, result.batch.state) == (0, [0, 1, 2, 7, 8], BatchState.STOPPED)
    assert (result.summary.pending, result.summary.skipped, result.batch.generation) == (5, 0, 1)
    with pytest.raises(InvalidInput, match="11 is not among the keys"):
        run(app, work, range(10), only=[11])
    with pytest.raises(InvalidInput, match="no key is 11 or greater"):
        run(app, work, range(10), resume_from=11)
    assert run(app, work, range(10), only=[9], once=True).exit_code == 0
    assert run(app, work, range(10), only=[5, 9], dry_run=True).summary.pending == 1
    assert run(app, work, range(10)).summary.succeeded == 10
    assert run(app, work, range(10), once=True).exit_code == 13


@pytest.mark.parametrize("good", [0, 3, 60, 2000])
def test_keys_that_raise_stop_the_run(app, good):
    """D5: every key before the error runs; exit 8, with the user's line, and the next run continues."""
    made = []

    @app.unit()
    def work(key: int) -> None:
        made.append(key)

    def keys():
        yield from range(good)
        raise ConnectionError("503")

    result = run(app, work, keys())
    assert made == [*range(good)], "B1 is broken"
    assert (result.exit_code, result.summary.aborted_by) == (8, AbortedBy.INPUT)
    assert (result.summary.succeeded, result.summary.total, result.summary.pending) == (good, None, None)
    assert (type(result.error), result.error.code, result.error.retryable) == (InputFailed, "E_INPUT", True)
    after = f" after {good:,}" if good else ""
    assert str(result.error) == f"the keys could not be read{after}: ConnectionError: 503"
    assert f"See {__file__}, line" in result.error.hint
    assert isinstance(result.error.__cause__, ConnectionError)
    assert (result.batch.state, app.store.batches.holders(result.batch.id)) == (BatchState.STOPPED, [])
    assert run(app, work, range(good + 10), source="keys").exit_code == 0
    assert made == [*range(good + 10)]


def test_keys_that_raise_are_reported_with_the_summary(app, capsys):
    """D5: one JSON document on stdout, and no traceback."""

    @app.unit()
    def work(key: int) -> None:
        pass

    result = app.run(work, (key if key < 70 else 1 // 0 for key in range(100)), output="json")
    out, err = capsys.readouterr()
    answer = json.loads(out)
    error = answer["error"]
    assert (result.exit_code, error["code"], error["retryable"]) == (8, "E_INPUT", True)
    assert error["message"].startswith("the keys could not be read after 70: ZeroDivisionError")
    assert (answer["data"]["summary"]["succeeded"], "Traceback" in err) == (70, False)


@pytest.mark.parametrize("where", ["here", "workers"])
@pytest.mark.parametrize("keys", [None, 7, 1.5], ids=str)
def test_keys_that_cannot_be_looped_over_are_refused(app, keys, where):
    """D5: nothing runs, and no batch begins."""

    @app.unit()
    def work(key: int) -> None:
        pass

    with pytest.raises(InvalidInput, match="cannot be looped over"):
        run(app, work, keys, where=where)
    assert app.store.batches.page().batches == []


def test_keys_that_raise_before_a_run_are_errors_of_the_input(app):
    """D5: a dry run, a submission and a search for the first key read the keys before the run."""

    class Listing:
        def __iter__(self):
            yield from range(5)
            raise ConnectionError("503")

    @app.unit()
    def work(key: int) -> None:
        pass

    for options in ({"dry_run": True}, {"where": "workers"}, {"resume_from": 9}):
        with pytest.raises(InputFailed, match="after 5: ConnectionError: 503"):
            run(app, work, Listing(), **options)


def test_an_invalid_key_is_an_error_of_the_input(app):
    """The first key: nothing ran, so the call is invalid. A later one: the units before it are done."""

    @app.unit()
    def work(key: object) -> None:
        pass

    with pytest.raises(InvalidInput, match="not a valid key"):
        run(app, work, [object()])
    assert app.store.batches.page().batches == []
    result = run(app, work, [1, 2, object()])
    assert (result.exit_code, result.summary.succeeded, result.error.code) == (8, 2, "E_INPUT")
    assert "Keys are texts, numbers or lists." in result.error.hint


def test_a_fork_that_returns_from_its_unit_ends_there(app):
    """It shares the connections of the run, and must not use them."""

    @app.unit()
    def work(key: int) -> int:
        child = os.fork()
        return 0 if child == 0 else os.waitpid(child, 0)[1]

    result = run(app, work, range(3))
    assert [unit.data for unit in app.store.batches.units(result.batch.id)] == ["0", "0", "0"]


def test_a_unit_may_terminate_its_own_helper_process(app):
    """U1: the signal to the forked helper does not stop the run."""

    @app.unit()
    def work(key: int) -> int | None:
        helper = multiprocessing.get_context("fork").Process(target=threading.Event().wait, args=(5,))
        helper.start()
        helper.terminate()
        helper.join()
        return helper.exitcode

    result = run(app, work, range(3))
    assert result.exit_code == 0
    assert [unit.data for unit in app.store.batches.units(result.batch.id)] == ["-15", "-15", "-15"]


def test_arguments_fit_their_annotations(app):
    @app.unit()
    def work(key: int, *, speed: float = 1.0, day: date | None = None) -> None: ...

    with pytest.raises(InvalidInput, match="'speed' of 'work' does not fit"):
        work.bind(speed="fast")
    assert run(app, work.bind(day=date(2024, 1, 2)), [1]).exit_code == 0


def test_a_resumed_range_needs_few_lookups(app):
    """Finished keys are read once, and all other keys run."""
    made = []

    @app.unit()
    def work(key: int) -> None:
        made.append(key)

    keys = range(-10, 23_990, 2)
    assert run(app, work, keys, limit=6000, name="a").exit_code == 0
    assert run(app, work, keys, name="a").summary.succeeded == len(keys)
    assert made == [*keys]


def test_a_default_is_the_same_argument(app):
    """U5: an argument left out and its default given are one batch; a default that is no JSON is left out."""
    made = []

    @app.unit(operational=["speed"])
    def work(key: int, *, replace: bool = False, speed: int = 1, client: object = threading) -> None:
        made.append(key)

    first = run(app, work.bind(), range(3), limit=1)
    again = run(app, work.bind(replace=False, speed=2), range(3))
    assert (first.batch.id, again.batch.id) == (1, 1), "U5 is broken"
    assert made == [0, 1, 2]
    assert run(app, work.bind(replace=True), range(3)).batch.id == 2


@pytest.mark.one_backend
def test_quick_units_print_progress_once_a_second(app, capsys):
    """D16: a log is not filled; an explicit number of units is obeyed."""

    @app.unit()
    def work(key: int) -> None:
        pass

    began = time.monotonic()
    app.run(work, range(5000), output="text")
    assert capsys.readouterr().err.count(" units, ") <= time.monotonic() - began
    app.run(work, range(300), output="text", progress_every=50)
    assert capsys.readouterr().err.count(" units, ") >= 5


def test_progress_counts_the_whole_ledger(app, capsys):
    """U6: after a resume it begins where the ledger is, and failed units that run again count once."""

    @app.unit(max_failures=0)
    def work(key: int, *, bad: int = 0) -> None:
        if key < 3 and not fixed:
            raise ValueError(key)

    fixed = []
    app.run(work, range(20), limit=11, output="none")
    fixed.append(True)
    app.run(work, range(20), output="text", progress_every=1)
    lines = [line for line in capsys.readouterr().err.splitlines() if " of 20 units" in line]
    counts = [int(line.split()[0]) for line in lines]
    assert min(counts) > 8, "U6 is broken"
    assert (counts[-1], counts) == (20, sorted(set(counts)))


@pytest.mark.parametrize(
    ("options", "left_by", "text"),
    [
        ({"limit": 2}, "limit", "the limit left units"),
        ({"only": [1]}, "only", "--only did not name"),
        ({"resume_from": 8}, "resume_from", "before --resume-from"),
    ],
)
def test_units_left_on_purpose_are_told(app, capsys, options, left_by, text):
    """U9: exit 0 with pending units says why, in the summary and in words; the last run says nothing."""

    @app.unit()
    def work(key: int) -> None:
        pass

    result = app.run(work, range(10), output="text", **options)
    assert (result.exit_code, result.summary.left_by) == (0, left_by), "U9 is broken"
    assert result.summary.pending > 0
    assert text in capsys.readouterr().out
    rest = run(app, work, range(10))
    assert (rest.summary.left_by, rest.summary.pending, rest.batch.state) == (None, 0, BatchState.DONE)


#: Inputs of 150 keys, and whether the number of their keys is known before they are read.
INPUTS = {
    "range": (lambda: range(150), True),
    "list": (lambda: [*range(150)], True),
    "iterator": (lambda: iter(range(150)), False),
    "set": (lambda: set(range(150)), True),
}
STOPS = {
    "limit": ({"limit": 40}, (0, "limit", "limit")),
    "all of it": ({"limit": 200}, (0, None, None)),
    "only": ({"only": [7]}, (0, "only", None)),
    "resume_from": ({"resume_from": 120}, (0, "resume_from", None)),
    "breaker": ({"max_failures": 1}, (8, None, "max_failures")),
}


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("name", INPUTS)
def test_an_input_that_was_not_read_to_its_end_has_no_total(app, name, stop):
    """D4: no stop makes the keys that were read all keys there are."""
    keys, is_sized = INPUTS[name]
    options, expected = STOPS[stop]

    @app.unit()
    def work(key: int) -> None:
        if stop == "breaker" and key == 40:
            raise ValueError(key)

    result = run(app, work, keys(), source="keys", **options)
    summary = result.summary
    assert (result.exit_code, summary.left_by, summary.aborted_by) == expected, "U9 is broken"
    if is_sized or stop == "all of it":
        assert (summary.total, summary.pending) == (150, 150 - summary.over)
    else:
        assert (summary.total, summary.pending) == (None, None), "U9 is broken"
    shown = BatchReader(app.store, result.batch.id).view.summary
    assert (shown.total, shown.pending) == (summary.total, summary.pending)
    rest = run(app, work, keys(), source="keys", max_failures=0)
    assert (rest.summary.total, rest.summary.left_by) == (150, None)


def test_an_input_that_grew_has_no_total(app):
    """D4: the total of the shorter input that an earlier run has read is not that of the longer one."""

    @app.unit(max_failures=0)
    def work(key: int) -> None:
        assert key != 7

    assert run(app, work, iter(range(50))).summary.total == 50
    again = run(app, work, iter(range(50)), limit=1).summary
    assert (again.total, again.left_by) == (50, None)
    grown = run(app, work, iter(range(300)), limit=40).summary
    assert (grown.total, grown.pending, grown.left_by) == (None, None, "limit"), "U9 is broken"
    assert run(app, work, iter(range(300))).summary.total == 300


@pytest.mark.parametrize("count", [3, 50, 120])
def test_a_loop_that_is_left_is_not_done(app, count):
    """U9: a break leaves the batch resumable, also where the keys that were read are all done."""
    did = []
    for stop_after in (count, 200):
        with app.session("left", output="none") as session:
            for key in session.pending(iter(range(150))):
                with session.unit(key):
                    did.append(key)
                if len(did) == stop_after:
                    break
        if stop_after == count:
            assert (session.exit_code, session.summary.left_by) == (0, "break"), "U9 is broken"
            assert app.store.batches.get(BatchId(1)).state is BatchState.STOPPED
    assert (did, session.summary.left_by) == ([*range(150)], None)
    assert app.store.batches.get(BatchId(1)).state is BatchState.DONE


def test_one_that_joins_says_that_others_work_on_the_rest(app, capsys):
    """U9: it found nothing to do, and the pending units are in hand elsewhere."""
    begun, go = threading.Event(), threading.Event()

    @app.unit()
    def work(key: int) -> None:
        begun.set()
        go.wait(60)

    first = threading.Thread(target=lambda: run(app, work, range(5)))
    first.start()
    assert begun.wait(60)
    joined = app.run(work, range(5), allow_concurrent=True, output="text")
    go.set()
    first.join()
    assert (joined.exit_code, joined.summary.left_by, joined.summary.pending) == (0, "others", 5), "U9 is broken"
    assert "other runs still work on the pending units" in capsys.readouterr().out


@pytest.mark.parametrize("make", [lambda *keys: list(keys), lambda *keys: iter(keys), lambda *keys: range(len(keys))])
def test_a_failed_key_that_is_gone_is_given_up_with_consent_only(app, make, capsys):
    """U9: it keeps exit 6 until a person accepts it; a failed key that is still there always does."""

    @app.unit(max_failures=0)
    def work(key: int) -> None:
        if key in (0, 3):
            raise ValueError(key)

    assert run(app, work, make(0, 1, 2, 3), name="some").exit_code == 6
    result = app.run(work, make(0, 1, 2), name="some", output="json")
    assert (result.exit_code, result.summary.failed, result.summary.skipped) == (6, 2, 0), "U9 is broken"
    note = json.loads(capsys.readouterr().out)["data"]["note"]
    assert note == "1 failed unit is not in this input; to give up what is not there, add --accept-drift"
    result = run(app, work, make(0, 1, 2), name="some", accept_drift=True)
    assert (result.exit_code, result.summary.failed, result.summary.skipped) == (6, 1, 1), "U9 is broken"
    assert app.store.batches.recount(result.batch.id) == {"done": 2, "failed": 1, "skipped": 1}
    assert run(app, work, [1, 2], name="some", accept_drift=True).exit_code == 0


def test_units_that_ran_again_are_not_returned_any_more(app):
    """U9: what a breaker released is not in the summary of the clean run after it."""
    fixed = []

    @app.unit(max_failures=2)
    def work(key: int) -> None:
        if not fixed:
            raise ValueError(key)

    assert run(app, work, range(4)).summary.returned == 2
    fixed.append(True)
    assert run(app, work, range(4)).summary.returned == 0, "U9 is broken"


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), [1.0, float("-inf")]])
def test_a_key_that_is_no_number_is_refused(app, bad):
    """U9: NaN and infinity would be one key."""

    @app.unit()
    def work(key: object) -> None:
        pass

    with pytest.raises(holdfast.HoldfastError, match="the key cannot be stored"):
        run(app, work, [bad])


@pytest.mark.parametrize(
    ("keys", "first", "expected"),
    [
        (range(0, 20, 2), 7, [8, 10, 12, 14, 16, 18]),
        (range(20, 10, -1), 12, [12, 11]),
        ([10, 3, 5, 7], 5, [5, 7]),
        ([1, 3, 5, 7], "4", [5, 7]),
        (range(5), -3, [0, 1, 2, 3, 4]),
    ],
    ids=["a gap", "backwards", "not sorted", "text", "before the first"],
)
def test_a_run_resumes_from_any_key(app, keys, first, expected):
    """E3: the key itself or, if the input lacks it, the first greater one in input order."""
    made = []

    @app.unit()
    def work(key: int) -> None:
        made.append(key)

    assert run(app, work, keys, resume_from=first, dry_run=True).summary.pending == len(expected)
    assert run(app, work, keys, resume_from=first).exit_code == 0
    assert made == expected
    made.clear()
    assert run(app, work, iter([2, 4, 6]), resume_from=3, name="read once").exit_code == 0
    assert made == [4, 6]
    made.clear()

    @app.unit()
    def plain(key):  # no annotation says that its keys are integers
        made.append(key)

    assert run(app, plain, range(1, 9), resume_from="7").exit_code == 0
    assert made == [7, 8]


def test_resume_from_overrules_the_ledger(app):
    """E3, B3: finished units from the key on run again, those before it do not; the counters equal a recount."""
    made, failing = [], {8}

    @app.unit()
    def work(key: int, unit: Unit) -> None:
        made.append(key)
        if key in failing:
            raise ValueError("no")
        if key == 5:
            raise Skip("no need")
        unit.warn("odd")
        unit.done("even" if key % 2 == 0 else "odd")

    keys = range(1, 10)
    assert run(app, work, keys).exit_code == 6
    made.clear()
    failing.clear()
    planned = run(app, work, keys, resume_from=4, dry_run=True)
    result = run(app, work, keys, resume_from=4)
    assert (made, planned.summary.pending, result.exit_code) == ([*range(4, 10)], 6, 0)
    counters = app.store.batches.counters(result.batch.id)
    assert app.store.batches.recount(result.batch.id) == {"done": 8, "skipped": 1}
    assert (counters.done, counters.skipped, counters.failed, counters.warned) == (8, 1, 0, 8)
    assert counters.labels == {"even": 4, "odd": 4}


@pytest.mark.parametrize(("checkpoint", "most"), [("each", 1), (7, 7), ("7", 7), (None, 50)])
def test_the_ledger_is_written_at_the_checkpoint(app, checkpoint, most):
    """E9.3: no more outcomes wait than the option says."""
    waiting = []

    @app.unit()
    def work(key: int) -> None:
        counters = app.store.batches.counters(BatchId(1))
        waiting.append(key - counters.done)

    assert run(app, work, range(60), checkpoint=checkpoint).exit_code == 0
    assert max(waiting) < most


@pytest.mark.parametrize("output", ["json", "ndjson"])
def test_progress_is_printed_beside_json(app, output, capsys):
    """E3: on stderr, and only on request. E9.3: the counts of NDJSON are at ._meta.summary."""
    work = app.unit(name="work")(lambda key: None)
    assert app.run(work, range(4), output=output, progress_every=2, checkpoint=2, name="shown").exit_code == 0
    captured = capsys.readouterr()
    assert "2 of 4 units" in captured.err
    assert "4 of 4 units" in captured.err
    last = json.loads(captured.out.splitlines()[-1])
    assert (last["data"] if output == "json" else last["_meta"])["summary"]["succeeded"] == 4
    app.run(work, range(40), output=output, name="silent")
    assert "units" not in capsys.readouterr().err


def test_the_message_of_an_abort_names_the_last_key(app, capsys):
    """E3, E9.3: in words, and as last_key for programs."""

    @app.unit()
    def work(key: int) -> None:
        if key > 53:
            raise ValueError("no")

    assert app.run(work, range(50, 90), max_failures=3, output="json").exit_code == 8
    document = json.loads(capsys.readouterr().out)
    assert "the last finished unit is 53" in document["error"]["message"]
    assert document["data"]["last_key"] == 53

"""The engine of runs: order and breaker, deadlines, kept failures, own transactions; in this process and in sessions."""

from __future__ import annotations

import json
import os
import random
import signal
import threading

import pytest

import holdfast
from holdfast import Fatal, Unit
from holdfast.domain.batches.batch import AbortedBy, BatchState, FailureLimits
from holdfast.domain.batches.breaker import Breaker, failure_groups
from holdfast.domain.batches.unit import UnitState
from holdfast.errors import InputFailed, InvalidInput, InvalidKind
from holdfast.store.batches.batches import Batches
from holdfast.worker.batches.unit_runner import UnitTimeouts
from tests.client.batches.test_local import run


@pytest.fixture
def app(real_database):
    with holdfast.Holdfast(real_database.url) as app:
        yield app


def units_of(app, result):
    return {json.loads(unit.key): unit for unit in app.store.batches.units(result.batch.id)}


def recount(app, batch_id):
    """The counters are those of a recount, and none is negative."""
    counters, rows = app.store.batches.counters(batch_id), app.store.batches.recount(batch_id)
    for state in ("done", "failed", "skipped", "cancelled", "in_doubt"):
        assert getattr(counters, state) == rows.get(state, 0), state
    return counters


def test_scattered_permanent_failures_do_not_keep_a_batch_from_its_end(app):
    """U2: on resume untouched units come first, and units that failed before do not trip the breaker."""
    seen = []

    @app.unit()
    def work(key: int) -> None:
        seen.append(key)
        if key % 10 == 5:
            raise ValueError("unreadable for ever")

    assert run(app, work, range(100), limit=60).exit_code == 6
    seen.clear()
    result = run(app, work, range(100))
    assert (result.exit_code, result.summary.succeeded, result.summary.failed) == (6, 90, 10), "U2 is broken"
    assert seen == [*range(60, 100), 5, 15, 25, 35, 45, 55]
    assert run(app, work, range(100)).exit_code == 6


@pytest.mark.parametrize("keys", [range(40), [*range(40)]])
def test_a_bad_start_does_not_keep_the_rest_from_running(app, keys):
    """U2: units that the breaker returned come after those that no run has begun."""

    @app.unit(max_failures=3)
    def work(key: int) -> None:
        if key < 6:
            raise ValueError(key)

    results = [run(app, work, keys) for _ in range(3)]
    assert [result.exit_code for result in results] == [8, 8, 6]
    assert (results[-1].summary.succeeded, results[-1].summary.failed) == (34, 6)
    recount(app, results[-1].batch.id)


def test_an_interrupted_unit_does_not_keep_the_rest_from_running(app):
    """U2: a unit that takes longer than a run may comes after those that no run has begun."""
    begun = []

    @app.unit()
    def work(key: int, unit: Unit) -> None:
        begun.append(key)
        os.kill(os.getpid(), signal.SIGTERM)
        unit.sleep(60)

    for _ in range(4):
        assert run(app, work, range(4)).exit_code == 7
    assert begun == [0, 1, 2, 3], "U2 is broken: an interrupted unit came first"


def test_units_that_failed_before_count_for_the_breaker_after_one_of_them_succeeded():
    """U2: until then a success could not have reset the counter."""
    breaker = Breaker(FailureLimits(in_a_row=2))
    assert [breaker.count(failed=True, retried=True) for _ in range(9)] == [None] * 9
    assert breaker.count(failed=False, retried=True) is None
    assert breaker.count(failed=True, retried=True) is None
    assert breaker.count(failed=True, retried=True) is AbortedBy.MAX_FAILURES


@pytest.mark.parametrize(("limits", "exit_code"), [({"max_failures": 2}, 6), ({"max_failure_rate": 0.4}, 8)])
def test_successes_between_failures_count(app, limits, exit_code):
    """They end a row of failures, and count for the rate."""

    @app.unit(max_failures=0)
    def work(key: int) -> None:
        if key % 2 or key > 40:
            raise ValueError(key)

    result = run(app, work, range(40), **limits)
    assert result.exit_code == exit_code
    recount(app, result.batch.id)


def test_a_streak_that_is_longer_than_a_flush_is_returned(app):
    """The ledger has its first failures already; a new batch over a range takes every key for a new one."""

    @app.unit(max_failures=60)
    def work(key: int) -> None:
        raise ValueError(key)

    result = run(app, work, range(200))
    assert (result.exit_code, result.summary.failed, result.summary.returned) == (8, 0, 60)
    assert recount(app, result.batch.id).failed == 0
    assert app.store.batches.recount(result.batch.id) == {"pending": 60}


class Killed(BaseException):
    """The process is gone: nothing that comes after this happens."""


def kill_at(flush, luck, chance):
    """A flush at which the process may die; it never writes again then."""
    dead = []

    def flush_or_die(*args, **options):
        if dead or luck.random() < chance:
            dead.append(1)
            raise Killed
        return flush(*args, **options)

    return flush_or_die


def bury(app):
    """Return the units of a run whose process is gone."""
    sqlite = app.store.backend.name == "sqlite"
    table, past = ("holdfast_live", "0") if sqlite else ("holdfast.live", "'2000-01-01'")
    with app.store.backend.transaction() as connection:
        connection.execute(f"UPDATE {table} SET lease_expires_at = {past}")
    app.store.leases.take_over()


@pytest.mark.parametrize("seed", range(4))
def test_repeating_a_command_reaches_every_unit(app, seed):
    """I19: whatever the failures, breakers, limits and kills, a run begins a unit that none has begun, if there is one."""
    luck = random.Random(seed)
    size = luck.randrange(5, 20)
    bad = {key for key in range(size) if luck.random() < luck.choice([0.1, 0.5, 1.0])}
    began: set[int] = set()

    @app.unit(max_failures=luck.randrange(1, 6))
    def work(key: int) -> None:
        began.add(key)
        if key in bad or luck.random() < 0.1:
            raise ValueError(key)

    def untouched() -> int:
        return size - sum(
            sum(app.store.batches.recount(batch.id).values()) for batch in app.store.batches.page().batches
        )

    flush = Batches.flush
    for _ in range(10 * size):
        before = untouched()
        if len(began) == size:
            break
        options = {"limit": luck.randrange(1, 9)} if luck.random() < 0.4 else {}
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Batches, "flush", kill_at(flush, luck, luck.choice([0.0, 0.0, 0.5])))
                run(app, work, range(size), jobs=luck.choice([1, 3]), name="work", **options)
        except Killed:
            bury(app)
        else:
            assert untouched() < before or not before, "I19 is broken: the run began no unit that none had begun"
        for batch in app.store.batches.page().batches:
            recount(app, batch.id)
    assert len(began) == size, "I19 is broken: not every unit was reached"


# -- deadlines -----------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", ["here", "workers"])
def test_the_tail_of_a_batch_does_not_spin(app, monkeypatch, executor):
    """K70: while the last unit runs, the ledger is written about once a second."""
    flushes, real = [], Batches.flush
    go = threading.Event()

    def flush(batches, *args, **options):
        flushes.append(1)
        if len(flushes) > 100:
            go.set()
        return real(batches, *args, **options)

    monkeypatch.setattr(Batches, "flush", flush)

    @app.unit()
    def work(key: int) -> None:
        if key == 19:
            go.wait(1.5)

    with app.worker(slots=3, poll=0.1, heartbeat=0.5):
        assert run(app, work, range(20), where=executor).exit_code == 0
    assert len(flushes) < 60, "K70 is broken: the ledger is written all the time"


@pytest.mark.parametrize("where", ["here", "workers"])
def test_a_unit_times_out_wherever_it_runs(app, where):
    """K70: also the last unit of a batch on workers, and before the next flush is due."""
    took = []

    @app.unit(timeout=0.1, max_failures=0)
    def work(key: int, unit: Unit) -> None:
        if key == 3:
            took.append(unit.stopping.wait(30))
            unit.check()

    with app.worker(slots=3, poll=0.1, heartbeat=0.5):
        result = run(app, work, range(4), where=where)
    assert (result.exit_code, took) == (6, [True]), "K70 is broken: the unit did not time out"
    assert units_of(app, result)[3].error.startswith("TimeoutError: it took longer than its timeout of 0.1 s")


def test_a_unit_that_is_due_first_wakes_the_driver():
    """K70: the driver may already wait for a later deadline."""
    woken, timeouts = [], UnitTimeouts(5.0)
    timeouts.wake = lambda: woken.append(1)
    timeouts.check()
    for unit in ("a", "b"):
        timeouts.begin(unit)
    assert woken == [1]


# -- a fresh state per try, coroutines, generators -------------------------------------------------


def test_a_failed_try_leaves_nothing_to_the_next(app):
    """K74: neither label, data, warning nor a result for an inbox."""

    @app.unit(retries=1, retry=["0s"])
    def work(key: int, unit: Unit) -> None:
        if unit.attempt == 1:
            unit.done("first", data={"half": True})
            unit.warn("odd")
            unit.hand_over({"from": "the first try"})
            raise ValueError

    result = run(app, work, [1])
    unit = units_of(app, result)[1]
    assert (unit.state, unit.label, unit.data, unit.warning) == (UnitState.DONE, None, None, None), "K74 is broken"
    assert app.inbox("work").take() == []


def test_coroutines_run(app):
    """U3: with their return value, their error, sys.exit, and their timeout, here and on workers."""

    @app.unit(timeout=0.2, max_failures=0)
    async def work(key: int) -> int:
        import asyncio

        await asyncio.sleep(30 if key == 3 else 0)
        if key == 2:
            raise ValueError("bad")
        if key == 1:
            raise SystemExit(4)
        return key * 2

    for options in ({}, {"where": "workers", "fresh": True}):
        with app.worker(slots=3, poll=0.1, heartbeat=0.5):
            result = run(app, work, range(5), **options)
        units = units_of(app, result)
        assert (result.exit_code, units[0].data, units[4].data) == (6, "0", "8"), "U3 is broken"
        errors = [units[key].error.partition("\n")[0] for key in (1, 2, 3)]
        assert errors == ["SystemExit: 4", "ValueError: bad", "TimeoutError: it took longer than its timeout of 0.2 s"]


def test_generators_are_refused(app):
    """U3: they would be done without running a line."""

    def plain(key):
        yield key

    async def asynchronous(key):
        yield key

    for function in (plain, asynchronous):
        with pytest.raises(InvalidKind, match="generator"):
            app.unit()(function)


@pytest.mark.parametrize("executor", ["thread with a unit", "thread"])
def test_a_decorator_that_hides_a_coroutine_is_no_success(app, executor):
    """U3: its wrapper is a plain function, which returns a coroutine or a generator; nothing of it would run."""

    async def asynchronous(key):
        raise AssertionError

    def plain(key):
        yield key

    if executor == "thread":

        def work(key: int) -> object:
            return (asynchronous, plain)[key](key)
    else:

        def work(key: int, unit: holdfast.Unit) -> object:
            return (asynchronous, plain)[key](key)

    result = run(app, app.unit(max_failures=0)(work), range(2))
    errors = [unit.error.partition("\n")[0] for unit in units_of(app, result).values()]
    returned = ["TypeError: the function returned a coroutine", "TypeError: the function returned a generator"]
    assert [error.partition(",")[0] for error in errors] == returned, "U3 is broken"


# -- sessions ----------------------------------------------------------------------------------------


def test_a_key_that_the_loop_does_not_enter_comes_once_and_stays_pending(app):
    """U4."""
    seen = []
    with app.session("loop", output="none") as session:
        for key in session.pending(range(120)):
            seen.append(key)
            assert len(seen) <= 120, "U4 is broken: a key came again"
            if key % 2:
                continue
            with session.unit(key):
                pass
    assert seen == [*range(120)]
    assert (session.summary.total, session.summary.succeeded, session.summary.pending) == (120, 60, 60)
    (batch,) = app.store.batches.page().batches
    assert batch.state is BatchState.STOPPED
    with app.session("loop", output="none") as session:
        for key in session.pending(range(120)):
            with session.unit(key):
                assert key % 2
    assert (session.exit_code, session.summary.succeeded) == (0, 120)


def test_a_unit_of_a_loop_begins_once_and_in_its_turn(app):
    """U4: other keys are refused with a clear error."""
    with app.session("loop", output="none") as session:
        for key in session.pending([1, 2]):
            with session.unit(key):
                pass
            with pytest.raises(InvalidInput, match="not the key"), session.unit(key):
                pass
        with pytest.raises(InvalidInput, match="not the key"), session.unit(7):
            pass
    assert session.summary.succeeded == 2


def listing():
    yield from range(3)
    raise ConnectionError("503")


def plain(session, key):
    with session.unit(key):
        pass


def loop_over(app, keys, body=plain, *, output="none"):
    session = app.session("loop", output=output)
    with session:
        for key in session.pending(keys):
            body(session, key)
    return session


def once_too_often(session, key):
    plain(session, key)
    plain(session, key)


def between_units(session, key):
    plain(session, key)
    raise ValueError("my own mistake")


@pytest.mark.parametrize(
    ("keys", "body", "raised", "code", "text"),
    [
        (lambda: [1, 2], once_too_often, 2, "E_INVALID", "1 is not the key that the loop is at"),
        (
            lambda: [1, 2],
            between_units,
            ValueError,
            "E_MAX_FAILURES",
            "the loop was left by ValueError: my own mistake (",
        ),
        (listing, plain, 8, "E_INPUT", "the keys could not be read after 3: ConnectionError: 503"),
        (lambda: None, plain, 2, "E_INVALID", "the keys are None, which cannot be looped over"),
        (lambda: [object()], plain, 2, "E_INVALID", "is not a valid key of a unit"),
    ],
    ids=["unit twice", "error between units", "keys that raise", "no keys", "invalid key"],
)
def test_an_error_of_the_loop_is_reported(app, capsys, keys, body, raised, code, text):
    """D17: an error of Holdfast ends the program with one document and its exit code; others propagate."""
    with pytest.raises(SystemExit if isinstance(raised, int) else raised) as left:
        loop_over(app, keys(), body, output="json")
    answer = json.loads(capsys.readouterr().out)
    assert (answer["error"]["code"], getattr(left.value, "code", raised)) == (code, raised)
    assert text in answer["error"]["message"]
    assert answer["data"]["summary"]["succeeded"] == (3 if code == "E_INPUT" else int(body is not plain))
    assert answer["error"]["retryable"] is (code != "E_INVALID")
    (batch,) = app.store.batches.page().batches
    assert (batch.state, app.store.batches.holders(batch.id)) == (BatchState.STOPPED, [])


def test_an_error_of_the_loop_is_raised_where_nothing_is_printed(app):
    """D17: the caller of a silent session handles it."""
    with pytest.raises(InputFailed, match="after 3: ConnectionError"):
        loop_over(app, listing())
    (batch,) = app.store.batches.page().batches
    assert (batch.aborted_by, batch.total) == (AbortedBy.INPUT, None)


def test_a_loop_retries_failed_units_last(app):
    """U2 in sessions; the deadline and the limit hold there too."""

    def loop(**options):
        seen = []
        with app.session("loop", output="none", **options) as session:
            for key in session.pending(range(20)):
                with session.unit(key):
                    seen.append(key)
                    if key % 4 == 0:
                        raise ValueError(key)
        return seen, session

    seen, session = loop(limit=12)
    assert (seen, session.exit_code) == ([*range(12)], 6)
    seen, session = loop()
    assert (seen, session.exit_code) == ([*range(12, 20), 0, 4, 8], 6)


# -- why it stopped ------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["here", "workers"])
def test_exit_8_says_why(app, capfd, where):
    """U7: the errors of the streak, grouped, are printed in every format and kept with the batch and its units."""

    @app.unit(max_failures=3)
    def work(key: int) -> None:
        raise ValueError(f"no row {key} in the table")

    for output in ("text", "json", "ndjson"):
        with app.worker(slots=1, poll=0.1, heartbeat=0.5):
            result = (
                app.run(work, range(9), where=where, name=output, output=output, shards=1)
                if where == "workers"
                else app.run(work, range(9), name=output, output=output)
            )
        assert result.exit_code == 8
        printed = "".join(capfd.readouterr())
        assert "3 times ValueError: no row 2 in the table (unit 2)" in printed, f"U7 is broken: {output}"
        (group,) = failure_groups(app.store.batches.get(result.batch.id))
        assert (group.count, group.key) == (3, "2")
        units = units_of(app, result)
        returned = [units[key] for key in range(3)]
        assert all(unit.state is UnitState.PENDING and "ValueError: no row" in unit.error for unit in returned)


@pytest.mark.parametrize("form", ["here", "workers", "session"])
def test_the_text_of_fatal_is_shown_and_kept(app, capfd, form):
    """U7: exit 8 says which error it was."""

    @app.unit()
    def work(key: int) -> None:
        raise Fatal("the disk is gone")

    if form == "session":
        with app.session("loop", output="json") as session:
            for key in session.pending(range(3)):
                with session.unit(key):
                    raise Fatal("the disk is gone")
        batch_id, code = app.store.batches.page().batches[0].id, session.exit_code
    else:
        with app.worker(slots=1, poll=0.1, heartbeat=0.5):
            result = app.run(work, range(9), where=form, output="json", **({"shards": 1} if form == "workers" else {}))
        batch_id, code = result.batch.id, result.exit_code
    assert code == 8
    assert "the disk is gone" in capfd.readouterr().out
    assert "the disk is gone" in failure_groups(app.store.batches.get(batch_id))[0].error


def test_a_new_run_forgets_why_the_last_one_stopped(app):
    """U7."""

    @app.unit(max_failures=1)
    def work(key: int) -> None:
        if not app.store.batches.get(1).run_number > 1:
            raise ValueError

    assert run(app, work, [1]).batch.failures is not None
    assert run(app, work, [1]).batch.failures is None

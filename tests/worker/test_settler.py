"""The settler when writes fail: no outcome is dropped, and none holds up the others."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast import State
from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.kind_options import KindOptions
from holdfast.domain.jobs.verdict import Done, Failed
from holdfast.errors import InvalidInput, StoreUnavailable
from holdfast.store.jobs.settlement import Settlement, SettleResult, lease_key
from holdfast.worker import settler as module
from holdfast.worker.active_runs import ActiveRuns, Run
from holdfast.worker.settler import Settler
from tests.support.jobs import put, state, take

MINUTE = timedelta(minutes=1)


@pytest.fixture
def settler(store, monkeypatch):
    monkeypatch.setattr(module, "BATCH_WINDOW_S", 0.0)
    monkeypatch.setattr(module, "LOCKED_RETRY_S", 0.0)
    return Settler(store, ActiveRuns(), settled=lambda written, lost: None)


@pytest.fixture
def leases(store):
    ids = [put(store) for _ in range(3)]
    return sorted(take(store, 3), key=lambda lease: ids.index(lease.job_id))


def settle_until_empty(settler):
    for _ in range(10):
        if len(settler):
            settler.tick()
    assert not len(settler), "S6 is broken: outcomes wait for ever"


def all_done(store, leases):
    states = {state(store, lease.job_id) for lease in leases}
    assert states <= {State.DONE}, "S6 is broken: an outcome was dropped"


def test_an_outage_drops_no_outcome_of_a_locked_job(store, settler, leases, monkeypatch):
    """S6: neither when the release of others fails first, nor when there are more groups than one."""
    monkeypatch.setattr(module, "MAX_GROUP", 1)
    write, release, away = store.leases.settle_many, store.leases.release, []
    keys = {lease_key(lease) for lease in leases}
    monkeypatch.setattr(store.leases, "settle_many", lambda group, wait=True: SettleResult(set(), keys))
    for lease in leases:
        settler.put(Settlement(lease, Done()))
        settler.tick()

    def fail(*_, **__):
        away.append(1)
        raise StoreUnavailable("no answer")

    settler._locked_unbegun = leases[:1]
    for name in ("release", "settle_many"):
        monkeypatch.setattr(store.leases, name, fail)
    for failures in (1, 2):
        with pytest.raises(StoreUnavailable):
            settler.tick()
        monkeypatch.setattr(store.leases, "release", lambda group, wait=True: release([], wait=wait))
        assert len(away) == failures
    monkeypatch.setattr(store.leases, "settle_many", write)
    settle_until_empty(settler)
    all_done(store, leases)


def test_an_outage_drops_no_outcome_beside_one_that_is_refused(store, settler, leases, monkeypatch):
    """S6: the first outcome is refused, and the store goes away between the single writes."""
    write, calls = store.leases.settle_many, []

    def fail(group, *, wait=True):
        calls.append(len(group))
        if len(calls) in (3, 5):
            raise StoreUnavailable("no answer")
        if any(isinstance(each.outcome, Done) and each.outcome.result == "1" for each in group):
            raise InvalidInput("refused")
        return write(group, wait=wait)

    monkeypatch.setattr(store.leases, "settle_many", fail)
    for result, lease in zip(["1", "2", "3"], leases, strict=True):
        settler.put(Settlement(lease, Done(result)))
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            settler.tick()
    settle_until_empty(settler)
    all_done(store, leases[1:])
    assert state(store, leases[0].job_id) is not State.RUNNING, "S6 is broken: an outcome was dropped"


@pytest.mark.parametrize("bad", [1, 3])
def test_an_outcome_that_cannot_be_written_holds_up_no_other(store, settler, leases, monkeypatch, bad):
    """S6: it is tried again later. If none of them can be written, they are not all tried one by one each time."""
    write, broken, calls = store.leases.settle_many, {lease.job_id for lease in leases[:bad]}, []

    def fail(group, *, wait=True):
        calls.append(len(group))
        if broken & {each.lease.job_id for each in group}:
            raise ValueError("a bug")
        return write(group, wait=wait)

    monkeypatch.setattr(store.leases, "settle_many", fail)
    for lease in leases:
        settler.put(Settlement(lease, Done()))
    settler.tick()
    all_done(store, leases[bad:])
    assert len(settler) == bad
    broken.clear()
    settle_until_empty(settler)
    all_done(store, leases)
    assert len(calls) <= 12


def test_an_unreadable_retry_curve_holds_up_nothing(store, settler, leases):
    """S6: a row that a user's SQL has spoiled is retried by the default curve, and taken over as well."""
    statement = 'UPDATE {} SET retry = \'{{"base": "soon"}}\''
    with store.backend.transaction() as connection:
        connection.execute(statement.format("holdfast.job" if store.backend.name == "postgres" else "holdfast_job"))
    for lease in leases:
        settler.put(Settlement(lease, Failed(error="no")))
    settle_until_empty(settler)
    assert {state(store, lease.job_id) for lease in leases} == {State.SCHEDULED}


def test_large_results_are_written_in_several_groups(store, settler):
    """K34: a statement that is too large for its time limit would be sent again and again."""
    for _ in range(20):
        put(store)
    leases = take(store, 20)
    for lease in leases:
        settler.put(Settlement(lease, Done(f'"{"x" * 250_000}"')))
    groups = [settler.tick().processed for _ in range(2)]
    assert (sum(groups), max(groups) < 20, len(settler)) == (20, True, 0), "K34 is broken: one group of 5 MB"
    all_done(store, leases)


def test_a_group_is_written_as_soon_as_no_other_run_can_join_it(store, leases, monkeypatch):
    """K62: with few active runs, the settler waits for those that still run, and not for the time to pass."""
    waits, active_runs = [], ActiveRuns()
    runs = [Run(lease, Kind("mail", _mail, KindOptions()), renewed_at=0.0, lease_duration=MINUTE) for lease in leases]
    active_runs.add(runs)
    settler = Settler(store, active_runs, settled=lambda written, lost: None)

    def join(seconds: float) -> None:
        waits.append(seconds)
        settler.put(Settlement(leases[len(waits)], Done()))

    monkeypatch.setattr(settler.wake, "wait", join)
    monkeypatch.setattr(module, "BATCH_WINDOW_S", 60.0)
    settler.put(Settlement(leases[0], Done()))
    settler.tick()
    assert (len(waits), len(settler), len(active_runs)) == (2, 0, 0)
    all_done(store, leases)


def test_a_settlement_is_left_for_the_next_start(store, leases):
    """It counts as unwritten, and wakes nobody. Without a start, :meth:`write_joining` or a flush writes it."""
    settler = Settler(store, ActiveRuns(), settled=lambda written, lost: None)
    settlements = [Settlement(lease, Done()) for lease in leases]
    for settlement in settlements:
        settler.put(settlement, joins=True)
    assert (len(settler), settler.wake.is_set()) == (3, False)
    assert settler.take_joining() is settlements[0]
    settler.put(settlements[0])  # the start failed
    settler.wake.clear()
    settler.write_joining()
    assert settler.wake.is_set()
    settler.tick()
    assert (len(settler), settler.take_joining()) == (0, None)
    all_done(store, leases)


def _mail() -> None: ...

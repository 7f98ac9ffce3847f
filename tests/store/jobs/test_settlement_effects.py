"""A settlement and its effects on others: one transaction does both, or a record of what is left."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from holdfast.domain.jobs.dependencies import After
from holdfast.domain.jobs.job import State
from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.jobs.verdict import Done, Failed
from holdfast.errors import JobLocked
from holdfast.store.engine.operation import Operation, query
from holdfast.store.jobs import dependencies, settlement
from holdfast.store.jobs.dependencies import Effects
from holdfast.store.jobs.settlement import Settlement
from tests.support.jobs import only, put, state, states, take
from tests.support.processes import connect, wait_until

#: A statement waits 0.2 s for a lock, and a busy machine may need longer to release it.
TRIES = 10
FATAL = Failed(error="boom", permanent=True)


def claim(store, count):
    for _ in range(count):
        put(store)
    return take(store, count)


def after(*leases) -> After:
    return After(ids=tuple(lease.job_id for lease in leases))


def pending(database) -> int:
    return database.execute("SELECT count(*) FROM holdfast.pending_effect")[0][0]


@pytest.fixture
def user(postgres_database):
    with connect(postgres_database.url) as connection:
        yield connection


@pytest.mark.parametrize("outcome", [Done(), FATAL])
def test_a_job_and_its_dependents_change_together(store, database, monkeypatch, outcome):
    """CORE D8: an error before the dependents are judged leaves the run as it was; nothing waits for a sweep."""
    (lease,) = claim(store, 1)
    later = put(store, kind="later", after=after(lease))

    def broken(*_: object, **__: object) -> Operation[int]:
        raise RuntimeError
        yield query("nothing")

    with monkeypatch.context() as broken_store:
        broken_store.setattr(dependencies, "judge_waiting", broken)
        with pytest.raises(RuntimeError):
            store.leases.settle(lease, outcome)
    assert states(store) == {lease.job_id: State.RUNNING, later: State.WAITING}
    store.leases.settle(lease, outcome)
    assert state(store, later) is (State.READY if outcome == Done() else State.CANCELLED)
    assert pending(database) == 0


def test_a_group_settles_jobs_with_and_without_dependents(store, database):
    """Fan-in, fan-out and jobs that nobody waits for, in one call; sent again, it changes nothing."""
    leases = claim(store, 4)
    joined = put(store, kind="later", after=after(leases[0], leases[2]))
    spread = [put(store, kind="later", after=after(leases[1])) for _ in range(3)]
    settlements = [Settlement(lease, Done()) for lease in leases]
    for _ in range(2):
        result = store.leases.settle_many(settlements)
        assert (result.lost, result.locked) == (set(), set())
    assert {state(store, job) for job in (joined, *spread)} == {State.READY}
    assert pending(database) == 0


@pytest.mark.parametrize("lost", [False, True])
def test_a_command_that_fails_for_good_pauses_its_queue(store, clock, lost):
    """In the transaction of its end, also when its worker is lost: nobody has to live on to do it."""
    options = {"kind": "command", "max_attempts": 1, "max_crashes": 1}
    put(store, payload='{"pause_queue": true}', queue="slow", **options)
    put(store, payload='{"pause_queue": false}', queue="other", **options)
    leases = take(store, 2, kinds=("command",), queues=("slow", "other"), started=True)
    if lost:
        clock.advance(minutes=10)
        store.leases.take_over()
    else:
        store.leases.settle_many([Settlement(lease, FATAL) for lease in leases])
    assert set(states(store).values()) == {State.DEAD}
    reason = "lease_lost" if lost else "handler_error"
    assert [(each.paused, each.note) for each in map(store.queues.get, ("slow", "other"))] == [
        (True, f"job {leases[0].job_id} failed ({reason})"),
        (False, None),
    ]


def test_effects_that_a_settlement_left_are_completed(store, database):
    """A transaction of a user will hold nothing but the settlement: what it left is found by any process."""
    leases = claim(store, 2)
    joined = put(store, kind="later", after=after(*leases))

    def settle_alone() -> Operation[None]:
        finished = yield settlement.settle_done([Settlement(lease, Done()) for lease in leases], ())
        yield query("insert_pending_effects", ids=[job.id for job in finished])

    store.backend.write(settle_alone)
    assert state(store, joined) is State.WAITING
    assert store.leases.complete_effects(limit=1) == Effects(1, 0)
    assert state(store, joined) is State.READY
    assert store.leases.complete_effects() == Effects(1, 0)
    assert store.leases.complete_effects() == Effects(0, 0)


def test_a_cancel_leaves_nothing_to_a_sweep(store, database, monkeypatch):
    """The rest of a long chain is on record with the cancel itself."""
    monkeypatch.setattr(dependencies, "MAX_LEVELS", 2)
    chain = [put(store)]
    for _ in range(5):
        chain.append(put(store, kind="later", after=After(ids=(chain[-1],))))
    store.control.cancel(only(chain[0]), actor="ada")
    assert pending(database) == 1, "I11 is broken"
    while store.leases.complete_effects().left:
        pass
    assert set(states(store).values()) == {State.CANCELLED}


def test_a_retry_is_judged_in_its_transaction(store, monkeypatch):
    """A process that dies after it leaves no revived job that waits for nothing."""
    first = put(store)
    second = put(store, kind="later", after=After(ids=(first,)))
    store.control.cancel(only(first), actor="ada")
    writes: list[str] = []
    write = store.backend.write
    monkeypatch.setattr(
        store.backend, "write", lambda work, *args, **more: writes.append("") or write(work, *args, **more)
    )
    store.control.retry(only(first, second), actor="ada")
    assert (state(store, first), state(store, second)) == (State.READY, State.WAITING)
    assert len(writes) == 1


# -- two transactions at once: PostgreSQL ------------------------------------------------------


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def wait_for_lock(database) -> None:
    """Until a statement waits for a lock, or has given up."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    with suppress(AssertionError):
        wait_until(lambda: database.execute(waiting)[0][0] > 0, every=0.005, seconds=0.5)


def test_a_mark_that_comes_first_is_seen_after_the_wait(postgres_database, user):
    """The statement for jobs without effects waits for the row, and then leaves a job that has got a dependent."""
    store = postgres_database.open()
    (lease,) = claim(store, 1)
    settled: list[object] = []

    def settle() -> None:
        statement = settlement.settle_done([Settlement(lease, Done())], settlement.WITHOUT_EFFECTS)
        with suppress(JobLocked):
            settled.append(store.backend.run(statement))

    for _ in range(TRIES):
        postgres_database.execute("UPDATE holdfast.live SET has_dependents = false")
        user.execute("UPDATE holdfast.live SET has_dependents = true WHERE id = %s", (lease.job_id,))
        thread = in_thread(settle)
        wait_for_lock(postgres_database)
        user.commit()
        thread.join()
        if settled:
            break
    assert settled == [[]]
    assert state(store, lease.job_id) is State.RUNNING


def test_an_enqueue_and_the_end_of_its_dependency_meet(postgres_database, user):
    """The enqueue commits while the settlement waits for its mark: the new job does not wait for ever."""
    store = postgres_database.open()
    (lease,) = claim(store, 1)
    later = store.jobs.enqueue_on(user, [NewJob(kind="later", after=after(lease))])[0].id
    thread = in_thread(lambda: store.leases.settle(lease, Done()))
    wait_for_lock(postgres_database)
    user.commit()
    thread.join()
    assert (state(store, lease.job_id), state(store, later)) == (State.DONE, State.READY)
    assert pending(postgres_database) == 0


def test_two_needs_that_finish_at_once_start_their_dependent(postgres_database, user):
    """Fan-in: the second settlement waits for the first one's lock on the dependent, and then sees both ends."""
    store = postgres_database.open()
    for _ in range(TRIES):
        first, second = claim(store, 2)
        joined = put(store, kind="later", after=after(first, second))
        settle_on(store, user, first)
        thread = in_thread(lambda lease=second: store.leases.settle(lease, Done()))
        wait_for_lock(postgres_database)
        user.commit()
        thread.join()
        if not pending(postgres_database):
            assert state(store, joined) is State.READY
            return
        store.leases.complete_effects()
    pytest.fail("it never waited for the lock")


def test_a_need_that_gives_up_waiting_leaves_a_record(postgres_database, user):
    """Fan-in with a first settlement that stays open: the second one finishes, and the dependent is judged later."""
    store = postgres_database.open()
    first, second = claim(store, 2)
    joined = put(store, kind="later", after=after(first, second))
    settle_on(store, user, first)
    store.leases.settle(second, Done())
    assert (state(store, second.job_id), pending(postgres_database)) == (State.DONE, 1), "I11 is broken"
    assert store.leases.complete_effects() == Effects(1, 1)
    user.commit()
    assert state(store, joined) is State.WAITING
    store.leases.complete_effects()
    assert state(store, joined) is State.READY
    assert pending(postgres_database) == 0


def test_two_processes_complete_effects_side_by_side(postgres_database, user):
    """What one of them has taken, the other leaves out."""
    store = postgres_database.open()
    waiting = [put(store, kind="later", after=After(ids=(put(store),))) for _ in range(2)]
    store.backend.run(query("insert_pending_effects", ids=waiting))
    user.execute("SELECT FROM holdfast.pending_effect WHERE job_id = %s FOR UPDATE", (waiting[0],))
    assert store.leases.complete_effects() == Effects(1, 0)
    user.rollback()
    assert store.leases.complete_effects() == Effects(1, 0)


def settle_on(store, user, lease) -> None:
    """Settle a job and judge its dependents in an open transaction of another connection."""
    store.backend.run_on(user, settlement.settle_with_effects([Settlement(lease, Done())], ()))

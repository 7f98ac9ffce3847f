"""The claim: one order over all queues and kinds, for free slots and ahead of them."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.domain.commands.command import COMMAND
from holdfast.domain.fleet.stop_switch import StopMode
from holdfast.domain.jobs.job import HIGHEST_PRIORITY, JobId, OnLost, State, WorkerId
from holdfast.domain.jobs.new_job import MAX_PREFETCH_BYTES, NewJob
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.verdict import Done, Released, Unreadable
from holdfast.store.engine.operation import ById, query, single
from holdfast.store.jobs.leases import DEFAULT_LEASE
from tests.support.jobs import WORKER, claim_jobs, lapse, put, states, take, take_one

MINUTE = timedelta(minutes=1)
KINDS, QUEUES = ("mail", "post", "once"), ("default", "other", "narrow")
LEASES = {"mail": MINUTE, "post": 5 * MINUTE, "once": 9 * MINUTE}
#: Queue, losses and on_lost of jobs that may be prefetched.
PREFETCHED = {("default", 0, "retry"), ("other", 0, "retry")}
#: The slots of the limited queue.
NARROW = 2


def lose(store, clock, times: int) -> None:
    """Let all ready jobs be lost *times* times before a start is recorded."""
    for _ in range(times):
        take(store, 1000, kinds=KINDS, queues=QUEUES)
        lapse(clock)
        store.leases.take_over(limit=1000)


def ids(leases) -> list[JobId]:
    return [lease.job_id for lease in leases]


# -- one order ------------------------------------------------------------------------------

JOBS = st.lists(
    st.fixed_dictionaries(
        {
            "kind": st.sampled_from(KINDS),
            "queue": st.sampled_from(QUEUES),
            "priority": st.integers(0, 2),
            "on_lost": st.sampled_from([OnLost.RETRY, OnLost.RETRY, OnLost.HOLD]),
            "losses": st.sampled_from([0, 0, 0, 1, 2, 3]),
        }
    ),
    max_size=12,
)


@pytest.mark.parametrize(
    ("queues", "kinds", "limits"),
    [(QUEUES, KINDS, True), (QUEUES[:2], KINDS, False), (QUEUES[:1], KINDS[:1], False)],
    ids=["limits", "lanes", "one lane"],
)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    jobs=JOBS,
    free=st.integers(0, 5),
    ahead=st.integers(0, 5),
    short=st.sets(st.sampled_from(KINDS)),
    few=st.integers(0, 2),
    alone=st.integers(0, 1),
)
def test_no_claim_prefers_a_worse_job(store, database, queues, kinds, limits, jobs, free, ahead, short, few, alone):
    """I17: whatever the kinds, leases, on_lost, limits and suspects are, a better job that may begin is never passed."""
    store.control.cancel(Selector(), actor="ada")
    for lease in claim_jobs(store, WORKER, 1000, queues=QUEUES, kinds=KINDS):
        store.leases.settle(lease, Done())
    store.queues.set_limits("narrow", limit=NARROW)
    ready = []
    for options in jobs:
        losses = options.pop("losses")
        options["queue"] = options["queue"] if options["queue"] in queues else queues[0]
        options["kind"] = options["kind"] if options["kind"] in kinds else kinds[0]
        job_id = store.jobs.enqueue(NewJob(**options)).id
        database.execute(f"UPDATE holdfast.live SET losses = {losses} WHERE id = {job_id}")
        ready.append({**options, "losses": losses, "id": job_id})
    leases = store.leases.claim(
        WORKER,
        queues=queues,
        leases={kind: LEASES[kind] for kind in kinds},
        limits=limits,
        free=free,
        ahead=ahead,
        short=short,
        suspects=(few, alone),
    )
    for lease in leases:
        store.leases.settle(lease, Done())
    check_order(ready, ids(leases), free, ahead, short, {0: 99, 1: 99, 2: few, 3: alone})


def test_one_order_holds_within_a_lane_and_the_jobs_of_one_build(store):
    """K13: a worker of one queue and one kind claims the best jobs, whichever code may read them."""
    for build in ("old", "new"):
        store.workers.announce(WorkerId(build), host="host", pid=1, queues=["default"], kinds=["mail"], build=build)
    kept = [put(store, priority=priority) for priority in (1, 3)]
    for lease in take(store, 2, build="old"):
        store.leases.settle(lease, Unreadable(error="no field", version=1, build="old"))
    both = [put(store, priority=priority) for priority in (2, 0)]
    claimed = take(store, 3, build="new", limits=False)
    assert ids(claimed) == [kept[1], both[0], kept[0]], "I17 is broken"
    assert ids(take(store, 3, build="new", limits=False)) == [both[1]]


def check_order(ready, claimed, free, ahead, short, room):
    ready.sort(key=lambda job: (-job["priority"], job["id"]))
    by_id = {job["id"]: job for job in ready}
    taken = [by_id[job_id] for job_id in claimed]
    assert claimed == [job["id"] for job in ready if job["id"] in claimed], "I17 is broken: not in order"
    assert len(claimed) <= free + ahead
    assert sum(job["queue"] == "narrow" for job in taken) <= NARROW
    for level in (2, 3):
        assert sum(job["losses"] == level for job in taken) <= room[level]
    for job in taken[free:]:
        assert job["kind"] in short, "I17 is broken: a kind that is not short was prefetched"
        assert (job["queue"], job["losses"], job["on_lost"]) in PREFETCHED, "I17 is broken: it needs a slot"
    for job in ready:
        worse = [each for each in taken if (-each["priority"], each["id"]) > (-job["priority"], job["id"])]
        if job["id"] not in claimed and worse:
            full = sum(each["queue"] == "narrow" for each in ready[: ready.index(job)]) >= NARROW
            alone = sum(each["losses"] == job["losses"] for each in ready[: ready.index(job)]) >= room[job["losses"]]
            assert (job["queue"] == "narrow" and full) or alone, f"I17 is broken: {job} was passed by {worse}"


def test_kinds_with_different_leases_share_one_order(store, clock):
    """K2: the longer lease waits behind no backlog, and each job has the lease of its kind."""
    plain = [put(store) for _ in range(3)]
    urgent = put(store, "post", priority=100)
    leases = store.leases.claim(WORKER, queues=["default"], leases={"mail": MINUTE, "post": 5 * MINUTE}, free=2)
    assert ids(leases) == [urgent, plain[0]]
    expires = [store.views.get(job_id).lease_expires_at for job_id in ids(leases)]
    assert expires[0] - expires[1] == 4 * MINUTE


@pytest.mark.parametrize("kind", ["shop.mail", 'a "b" [0]', "$", "7"])
def test_the_name_of_a_kind_is_not_a_path(store, kind):
    """K2: names may hold dots, quotes and brackets."""
    job_id = put(store, kind)
    leases = store.leases.claim(WORKER, queues=["default"], leases={kind: MINUTE}, free=1, limits=False)
    assert ids(leases) == [job_id]
    assert store.views.get(job_id).lease_expires_at is not None


def test_work_that_must_not_run_twice_is_not_left_behind(store):
    """K3: it is claimed in its turn, as many at a time as there are slots."""
    for _ in range(3):
        put(store)
    careful = [put(store, "once", priority=9, on_lost=OnLost.HOLD) for _ in range(3)]
    assert ids(take(store, 3, kinds=KINDS)) == careful


@pytest.mark.parametrize("options", [{"on_lost": OnLost.DEAD}, {"payload": '"' + "x" * MAX_PREFETCH_BYTES + '"'}])
def test_nothing_is_prefetched_past_a_better_job_that_needs_a_slot(store, options):
    """K61, K34: a job that is not prefetched takes the next free slot. Jobs with large payloads are not either."""
    first, blocked, behind = put(store, priority=3), put(store, priority=2, **options), put(store, priority=1)
    assert ids(take(store, 1, ahead=9, short=["mail"])) == [first]
    assert take(store, 0, ahead=9, short=["mail"]) == []
    assert ids(take(store, 1, ahead=9, short=["mail"])) == [blocked, behind]


def test_only_short_kinds_are_prefetched(store):
    """K15, K61: a better job of another kind ends the prefix."""
    order = [put(store, kind, priority=9 - n) for n, kind in enumerate(("mail", "mail", "post", "mail"))]
    assert ids(take(store, 1, ahead=9, short=["mail"], kinds=KINDS)) == order[:2]
    assert ids(take(store, 1, ahead=9, short=["mail"], kinds=KINDS)) == order[2:]


def test_limited_queues_are_never_prefetched(store):
    """K4: a worker with two slots holds two jobs of the limit, whatever the limit is."""
    store.queues.set_limits("default", limit=60)
    for _ in range(10):
        put(store)
    assert len(take(store, 2, ahead=40, short=["mail"])) == 2, "K4 is broken"
    assert take(store, 0, ahead=40, short=["mail"]) == []


def test_a_paused_queue_starts_nothing(store):
    """I12: whichever claim serves it."""
    put(store)
    store.queues.pause("default", note="maintenance")
    assert [take(store, limits=limits) for limits in (True, False)] == [[], []], "I12 is broken"


def test_a_paused_queue_starts_the_highest_priority(store):
    """E5.8: callbacks have it. The limit of the queue and the stop switch still hold."""
    put(store, priority=HIGHEST_PRIORITY - 1)
    callbacks = [put(store, priority=HIGHEST_PRIORITY) for _ in range(3)]
    store.queues.pause("default")
    assert ids(take(store, 1, limits=False)) == callbacks[:1], "E5 is broken"
    assert ids(take(store, 1, limits=True)) == callbacks[1:2], "E5 is broken"
    store.queues.set_limits("default", limit=2)
    assert take(store, 9, limits=True) == []
    store.queues.set_limits("default", limit=3)
    store.stop_switch.set(StopMode.DRAIN, actor="ada")
    assert take(store, 9) == []
    store.stop_switch.clear()
    assert ids(take(store, 9)) == callbacks[2:]


def test_a_claim_without_limits_leaves_limited_queues_out(store):
    """I8: a worker that has not heard of a new limit does not break it."""
    put(store, queue="narrow")
    other = put(store)
    assert not store.leases.any_limited(["default", "narrow"])
    store.queues.set_limits("narrow", limit=1)
    assert store.leases.any_limited(["default", "narrow"])
    assert ids(take(store, 9, queues=QUEUES, limits=False)) == [other]


def test_a_command_of_an_autoscaled_queue_is_left_to_the_autoscaler(store):
    """Its other kinds, and commands of other queues, are not."""
    put(store, COMMAND)
    expected = [put(store), put(store, COMMAND, queue="other")]
    leases = take(store, 9, kinds=("mail", COMMAND), queues=("default", "other"), autoscaled=["default"])
    assert ids(leases) == expected


def test_a_short_command_is_claimed_ahead(store):
    """Its start is recorded before it begins. Other work that must not run twice is never claimed ahead."""
    job_id = put(store, COMMAND)
    put(store, on_lost=OnLost.DEAD)
    (lease,) = take(store, 0, ahead=9, kinds=(COMMAND, "mail"), short=[COMMAND, "mail"])
    assert (lease.job_id, lease.starts_recorded, store.views.get(job_id).attempts) == (job_id, True, 0)
    put(store, COMMAND, priority=1)
    assert take(store, 0, ahead=9, kinds=(COMMAND, "mail"), short=["mail"]) == []


# -- poison suspects ------------------------------------------------------------------------


def test_suspects_of_the_first_level_run_side_by_side(store, clock):
    """K18: on all free slots, and in their turn (K3); they are not prefetched."""
    jobs = [put(store) for _ in range(40)]
    lose(store, clock, 1)
    assert take(store, 0, ahead=40, short=["mail"], suspects=(1, 1)) == []
    assert ids(take(store, 40, suspects=(1, 1))) == jobs, "K18 is broken"


@pytest.mark.parametrize(("losses", "room"), [(2, 3), (3, 1)])
def test_suspects_of_higher_levels_need_room(store, clock, losses, room):
    """K18: and hold up no other job while they have none."""
    suspects = [put(store, priority=9) for _ in range(6)]
    lose(store, clock, losses)
    fresh = [put(store) for _ in range(4)]
    few, alone = (room, 9) if losses == 2 else (9, room)
    assert ids(take(store, 8, suspects=(few, alone))) == suspects[:room] + fresh[:2], "eight best, less the surplus"
    assert ids(take(store, 8, suspects=(0, 0))) == fresh[2:]


def test_a_suspect_that_finishes_is_no_suspect_any_more(store, clock):
    put(store)
    lose(store, clock, 2)
    store.leases.settle(take_one(store), Released())
    assert take_one(store).losses == 2


def test_jobs_that_still_run_here_are_left_out(store):
    """A thread that has lost its lease cannot be stopped: this worker does not begin its job a second time."""
    lost, other = put(store, priority=9), put(store)
    assert ids(take(store, 9, unfinished=[lost])) == [other]
    assert ids(take(store, 9)) == [lost]


# -- other workers --------------------------------------------------------------------------


def test_a_claim_locks_no_more_rows_than_it_takes(make_store, backend_name):
    """K56: while a claim is under way, another one finds all jobs that the first does not take."""
    if backend_name == "sqlite":
        pytest.skip("one writer at a time")
    store, other = make_store(), make_store()
    kinds = [f"kind-{n}" for n in range(20)]
    jobs = [put(store, kind) for kind in kinds for _ in range(2)]
    durations = ById(id=kinds, lease_duration=[DEFAULT_LEASE] * 20, short=[False] * 20)
    values = {"queues": ["default"], "kinds": durations, "free": 3, "ahead": 0, "few": 9, "alone": 9}
    statement = query("claim", worker="first", autoscaled=[], unfinished=[], build="", lease_duration=None, **values)
    with store.backend.transaction() as connection:
        taken = store.backend.run_on(connection, single(statement))
        found = claim_jobs(other, WorkerId("second"), 99, queues=["default"], kinds=kinds, limits=False)
    assert len(taken) == 3, "K56 is broken"
    assert sorted(ids(found)) == sorted(set(jobs) - {row[0] for row in taken}), "K56 is broken"
    assert set(states(store).values()) == {State.RUNNING}


@pytest.mark.parametrize("limits", [False, True], ids=["no limit", "limited"])
@pytest.mark.parametrize("rest", [("mail", 5), ("post", 5)], ids=["same lane", "other lane"])
def test_a_claim_beside_another_takes_the_next_best_job(make_store, backend_name, rest, limits):
    """K56, I17: what another transaction has locked is replaced by the next job in the order of all lanes.

    Also by workers that serve a queue with a limit: they took a lower priority of the same lane, or nothing.
    """
    if backend_name == "sqlite":
        pytest.skip("one writer at a time")
    store, kinds = make_store(), ["mail", "post", "once"]
    best, low, other = put(store, "mail", priority=9), put(store, "mail"), put(store, "post", priority=4)
    next_best = put(store, rest[0], priority=rest[1])
    with store.backend.transaction() as connection:
        connection.execute("SELECT FROM holdfast.live WHERE id = %s FOR UPDATE", (best,))
        claimed = [ids(claim_jobs(store, WORKER, 1, queues=["default"], kinds=kinds, limits=limits)) for _ in range(4)]
    assert claimed == [[next_best], [other], [low], []], "K56 is broken"


def test_a_locked_job_of_a_limited_queue_is_replaced_within_the_limit(make_store, backend_name):
    """I8, I17: the next jobs take the places of locked ones, but never more than the queue has."""
    if backend_name == "sqlite":
        pytest.skip("one writer at a time")
    store = make_store()
    store.queues.set_limits("narrow", limit=2)
    narrow = [put(store, "mail", queue="narrow", priority=9 - n) for n in range(4)]
    plain = [put(store, "mail", priority=1) for _ in range(3)]
    with store.backend.transaction() as connection:
        connection.execute("SELECT FROM holdfast.live WHERE id = ANY(%s) FOR UPDATE", (narrow[:1],))
        claimed = ids(claim_jobs(store, WORKER, 5, queues=["default", "narrow"], kinds=["mail"]))
    assert claimed == [*narrow[1:3], *plain], "I8 is broken"


@pytest.mark.parametrize("seed", range(4))
def test_the_best_jobs_are_claimed_however_they_lie_in_the_lanes(store, seed):
    """K56: a claim reads few jobs of each lane at first, and more where the best ones are."""
    chance = random.Random(seed)
    kinds = [f"kind-{n}" for n in range(12)]
    crowded = chance.sample(kinds, 2)
    new = [
        NewJob(kind=chance.choice(crowded * 6 + kinds), payload="{}", priority=chance.choice([0, 0, 3]))
        for _ in range(120)
    ]
    enqueued = [each.id for each in store.jobs.enqueue_many(new)]
    priority = {job_id: job.priority for job_id, job in zip(enqueued, new, strict=True)}
    expected = sorted(enqueued, key=lambda job_id: (-priority[job_id], job_id))
    for size in (1, 20, 40):
        taken = ids(claim_jobs(store, WORKER, size, queues=["default"], kinds=kinds, limits=False))
        assert taken == expected[:size], "K56 is broken"
        del expected[:size]


# -- jobs that are left ---------------------------------------------------------------------


@pytest.mark.parametrize("queues", [["default", "other"], ["*"], ["*", "default"]])
def test_ready_and_running_jobs_are_unfinished(store, queues):
    def left(**options) -> bool:
        return store.leases.any_unfinished(queues, ["mail", "post"], **options)

    put(store, kind="once"), put(store, queue="holdfast.mine"), put(store, delay=MINUTE)
    assert not left()
    put(store), put(store, kind="post", queue="other")
    assert [left(), left(except_for=1), left(except_for=2)] == [True, True, False]
    leases = take(store, 9, kinds=("mail", "post"), queues=("default", "other"))
    assert [left(), left(except_for=1), left(except_for=2)] == [True, True, False]
    for lease in leases:
        store.leases.settle(lease, Done())
    assert not left()


def test_jobs_of_other_queues_are_not_counted_as_unfinished(store):
    put(store, queue="elsewhere"), put(store, queue="another")
    take(store, queues=("another",))
    assert not store.leases.any_unfinished(["default", "other"], ["mail"])
    assert store.leases.any_unfinished(["*"], ["mail"], except_for=1)

"""What people read: one test per promise of store/jobs/queries.py."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.domain.jobs.dependencies import After
from holdfast.domain.jobs.job import JobId, State, WorkerId, WorkerRequest
from holdfast.domain.jobs.new_job import KeyScope, NewJob, OnConflict, Unique
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.verdict import Done, Failed
from holdfast.domain.jobs.why import Because
from holdfast.domain.retention import Retention
from holdfast.errors import Conflict, InvalidInput, JobPruned, NoSuchJob, NotFound
from tests.support.backends import START
from tests.support.jobs import claim_jobs, lapse, only, prune, put, take, take_one

HOUR = timedelta(hours=1)


def ids(store, **conditions):
    return [job.id for job in store.views.page(Selector(**conditions)).jobs]


def because(store, job_id):
    return [reason.because for reason in store.views.why(job_id)]


def test_a_job_that_never_was_is_an_error(store):
    """With its id."""
    with pytest.raises(NoSuchJob) as caught:
        store.views.get(JobId(7))
    assert caught.value.context == {"job_id": 7}
    with pytest.raises(NoSuchJob):
        store.views.state(JobId(7))


def test_a_pruned_job_is_told_apart(store, clock):
    """Its key is kept for ever, so that one can say what became of it."""
    job_id = put(store, unique=Unique("k", KeyScope.FOREVER))
    store.leases.settle(take_one(store), Done())
    clock.advance(days=31)
    store.pruner.prune()
    with pytest.raises(JobPruned):
        store.views.get(job_id)
    assert put(store, unique=Unique("k", KeyScope.FOREVER)) == job_id


def test_pages_follow_each_other(store):
    """The newest first, each job once, though others come and go meanwhile."""
    made = [put(store) for _ in range(5)]
    first = store.views.page(Selector(), limit=2)
    put(store)
    second = store.views.page(Selector(), limit=2, before=first.next)
    third = store.views.page(Selector(), limit=2, before=second.next)
    assert [job.id for page in (first, second, third) for job in page.jobs] == made[::-1]
    assert third.next is None


def test_all_pages_are_one_iterator(store):
    """In flat memory."""
    made = [put(store) for _ in range(5)]
    assert [job.id for job in store.views.all(Selector(), limit=2)] == made[::-1]


def test_conditions_select(store):
    """Every condition of a selector, alone and together."""
    a = put(store, kind="a", queue="q1", label="run-1", unique=Unique("key"))
    b = put(store, kind="b", queue="q2", label="run-2", delay=HOUR, tags='["web","slow"]')
    c = put(store, kind="c", label="other", hold=True)
    assert ids(store, ids=(a, c)) == [c, a]
    assert ids(store, keys=("key",)) == [a]
    assert ids(store, labels=("run-1",)) == [a]
    assert ids(store, labels=("run-*", "other")) == [c, b, a]
    assert ids(store, tags=("slow", "none")) == [b]
    assert ids(store, queues=("q1", "q2")) == [b, a]
    assert ids(store, queues=("q*",)) == [b, a]
    assert ids(store, kinds=("b",)) == [b]
    assert ids(store, states=(State.HELD,)) == [c]
    assert ids(store, states=(State.HELD, State.READY)) == [c, a]
    assert ids(store, since=START + HOUR) == []
    assert ids(store, until=START + HOUR) == [c, b, a]
    assert ids(store, labels=("run-*",), kinds=("b",)) == [b]
    assert ids(store) == [c, b, a]


def test_a_label_selects_those_below_it(store):
    """E8: as the labels of a sweep are; never a label that only begins alike."""
    below = [put(store, label=label) for label in ("sw", "sw/n=1", "sw/n=1/m=2", "sw/\U0001f600")]
    for label in ("sw0", "sw-1", "sweep", "s", "SW/n=1", "a/sw/n=1"):
        put(store, label=label)
    assert ids(store, labels=("sw",)) == below[::-1]
    assert ids(store, labels=("sw/n=1",)) == below[2:0:-1]
    assert store.control.hold(Selector(labels=("sw",)), actor="ada") == below


def test_the_newest_of_a_key_replaces_the_others(store):
    """E5.6: of one kind and key; jobs without a key stand for themselves."""
    first = put(store, unique=Unique("k"))
    store.control.cancel(Selector(ids=(first,)), actor="ada")
    newest, other, plain = put(store, unique=Unique("k")), put(store, kind="b", unique=Unique("k")), put(store)
    assert ids(store, newest=True) == [plain, other, newest]
    assert ids(store, newest=True, states=(State.CANCELLED,)) == []


def test_times_of_finished_states_are_times_of_the_finish(store, clock):
    """K63: what died in the last hour, whenever it was enqueued; an action on it means the same jobs."""
    old = put(store)
    lease = take_one(store)
    clock.advance(hours=2)
    store.leases.settle(lease, Failed(error="x", permanent=True))
    live = put(store)
    recent = clock.now() - HOUR
    assert ids(store, states=(State.DEAD,), since=recent) == [old]
    assert ids(store, states=(State.DEAD,), until=recent) == []
    assert ids(store, states=(State.DEAD, State.DONE), since=recent) == [old]
    assert ids(store, since=recent) == [live]
    assert ids(store, states=(State.DEAD, State.READY), since=recent) == [live]
    assert store.control.retry(Selector(since=recent), actor="ada") == []
    assert store.control.retry(Selector(since=recent, states=(State.DEAD,)), actor="ada") == [old]


@pytest.mark.parametrize("sparse", [0, 2, 100])
def test_lists_are_the_same_however_many_jobs_match(store, clock, sparse, monkeypatch):
    """K63: few jobs of a tag or a time are found by an index, many are met on the way through the list."""
    monkeypatch.setattr("holdfast.store.jobs.queries.MAX_SPARSE_JOBS", sparse)
    for _ in range(3):
        put(store)
        store.leases.settle(take_one(store), Done())
    clock.advance(hours=2)
    put(store)
    tagged = [put(store, tags='["web"]') for _ in range(3)]
    for _ in range(4):
        store.leases.settle(take_one(store), Done())
    since = clock.now() - HOUR
    assert ids(store, tags=("web",)) == tagged[::-1]
    assert ids(store, tags=("web",), states=(State.DONE,), since=since) == tagged[::-1]
    assert len(ids(store, since=since)) == len(ids(store, states=(State.DONE,), since=since)) == 4
    assert store.views.count(Selector(since=since)).count == 4
    page = store.views.page(Selector(since=since), limit=3)
    assert [job.id for job in store.views.page(Selector(since=since), before=page.next, limit=3).jobs] == [
        tagged[0] - 1
    ]


def test_a_name_matches_whole_or_by_star_never_by_accident(store):
    """Not a part of it, not another case, and no other character is special."""
    put(store, label="run-10")
    put(store, label="Run-1")
    put(store, label="run_1")
    for label in ("run-1", "run", "run?10", "r%", "run-1_", "*RUN*"):
        assert ids(store, labels=(label,)) == []


@pytest.mark.parametrize("requested", list(State))
def test_every_state_can_be_listed(store, requested, clock):
    """One job in each state; each list finds its own."""
    outcomes = {State.DONE: Done(), State.DEAD: Failed(error="x", permanent=True)}
    made = {}
    for state_, outcome in outcomes.items():
        made[state_] = put(store)
        store.leases.settle(take_one(store), outcome)
    made[State.CANCELLED] = put(store)
    store.control.cancel(Selector(ids=(made[State.CANCELLED],)), actor="a")
    made[State.RUNNING] = put(store)
    take_one(store)
    made[State.READY] = put(store)
    made[State.HELD] = put(store, hold=True)
    made[State.SCHEDULED] = put(store, delay=HOUR)
    made[State.WAITING] = put(store, after=After(ids=(made[State.READY],)))
    assert ids(store, states=(requested,)) == [made[requested]]
    assert store.views.state(made[requested]) is requested


def test_counts_are_capped(store):
    """Beyond the cap one learns that there are more."""
    store.jobs.enqueue_many([NewJob(kind="mail") for _ in range(12)])
    exact, capped = store.views.count(Selector()), store.views.count(Selector(), cap=10)
    assert (exact.count, exact.capped) == (12, False)
    assert (capped.count, capped.capped) == (10, True)


# -- why ------------------------------------------------------------------------------------


@pytest.fixture
def served(store):
    """A live worker that knows the kind."""
    store.workers.announce(WorkerId("w"), host="h", pid=1, queues=["default"], kinds=["mail"])
    return store


def test_why_nothing_stands_in_the_way(served):
    """The next in its lane, or so many before it."""
    first, second = put(served), put(served)
    assert served.views.why(first)[0].text == "a worker claims it next"
    assert served.views.why(second)[0].text == "1 job comes before it in its queue and kind"


def test_why_all_slots_are_busy(store):
    """E1.2: the number of slots, and the jobs before it. A worker with a free slot claims the first one."""
    worker = WorkerId("w")
    store.workers.announce(worker, host="h", pid=1, queues=["default"], kinds=["mail"], slots=1)
    running, first, second = put(store), put(store), put(store)
    assert [lease.job_id for lease in claim_jobs(store, worker, queues=["default"], kinds=["mail"])] == [running]
    assert because(store, first) == [Because.BUSY]
    assert because(store, second) == [Because.BUSY, Because.IN_LINE]
    reason = store.views.why(second)[0]
    assert reason.text == "the worker that serves it is busy: its only slot is in use"
    store.workers.announce(WorkerId("idle"), host="h", pid=2, queues=["default"], kinds=["mail"], slots=2)
    assert because(store, first) == [Because.NEXT]


def test_why_its_workers_are_quieted(served):
    """E1.2: a worker that was told to claim nothing does not claim it."""
    job_id = put(served)
    served.workers.request(WorkerId("w"), WorkerRequest.QUIET)
    assert because(served, job_id) == [Because.QUIETED]


def test_why_a_suspect_waits(served, clock):
    """E1.2: after its second loss it runs beside few others."""
    job_id = put(served)
    for _ in range(2):
        take_one(served)
        lapse(clock)
        served.leases.take_over()
    served.workers.announce(WorkerId("alive"), host="h", pid=1, queues=["default"], kinds=["mail"])
    assert because(served, job_id) == [Because.SUSPECT]


def test_why_no_worker(store, clock):
    """None that is alive and serves its kind on its queue."""
    store.workers.announce(WorkerId("w"), host="h", pid=1, queues=["other"], kinds=["mail"])
    assert because(store, put(store)) == [Because.NO_WORKER]


def test_why_not_due(served):
    """Its time, and that it failed before."""
    job_id = put(served)
    served.leases.settle(take_one(served), Failed(error="x", after=HOUR))
    assert served.views.why(job_id)[0].text == "it is due in 60 min, after attempt 1 failed: x"


def test_why_the_queue_is_paused(served):
    """With the note of whoever paused it."""
    served.queues.pause("default", note="database moves")
    assert served.views.why(put(served))[0].text == "queue 'default' is paused: database moves"


def test_why_the_limit_is_full(served):
    """How many run of how many may."""
    served.queues.set_limits("default", limit=1)
    put(served)
    job_id = put(served)
    take_one(served)
    assert served.views.why(job_id)[0].text == "queue 'default' is full: 1 of at most 1 run"


def test_why_it_waits(served):
    """Which needs are open."""
    need = put(served)
    later = put(served, after=After(ids=(need,)))
    assert served.views.why(later)[0].text == f"it waits for job {need} (ready) to be done"


def test_why_it_is_held(served):
    """With the note."""
    job_id = put(served, hold=True)
    assert because(served, job_id) == [Because.HELD]


def test_why_it_runs_or_lapsed(served, clock):
    """K15: claimed is not running, until the start is recorded. A silent worker is named."""
    job_id = put(served)
    (lease,) = take(served)
    assert (because(served, job_id), served.views.attempts(job_id)) == ([Because.CLAIMED], [])
    served.leases.record_starts([lease])
    assert (because(served, job_id), len(served.views.attempts(job_id))) == ([Because.RUNNING], 1)
    lapse(clock)
    assert because(served, job_id) == [Because.EXPIRED, Because.NO_WORKER]


def test_why_it_has_ended(served):
    """With the first line of the error."""
    job_id = put(served)
    served.leases.settle(take_one(served), Failed(error="boom\nand more", permanent=True))
    assert served.views.why(job_id)[0].text == "it is finished: dead: boom"


# -- retention ------------------------------------------------------------------------------


def test_ended_jobs_are_forgotten_after_their_time(store, clock, database):
    """Done after 30 days, dead after 90, with all their rows."""
    put(store)
    store.leases.settle(take_one(store), Done())
    dead = put(store, unique=Unique("k"))
    store.leases.settle(take_one(store), Failed(error="x", permanent=True))
    live = put(store)
    clock.advance(days=30, seconds=1)
    assert store.pruner.prune()[State.DONE] == 1
    assert ids(store) == [live, dead]
    clock.advance(days=60)
    assert store.pruner.prune()[State.DEAD] == 1
    assert ids(store) == [live]
    assert database.execute("SELECT count(*) FROM holdfast.attempt")[0][0] == 0
    assert database.execute("SELECT count(*) FROM holdfast.key")[0][0] == 0


def test_zero_keeps_for_ever(store, clock):
    """Retention can be switched off."""
    put(store)
    store.leases.settle(take_one(store), Done())
    clock.advance(days=1000)
    assert store.pruner.prune(Retention(done=timedelta(0)))[State.DONE] == 0


def test_pruning_goes_in_small_steps(store, clock):
    """No more than the limit at once, the oldest first."""
    for _ in range(3):
        put(store)
        store.leases.settle(take_one(store), Done())
    clock.advance(days=31)
    assert [store.pruner.prune(limit=2)[State.DONE] for _ in range(3)] == [2, 1, 0]


def test_tags_go_with_their_jobs(store, database, clock):
    """G5: a tag that names an order leaves nothing behind; a replaced job has its new tags alone."""
    tags = "SELECT tag, job_id FROM holdfast.job_tag ORDER BY tag, job_id"
    job = put(store, tags='["a","b"]', unique=Unique("k"), delay=timedelta(hours=1))
    other = put(store, tags='["a"]')
    put(store)
    assert ids(store, tags=("a", "b")) == [other, job]
    put(store, tags='["c"]', unique=Unique("k"), on_conflict=OnConflict.REPLACE, delay=timedelta(hours=1))
    assert database.execute(tags) == [("a", other), ("c", job)]
    store.leases.settle(take_one(store), Done())
    store.leases.settle(take_one(store), Done())
    store.control.delete(only(job))
    clock.advance(days=31)
    assert store.pruner.prune()[State.DONE] == 2
    assert database.execute(tags) == [], "G5 is broken: tags stay"


def test_a_need_of_a_live_job_is_never_pruned(store, clock):
    """Or nobody could say whether the waiting job may start."""
    done = put(store)
    store.leases.settle(take_one(store), Done())
    other = put(store, hold=True)
    put(store, kind="later", after=After(ids=(done, other)))
    clock.advance(days=31)
    assert store.pruner.prune()[State.DONE] == 0


def test_keys_are_forgotten_when_their_period_is_over(store, clock, database):
    """Also when the job went before them; but not the key of a job that lives."""
    put(store, unique=Unique("gone", KeyScope.PERIOD, timedelta(days=60)))
    store.leases.settle(take_one(store), Done())
    clock.advance(days=31)
    store.pruner.prune()
    put(store, unique=Unique("lives", KeyScope.PERIOD, timedelta(days=1)))
    assert prune(store, "keys") == 0
    clock.advance(days=30)
    assert [prune(store, "keys", limit=1) for _ in range(2)] == [1, 0]
    assert database.execute("SELECT key FROM holdfast.key") == [("lives",)]


def test_workers_go_before_the_jobs_that_they_ran(store, clock):
    """G3: `worker --drain` each minute leaves 43,000 rows a month. The id of a worker still names its host."""
    facts = {"host": "here", "pid": 1, "queues": ["default"], "kinds": ["mail"]}
    old = WorkerId("here-0123456789abcdef")
    store.workers.announce(old, **facts)
    jobs = [put(store) for _ in range(2)]
    for outcome in (Done(), Failed(error="x", permanent=True)):
        store.leases.settle(take_one(store, worker=old), outcome)
    clock.advance(days=2)
    store.workers.announce(WorkerId("new"), **facts)
    clock.advance(days=29)
    assert prune(store, "workers", retention=Retention(workers=timedelta(0))) == 0
    assert prune(store, "workers") == 1, "G3 is broken"
    hosts = [attempt.host for job in jobs for attempt in store.views.attempts(job)]
    assert hosts == ["here", "here"], "G3 is broken: nobody knows where the jobs ran"
    with pytest.raises(Conflict):
        store.workers.announce(WorkerId("new"), **facts)


def test_a_trace_goes_with_its_job(store):
    """It is written with the enqueue, and forgotten with the job."""
    traced, plain = put(store, trace="00-abc-def-01"), put(store)
    assert store.traces.of(traced) == "00-abc-def-01"
    assert store.traces.of(plain) is None
    store.control.delete(Selector(ids=(traced,)))
    assert store.traces.of(traced) is None


def test_filters_are_kept_by_name(store):
    """One of the same name is replaced; one that cannot be read is refused."""
    store.saved_filters.save("trouble", "state=dead", actor="ada")
    store.saved_filters.save("trouble", "state=dead since=1h", actor="bob")
    (kept,) = store.saved_filters.list()
    assert (kept.name, kept.filter, kept.actor) == ("trouble", "state=dead since=1h", "bob")
    with pytest.raises(InvalidInput):
        store.saved_filters.save("odd", "colour=red", actor="ada")
    store.saved_filters.delete("trouble")
    with pytest.raises(NotFound):
        store.saved_filters.delete("trouble")


def test_old_events_can_go_before_their_jobs(store, clock):
    """E2: by age, the oldest first, in small steps; zero keeps them with their jobs."""
    jobs = [put(store), put(store)]
    for change in (store.control.hold, store.control.unhold):
        change(only(jobs[0]), actor="ada")
    clock.advance(days=8)
    store.control.hold(only(jobs[1]), actor="ada")
    week = Retention(events=timedelta(days=7))
    assert prune(store, "events") == 0
    assert [prune(store, "events", retention=week, limit=1) for _ in range(3)] == [1, 1, 0]
    names = [[event.name for event in store.views.events(job)] for job in jobs]
    assert names == [["enqueued"], ["enqueued", "held"]]


def test_a_job_that_waits_for_its_retry_shows_its_last_error(store, clock):
    """E1.4: in single reads, in lists, in the search for errors and in the reasons; no longer once it runs again."""
    job_id, other = put(store, max_attempts=3), put(store)
    store.leases.settle(take_one(store), Failed(error="OSError: disk full\n\n  File x", after=HOUR))
    error = "OSError: disk full\n\n  File x"
    assert store.views.get(job_id).error == error
    assert [job.error for job in store.views.page(Selector(), brief=True).jobs] == [None, error]
    assert ids(store, error="DISK") == ids(store, error="disk", states=(State.SCHEDULED,)) == [job_id]
    assert store.views.count(Selector(error="disk")).count == 1
    text = "it is due in 60 min, after attempt 1 failed: OSError: disk full"
    assert store.views.why(job_id)[0].text == store.dashboard.job_record(job_id).why[0].text == text
    clock.advance(hours=2)
    store.leases.promote()
    take_one(store)
    assert store.views.get(other).state is State.RUNNING
    take_one(store)
    assert store.views.get(job_id).error is None
    assert ids(store, error="disk") == []

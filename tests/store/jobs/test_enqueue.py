"""Enqueueing: one test per promise of store/jobs/enqueue.py."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta, timezone

import pytest

from holdfast.domain.jobs.job import JobId, State
from holdfast.domain.jobs.new_job import KeyScope, NewJob, OnConflict, Unique
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.verdict import Done
from holdfast.errors import DuplicateJob, InvalidInput, InvalidText, LeaseLost
from holdfast.store.jobs import job_rows
from holdfast.store.jobs.enqueue import EnqueueCall
from holdfast.store.postgres import statements
from tests.support.backends import START
from tests.support.jobs import BOOM, only, put, state, states, take, take_one

HOUR = timedelta(hours=1)


def test_a_job_is_kept_as_it_was_asked_for(store):
    """Every option can be read again."""
    job_id = put(
        store, payload='{"to":1}', queue="q", priority=-7, label="l", tags='["a"]', max_attempts=9, actor="ada"
    )
    job = store.views.get(job_id)
    assert (job.kind, job.payload, job.queue, job.priority, job.label) == ("mail", '{"to":1}', "q", -7, "l")
    assert (job.tags, job.max_attempts, job.actor, job.state) == ('["a"]', 9, "ada", State.READY)
    assert job.created_at == job.due_at == START


def test_many_jobs_that_differ_in_every_value_are_kept_as_they_were_asked_for(store):
    """They are sent by column: texts that mean something in an array, missing values, and numbers of two types."""
    labels = ["NULL", "None", 'a","b', "{}", "a\\", "'", "%s", None, "1\t2", "\\N", "ä€"]
    timeouts = [None, 1, 2.5, 1e-7]
    requests = [
        NewJob(
            kind=f"kind {i % 3}",
            payload='{\n"text": "\\u0022\\n, NULL"\n}' if i % 2 else f"[{i}]",
            label=label,
            tags='["a","b"]' if i % 4 else None,
            priority=-i,
            timeout=timeouts[i % 4],
            run_at=START + i * HOUR if i % 2 else None,
            hold=i == 5,
        )
        for i, label in enumerate(labels)
    ]
    for request, answer in zip(requests, store.jobs.enqueue_many(requests), strict=True):
        job = store.views.get(answer.id)
        kept = (job.kind, job.payload, job.label, job.tags, job.priority, job.timeout)
        assert kept == (request.kind, request.payload, request.label, request.tags, request.priority, request.timeout)
        assert job.due_at == (request.run_at or START)
        assert (job.state is State.HELD) == request.hold


def test_long_payloads_of_many_jobs_take_several_statements(store, monkeypatch):
    """A statement has a limit of its size."""
    monkeypatch.setattr(statements, "MAX_CHARACTERS", 100)
    requests = [NewJob(kind="mail", payload=f'"{str(i) * 40}"') for i in range(7)]
    answers = store.jobs.enqueue_many(requests)
    assert [store.views.get(answer.id).payload for answer in answers] == [request.payload for request in requests]


def test_the_answer_says_created_with_the_id(store):
    """A new job is created; its id is never given again."""
    first, second = (store.jobs.enqueue(NewJob(kind="mail")) for _ in range(2))
    assert first.created
    assert second.created
    assert first.id != second.id


def test_ids_are_never_reused(store):
    """Not even after the newest job was removed."""
    job_id = put(store)
    store.control.delete(only(job_id))
    assert put(store) > job_id


def test_ten_thousand_jobs_go_in_at_once(store):
    """The bulk path takes 10,000 jobs in one call and answers in their order."""
    answers = store.jobs.enqueue_many([NewJob(kind="mail", payload=f'{{"n":{n}}}') for n in range(10_000)])
    assert len({answer.id for answer in answers}) == 10_000
    assert store.views.get(answers[1234].id).payload == '{"n":1234}'
    assert store.views.count(Selector(), cap=20_000).count == 10_000


def test_jobs_that_are_alike_keep_their_options_and_their_order(store, monkeypatch):
    """Also if they take several statements."""
    monkeypatch.setattr(job_rows, "MAX_ROWS", 7)
    request = NewJob(
        kind="mail", queue="q", priority=3, label="l", tags='["a"]', delay=HOUR, max_attempts=9, actor="ada"
    )
    for count in (1, 7, 8, 20):
        payloads = [f'{{"n":"\\\\ \\" {n}"}}' for n in range(count)]
        answers = store.jobs.enqueue_alike(request, payloads)
        jobs = [store.views.get(answer.id) for answer in answers]
        assert [job.payload for job in jobs] == payloads
        assert {(job.queue, job.priority, job.label, job.tags) for job in jobs} == {("q", 3, "l", '["a"]')}
        assert {(job.state, job.due_at, job.created_at) for job in jobs} == {(State.SCHEDULED, START + HOUR, START)}
        assert {(job.max_attempts, job.actor) for job in jobs} == {(9, "ada")}


@pytest.mark.parametrize("rows", [100, 3])
def test_jobs_that_are_alike_are_all_or_nothing(store, monkeypatch, rows):
    """A payload that the database refuses leaves nothing behind, also in a later statement."""
    monkeypatch.setattr(job_rows, "MAX_ROWS", rows)
    broken = '{"n":1}' if store.backend.name == "sqlite" else "no json"
    request = NewJob(kind="mail", priority=2**31 if store.backend.name == "sqlite" else 0)
    with pytest.raises(InvalidInput):
        store.jobs.enqueue_alike(request, [*['{"n":1}'] * 5, broken])
    assert states(store) == {}


def test_payloads_of_any_length_and_with_several_lines_are_kept(store):
    """A long one is not prefetched."""
    payloads = ['{"n":1}', '{\n"n":2}', f'{{"text":"{"x" * 40_000}"}}']
    answers = store.jobs.enqueue_alike(NewJob(kind="mail"), payloads)
    assert [store.views.get(answer.id).payload for answer in answers] == payloads
    store.jobs.enqueue_alike(NewJob(kind="long"), payloads[2:])
    assert not take(store, 0, ahead=10, kinds=["long"])


def test_no_payload_is_no_work(store):
    """An empty call is answered with an empty list."""
    assert store.jobs.enqueue_alike(NewJob(kind="mail"), []) == []


def test_many_is_all_or_nothing(store):
    """One bad request among many leaves nothing behind."""
    put(store, unique=Unique("taken"))
    clash = NewJob(kind="mail", unique=Unique("taken"), on_conflict=OnConflict.RAISE)
    with pytest.raises(DuplicateJob):
        store.jobs.enqueue_many([NewJob(kind="mail"), clash])
    assert len(states(store)) == 1


def test_no_request_is_no_work(store):
    """An empty call is answered with an empty list."""
    assert store.jobs.enqueue_many([]) == []


def test_text_of_every_sort_survives_the_bulk_path(store):
    """Tabs, newlines, backslashes, quotes and emoji come back as they went in."""
    odd = 'tab\t newline\n back\\slash \\N \\. "quotes" \u2028 \U0001f600 \r\x0b\x7f\x85'
    requests = [NewJob(kind="mail", label=odd.strip(), payload='{"a":"\\\\n \\t"}'), NewJob(kind="mail", label="\\N")]
    first, second = store.jobs.enqueue_many(requests)
    assert store.views.get(first.id).label == odd.strip()
    assert store.views.get(first.id).payload == '{"a":"\\\\n \\t"}'
    assert store.views.get(second.id).label == "\\N"


def test_a_delay_counts_from_now_and_run_at_is_absolute(store):
    """Both schedule; what is due already is ready."""
    late = put(store, delay=HOUR)
    dated = put(store, run_at=START + HOUR * 2)
    past = put(store, run_at=START - HOUR)
    assert states(store) == {late: State.SCHEDULED, dated: State.SCHEDULED, past: State.READY}
    assert store.views.get(late).due_at == START + HOUR
    assert store.views.get(dated).due_at == START + HOUR * 2


def test_one_and_many_schedule_alike(store):
    """The bulk path treats times as the single one does."""
    requests = [
        NewJob(kind="mail", delay=HOUR),
        NewJob(kind="mail", run_at=START - HOUR),
        NewJob(kind="mail", hold=True),
    ]
    ids = [answer.id for answer in store.jobs.enqueue_many(requests)]
    assert [states(store)[job_id] for job_id in ids] == [State.SCHEDULED, State.READY, State.HELD]
    assert store.views.get(ids[0]).due_at == START + HOUR


def test_a_held_job_waits_for_a_person(store):
    """It can be enqueued so that it does not start."""
    assert state(store, put(store, hold=True)) is State.HELD
    assert take(store) == []


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"delay": HOUR, "run_at": START}, InvalidInput),
        ({"run_at": START.replace(tzinfo=None)}, InvalidInput),
        ({"run_at": datetime.max.replace(tzinfo=UTC)}, InvalidInput),  # K69
        ({"run_at": datetime.min.replace(tzinfo=timezone(HOUR))}, InvalidInput),
        ({"run_at": datetime(9000, 1, 1, tzinfo=timezone(-HOUR))}, InvalidInput),
        ({"delay": timedelta.max}, InvalidInput),
        ({"delay": -HOUR}, InvalidInput),
        ({"priority": 2**31}, InvalidInput),
        ({"label": "nul\0"}, InvalidText),
        ({"queue": ""}, InvalidInput),
        ({"unique": Unique("k\0")}, InvalidText),
    ],
)
def test_what_makes_no_sense_is_refused(store, options, error):
    """Nothing is written."""
    with pytest.raises(error):
        put(store, **options)
    with pytest.raises(error):
        store.jobs.enqueue_many([NewJob(kind="mail", **options)])
    assert states(store) == {}


# -- uniqueness ----------------------------------------------------------------------------


def test_a_taken_key_is_answered_with_the_job_that_has_it(store):
    """Skip is the default: already there, with the id."""
    first = store.jobs.enqueue(NewJob(kind="mail", unique=Unique("k")))
    second = store.jobs.enqueue(NewJob(kind="mail", unique=Unique("k")))
    assert (second.id, second.created, second.replaced) == (first.id, False, False)
    assert len(states(store)) == 1


def test_keys_are_per_kind(store):
    """The same key of another kind is another key."""
    assert put(store, kind="a", unique=Unique("k")) != put(store, kind="b", unique=Unique("k"))


def test_a_live_key_frees_when_the_job_ends(store):
    """While it is scheduled for a retry it is still taken."""
    first = put(store, unique=Unique("k"))
    store.leases.settle(take_one(store), BOOM)
    assert put(store, unique=Unique("k")) == first
    store.control.cancel(only(first), actor="ada")
    assert put(store, unique=Unique("k")) != first


def test_a_key_for_a_period_frees_when_it_is_over(store, clock):
    """It stays taken after the job has ended, until its time is over."""
    first = put(store, unique=Unique("k", KeyScope.PERIOD, HOUR))
    store.leases.settle(take_one(store), Done())
    assert put(store, unique=Unique("k", KeyScope.PERIOD, HOUR)) == first
    clock.advance(HOUR)
    assert put(store, unique=Unique("k", KeyScope.PERIOD, HOUR)) != first


def test_a_period_never_frees_the_key_of_a_live_job(store, clock):
    """At most one live job per key, however long the job takes."""
    first = put(store, unique=Unique("k", KeyScope.PERIOD, HOUR))
    clock.advance(HOUR * 2)
    assert put(store, unique=Unique("k", KeyScope.PERIOD, HOUR)) == first


def test_a_key_for_ever_never_frees(store):
    """It is an idempotency key."""
    first = put(store, unique=Unique("k", KeyScope.FOREVER))
    store.leases.settle(take_one(store), Done())
    assert put(store, unique=Unique("k", KeyScope.FOREVER)) == first


def test_a_conflict_can_raise(store):
    """The error names the job that has the key, not the key: it may contain a secret."""
    unique = Unique("iban-hunter22")
    first = put(store, unique=unique)
    with pytest.raises(DuplicateJob, match=f"job {first} of kind 'mail'") as caught:
        put(store, unique=unique, on_conflict=OnConflict.RAISE)
    assert caught.value.context["job_id"] == first
    twice = [NewJob(kind="mail", unique=unique, on_conflict=OnConflict.REPLACE)] * 2
    with pytest.raises(InvalidInput, match="same key of kind 'mail'") as replaced:
        store.jobs.enqueue_many(twice)
    assert "hunter22" not in f"{caught.value} {replaced.value}"


def test_a_conflict_can_replace_a_job_that_does_not_run(store):
    """The job keeps its id and gets the new payload, priority and time."""
    first = put(store, unique=Unique("k"), payload='{"v":1}')
    answer = store.jobs.enqueue(
        NewJob(
            kind="mail",
            unique=Unique("k"),
            on_conflict=OnConflict.REPLACE,
            payload='{"v":2}',
            priority=5,
            delay=HOUR,
            label="new",
        )
    )
    job = store.views.get(first)
    assert (answer.id, answer.created, answer.replaced) == (first, False, True)
    assert (job.payload, job.priority, job.state, job.label) == ('{"v":2}', 5, State.SCHEDULED, "new")
    assert [event.name for event in store.views.events(first)] == ["enqueued", "replaced"]


def test_replace_leaves_a_running_job_alone(store):
    """It acts as skip."""
    first = put(store, unique=Unique("k"), payload='{"v":1}')
    take_one(store)
    request = NewJob(kind="mail", unique=Unique("k"), on_conflict=OnConflict.REPLACE, payload='{"v":2}')
    answer = store.jobs.enqueue(request)
    assert (answer.id, answer.replaced) == (first, False)
    assert store.views.get(first).payload == '{"v":1}'


def test_keys_work_in_bulk(store):
    """Conflicts with the store and inside the call are answered one by one."""
    old = put(store, unique=Unique("old"))
    requests = [NewJob(kind="mail", unique=Unique(key)) for key in ("old", "new", "new")] + [NewJob(kind="mail")]
    answers = store.jobs.enqueue_many(requests)
    assert [answer.created for answer in answers] == [False, True, False, True]
    assert answers[0].id == old
    assert answers[1].id == answers[2].id
    assert len(states(store)) == 3


def test_a_freed_key_changes_hands_in_bulk(store):
    """Ended holders give way to the new jobs, all in one call."""
    first = put(store, unique=Unique("k"))
    store.leases.settle(take_one(store), Done())
    (answer,) = store.jobs.enqueue_many([NewJob(kind="mail", unique=Unique("k"))])
    assert answer.created
    assert put(store, unique=Unique("k")) == answer.id != first


# -- children -------------------------------------------------------------------------------


def test_a_running_job_enqueues_children(store):
    """They name it as their parent."""
    parent = put(store)
    lease = take_one(store)
    child = store.jobs.enqueue_child(NewJob(kind="child"), EnqueueCall(lease))
    assert store.views.get(child.id).parent_id == parent


@pytest.mark.parametrize(
    "options",
    [{}, {"unique": Unique("k")}, {"unique": Unique("taken"), "on_conflict": OnConflict.RERUN}, {"delay": HOUR}],
    ids=["plain", "with a key", "rerun", "delayed"],
)
@pytest.mark.parametrize("finished", [False, True])
def test_a_child_that_is_sent_again_is_one_job(store, options, finished):
    """K16: a handler sends its call again when nothing tells whether the first was committed."""
    put(store, "busy", unique=Unique("taken"))
    put(store)
    call, request = EnqueueCall(take_one(store)), NewJob(kind="child", **options)
    take_one(store, kinds=("busy",))
    first = store.jobs.enqueue_child(request, call)
    if finished:
        store.control.cancel(only(first.id), actor="ada")
    again = store.jobs.enqueue_child(request, call)
    assert again == first, "I2 is broken: a call that was sent again is another call"
    other = store.jobs.enqueue_child(NewJob(kind="child"), EnqueueCall(call.holder))
    assert len(states(store)) == 4
    assert other.created


def test_a_child_whose_first_try_was_rolled_back_is_enqueued(store):
    """On SQLite others have got its id meanwhile: it draws another one."""
    put(store)
    call, request = EnqueueCall(take_one(store)), NewJob(kind="child")
    with store.dry_run() as trial:
        trial.jobs.enqueue_child(request, call)
    others = [put(store) for _ in range(3)]
    child = store.jobs.enqueue_child(request, call)
    assert child.created
    assert child.id not in others, "I1 is broken: a call takes the job of another one for its own"
    assert len(states(store)) == 5


def test_a_lost_lease_enqueues_nothing(store):
    """A child is a write of the holder, and fenced like all of them."""
    put(store)
    lease = take_one(store)
    store.leases.settle(lease, Done())
    with pytest.raises(LeaseLost):
        store.jobs.enqueue_child(NewJob(kind="child"), EnqueueCall(lease))
    assert len(states(store)) == 1


def test_a_job_id_is_a_small_number(store):
    """The first job of a store is number 1."""
    assert put(store) == JobId(1)


@pytest.mark.parametrize("character", ["k", "字", "😀"])
def test_keys_of_the_documented_length_work(store, character):
    """K57: an index of PostgreSQL takes 2,704 bytes; a longer key was an error that promised to pass."""
    for kind in ("mail", "m" * 200):
        kept = store.jobs.enqueue(NewJob(kind=kind, unique=Unique(_incompressible(character, 512))))
        assert store.views.get(kept.id).key == _incompressible(character, 512)
    with pytest.raises(InvalidInput, match="at most 512 characters"):
        put(store, unique=Unique(_incompressible(character, 513)))


def test_kind_and_key_fit_into_one_index_row(store):
    """K57: names of four bytes a character count as what they take."""
    with pytest.raises(InvalidInput, match="at most 2,600"):
        put(store, "😀" * 200, unique=Unique("😀" * 512))


def _incompressible(first: str, size: int) -> str:
    """Text that an index cannot make smaller."""
    chance = random.Random(size)
    return "".join(chr(ord(first) + chance.randrange(20)) for _ in range(size))


def test_the_edges_of_the_calendar_work(store):
    """K69: the first and the last year can be kept, moved and read."""
    for edge in (datetime(1900, 1, 1, tzinfo=UTC), datetime(8999, 12, 31, 23, 59, tzinfo=UTC)):
        job_id = put(store, run_at=edge)
        assert store.views.get(job_id).due_at == edge
        store.control.reschedule(only(job_id), edge, actor="ada")
    with pytest.raises(InvalidInput):
        store.control.reschedule(Selector(), datetime.max.replace(tzinfo=UTC), actor="ada")

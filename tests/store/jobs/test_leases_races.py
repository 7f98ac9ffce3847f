"""Many processes at once: limits, unique keys, dependencies and claims stay exact (SPEC 8.26, 8.32)."""

from __future__ import annotations

import os
import threading
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.domain.jobs.dependencies import After
from holdfast.domain.jobs.job import Lease, State
from holdfast.domain.jobs.new_job import Enqueued, NewJob, Unique
from holdfast.domain.jobs.verdict import Done, Failed
from holdfast.store import Store
from holdfast.store.engine.operation import query
from holdfast.store.jobs.settlement import Settlement
from tests.support.jobs import claim_jobs
from tests.support.processes import connect, open_store, race

RACERS = 8
LONG = timedelta(minutes=5)


# -- limits --------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "kinds"), [(1, ["a"]), (3, ["a", "b"])], ids=["limit 1", "limit 3, two kinds"])
def test_a_limit_is_exact_under_racing_workers(real_database, tmp_path, limit, kinds):
    """However many processes claim, never more jobs of a queue run than its limit, and each is done once."""
    store = real_database.open()
    store.queues.set_limits("narrow", limit=limit)
    answers = store.jobs.enqueue_many([NewJob(kind=kinds[i % len(kinds)], queue="narrow") for i in range(100)])

    runs = race(RACERS, work_off_narrow_queue, real_database.url, tmp_path, limit, kinds)

    assert [fault for run in runs for fault in run["faults"]] == [], "I8 is broken"
    assert sorted(job_id for run in runs for job_id in run["finished"]) == [answer.id for answer in answers]
    assert real_database.execute("SELECT state, count(*) FROM holdfast.finished GROUP BY state") == [("done", 100)]


def work_off_narrow_queue(index, barrier, url, directory, limit, kinds):
    """In a child: claim, look whether too many run, settle; until no job is left."""
    store, sql, pause = open_store(url), connect(url, autocommit=True), threading.Event()
    finished, faults = [], []
    barrier.wait()
    while count_live(sql, url):
        leases = claim_jobs(store, f"w{index}", queues=["narrow"], kinds=kinds, limit=2, lease_duration=LONG)
        slots = [take_slot(directory, limit) for _ in leases]
        if leases and (None in slots or not 1 <= count_live(sql, url, "state = 'running'") <= limit):
            faults.append([lease.job_id for lease in leases])
        for lease, slot in zip(leases, slots, strict=True):
            release_slot(slot)
            store.leases.settle(lease, Done())
            finished.append(lease.job_id)
        if not leases:
            pause.wait(0.01)
    return {"finished": finished, "faults": faults}


def take_slot(directory: Path, limit: int) -> Path | None:
    """One of *limit* files, made for this run alone; None when all are taken: too many run."""
    for number in range(limit):
        slot = directory / f"slot-{number}"
        try:
            os.close(os.open(slot, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        return slot
    return None


def release_slot(slot: Path | None) -> None:
    if slot is not None:
        slot.unlink()


def count_live(sql, url, condition="true"):
    prefix = "holdfast_" if url.startswith("sqlite") else "holdfast."
    return sql.execute(f"SELECT count(*) FROM {prefix}live WHERE {condition}").fetchone()[0]


# -- unique keys ---------------------------------------------------------------------------


def test_one_key_makes_one_job_however_many_ask(real_database):
    """Of processes that enqueue the same key at once one creates the job, and all learn its id."""
    real_database.open()
    rounds = 40
    answers = race(RACERS, enqueue_same_keys, real_database.url, rounds)

    for number in range(rounds):
        together = [mine[number] for mine in answers]
        assert [answer.created for answer in together].count(True) == 1
        assert len({answer.id for answer in together}) == 1
    assert real_database.execute("SELECT count(*) FROM holdfast.live") == [(rounds,)]


def test_a_freed_key_goes_to_one_of_many(real_database):
    """When the job of a key has ended, one of the processes that want the key next gets it."""
    store = real_database.open()
    rounds = 15
    for number in range(rounds):
        store.jobs.enqueue(NewJob(kind="once", unique=Unique(f"key-{number}")))
    old = claim_jobs(store, "w", queues=["default"], kinds=["once"], limit=rounds)
    store.leases.settle_many([Settlement(lease, Done()) for lease in old])

    answers = race(RACERS, enqueue_same_keys, real_database.url, rounds)

    for number in range(rounds):
        together = [mine[number] for mine in answers]
        assert [answer.created for answer in together].count(True) == 1
        assert len({answer.id for answer in together}) == 1
    assert real_database.execute("SELECT count(*) FROM holdfast.live") == [(rounds,)]


def test_a_job_that_was_answered_as_there_is_there(real_database):
    """With callers that roll back, nobody is told of a job that does not exist, and a kept answer has its job."""
    real_database.open()
    rounds = 30
    answers = race(RACERS, enqueue_and_maybe_roll_back, real_database.url, rounds)

    live = {row[0] for row in real_database.execute("SELECT id FROM holdfast.live")}
    kept_created = 0
    for number in range(rounds):
        together = [mine[number] for mine in answers]
        promised = {answer.id for answer, kept in together if kept or not answer.created}
        assert len(promised) == 1
        assert promised <= live
        kept_created += sum(kept and answer.created for answer, kept in together)
    assert kept_created == rounds == len(live)


def enqueue_same_keys(index, barrier, url, rounds) -> list[Enqueued]:
    store = open_store(url)
    answers = []
    for number in range(rounds):
        barrier.wait()
        answers.append(store.jobs.enqueue(NewJob(kind="once", unique=Unique(f"key-{number}"))))
    return answers


def enqueue_and_maybe_roll_back(index, barrier, url, rounds) -> list[tuple[Enqueued, bool]]:
    """In a child: enqueue in a transaction of one's own; all but two of the processes roll back."""
    store, connection = open_store(url), connect(url)
    answers = []
    for number in range(rounds):
        barrier.wait()
        (answer,) = store.jobs.enqueue_on(connection, [NewJob(kind="once", unique=Unique(f"key-{number}"))])
        keep = (index + number) % 4 == 0
        (connection.commit if keep else connection.rollback)()
        answers.append((answer, keep))
    return answers


# -- dependencies --------------------------------------------------------------------------


def test_enqueue_after_never_misses_the_end_of_its_need(real_database):
    """It starts or is given up while its need ends, without any sweep, and not before the end (SPEC 8.32)."""
    store = real_database.open()
    rounds = 30
    store.jobs.enqueue_many([NewJob(kind="dependency") for _ in range(rounds)])
    dependencies = claim_jobs(
        store, "holder", queues=["default"], kinds=["dependency"], limit=rounds, lease_duration=LONG
    )

    early = race(RACERS, settle_or_depend, real_database.url, dependencies)

    assert [fault for faults in early for fault in faults] == []
    assert real_database.execute("SELECT id FROM holdfast.live WHERE state = 'waiting'") == []
    assert count_dependents(real_database) == {
        ("started", "done"): rounds // 2 * (RACERS - 1),
        ("cancelled", "dead"): rounds // 2 * (RACERS - 1),
    }


def settle_or_depend(index, barrier, url, dependencies: list[Lease]) -> list[int]:
    """In a child: the first one ends the needs, the others enqueue jobs after them, and start what they may."""
    store, pause = open_store(url), threading.Event()
    faults = []
    for number, need in enumerate(dependencies):
        barrier.wait()
        # The end comes a little earlier or later from round to round: the race has many finishes.
        if index == 0:
            pause.wait(number % 10 / 1000)
            store.leases.settle(need, Done() if number % 2 else Failed(error="no", permanent=True))
        else:
            after = After(ids=(need.job_id,))
            store.jobs.enqueue(NewJob(kind="dependent", payload=str(need.job_id), after=after))
            faults += start_dependents(store, f"w{index}")
    return faults


def start_dependents(store: Store, worker: str) -> list[int]:
    """Claim and end dependents; answers those whose need had not ended."""
    leases = claim_jobs(store, worker, queues=["default"], kinds=["dependent"], limit=10, lease_duration=LONG)
    faults = [lease.job_id for lease in leases if not store.views.state(int(lease.payload)).finished]
    store.leases.settle_many([Settlement(lease, Done()) for lease in leases])
    return faults


def count_dependents(database):
    """How many dependents stand where, by the state of their need. Ready and done ones could start."""
    rows = database.execute(
        "WITH seen AS (SELECT id, state FROM holdfast.live UNION ALL SELECT id, state FROM holdfast.finished)"
        " SELECT view.state, dependency.state, count(*) FROM seen AS view"
        " JOIN holdfast.dependency AS edge ON edge.job_id = view.id JOIN seen AS dependency ON dependency.id = edge.dependency_id"
        " GROUP BY view.state, dependency.state"
    )
    counts: Counter[tuple[str, str]] = Counter()
    for state, need, count in rows:
        counts["started" if state in (State.READY, State.DONE) else state, need] += count
    return counts


# -- claims --------------------------------------------------------------------------------


def test_a_job_is_handed_out_once(real_database, tmp_path):
    """Processes that claim in batches from one queue get every job, and none twice."""
    store = real_database.open()
    answers = store.jobs.enqueue_many([NewJob(kind="mail") for _ in range(2000)])

    race(RACERS, claim_in_batches, real_database.url, tmp_path)

    claims = [(tmp_path / f"claims-{index}").read_text().split() for index in range(RACERS)]
    assert sorted(int(job_id) for mine in claims for job_id in mine) == [answer.id for answer in answers]
    assert real_database.execute("SELECT state, token, attempts, count(*) FROM holdfast.finished GROUP BY 1, 2, 3") == [
        ("done", 1, 1, 2000)
    ]
    assert real_database.execute("SELECT count(*) FROM holdfast.live") == [(0,)]


def claim_in_batches(index, barrier, url, directory) -> None:
    store = open_store(url)
    barrier.wait()
    with (directory / f"claims-{index}").open("w") as claims:
        while leases := claim_jobs(
            store, f"w{index}", queues=["default"], kinds=["mail"], limit=10, lease_duration=LONG
        ):
            claims.writelines(f"{lease.job_id}\n" for lease in leases)
            assert store.leases.settle_many([Settlement(lease, Done()) for lease in leases]).lost == set()


# -- the first to come ---------------------------------------------------------------------


def open_fresh(index, barrier, url, rounds):
    """Open stores that nobody has made yet; answers how often that went well."""
    opened = 0
    for n in range(rounds):
        barrier.wait()
        backend = fresh_backend(url, n)
        opened += backend.fetch(query("read_installation")) != []
        backend.close()
    return opened


def fresh_backend(url, n):
    if url.startswith("sqlite:///"):
        from holdfast.store.sqlite.backend import SqliteBackend

        return SqliteBackend(Path(f"{url.removeprefix('sqlite:///')}-fresh-{n}.db"))
    from holdfast.store.postgres.backend import PostgresBackend

    return PostgresBackend(url, schema=f"fresh_{n}")


def test_many_who_find_no_store_make_one(real_database):
    """All of them go on with it, whoever was first."""
    rounds = 5
    try:
        assert race(RACERS, open_fresh, real_database.url, rounds) == [rounds] * RACERS
    finally:
        if real_database.name != "sqlite":
            for n in range(rounds):
                real_database.execute(f"DROP SCHEMA IF EXISTS fresh_{n} CASCADE")

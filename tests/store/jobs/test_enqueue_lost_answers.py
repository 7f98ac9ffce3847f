"""An enqueue happens once, whatever path it takes and whatever happens to its answer (I1, I2).

Every path of an enqueue meets every fault of a connection and ids that were given out twice, while the jobs of its first
try are live or finished. SQLite has no connection that could break after a commit: test_enqueue.py repeats calls there.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast.domain.jobs.job import Lease
from holdfast.domain.jobs.new_job import NewJob, Unique
from holdfast.domain.jobs.verdict import Done
from holdfast.store import Store
from holdfast.store.jobs import job_rows
from holdfast.store.jobs.enqueue import EnqueueCall
from tests.chaos.standing import Broken, audit
from tests.support.backends import Database
from tests.support.jobs import claim_jobs
from tests.support.proxy import Proxy, proxy_to

#: The statements whose answers say that an enqueue is committed, and what the client sends next if it gets none.
INSERT, COMMIT, STATUS = "INSERT INTO holdfast.live", "COMMIT", "pg_xact_status"
NEXT = {INSERT: INSERT, COMMIT: STATUS}
#: Jobs that have the ids which are given out once more.
TAKEN = 40


class Producer:
    """Enqueues numbered jobs through a proxy. Remembers the ids that were acknowledged, and the errors."""

    def __init__(self, database: Database, proxy: Proxy) -> None:
        self.database = database
        self.proxy = proxy
        self.direct: Store = database.open()
        self.acknowledged: dict[int, int] = {}
        self.errors: list[Exception] = []
        self.app = holdfast.Holdfast(proxy.uri)

        @self.app.job(name="numbered")
        def numbered(n: int) -> None: ...

        self.numbered = numbered

    def holder(self) -> Lease:
        """A running job."""
        self.direct.jobs.enqueue(NewJob(kind="parent", queue="parents"))
        (lease,) = claim_jobs(self.direct, "holder", queues=["parents"], kinds=["parent"])
        return lease

    def call(self, numbers: range, enqueue: Callable[[], list[int]]) -> None:
        try:
            ids = enqueue()
        except (holdfast.HoldfastError, psycopg.Error) as error:
            self.errors.append(error)
        else:
            self.acknowledged |= dict(zip(numbers, ids, strict=True))

    def finish_all(self) -> None:
        """What a fast worker does before the client knows that its jobs exist."""
        while leases := claim_jobs(self.direct, "worker", 100, queues=["default"], kinds=["numbered"]):
            for lease in leases:
                self.direct.leases.settle(lease, Done())

    def check(self) -> None:
        rows = self.database.execute("SELECT (payload->>'n')::int, id FROM holdfast.job WHERE kind = 'numbered'")
        copies = Counter(n for n, _ in rows if n >= 0)
        if doubled := sorted(n for n, count in copies.items() if count > 1):
            raise Broken("I2", f"jobs exist twice: {doubled}")
        if lost := sorted(self.acknowledged.items() - {(n, job_id) for n, job_id in rows}):
            raise Broken("I1", f"acknowledged jobs do not exist: {lost}")
        audit(self.database.execute)


def payloads(numbers: range) -> list[dict[str, int]]:
    return [{"n": n} for n in numbers]


def requests(numbers: range, **options: Any) -> list[NewJob]:
    """Jobs that differ in more than their payloads."""
    return [NewJob(kind="numbered", payload=json.dumps({"n": n}), label=f"{n}", **options) for n in numbers]


# -- the paths of an enqueue ---------------------------------------------------------------


def single(producer: Producer) -> None:
    producer.call(range(1), lambda: [producer.numbered.enqueue(n=0).id])


def threads(producer: Producer) -> None:
    """Eight threads, each of which enqueues one job after another."""

    def enqueue(thread: int) -> None:
        for n in range(4 * thread, 4 * thread + 4):
            producer.call(range(n, n + 1), lambda n=n: [producer.numbered.enqueue(n=n).id])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(enqueue, range(8)))


def alike(producer: Producer) -> None:
    """One statement."""
    numbers = range(20)
    producer.call(numbers, lambda: [ref.id for ref in producer.numbered.enqueue_many(payloads(numbers))])


def blocks(producer: Producer) -> None:
    """Several statements in a transaction."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_rows, "MAX_ROWS", 7)
        alike(producer)


def mixed(producer: Producer) -> None:
    producer.call(range(20), lambda: [made.id for made in producer.app.store.jobs.enqueue_many(requests(range(20)))])


def keys(producer: Producer) -> None:
    """A call with keys of its own, one that is taken, and jobs without a key."""
    taken = producer.direct.jobs.enqueue(NewJob(kind="numbered", payload='{"n":-1}', hold=True, unique=Unique("taken")))
    keyed = [
        *requests(range(3)),
        *(NewJob(kind="numbered", payload=f'{{"n":{n}}}', unique=Unique(f"{n}")) for n in (3, 4)),
    ]
    existing = NewJob(kind="numbered", payload='{"n":-2}', unique=Unique("taken"))

    def enqueue() -> list[int]:
        answers = producer.app.store.jobs.enqueue_many([existing, *keyed])
        assert (answers[0].id, answers[0].created) == (taken.id, False)
        return [answer.id for answer in answers[1:]]

    producer.call(range(5), enqueue)


def key(producer: Producer) -> None:
    producer.call(range(1), lambda: [producer.numbered.options(key="k").enqueue(n=0).id])


def dependencies(producer: Producer) -> None:
    after = producer.direct.jobs.enqueue(NewJob(kind="numbered", payload='{"n":-1}', hold=True)).id
    numbers = range(5)
    options = producer.numbered.options(after=after)
    producer.call(numbers, lambda: [ref.id for ref in options.enqueue_many(payloads(numbers))])


def child(producer: Producer) -> None:
    (request,) = requests(range(1))
    call = EnqueueCall(producer.holder())
    producer.call(range(1), lambda: [producer.app.store.jobs.enqueue_child(request, call).id])


def asynchronous(producer: Producer) -> None:
    numbers = range(5)

    async def enqueue() -> list[int]:
        return [ref.id for ref in await producer.numbered.aenqueue_many(payloads(numbers))]

    producer.call(numbers, lambda: asyncio.run(enqueue()))


def caller(producer: Producer) -> None:
    """The caller commits, and gets the error of a commit without an answer."""
    numbers = range(5)

    def enqueue() -> list[int]:
        with psycopg.connect(producer.proxy.url) as connection:
            refs = producer.numbered.options(connection=connection).enqueue_many(payloads(numbers))
            connection.commit()
            return [ref.id for ref in refs]

    producer.call(numbers, enqueue)


def async_caller(producer: Producer) -> None:
    numbers = range(5)

    async def enqueue() -> list[int]:
        async with await psycopg.AsyncConnection.connect(producer.proxy.url) as connection:
            refs = await producer.numbered.options(connection=connection).aenqueue_many(payloads(numbers))
            await connection.commit()
            return [ref.id for ref in refs]

    producer.call(numbers, lambda: asyncio.run(enqueue()))


#: Each path, and the statement that commits it.
PATHS: dict[Callable[[Producer], None], str] = {
    single: INSERT,
    threads: INSERT,
    alike: INSERT,
    asynchronous: INSERT,
    blocks: COMMIT,
    mixed: COMMIT,
    keys: COMMIT,
    key: COMMIT,
    dependencies: COMMIT,
    child: COMMIT,
    caller: COMMIT,
    async_caller: COMMIT,
}
CALLERS = (caller, async_caller)
path_of_an_enqueue = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.__name__)


@pytest.fixture
def producer(postgres_database: Database) -> Iterator[Producer]:
    with proxy_to(postgres_database.url) as proxy:
        producer = Producer(postgres_database, proxy)
        producer.app.store.kinds.publish(producer.app._registry.unpublished())
        yield producer
        producer.app.close()


@path_of_an_enqueue
@pytest.mark.parametrize("ends", ["live", "finished"])
@pytest.mark.parametrize("lost", ["the answer", "its end"])
def test_a_lost_answer_doubles_nothing(producer, path, lost, ends):
    """The connection is cut when the enqueue is committed. The client sends it again, or asks what became of it."""
    statement, proxy = PATHS[path], producer.proxy
    proxy.keeps_rows = lost == "its end"
    proxy.lose_answer(statement)
    if ends == "finished":
        proxy.meanwhile(statement, lambda: proxy.meanwhile(NEXT[statement], producer.finish_all))
    path(producer)
    assert proxy.cuts == 1
    producer.check()
    if path not in CALLERS:
        assert not producer.errors, f"I2 is broken: an enqueue that happens is an error: {producer.errors}"


@path_of_an_enqueue
@pytest.mark.parametrize("before", ["its commit", "its first row"])
def test_a_connection_that_breaks_before_the_commit_loses_nothing(producer, path, before):
    """Nothing was written, so the call is repeated."""
    statement = PATHS[path] if before == "its commit" else "INSERT INTO"
    cut = producer.proxy.meanwhile(statement, lambda: producer.proxy.lead_to(producer.database.url))
    path(producer)
    assert cut.wait(60)
    producer.check()
    if path not in CALLERS:
        assert not producer.errors, f"I1 is broken: an enqueue is not repeated: {producer.errors}"


@path_of_an_enqueue
@pytest.mark.parametrize("ends", ["live", "finished"])
def test_ids_that_were_given_out_twice_are_drawn_anew(producer, path, ends):
    """K35: a failover or a restore has set the sequence back. The jobs that have the ids are live, or finished."""
    others = requests(range(-TAKEN, 0))
    if path is child:
        producer.holder()
    producer.direct.jobs.enqueue_many(others)
    if ends == "finished":
        producer.finish_all()
    producer.database.execute("SELECT setval('holdfast.job_id', 1, false)")
    if path is child:  # its parent has an id of its own
        producer.direct.backend.discard_ids()
        call = EnqueueCall(producer.holder())
        producer.database.execute("SELECT setval('holdfast.job_id', 1, false)")
        (request,) = requests(range(1))
        producer.call(range(1), lambda: [producer.app.store.jobs.enqueue_child(request, call).id])
    else:
        path(producer)
    assert not producer.errors, f"I1 is broken: {producer.errors}"
    producer.check()


@pytest.mark.parametrize("path", [single, alike, asynchronous], ids=lambda path: path.__name__)
def test_an_answer_that_never_comes_is_an_error_and_one_job(producer, path):
    """The last try ends the call. Its jobs exist once."""
    producer.proxy.lose_answer(INSERT, times=5)
    path(producer)
    assert producer.proxy.cuts == 5
    assert [type(error) for error in producer.errors] == [holdfast.StoreUnavailable]
    producer.check()


@pytest.mark.parametrize("options", [{}, {"unique": Unique("k")}], ids=["plain", "with a key"])
@pytest.mark.parametrize("ends", ["live", "finished"])
def test_a_call_whose_commit_is_unknown_can_be_repeated(producer, ends, options):
    """After a crash the server does not know what became of a transaction. The call itself does, when it is sent again."""
    call, proxy = EnqueueCall(producer.holder()), producer.proxy
    request = NewJob(kind="numbered", payload='{"n":0}', **options)
    proxy.lose_answer(COMMIT)
    proxy.meanwhile(STATUS, lambda: producer.database.execute("UPDATE holdfast.epoch SET id = gen_random_uuid()"))

    def enqueue() -> list[int]:
        return [producer.app.store.jobs.enqueue_child(request, call).id]

    producer.call(range(1), enqueue)
    assert [type(error) for error in producer.errors] == [holdfast.StoreUnavailable]
    if ends == "finished":
        producer.finish_all()
    producer.call(range(1), enqueue)
    assert len(producer.errors) == 1
    producer.check()

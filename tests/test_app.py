"""The app: handlers, options, references."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from datetime import UTC, datetime, timedelta

import pytest

import holdfast
from holdfast.errors import (
    DuplicateJob,
    InvalidInput,
    InvalidKind,
    InvalidPayload,
    JobCancelled,
    JobFailed,
    NoSuchJob,
    ResultDropped,
    UnknownKind,
    WaitTimeout,
)
from holdfast.testing import drain
from tests.support.jobs import claim_jobs


@pytest.fixture
def app(real_database):
    with holdfast.Holdfast(real_database.url) as app:
        yield app


@pytest.fixture
def add(app):
    @app.job(max_attempts=1)
    def add(a: int, b: int = 1) -> int:
        """Add two numbers."""
        return a + b

    return add


def test_a_handler_is_still_a_function(add):
    """It can be called, and keeps its name and docstring."""
    assert add(1, 2) == 3
    assert add.__name__ == "add"
    assert add.__doc__ == "Add two numbers."


def test_enqueue_run_result(app, add):
    """An enqueue reads like a call; the result is read from the store."""
    ref = add.enqueue(1, b=5)
    assert (ref.created, ref.state) == (True, holdfast.State.READY)
    assert drain(app) == 1
    assert ref.result() == 6
    assert ref.job().result == "6"


def test_a_result_can_be_typed(app):
    """The caller chooses the type."""

    @app.job()
    def today() -> datetime:
        return datetime(2030, 1, 1, tzinfo=UTC)

    ref = today.enqueue()
    drain(app)
    assert ref.result(type=datetime) == datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("decorator", ["job", "unit"])
def test_a_registered_function_keeps_its_application_alive(decorator):
    """A child process finds the kind although the module names only the function."""
    application = holdfast.Holdfast("sqlite:///never-opened.db")
    function = getattr(application, decorator)(name="kept")(lambda key: None)
    kept = weakref.ref(application)
    del application
    gc.collect()
    assert function is not None
    assert kept() is not None


def test_many_at_once(app, add):
    """Payloads are mappings; references come in their order."""
    refs = add.enqueue_many([{"a": n} for n in range(5)])
    drain(app)
    assert [ref.result() for ref in refs] == [1, 2, 3, 4, 5]


def test_a_wrong_payload_fails_at_the_call(app, add):
    """The error names the field, and nothing is enqueued."""
    for call in (
        lambda: add.enqueue("x"),
        lambda: add.enqueue_many([{"a": 1}, {"a": "x"}]),
        lambda: add.enqueue(1, c=2),
    ):
        with pytest.raises(InvalidPayload):
            call()
    assert app.views.count(holdfast.Selector()).count == 0


def test_options(app, add):
    """Queue, priority, delay, label, tags, hold, actor."""
    ref = add.options(queue="q", priority=3, delay="1h", label="l", tags=["x", "y"], actor="ada").enqueue(1)
    job = ref.job()
    assert (job.queue, job.priority, job.label, job.tags, job.actor) == ("q", 3, "l", '["x","y"]', "ada")
    assert job.due_at - job.created_at == timedelta(hours=1)
    held = add.options(hold=True).enqueue(1)
    assert held.state is holdfast.State.HELD


def test_keys(app, add):
    """Unique while live, for a time, or for ever; skip, replace or raise."""
    first = add.options(key="k").enqueue(1)
    second = add.options(key="k").enqueue(2)
    assert (second.id, second.created) == (first.id, False)
    with pytest.raises(DuplicateJob):
        add.options(key="k", on_conflict="raise").enqueue(2)
    third = add.options(key="k", on_conflict="replace").enqueue(7)
    assert third.replaced
    drain(app)
    assert first.result() == 8
    ever = add.options(key="e", key_for="ever").enqueue(1)
    timed = add.options(key="t", key_for="1h").enqueue(1)
    drain(app)
    assert add.options(key="e", key_for="ever").enqueue(1).id == ever.id
    assert add.options(key="t", key_for="1h").enqueue(1).id == timed.id


def test_a_kind_can_name_its_key(app):
    """The payload fields form the key."""

    @app.job(unique=["user"])
    def greet(user: int, text: str = "hi") -> None: ...

    assert greet.enqueue(1).id == greet.enqueue(1, "hello").id
    assert greet.enqueue(2).created


def test_after(app, add):
    """A reference, an id, several, or a condition."""
    first, second = add.enqueue(1), add.enqueue(2)
    for after in (first, first.id, [first, second.id], holdfast.After(ids=(first.id,))):
        assert add.options(after=after).enqueue(3).state is holdfast.State.WAITING
    with pytest.raises(InvalidInput):
        add.options(after=[])
    assert drain(app) == 6


@pytest.mark.parametrize("options", [{"delay": "soon"}, {"on_conflict": "perhaps"}, {"delay": -1}, {"tags": [""]}])
def test_senseless_options_are_refused(add, options):
    """The call itself raises."""
    with pytest.raises(InvalidInput):
        add.options(**options).enqueue(1)


def test_failures_and_cancels_are_raised(app, add):
    """A reference raises the failure of its job."""

    @app.job(max_attempts=1)
    def fail() -> None:
        raise RuntimeError("boom")

    dead = fail.enqueue()
    drain(app)
    with pytest.raises(JobFailed, match="boom"):
        dead.result()
    cancelled = add.enqueue(1)
    app.control.cancel(holdfast.Selector(ids=(cancelled.id,)), actor="ada")
    with pytest.raises(JobCancelled):
        cancelled.result()


def test_waiting_has_an_end(add):
    """A timeout is an error of its own."""
    with pytest.raises(WaitTimeout) as caught:
        add.enqueue(1).wait(0.02)
    assert caught.value.retryable


def test_waiting_sees_the_end(app, add):
    """A job that another thread runs is noticed."""
    ref = add.enqueue(1)
    runner = threading.Thread(target=drain, args=(app,))
    runner.start()
    assert ref.wait("10s").state is holdfast.State.DONE
    runner.join()


def test_async_twins(app, add):
    """Thin wrappers of the same calls."""

    async def scenario():
        ref = await add.aenqueue(1)
        others = await add.aenqueue_many([{"a": 2}])
        await asyncio.to_thread(drain, app)
        job = await ref
        existing = await app.aget(others[0].id)
        return job.state, await ref.aresult(), await existing.aresult()

    assert asyncio.run(scenario()) == (holdfast.State.DONE, 2, 3)


def test_get(app, add):
    """Returns an existing job, or raises."""
    ref = add.enqueue(1)
    assert app.get(ref.id).id == ref.id
    assert repr(ref) == f"JobRef({ref.id})"
    with pytest.raises(NoSuchJob):
        app.get(999)


def test_enqueue_by_name(app, add):
    """A wrong name gets a suggestion."""
    ref = app.enqueue("add", {"a": 1}, priority=4)
    assert ref.job().priority == 4
    with pytest.raises(UnknownKind) as caught:
        app.enqueue("ad")
    assert "'add'" in caught.value.hint


def test_a_duplicate_kind_is_refused(app, add):
    """Registration raises."""
    with pytest.raises(InvalidKind, match="registered already"):
        app.job("add")(lambda: None)


@pytest.mark.parametrize("options", [{"on_lost": "maybe"}, {"max_attempts": 0}, {"retry": []}, {"unique": ["nope"]}])
def test_a_senseless_kind_is_refused(app, options):
    """Registration raises, not the first job."""
    with pytest.raises(InvalidInput):
        app.job("k", **options)(lambda: None)


def test_kinds_are_published_when_the_store_opens(app, add, real_database):
    """Other processes know them from then on."""
    assert app.store.kinds.names() == ["add"]

    @app.job()
    def later() -> None: ...

    later.enqueue()
    assert real_database.open().kinds.names() == ["add", "later"]


def test_a_handlers_own_queue_and_curve(app):
    """Defaults come from the kind."""

    @app.job(queue="slow", priority=-5, retry=["1m", "5m"], max_attempts=9)
    def crawl() -> None: ...

    job = crawl.enqueue().job()
    assert (job.queue, job.priority, job.max_attempts) == ("slow", -5, 9)
    assert "300" in job.retry


def test_an_undecodable_payload_hurts_only_itself(app, add, real_database):
    """K13: its job is held with the reason, the others are done (SPEC 8.7)."""
    broken, whole = add.enqueue(1), add.enqueue(2)
    real_database.execute(f"""UPDATE holdfast.job SET payload = '{{"a": "x"}}' WHERE id = {broken.id}""")
    assert drain(app) == 2
    assert whole.result() == 3
    job = broken.job()
    assert (job.state, "Expected `int`, got `str` - at `$.a`" in job.note) == (holdfast.State.HELD, True)


def test_a_handler_receives_its_context(app):
    """The annotation decides, not the name."""

    @app.job()
    def who(me: holdfast.Context) -> list[int]:
        return [me.id, me.attempt, me.token]

    ref = who.enqueue()
    drain(app)
    assert ref.result() == [ref.id, 1, 1]


def test_an_app_can_be_closed_and_used_again(app, add):
    """The next use opens the store again."""
    app.close()
    assert add.enqueue(1).created


def test_a_result_that_is_not_json_does_not_undo_a_success(app):
    """The job is done, without its result."""

    @app.job()
    def odd() -> object:
        return object()

    ref = odd.enqueue()
    drain(app)
    with pytest.raises(ResultDropped, match="cannot be written"):
        ref.result()


def test_a_forked_child_has_its_own_connections(app, add, real_database):
    """The child does not use those of the parent, and both go on."""
    import os

    add.enqueue(1)
    pid = os.fork()
    if pid == 0:
        try:
            add.enqueue_many([{"a": 2}] * 10)
            os._exit(0)
        finally:
            os._exit(1)
    add.enqueue_many([{"a": 3}] * 10)
    _, status = os.waitpid(pid, 0)
    assert status == 0
    assert app.views.count(holdfast.Selector()).count == 21


def test_awaiting_can_be_cancelled(add):
    """A cancelled wait holds no thread, so the loop can end."""

    async def scenario():
        refs = [add.enqueue(n) for n in range(20)]
        waits = [asyncio.ensure_future(ref.aresult()) for ref in refs]
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(waits[0]), 0.1)
        assert (await add.aenqueue(99)).created
        for wait in waits:
            wait.cancel()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "options",
    [
        {"key": ""},
        {"queue": ""},
        {"label": 5},
        {"key": 5},
        {"tags": [5]},
        {"priority": 1.5},
        {"priority": "1"},
        {"delay": float("nan")},
        {"delay": float("inf")},
        {"delay": "99999999999d"},
        {"run_at": "2030-01-01"},
        {"key_for": "1h"},
        {"after": "label"},
        {"actor": "holdfast:sql2"},
        {"key": "k" * 1001},
    ],
)
def test_odd_options_have_an_error_of_ours(app, add, options):
    """The error is ours, not the driver's, and nothing is enqueued."""
    with pytest.raises(InvalidInput):
        add.options(**options).enqueue(1)
    assert app.views.count(holdfast.Selector()).count == 0


def test_a_bare_decorator_is_refused(app):
    """The hint shows the parentheses."""
    with pytest.raises(InvalidKind, match="parentheses"):

        @app.job
        def job() -> None: ...


def test_generators_are_refused(app):
    """A call of a generator function would do nothing."""
    with pytest.raises(InvalidKind):

        @app.job()
        def job():
            yield 1


def test_draining_serves_every_queue_and_kind_of_function(app):
    """Including a queue that no kind names, and coroutines."""

    @app.job()
    async def co(n: int) -> int:
        return n

    ref = co.options(queue="elsewhere").enqueue(7)
    assert drain(app) == 1
    assert ref.result() == 7


def test_hints_are_shown(app, add):
    """The traceback shows the hint."""
    with pytest.raises(InvalidInput) as caught:
        add.options(delay="soon")
    assert any("1h30m" in note for note in caught.value.__notes__)


def test_replacing_a_payload_discards_its_checkpoint(app, add):
    """A checkpoint belongs to the payload that wrote it."""
    ref = add.options(key="k").enqueue(1)
    store = app.store
    (lease,) = claim_jobs(store, "w", queues=["default"], kinds=["add"])
    store.leases.report(lease, checkpoint="500")
    store.leases.release([lease])
    add.options(key="k", on_conflict="replace").enqueue(2)
    assert ref.job().checkpoint is None

"""The statements that pass by the driver's own ways: sent without a cursor, or sent again after a broken connection.

:data:`CALLS` is the table of them; :func:`watched` sees each one that any test runs, and refuses one without a row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct

from holdfast.domain.access.roles import Role
from holdfast.domain.fleet.queue import Bounds
from holdfast.domain.jobs.job import WorkerId, WorkerRequest
from holdfast.domain.jobs.lane_position import EARLIEST, LATEST, LanePositions, LaneRoute, Span
from holdfast.domain.jobs.lane_position import FIRST as FIRST_ID
from holdfast.domain.jobs.lane_position import LAST as LAST_ID
from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.jobs.verdict import Done
from holdfast.domain.quantities import FIRST_YEAR, LAST_YEAR
from holdfast.domain.retention import Retention
from holdfast.store import Store
from holdfast.store.engine.operation import Query
from tests.support.jobs import WORKER, prune, put, take

MINUTE = timedelta(minutes=1)
LANES = {"queues": ["default"], "leases": {"mail": MINUTE}}
#: A PostgreSQL statement that changes something.
_WRITES = re.compile(
    r"\b(INSERT INTO|(?<!FOR )UPDATE|DELETE FROM|MERGE INTO|nextval|pg_notify|(maintain|prune|delete)_\w+)\b"
)
#: Texts that a name or a payload may have: quotes, what arrays and formats read, other planes, right to left.
ODD = 'a\\"{b},%s$1:x\u2028\U0001f600\u05d0\u0301\x01\x7f'
HIGHEST, LOWEST = 2**31 - 1, -(2**31)
FIRST = datetime(FIRST_YEAR, 1, 1, tzinfo=UTC)
LAST = datetime(LAST_YEAR, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)


class Call(Struct, frozen=True, kw_only=True):
    """A statement that passes by the driver, and a call that runs it.

    - *prepare* makes what the call needs, in a store of its own; *act* gets its result.
    - *direct*: it is sent without a cursor. *repeats*: it is sent again when its answer is lost.
    - *inserts*: it writes jobs with new ids.
    - *edges*: other calls, with values at the ends of their types.
    """

    name: str
    act: Callable[[Store, Any], Any]
    prepare: Callable[[Store], Any] = lambda _: None
    direct: bool = False
    repeats: bool = True
    inserts: bool = False
    edges: tuple[Callable[[Store, Any], Any], ...] = ()


class Job(Struct, frozen=True):
    """A job in an answer: its id differs from run to run."""

    id: int


def _leases(store: Store) -> list[Any]:
    put(store)
    return take(store)


def _ready(store: Store) -> None:
    for priority in (0, 0, 5):
        put(store, priority=priority)


def _at_the_edges(store: Store) -> None:
    for priority in (LOWEST, 0, HIGHEST):
        for run_at in (FIRST, LAST):
            put(store, priority=priority, run_at=run_at, payload=f'{{"n": {2**63}}}')
    store.jobs.enqueue_many([NewJob(kind="mail", priority=HIGHEST, queue="default", label=ODD[:4])] * 2)


def _claimed(leases: list[Any]) -> list[Any]:
    return [(Job(lease.job_id), lease.token, lease.priority, lease.payload, lease.attempt) for lease in leases]


def _claim(store: Store, _: Any, **options: Any) -> list[Any]:
    return _claimed(store.leases.claim(WORKER, **{**LANES, "free": 9, "limits": False, **options}))


def _claim_edges(**options: Any) -> tuple[Callable[[Store, Any], Any], ...]:
    """Jobs of all priorities and due times; names that no other claim has; the most jobs."""

    def extremes(store: Store, _: Any) -> Any:
        _at_the_edges(store)
        return _claim(store, None, **options)

    odd = {"queues": ["default", ODD], "leases": {"mail": MINUTE, ODD: timedelta(days=36_525)}, "build": ODD}
    return (
        extremes,
        lambda store, _: _claim(store, None, **odd, **options),
        lambda store, _: _claim(store, None, queues=["default", "q" * 200], **options),
        lambda store, _: _claim(store, None, unfinished=[2**63 - 1], autoscaled=[ODD], **options),
    )


def _limited(store: Store) -> None:
    store.queues.set_limits("default", limit=2)
    _ready(store)


def _positions(store: Store) -> LanePositions:
    _ready(store)
    return LanePositions().behind(store.leases.claim(WORKER, **LANES, free=1, limits=False))


def _route(positions: LanePositions, spans: Sequence[Span] = ()) -> LaneRoute:
    route = positions.route(["default"], ["mail"], 9, spans)
    assert route is not None
    return route


def _onward(store: Store, positions: LanePositions, spans: Sequence[Span] = (), **options: Any) -> list[Any]:
    claim = {"leases": {"mail": MINUTE}, "free": 2, "ahead": 2, "short": ["mail"], **options}
    return _claimed(store.leases.claim_onward(WORKER, _route(positions, spans), **claim))


def _onward_at_the_edges(store: Store, _: Any) -> list[Any]:
    """From a position at the highest priority (CORE D3), and at the last ids and due times."""
    _at_the_edges(store)
    return _onward(store, LanePositions().behind(store.leases.claim(WorkerId("w2"), **LANES, free=1, limits=False)))


def _onward_before_a_position(store: Store, _: Any) -> list[Any]:
    """From the start of the lane to a position at its end, and on from there: the lane comes twice."""
    _at_the_edges(store)
    positions = LanePositions({LOWEST: {("default", "mail"): (LATEST, LAST_ID)}})
    span = Span(("default", "mail"), LOWEST, (EARLIEST, FIRST_ID), (LATEST, LAST_ID))
    store.leases.claim(WorkerId("w2"), **LANES, free=6, limits=False)  # all of a higher priority
    jobs = _onward(store, positions, [span], free=9)
    assert jobs
    return jobs


def _few(store: Store, _: Any, **options: Any) -> Any:
    claimed, more = store.leases.claim_few(WORKER, **LANES, free=2, suspects=(2, 2), **options)
    return _claimed(claimed), more


def _put(**options: Any) -> Callable[[Store, Any], Any]:
    return lambda store, _: [Job(put(store, **options))]


def _alike(payloads: list[str], **options: Any) -> Callable[[Store, Any], Any]:
    request = NewJob(kind="mail", **options)
    return lambda store, _: [Job(each.id) for each in store.jobs.enqueue_alike(request, payloads)]


def _settle(result: str | None = None, ran: timedelta | None = None) -> Callable[[Store, Any], Any]:
    def settle(store: Store, leases: list[Any]) -> Any:
        store.leases.settle(leases[0], Done(result=result), ran=ran)
        return store.views.get(leases[0].job_id).state

    return settle


def _session(store: Store) -> str:
    from holdfast.domain.access.tokens import hash_secret

    return hash_secret(store.sessions.open("ada", Role.ADMIN, lifetime=MINUTE))


def _token(store: Store) -> str:
    store.credentials.add("ci", Role.VIEWER, actor="ada")
    return store.credentials.list()[0].prefix


def _worker(store: Store) -> WorkerId:
    store.workers.announce(WORKER, host="h", pid=1, version="0", slots=1, queues=["default"], kinds=["mail"], build="b")
    return WORKER


def _prune(name: str) -> Callable[[Store, Any], Any]:
    return lambda store, _: prune(store, name, retention=Retention(events=MINUTE))


PRIORITIES = tuple(_put(priority=each) for each in (LOWEST, HIGHEST))
TIMES = (_put(run_at=FIRST), _put(run_at=LAST), _put(delay=timedelta(days=36_525)))
TEXTS = (_put(label="日" * 100), _put(payload='{"odd": "\\u0000\\ud83d"}'), _put(payload='"' + "x" * 500_000 + '"'))
_CALLS = (
    # -- sent without a cursor -------------------------------------------------------------------
    Call(name="draw_job_ids", direct=True, act=lambda store, _: len(store.backend.draw_ids(3))),
    Call(name="insert_job", direct=True, inserts=True, act=_put(), edges=(*PRIORITIES, *TIMES, *TEXTS)),
    Call(
        name="insert_jobs",
        direct=True,
        inserts=True,
        act=_alike(['{"n":1}', '{"n":2}']),
        edges=(
            *(_alike(["{}"] * 2, priority=priority) for priority in (LOWEST, HIGHEST)),
            *(_alike(["{}"] * 2, run_at=run_at) for run_at in (FIRST, LAST)),
            _alike(['"\u2028\U0001f600"', '"\\\\\\""']),
        ),
    ),
    # A claim is not sent again: nobody holds the leases of one whose answer is lost, and they expire.
    Call(
        name="claim",
        direct=True,
        repeats=False,
        prepare=_ready,
        act=lambda store, _: _claim(store, None, queues=["default", "other"], turn=timedelta(seconds=1)),
        edges=_claim_edges(),
    ),
    Call(
        name="claim_limited",
        direct=True,
        repeats=False,
        prepare=_limited,
        act=lambda store, _: _claim(store, None, limits=True),
        edges=_claim_edges(limits=True),
    ),
    Call(name="claim_few", direct=True, repeats=False, prepare=_ready, act=_few),
    Call(
        name="claim_onward",
        direct=True,
        repeats=False,
        prepare=_positions,
        act=lambda store, positions: _onward(store, positions, turn=timedelta(seconds=1)),
        edges=(_onward_at_the_edges, _onward_before_a_position),
    ),
    Call(
        name="list_lane_heads",
        direct=True,
        prepare=_ready,
        act=lambda store, _: [Job(head.job_id) for head in store.leases.lane_heads(["default", ODD], ["mail", ODD])],
        edges=(lambda store, _: store.leases.lane_heads([], []),),
    ),
    Call(
        name="settle_done",
        direct=True,
        prepare=_leases,
        act=_settle(),
        edges=(
            _settle('{"odd": "\\\\u0000 \u2028\U0001f600"}'),
            _settle("null", timedelta(days=36_525)),
            _settle('"' + "x" * 500_000 + '"', timedelta(0)),
        ),
    ),
    # -- sent again ------------------------------------------------------------------------------
    Call(
        name="find_job_elsewhere",
        prepare=_positions,
        act=lambda store, positions: store.leases.any_elsewhere(_route(positions)),
    ),
    Call(name="renew_leases", prepare=_leases, act=lambda store, leases: len(store.leases.renew(leases))),
    Call(name="read_requests", prepare=_leases, act=lambda store, leases: len(store.leases.requests(leases))),
    Call(name="record_starts", prepare=_leases, act=lambda store, leases: len(store.leases.record_starts(leases))),
    Call(
        name="start_command", prepare=_leases, act=lambda store, leases: store.leases.start_command(leases[0]) is None
    ),
    Call(name="report_progress", prepare=_leases, act=lambda s, leases: s.leases.report(leases[0], done=1, total=2)),
    Call(name="insert_step", prepare=_leases, act=lambda store, leases: store.steps.keep(leases[0], "a", "1").result),
    Call(name="maintain_ranges", act=_prune("done")),
    *(
        Call(name=statement, act=_prune(rule))
        for rule, statement in {
            "requests": "prune_requests",
            "keys": "prune_keys",
            "workers": "prune_workers",
            "kinds": "prune_kinds",
            "plans": "prune_plans",
            "skipped plans": "prune_skipped_plans",
            "decisions": "prune_decisions",
            "memory profiles": "prune_memory_profiles",
            "events": "prune_events",
            "audit entries": "prune_audit_entries",
            "revoked tokens": "prune_credentials",
        }.items()
    ),
    Call(name="save_filter", act=lambda store, _: store.saved_filters.save("f", "state=ready", actor="ada")),
    Call(name="delete_session", prepare=_session, act=lambda store, session: store.sessions.close(session)),
    Call(
        name="complete_idempotency_key",
        prepare=lambda store: store.idempotency_keys.claim("c", "k", "d"),
        act=lambda store, _: store.idempotency_keys.keep("c", "k", 200, "{}"),
    ),
    Call(name="touch_credential", prepare=_token, act=lambda store, prefix: store.credentials.record_use(prefix)),
    Call(name="insert_secret", act=lambda store, _: len(store.credentials.server_secret())),
    Call(name="set_queue_scale", act=lambda store, _: store.autoscaler.set_bounds("q", Bounds(1, 2))),
    Call(
        name="report_autoscaler",
        prepare=_worker,
        act=lambda store, worker: store.autoscaler.report_status(worker, "{}"),
    ),
    Call(name="set_queue_limits", act=lambda store, _: store.queues.set_limits("q", limit=2)),
    Call(name="pause_queue", act=lambda store, _: store.queues.pause("q", note="n")),
    Call(name="resume_queue", prepare=lambda s: s.queues.pause("q"), act=lambda store, _: store.queues.resume("q")),
    Call(
        name="update_worker_kinds", prepare=_worker, act=lambda s, w: s.workers.update_kinds(w, kinds=["a"], build="c")
    ),
    Call(name="record_heartbeat", prepare=_worker, act=lambda store, worker: store.workers.heartbeat(worker) is None),
    Call(name="request_worker_control", prepare=_worker, act=lambda s, w: s.workers.request(w, WorkerRequest.QUIET)),
    Call(name="delete_worker_process", prepare=_worker, act=lambda store, worker: store.workers.delete_process(worker)),
    Call(name="record_worker_stop", prepare=_worker, act=lambda store, worker: store.workers.record_stop(worker)),
)
CALLS = {call.name: call for call in _CALLS}


def writes(text: str) -> bool:
    """Whether a statement has an effect, so that a second run of it is a question."""
    return _WRITES.search(re.sub(r"--[^\n]*|'[^']*'", "", text)) is not None


@contextmanager
def watched(see: Callable[[Query], None] = lambda _: None) -> Iterator[None]:
    """Show *see* each statement that passes by the driver's own ways; one without a row in the table is an error."""
    from holdfast.store.postgres.backend import PostgresBackend

    run = PostgresBackend.run

    def spy(backend: Any, statement: Query, *, repeatable: bool = False, timeout: timedelta | None = None) -> list[Any]:
        unusual = statement.direct or (repeatable and writes(backend.statements.text(statement).decode()))
        assert not unusual or statement.name in CALLS, (
            f"{statement.name} passes by the driver: give it a row in tests/support/direct_calls.py"
        )
        see(statement)
        return run(backend, statement, repeatable=repeatable, timeout=timeout)

    PostgresBackend.run = spy  # type: ignore[method-assign]
    try:
        yield
    finally:
        PostgresBackend.run = run  # type: ignore[method-assign]

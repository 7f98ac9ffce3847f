"""Looks behind the store's back: triggers that write down every move, and the facts of a store at the end.

*database* is anything with a ``name`` (``sqlite`` or another) and ``execute(query) -> rows``, in which ``holdfast.``
names the store's tables, as in ``tests.support.backends``.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, Protocol

from holdfast.domain.batches.unit import sum_counters
from holdfast.domain.schedules.definition import load_definition
from tests.chaos.facts import Attempt, Batch, Facts, Fired, Job, Move, Schedule, Skipped, Step, Unit


class Database(Protocol):
    """A store's database, for plain SQL."""

    name: str

    def execute(self, query: str, parameters: Any = (), /) -> list[Any]: ...


#: Columns of the moves, as their facts are called.
_MOVE = ("seq", "step", "job", "queue", "old", "state", "token", "kind", "priority", "at")
#: Effects of units in ``tx`` mode go here, by idempotency key, and those of no other.
EFFECTS = "chaos_effect"


def install(database: Database) -> None:
    """Begin to write down the moves of jobs and the states of batches. The store must have its tables."""
    backend = "sqlite" if database.name == "sqlite" else "postgres"
    _, *statements = Path(__file__).with_name(f"moves.{backend}.sql").read_text().split("\n\n")
    for statement in statements:
        database.execute(statement)


def remove(database: Database) -> None:
    """Leave the database as it was: the tests use one of PostgreSQL again and again."""
    if database.name != "sqlite":
        for function in ("chaos_in", "chaos_moves", "chaos_batches"):
            database.execute(f"DROP FUNCTION IF EXISTS {function} CASCADE")
        database.execute(f"DROP TABLE IF EXISTS chaos_move, chaos_batch, {EFFECTS}")


def newest_move(database: Database) -> int:
    """The number of the newest move."""
    return database.execute("SELECT coalesce(max(seq), 0) FROM chaos_move")[0][0]


def read_facts(database: Database, *, tx_kinds: tuple[str, ...] = (), **seen: Any) -> Facts:
    """All that the checker asks of a store; *seen* are the facts that others have found (stuck, survivors, …)."""
    return Facts(
        jobs=_jobs(database),
        moves=_moves(database),
        attempts=_attempts(database),
        events=_events(database),
        batches={batch.id: batch for batch in read_batches(database)},
        batch_states=_batch_states(database),
        units=_units(database, tx_kinds),
        effects=Counter(dict(database.execute(f"SELECT unit, count(*) FROM {EFFECTS} GROUP BY unit"))),
        schedules=_schedules(database),
        fired=[
            Fired(schedule=schedule, time=int(time), scope=scope, job=job)
            for schedule, time, scope, job in database.execute(
                f"SELECT schedule, {_seconds(database, 'time')}, scope, job_id FROM holdfast.plan WHERE origin = 'due'"
            )
        ],
        skipped=[
            Skipped(schedule=schedule, first=int(first), last=int(last), scope=scope, reason=reason)
            for schedule, first, last, scope, reason in database.execute(
                f"SELECT schedule, {_seconds(database, 'first')}, {_seconds(database, 'last')}, scope, reason "
                "FROM holdfast.skipped_plan"
            )
        ],
        limits=dict(database.execute("SELECT name, run_limit FROM holdfast.queue WHERE run_limit IS NOT NULL")),
        **seen,
    )


def _moves(database: Database) -> list[Move]:
    committed = "NULL" if database.name == "sqlite" else "extract(epoch FROM pg_xact_commit_timestamp(xmin))"
    rows = database.execute(f"SELECT {', '.join(_MOVE)}, {committed} FROM chaos_move ORDER BY seq")
    return [
        Move(**dict(zip(_MOVE, (seq, Step(step), *rest), strict=True)), committed=last and float(last))
        for seq, step, *rest, last in rows
    ]


def read_batches(database: Database) -> list[Batch]:
    """Batches with their counters and a recount of their units, all in one snapshot."""
    rows = database.execute(
        "SELECT id, 'batch', kind, state, total FROM holdfast.batch "
        "UNION ALL SELECT batch_id, 'counter', name, NULL, CAST(sum(count) AS integer) FROM holdfast.unit_count GROUP BY batch_id, name "
        "UNION ALL SELECT batch_id, 'units', state, NULL, CAST(count(*) AS integer) FROM holdfast.unit GROUP BY batch_id, state"
    )
    found: dict[str, Any] = {"batch": {}, "counter": defaultdict(dict), "units": defaultdict(dict)}
    for batch_id, what, name, state, n in rows:
        if what == "batch":
            found["batch"][batch_id] = (name, state, n)
        else:
            found[what][batch_id][name] = n
    return [
        Batch(
            id=batch_id,
            kind=kind,
            state=state,
            total=total,
            counters=_counted(found["counter"][batch_id]),
            recount={"in_inbox" if name == "running" else name: n for name, n in found["units"][batch_id].items()},
        )
        for batch_id, (kind, state, total) in found["batch"].items()
    ]


def _counted(rows: dict[str, int]) -> dict[str, int]:
    known = sum_counters(rows)
    return {name: getattr(known, name) for name in ("done", "failed", "skipped", "cancelled", "in_doubt", "in_inbox")}


def _jobs(database: Database) -> dict[int, Job]:
    dependencies = defaultdict(list)
    for job_id, dependency_id in database.execute("SELECT job_id, dependency_id FROM holdfast.dependency"):
        dependencies[job_id].append(dependency_id)
    columns = (
        "id, kind, queue, state, token, attempts, max_attempts, crashes, max_crashes, key, parent_id, actor, reason, "
        f"payload, result, checkpoint, {_seconds(database, 'finished_at')}"
    )
    rows = database.execute(
        f"SELECT {columns} FROM holdfast.live_view UNION ALL SELECT {columns} FROM holdfast.finished_view"
    )
    found = {}
    for (
        job_id,
        kind,
        queue,
        state,
        token,
        attempts,
        most,
        crashes,
        most_crashes,
        key,
        parent,
        actor,
        reason,
        *rest,
    ) in rows:
        payload, result, checkpoint, finished_at = rest
        found[job_id] = Job(
            id=job_id,
            kind=kind,
            queue=queue,
            state=state,
            token=token,
            attempts=attempts,
            max_attempts=most,
            crashes=crashes,
            max_crashes=most_crashes,
            key=key,
            parent=parent,
            actor=actor,
            reason=reason,
            payload=_payload(kind, json.loads(payload)),
            result=None if result is None else json.loads(result),
            checkpoint=None if checkpoint is None else json.loads(checkpoint),
            finished_at=None if finished_at is None else float(finished_at),
            dependencies=tuple(dependencies[job_id]),
        )
    return found


def _payload(kind: str, payload: dict[str, Any]) -> dict[str, Any]:
    """A program is named by its environment."""
    return {"name": payload["env"].get("CHAOS_NAME")} if kind == "command" else payload


def _attempts(database: Database) -> dict[int, list[Attempt]]:
    found = defaultdict(list)
    for job_id, token, reason in database.execute(
        "SELECT job_id, token, reason FROM holdfast.attempt ORDER BY job_id, token"
    ):
        found[job_id].append(Attempt(token=token, reason=reason))
    return dict(found)


def _events(database: Database) -> dict[int, list[str]]:
    """As they are told: what a job that simply succeeded has no rows for is read from its state."""
    found: dict[int, list[str]] = defaultdict(lambda: ["enqueued"])
    for job_id, name in database.execute(
        "SELECT job_id, name FROM holdfast.event WHERE job_id IN (SELECT id FROM holdfast.job) ORDER BY id"
    ):
        found[job_id].append(name)
    for (job_id,) in database.execute("SELECT id FROM holdfast.finished WHERE state = 'done'"):
        found[job_id] += ["started", "done"]
    for (job_id,) in database.execute("SELECT id FROM holdfast.live WHERE state = 'running'"):
        found[job_id].append("started")
    return dict(found)


def _batch_states(database: Database) -> dict[int, list[str]]:
    found = defaultdict(list)
    for batch_id, state in database.execute("SELECT id, state FROM chaos_batch ORDER BY seq"):
        found[batch_id].append(state)
    return dict(found)


def _units(database: Database, tx_kinds: tuple[str, ...]) -> list[Unit]:
    rows = database.execute(
        "SELECT batch_id, unit.key, unit.state, attempts, crashes, identity, generation, kind "
        "FROM holdfast.unit AS unit JOIN holdfast.batch AS batch ON batch.id = unit.batch_id"
    )
    return [
        Unit(
            batch=batch,
            key=key,
            state=state,
            attempts=attempts,
            crashes=crashes,
            id=hashlib.sha256(f"{identity}/{generation}/{key}".encode()).hexdigest()[:32],
            tx=kind.startswith(tx_kinds),
        )
        for batch, key, state, attempts, crashes, identity, generation, kind in rows
    ]


def _schedules(database: Database) -> list[Schedule]:
    """Those on a grid; the checker does not know the calendar."""
    found = []
    for name, definition, cursor in database.execute(
        f"SELECT name, CAST(definition AS text), {_seconds(database, 'cursor')} FROM holdfast.schedule"
    ):
        known = load_definition(definition)
        if known.every is not None and known.provider is None:
            every = int(known.every.total_seconds())
            last = None if cursor is None else int(cursor) // every * every
            found.append(Schedule(name=name, every=every, cursor=last, scopes=known.scopes or ("global",)))
    return found


def _seconds(database: Database, column: str) -> str:
    return f"{column} / 1e6" if database.name == "sqlite" else f"extract(epoch FROM {column})"

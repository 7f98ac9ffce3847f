"""What the tables alone must show at every commit, whoever wrote them: the part of the invariants that needs no witness."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from holdfast.domain.batches.new_units import HeldUnits

#: Plain SQL to the store behind its back; ``holdfast.`` names its tables.
Execute = Callable[[str], list[Any]]


class Broken(AssertionError):
    """An invariant of SPEC section 7 does not hold. The message names it."""

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant} is broken: {what}")
        self.invariant = invariant
        self.what = what


def audit(execute: Execute) -> None:
    """Raise the first invariant that the tables break."""
    for invariant, what in findings(execute):
        raise Broken(invariant, what)


def findings(execute: Execute) -> Iterator[tuple[str, str]]:
    """Every broken invariant, with what shows it."""
    for check in (_places, _tokens, _limits, _keys, _counters, _hands, _ends_of_batches, _tallies, _plans, _events):
        yield from check(execute)


def _places(execute: Execute) -> Iterator[tuple[str, str]]:
    rows = execute(
        "SELECT job.id, live.state, finished.state FROM holdfast.job AS job"
        " LEFT JOIN holdfast.live AS live ON live.id = job.id LEFT JOIN holdfast.finished AS finished ON finished.id = job.id"
        " WHERE (live.id IS NULL) = (finished.id IS NULL)"
    )
    for job_id, live, finished in rows:
        if live is None:
            yield "I1", f"job {job_id} is neither live nor ended"
        else:
            yield "I3", f"job {job_id} is {live} and {finished} at once"
    for table in ("live", "finished"):
        for (job_id,) in execute(f"SELECT id FROM holdfast.{table} WHERE id NOT IN (SELECT id FROM holdfast.job)"):
            yield "I2", f"{table} has job {job_id}, which nobody enqueued"


def _tokens(execute: Execute) -> Iterator[tuple[str, str]]:
    rows = execute(
        "SELECT attempt.job_id, attempt.token, place.token, place.state FROM holdfast.attempt AS attempt JOIN ("
        "SELECT id, token, state FROM holdfast.live UNION ALL SELECT id, token, state FROM holdfast.finished) AS place"
        " ON place.id = attempt.job_id WHERE attempt.token > place.token"
        " OR (attempt.token = place.token AND (place.state = 'running' OR place.state = 'done'))"
    )
    for job_id, token, now, state in rows:
        yield "I3", f"attempt {token} of job {job_id} is recorded as ended, and the job is {state} under token {now}"


def _limits(execute: Execute) -> Iterator[tuple[str, str]]:
    for table in ("live", "finished"):
        rows = execute(
            f"SELECT place.id, place.attempts, job.max_attempts, place.crashes, job.max_crashes"
            f" FROM holdfast.{table} AS place JOIN holdfast.job AS job ON job.id = place.id"
            " WHERE place.attempts > job.max_attempts OR place.crashes > job.max_crashes"
        )
        for job_id, attempts, most, crashes, most_crashes in rows:
            yield "I10", f"job {job_id} has {attempts} attempts of {most}, {crashes} crashes of {most_crashes}"


def _keys(execute: Execute) -> Iterator[tuple[str, str]]:
    rows = execute(
        "SELECT job.kind, job.key, job.id, owner.job_id FROM holdfast.live AS live"
        " JOIN holdfast.job AS job ON job.id = live.id LEFT JOIN holdfast.key AS owner"
        " ON owner.kind = job.kind AND owner.key = job.key WHERE job.key IS NOT NULL"
    )
    live: dict[tuple[str, str], list[int]] = defaultdict(list)
    for kind, key, job_id, owner in rows:
        live[kind, key].append(job_id)
        if owner != job_id:
            yield "I9", f"job {job_id} lives under the key {key!r}, which belongs to {owner}"
    for (_, key), ids in live.items():
        if len(ids) > 1:
            yield "I9", f"jobs {ids} live under one key, {key!r}"


def _counters(execute: Execute) -> Iterator[tuple[str, str]]:
    counted: dict[int, Counter[str]] = defaultdict(Counter)
    for batch_id, name, n in execute("SELECT batch_id, name, count FROM holdfast.unit_count"):
        counted[batch_id][name] += n
    real: dict[int, Counter[str]] = defaultdict(Counter)
    for batch_id, state, n in execute("SELECT batch_id, state, count(*) FROM holdfast.unit GROUP BY batch_id, state"):
        real[batch_id]["in_inbox" if state == "running" else state] = n
    for batch_id in counted.keys() | real.keys():
        for name in ("done", "failed", "skipped", "cancelled", "in_doubt", "in_inbox"):
            if counted[batch_id][name] != real[batch_id][name]:
                told, found = counted[batch_id][name], real[batch_id][name]
                yield "I6", f"batch {batch_id} counts {told} units as {name}, and has {found}"


def _hands(execute: Execute) -> Iterator[tuple[str, str]]:
    hands: Counter[tuple[int, str]] = Counter()
    for batch_id, units in execute("SELECT batch_id, units FROM holdfast.in_flight"):
        held = msgspec.convert(_decoded(units), HeldUnits)
        hands.update({(batch_id, key) for key, _ in held.placed()})
    for (batch_id, key), holders in hands.items():
        if holders > 1:
            yield "R18", f"unit {key} of batch {batch_id} is in the hands of {holders} runs"


def _ends_of_batches(execute: Execute) -> Iterator[tuple[str, str]]:
    rows = execute(
        "SELECT batch.id, batch.state, unit.key, unit.state FROM holdfast.batch AS batch"
        " JOIN holdfast.unit AS unit ON unit.batch_id = batch.id"
        " WHERE batch.state IN ('done', 'partial', 'failed', 'cancelled') AND unit.state IN ('pending', 'running')"
    )
    for batch_id, state, key, unit in rows:
        yield "I6", f"batch {batch_id} is {state}, and its unit {key} is {unit}"
    rows = execute(
        "SELECT batch.id, unit.key, unit.state FROM holdfast.batch AS batch"
        " JOIN holdfast.unit AS unit ON unit.batch_id = batch.id"
        " WHERE batch.state = 'done' AND unit.state IN ('failed', 'in_doubt')"
    )
    for batch_id, key, unit in rows:
        yield "I6", f"batch {batch_id} is done, and its unit {key} is {unit}"


def _tallies(execute: Execute) -> Iterator[tuple[str, str]]:
    counted = Counter[str]()
    for result, n in execute("SELECT result, count FROM holdfast.batch_tally"):
        counted[result] += n
    rows = execute(
        "SELECT name, count(*) FROM holdfast.batch_event"
        " WHERE name IN ('paused', 'stopped', 'done', 'partial', 'failed', 'cancelled') GROUP BY name"
    )
    for result, n in rows:
        if counted[result] < n:
            yield "I6", f"{n} ends of batches are told as {result}, and {counted[result]} are counted"


def _plans(execute: Execute) -> Iterator[tuple[str, str]]:
    rows = execute(
        "SELECT schedule, time, scope, count(*) FROM holdfast.plan GROUP BY schedule, time, scope HAVING count(*) > 1"
    )
    for schedule, time, scope, n in rows:
        yield "I7", f"the plan {time} of {schedule} in {scope} was fired {n} times"
    rows = execute(
        "SELECT plan.schedule, plan.time, plan.scope, skipped_plan.reason FROM holdfast.plan AS plan"
        " JOIN holdfast.skipped_plan AS skipped_plan ON skipped_plan.schedule = plan.schedule AND plan.time BETWEEN skipped_plan.first AND skipped_plan.last"
        " AND (skipped_plan.scope = '' OR skipped_plan.scope = plan.scope) WHERE plan.origin = 'due'"
    )
    for schedule, time, scope, reason in rows:
        yield "I7", f"the plan {time} of {schedule} in {scope} was fired, and skipped for {reason}"
    rows = execute(
        "SELECT count(*), schedule, label FROM holdfast.plan AS plan JOIN holdfast.job AS job ON job.id = plan.job_id"
        " WHERE label <> schedule GROUP BY schedule, label"
    )
    for n, schedule, label in rows:
        yield "I7", f"{n} plans of {schedule} lead to jobs of {label}"


#: Where a job may stand after an event that does not say so itself.
_LEADS_TO = {
    "woken": {"ready", "scheduled"},
    "due": {"ready"},
    "held": {"held"},
    "cancelled": {"cancelled"},
    "retried": {"ready", "waiting"},
    "resumed": {"ready", "scheduled", "waiting"},
}
_FIRST = {"held", "waiting", "scheduled", "ready"}
_MAY_MOVE = {"replaced", "rescheduled"}


def _events(execute: Execute) -> Iterator[tuple[str, str]]:
    told: dict[int, list[tuple[str, Any]]] = defaultdict(list)
    for job_id, name, detail in execute("SELECT job_id, name, detail FROM holdfast.event ORDER BY id"):
        told[job_id].append((name, detail))
    rows = execute("SELECT id, state FROM holdfast.live UNION ALL SELECT id, state FROM holdfast.finished")
    for job_id, state in rows:
        expected = _explained(told[job_id])
        if state not in expected and not (state in ("running", "done") and "ready" in expected):
            yield "I15", f"job {job_id} is {state}, and its events {[n for n, _ in told[job_id]]} tell of {expected}"


def _decoded(detail: Any) -> Any:
    """PostgreSQL's driver has decoded it already."""
    try:
        return json.loads(detail) if isinstance(detail, str) else detail
    except ValueError:
        return detail


def _explained(events: list[tuple[str, Any]]) -> set[str]:
    """Where a job may stand after these events."""
    places = set(_FIRST)
    for name, detail in events:
        found = _decoded(detail)
        if isinstance(found, dict) and "state" in found:
            places = {found["state"]}
        elif name == "resumed":
            places |= _LEADS_TO[name]
        elif name in _LEADS_TO:
            places = set(_LEADS_TO[name])
        elif name in _MAY_MOVE and places & {"ready", "scheduled"}:
            places |= {"ready", "scheduled"}
    return places

"""Compares a history with what the store says at the end, and names each invariant (SPEC 7) that was broken.

It is plain Python and believes nobody: neither the store's own checks nor its locks. What was answered ``unknown``
may or may not have happened; nothing is concluded from it.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise

from tests.chaos.facts import Batch, Facts, Job, Move, Schedule, Step
from tests.chaos.history import Asked, History, Op, Phase
from tests.chaos.waits import better_jobs_come_first, free_slots_are_used, ready_is_honest

#: What the clock of a program may be behind: /proc/uptime counts in hundredths.
CENTISECOND = 0.01
#: Of one invariant no more than so many violations are told.
MOST = 20


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken, and by what."""

    invariant: str
    text: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.text}"


def check(history: Iterable[Op], facts: Facts) -> list[Violation]:
    """All violations, at most 20 of each invariant."""
    known = History(history)
    return [
        Violation(name, text)
        for name, invariant in INVARIANTS.items()
        for text in islice(invariant(known, facts), MOST)
    ]


def nothing_is_lost(history: History, facts: Facts) -> Iterator[str]:
    """I1: a job whose enqueue was answered is there."""
    for op in history.asked("enqueue"):
        if op.phase is Phase.OK and op.facts["id"] not in facts.jobs:
            yield f"job {op.facts['id']} ({op.facts.get('name')}) was acknowledged, and is not there"


def nothing_appears(history: History, facts: Facts) -> Iterator[str]:
    """I2: each job was asked for, and once."""
    asked = defaultdict(list)
    for op in history.asked("enqueue"):
        asked[op.facts["name"]].append(op)
    fired = {plan.job for plan in facts.fired}
    named: Counter[str] = Counter()
    for job in facts.jobs.values():
        name = job.payload.get("name")
        named[name] += name in asked
        if name in asked:
            if all(op.phase is Phase.FAIL for op in asked[name]):
                yield f"job {job.id} ({name}) is there, though its enqueue was refused"
        elif job.id not in fired and not _is_of_a_batch(job, facts):
            yield f"job {job.id} ({job.kind}) was enqueued by nobody: {job.payload}"
    yield from (f"{name} was enqueued once, and is there {count} times" for name, count in named.items() if count > 1)


def _is_of_a_batch(job: Job, facts: Facts) -> bool:
    return job.kind == "holdfast.driver" or (
        job.kind.startswith("shard:") and job.payload.get("batch") in facts.batches
    )


def ends_are_accepted_once(history: History, facts: Facts) -> Iterator[str]:
    """I3: one accepted end for each attempt, one run under each token, and tokens that only grow."""
    for job_id, moves in _by_job(facts.moves).items():
        yield from _ended_once(job_id, moves)
    for job_id, attempts in facts.attempts.items():
        tokens = [attempt.token for attempt in attempts]
        if len(tokens) != len(set(tokens)):
            yield f"job {job_id} has two attempts under one token: {tokens}"
    runs = Counter((op.facts["job"], op.facts["token"]) for op in history.asked("run"))
    yield from (f"job {job} ran {n} times under token {token}" for (job, token), n in runs.items() if n > 1)


def _ended_once(job_id: int, moves: list[Move]) -> Iterator[str]:
    token, finished = 0, False
    for move in moves:
        if move.token < token:
            yield f"the token of job {job_id} fell from {token} to {move.token}"
        if move.state == "running" and move.old != "running" and move.token <= token:
            yield f"job {job_id} was claimed under the old token {move.token}"
        if move.step is Step.END and finished:
            yield f"job {job_id} ended twice, the second time {move.state} under token {move.token}"
        token, finished = max(token, move.token), move.step is Step.END


def old_tokens_are_refused(history: History, facts: Facts) -> Iterator[str]:
    """I4: what is recorded comes from the newest holder: results, checkpoints, children."""
    moves = _by_job(facts.moves)
    for job in facts.jobs.values():
        if job.state == "done" and isinstance(job.result, dict) and job.result.get("token", job.token) != job.token:
            yield f"job {job.id} ended under token {job.token} with the result of token {job.result['token']}"
        if job.parent is not None and "token" in job.payload and job.id in moves:
            held = _token_at(moves.get(job.parent, []), moves[job.id][0].seq)
            if held is not None and held != job.payload["token"]:
                yield f"job {job.id} was enqueued under token {job.payload['token']} of {job.parent}, which was at {held}"
    kept: dict[int, int] = {}
    for op in history.asked("checkpoint"):
        if op.phase is Phase.OK:
            kept[op.facts["job"]] = max(kept.get(op.facts["job"], 0), op.facts["token"])
    for job_id, token in kept.items():
        found = facts.jobs[job_id].checkpoint if job_id in facts.jobs else None
        if isinstance(found, dict) and found["token"] < token:
            yield f"the checkpoint of job {job_id} is of token {found['token']}, over that of {token}"


def _token_at(moves: list[Move], seq: int) -> int | None:
    held = None
    for move in moves:
        if move.seq < seq:
            held = move.token
    return held


def done_has_had_its_effect(history: History, facts: Facts) -> Iterator[str]:
    """I5: what is recorded done was done: a job under the token that ended it, a unit at least once, with tx once."""
    effects = {(op.facts["job"], op.facts["token"]) for op in history.told("effect")}
    kinds = {op.facts["kind"] for op in history.asked("run")}
    for job in facts.jobs.values():
        if job.state == "done" and job.kind in kinds and (job.id, job.token) not in effects:
            yield f"job {job.id} is done under token {job.token} without its effect"
    programs = {op.facts["name"] for op in history.asked("program") if op.phase is Phase.OK}
    for job in facts.jobs.values():
        if job.kind == "command" and job.state == "done" and job.payload.get("name") not in programs:
            yield f"the program of job {job.id} is done and did not come to its end"
    made = {op.facts["unit"] for op in history.asked("unit") if op.phase is Phase.OK}
    for unit in facts.units:
        rows = facts.effects[unit.id]
        if unit.tx and rows != (unit.state == "done"):
            yield f"unit {unit.key} of batch {unit.batch} is {unit.state}, and its effect is there {rows} times"
        if not unit.tx and unit.state == "done" and unit.id not in made:
            yield f"unit {unit.key} of batch {unit.batch} is done without its effect"


def counters_equal_a_recount(_: History, facts: Facts) -> Iterator[str]:
    """I6: counters equal a recount in every snapshot; what was cancelled stays so."""
    for batch in (*facts.samples, *facts.batches.values()):
        yield from _miscounted(batch)
    for batch in facts.batches.values():
        over = sum(batch.recount.get(state, 0) for state in ("done", "failed", "skipped", "cancelled", "in_doubt"))
        if batch.state in ("done", "partial", "failed") and batch.total is not None and over != batch.total:
            yield f"batch {batch.id} is {batch.state}, and {over} of its {batch.total} units are over"
    for batch_id, states in facts.batch_states.items():
        if "cancelled" in states[:-1]:
            yield f"batch {batch_id} was cancelled, and then {states[-1]}: {states}"
    for job_id, moves in _by_job(facts.moves).items():
        ends = [move.state for move in moves if move.step is not Step.MOVE]
        if any(pair == ("cancelled", "done") for pair in pairwise(ends)):
            yield f"job {job_id} was cancelled, and then done"


def _miscounted(batch: Batch) -> Iterator[str]:
    for name in ("done", "failed", "skipped", "cancelled", "in_doubt", "in_inbox"):
        counted, found = batch.counters.get(name, 0), batch.recount.get(name, 0)
        if counted != found:
            yield f"batch {batch.id} counts {counted} units {name}, its ledger {found}"


def plans_are_decided_once(_: History, facts: Facts) -> Iterator[str]:
    """I7: every plan is in the ledger once: fired as one job, or skipped with a reason."""
    for schedule in facts.schedules:
        for scope in schedule.scopes:
            yield from _decided(schedule, scope, facts)
    jobs = Counter(plan.job for plan in facts.fired)
    for plan in facts.fired:
        if plan.job not in facts.jobs:
            yield f"the plan {plan.schedule} {plan.time} was fired as job {plan.job}, which is not there"
        if jobs[plan.job] > 1:
            yield f"job {plan.job} is that of {jobs[plan.job]} plans"
    for skip in facts.skipped:
        if not skip.reason:
            yield f"{skip.schedule} skipped {skip.first} to {skip.last} without a reason"


def _decided(schedule: Schedule, scope: str, facts: Facts) -> Iterator[str]:
    fired = Counter(plan.time for plan in facts.fired if (plan.schedule, plan.scope) == (schedule.name, scope))
    skips = [skip for skip in facts.skipped if skip.schedule == schedule.name and skip.scope in ("", scope)]
    known = [*fired, *(skip.first for skip in skips)]
    if schedule.cursor is None or not known:
        return
    for time in range(min(known), schedule.cursor + 1, schedule.every):
        skipped = any(skip.first <= time <= skip.last for skip in skips)
        if fired[time] + skipped != 1:
            yield f"the plan {schedule.name} {time} in {scope} was fired {fired[time]} times, skipped: {skipped}"


def limits_hold(_: History, facts: Facts) -> Iterator[str]:
    """I8: of a limited queue, no more jobs are held at once than its limit says."""
    running: dict[str, set[int]] = defaultdict(set)
    for move in facts.moves:
        if move.queue not in facts.limits:
            continue
        held = running[move.queue]
        if move.state == "running" and move.step is not Step.END:
            held.add(move.job)
            if len(held) > facts.limits[move.queue]:
                yield f"{sorted(held)} ran in queue {move.queue}, whose limit is {facts.limits[move.queue]}"
        else:
            held.discard(move.job)


def keys_are_unique(history: History, facts: Facts) -> Iterator[str]:
    """I9: one live job for a key; "already there" names a job that was there."""
    live: dict[tuple[str, str], set[int]] = defaultdict(set)
    for move in facts.moves:
        job = facts.jobs.get(move.job)
        if job is None or job.key is None:
            continue
        held = live[job.kind, job.key]
        (held.discard if move.step is Step.END else held.add)(job.id)
        if len(held) > 1:
            yield f"the jobs {sorted(held)} were live under the key {job.key} at once"
    # The store learns of an end later than it happens, if the worker could not write it at once.
    ended = {move.job: move.visible_at for move in facts.moves if move.step is Step.END}
    for op in history.asked("enqueue"):
        if op.phase is Phase.OK and not op.facts["created"]:
            yield from _was_there(op, facts, ended)


def _was_there(op: Asked, facts: Facts, ended: dict[int, float]) -> Iterator[str]:
    job = facts.jobs.get(op.facts["id"])
    if job is None:
        yield f"{op.facts['name']} was told that job {op.facts['id']} is there already, and it is not"
    elif (
        "key_for" not in op.facts
        and not facts.stepped
        and ended.get(job.id, job.finished_at or math.inf) < op.asked_wall - 0.05
    ):
        yield f"{op.facts['name']} was told that job {job.id} is there already, which had ended"


def attempts_stay_within_limits(_: History, facts: Facts) -> Iterator[str]:
    """I10: attempts and crashes never pass their limits, and nothing is given up before."""
    for job in facts.jobs.values():
        failed = sum(attempt.reason == "handler_error" for attempt in facts.attempts.get(job.id, []))
        if job.max_attempts is not None and max(job.attempts, failed) > job.max_attempts:
            yield f"job {job.id} had {max(job.attempts, failed)} attempts of {job.max_attempts}"
        if job.max_crashes is not None and job.crashes > job.max_crashes:
            yield f"job {job.id} crashed {job.crashes} times of {job.max_crashes}"
        given_up = job.state == "dead" and job.reason == "handler_error"
        if given_up and (job.max_attempts is None or job.attempts < job.max_attempts):
            yield f"job {job.id} was given up after {job.attempts} attempts of {job.max_attempts}"


def nothing_waits_in_vain(history: History, facts: Facts) -> Iterator[str]:
    """I11: with workers that are free, everything comes to its end, and plans are decided in time."""
    for op in history.told("late plan"):
        yield f"a plan of {op.facts['schedule']} was decided {op.facts['seconds']} s after its time"
    for what, why in facts.stuck.items():
        yield f"{f'job {what}' if isinstance(what, int) else what} did not come to its end: {why}"


def paused_queues_start_nothing(history: History, facts: Facts) -> Iterator[str]:
    """I12: between the answer to a pause and the next resume, nothing of the queue is claimed."""
    claims = [move for move in facts.moves if (move.old, move.state) == ("ready", "running")]
    resumed = [(op.facts["queue"], op.facts["seq"]) for op in history.asked("resume")]
    for pause in history.told("pause"):
        queue, since = pause.facts["queue"], pause.facts["seq"]
        until = min((seq for name, seq in resumed if name == queue and seq >= since), default=math.inf)
        for move in claims:
            if move.queue == queue and since < move.seq <= until:
                yield f"job {move.job} was claimed (move {move.seq}) in the paused queue {queue} ({since} to {until})"


def needs_come_first(_: History, facts: Facts) -> Iterator[str]:
    """I13: a job is claimed only when all that it needs is done."""
    done = {move.job: move.seq for move in reversed(facts.moves) if move.step is Step.END and move.state == "done"}
    for move in facts.moves:
        job = facts.jobs.get(move.job)
        if job is not None and job.dependencies and move.state == "running" and move.step is not Step.END:
            early = [need for need in job.dependencies if done.get(need, move.seq) >= move.seq]
            if early:
                yield f"job {job.id} started before its needs {early}"


#: What an exit code says of a batch, and of a job that was waited for.
BATCH_EXITS = {0: "done", 1: "failed", 6: "partial", 7: "stopped", 8: "stopped", 10: "stopped", 11: "paused"}
JOB_EXITS = {0: "done", 1: "dead", 12: "cancelled"}


def exit_codes_match(history: History, facts: Facts) -> Iterator[str]:
    """I14: the exit code of the last run of a batch, or of a wait, says what the store says."""
    last = {op.facts["name"]: op for op in history.asked("batch")}
    for op in last.values():
        if op.phase is Phase.OK and op.facts["exit_code"] in {*BATCH_EXITS, 12}:
            state = facts.batches[op.facts["id"]].state
            if state != {**BATCH_EXITS, 12: "cancelled"}[op.facts["exit_code"]]:
                yield f"the run of batch {op.facts['id']} left with {op.facts['exit_code']}, and it is {state}"
    for op in history.asked("wait"):
        job = facts.jobs.get(op.facts["job"])
        if op.phase is Phase.OK and job is not None and JOB_EXITS.get(op.facts["exit_code"]) != job.state:
            yield f"a wait for job {job.id} left with {op.facts['exit_code']}, and it is {job.state}"


#: The last event that a state needs; other events may come between.
LAST_EVENTS = {
    "done": {"done"},
    "dead": {"failed", "taken_over"},
    "cancelled": {"cancelled", "failed", "taken_over", "released"},
    "held": {"enqueued", "held", "failed", "taken_over", "retried", "released"},
    "running": {"started"},
}


def events_explain_the_state(_: History, facts: Facts) -> Iterator[str]:
    """I15: the last event of a job says how it came to its state."""
    for job_id, events in facts.events.items():
        state = facts.jobs[job_id].state
        if state in LAST_EVENTS and (not events or events[-1] not in LAST_EVENTS[state]):
            yield f"job {job_id} is {state}, and its events are {events}"
        asked = {"cancelled", "cancel_requested"} & set(events) or facts.jobs[job_id].kind == "holdfast.driver"
        if state == "cancelled" and not asked:
            yield f"job {job_id} is cancelled, and nobody wanted that: {events}"
        if events and events[0] != "enqueued":
            yield f"the events of job {job_id} begin with {events[0]}"


def nothing_outlives_its_job(history: History, facts: Facts) -> Iterator[str]:
    """I16: no process is left, and no program runs beside the next run of its own job."""
    yield from (f"{process} is still there" for process in facts.survivors)
    if facts.stepped:  # a lease that lapses by a step of the store's clock is not over by the supervisor's
        return
    alive: dict[tuple[str, int], float] = {}
    for op in history.told("beat"):
        alive[op.facts["name"], op.facts["pid"]] = op.at
    runs = defaultdict(list)
    for op in history.asked("program"):
        seen = max(op.asked_at, op.answered_at or 0.0, alive.get((op.facts["name"], op.facts["pid"]), 0.0))
        runs[op.facts["name"]].append((op.asked_at, seen, op.facts["pid"]))
    for name, found in runs.items():
        for (_, seen, pid), (began, _, other) in pairwise(sorted(found)):
            if seen > began + CENTISECOND:
                yield f"the program {pid} of {name} was alive {seen - began:.2f} s after {other} had begun"


def _by_job(moves: list[Move]) -> dict[int, list[Move]]:
    found = defaultdict(list)
    for move in moves:
        found[move.job].append(move)
    return found


def contexts_are_apart(history: History, facts: Facts) -> Iterator[str]:
    """I22: a run sees no context variable that another run has set."""
    del facts
    for op in history.asked("run"):
        if op.facts.get("seen") is not None:
            yield f"the run of job {op.facts['job']} began in the context of job {op.facts['seen']}"


def names_belong_to_their_code(history: History, facts: Facts) -> Iterator[str]:
    """I23: no ledger counts the units of another function, and no live application loses its schedule to another one."""
    del facts
    for op in history.told("declared"):
        if op.facts["result"] != "refused":
            yield f"the schedule {op.facts['schedule']} was {op.facts['result']} by another application"
    for op in history.told("foreign run"):
        if op.facts["exit"] != 14 or op.facts["ran"]:
            yield f"a function of another module ran {op.facts['ran']} of a foreign ledger, exit {op.facts['exit']}"


INVARIANTS: dict[str, Callable[[History, Facts], Iterator[str]]] = {
    "I1": nothing_is_lost,
    "I2": nothing_appears,
    "I3": ends_are_accepted_once,
    "I4": old_tokens_are_refused,
    "I5": done_has_had_its_effect,
    "I6": counters_equal_a_recount,
    "I7": plans_are_decided_once,
    "I8": limits_hold,
    "I9": keys_are_unique,
    "I10": attempts_stay_within_limits,
    "I11": nothing_waits_in_vain,
    "I12": paused_queues_start_nothing,
    "I13": needs_come_first,
    "I14": exit_codes_match,
    "I15": events_explain_the_state,
    "I16": nothing_outlives_its_job,
    "I17": better_jobs_come_first,
    "I18": free_slots_are_used,
    "I20": ready_is_honest,
    "I22": contexts_are_apart,
    "I23": names_belong_to_their_code,
}

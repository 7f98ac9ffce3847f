"""The checker: a good history passes, and for each invariant a history that breaks it is named."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter

import pytest

from holdfast import HoldfastError
from holdfast.errors import LeaseLost, StoreUnavailable
from tests.chaos.checker import INVARIANTS, check
from tests.chaos.facts import Attempt, Batch, Facts, Fired, Job, Move, Schedule, Skipped, Step, Unit
from tests.chaos.history import History, Op, Phase, Recorder, read, to_file, to_list


@pytest.fixture
def ops() -> list[Op]:
    return []


@pytest.fixture
def recorder(ops) -> Recorder:
    """One that tells the time as a count, so that all lines have an order."""
    return to_list("test", ops, lambda: float(len(ops)))


def enqueued(recorder, job_id, *, created=True, **facts):
    with recorder.asking("enqueue", **{"name": f"job {job_id}", "kind": "quick", "key": None, **facts}) as answer:
        answer.update(id=job_id, created=created)


def named(job_id, **facts) -> Job:
    return Job(id=job_id, **{"payload": {"name": f"job {job_id}"}, **facts})


def life(job_id, *states, first=1, queue="default") -> list[Move]:
    """The moves of a job through its states; the token grows at each claim, as it should."""
    moves, token, old = [], 0, None
    for seq, state in enumerate(states, first):
        token += state == "running"
        step = Step.END if state in ("done", "dead", "cancelled") else Step.IN if old is None else Step.MOVE
        moves.append(Move(seq=seq, step=step, job=job_id, queue=queue, old=old, state=state, token=token))
        old = None if step is Step.END else state
    return moves


def broken(ops, facts) -> set[str]:
    return {violation.invariant for violation in check(ops, facts)}


def run(recorder, job_id, token=1, *, effect=True):
    with recorder.running("run", job=job_id, token=token, kind="quick", queue="default"):
        if effect:
            recorder.tell("effect", job=job_id, token=token)


# -- a history in which all is well ---------------------------------------------------------------


def test_all_is_well(ops, recorder):
    """A job that failed, lost its worker, and ended: nothing is broken."""
    enqueued(recorder, 1)
    with pytest.raises(ValueError, match="bad"), recorder.running("run", job=1, token=1, kind="quick", queue="q"):
        raise ValueError("bad")
    recorder.tell("run", Phase.INVOKE, job=1, token=2, kind="quick", queue="q")
    run(recorder, 1, token=4)
    facts = Facts(
        jobs={1: named(1, token=4, attempts=3, result={"token": 4})},
        moves=[
            *life(1, "ready", "running", "ready", "running"),
            Move(seq=5, step=Step.MOVE, job=1, old="running", state="ready", token=3),
            Move(seq=6, step=Step.MOVE, job=1, old="ready", state="running", token=4),
            Move(seq=7, step=Step.END, job=1, state="done", token=4),
        ],
        attempts={1: [Attempt(token=1, reason="handler_error"), Attempt(token=2, reason="lease_lost")]},
        events={1: ["enqueued", "failed", "taken_over", "started", "done"]},
    )
    assert check(ops, facts) == []


def test_an_unknown_answer_may_be_either(ops, recorder):
    """The job of an enqueue without an answer may be there or not; a run without an end is no fault."""
    for number in (1, 2):
        with pytest.raises(StoreUnavailable), recorder.asking("enqueue", name=f"job {number}", kind="quick"):
            raise StoreUnavailable("gone")
    recorder.tell("enqueue", Phase.INVOKE, name="job 3", kind="quick")
    assert check(ops, Facts(jobs={1: named(1, state="ready", attempts=0)})) == []


# -- each invariant, broken -----------------------------------------------------------------------


def test_i1_a_lost_job(ops, recorder):
    """It was acknowledged, and is not there."""
    enqueued(recorder, 1)
    assert broken(ops, Facts()) == {"I1"}


def test_i2_a_job_that_nobody_enqueued(ops):
    """Nobody asked for it."""
    assert broken(ops, Facts(jobs={1: named(1)})) == {"I2"}


def test_i2_a_job_that_is_there_twice(ops, recorder):
    """Its enqueue was sent again after a lost answer, and both are there."""
    enqueued(recorder, 2)
    assert broken(ops, Facts(jobs={1: Job(id=1, payload={"name": "job 2"}), 2: named(2)})) == {"I2"}


def test_i2_a_job_that_was_refused(ops, recorder):
    """The parent was told that its lease is lost, and its child is there."""
    with pytest.raises(LeaseLost), recorder.asking("enqueue", name="job 1", kind="quick"):
        raise LeaseLost("too late")
    assert broken(ops, Facts(jobs={1: named(1)})) == {"I2"}


def test_i3_two_ends(ops, recorder):
    """A job that ended, and ended again."""
    enqueued(recorder, 1)
    moves = [*life(1, "ready", "running", "done"), Move(seq=9, step=Step.END, job=1, state="dead", token=1)]
    assert broken(ops, Facts(jobs={1: named(1)}, moves=moves)) == {"I3"}


def test_i3_a_token_that_falls(ops, recorder):
    """A claim under a token that was used before."""
    enqueued(recorder, 1)
    moves = [*life(1, "ready", "running", "ready"), Move(seq=9, step=Step.MOVE, job=1, state="running", token=1)]
    assert broken(ops, Facts(jobs={1: named(1, state="running")}, moves=moves)) == {"I3"}


def test_i3_two_runs_under_one_token(ops, recorder):
    """Two workers believe that they hold it."""
    enqueued(recorder, 1)
    run(recorder, 1)
    run(recorder, 1)
    assert broken(ops, Facts(jobs={1: named(1)})) == {"I3"}


def test_i4_the_result_of_an_old_holder(ops, recorder):
    """Token 2 ended the job, token 1 wrote the result."""
    enqueued(recorder, 1)
    assert broken(ops, Facts(jobs={1: named(1, token=2, result={"token": 1})})) == {"I4"}


def test_i4_the_checkpoint_of_an_old_holder(ops, recorder):
    """Token 2 was told that its checkpoint is kept; that of token 1 came after it."""
    enqueued(recorder, 1)
    with recorder.asking("checkpoint", job=1, token=2):
        pass
    assert broken(ops, Facts(jobs={1: named(1, token=2, checkpoint={"token": 1})})) == {"I4"}


def test_i4_the_child_of_an_old_holder(ops, recorder):
    """Token 1 enqueued it when token 2 held the job."""
    enqueued(recorder, 1)
    enqueued(recorder, 2)
    jobs = {1: named(1, token=2), 2: named(2, parent=1, payload={"name": "job 2", "token": 1})}
    moves = [*life(1, "ready", "running", "ready", "running"), *life(2, "ready", first=10)]
    assert broken(ops, Facts(jobs=jobs, moves=moves)) == {"I4"}


def test_i5_done_without_an_effect(ops, recorder):
    """The job was recorded done before its handler had done anything."""
    enqueued(recorder, 1)
    run(recorder, 1, effect=False)
    assert broken(ops, Facts(jobs={1: named(1)})) == {"I5"}


def test_i5_a_unit_without_an_effect(ops, recorder):
    """One was killed before its effect and is recorded done; the other was done."""
    with recorder.running("unit", unit="b"):
        pass
    recorder.tell("unit", Phase.INVOKE, unit="a")
    facts = Facts(units=[Unit(batch=1, key="1", id="a"), Unit(batch=1, key="2", id="b")])
    assert [str(violation) for violation in check(ops, facts)] == ["I5: unit 1 of batch 1 is done without its effect"]


@pytest.mark.parametrize(("state", "rows"), [("done", 0), ("done", 2), ("failed", 1)])
def test_i5_a_transaction_that_is_not_one(ops, state, rows):
    """With tx, the effect is there once if the unit is done, and else not."""
    facts = Facts(units=[Unit(batch=1, key="1", id="a", state=state, tx=True)], effects=Counter(a=rows))
    assert broken(ops, facts) == {"I5"}


def test_i5_a_program_that_did_not_end(ops, recorder):
    """It was killed, and its job is done."""
    enqueued(recorder, 1, kind="command")
    recorder.tell("program", Phase.INVOKE, name="job 1", pid=7)
    assert broken(ops, Facts(jobs={1: named(1, kind="command")})) == {"I5"}


@pytest.mark.parametrize("where", ["samples", "batches"])
def test_i6_counters_that_lie(ops, where):
    """At the end, or in one snapshot on the way."""
    bad = Batch(id=1, state="running", counters={"done": 20}, recount={"done": 19})
    facts = Facts(samples=[bad]) if where == "samples" else Facts(batches={1: bad})
    assert broken(ops, facts) == {"I6"}


def test_i6_a_batch_that_ended_too_early(ops):
    """It is done with a unit pending."""
    assert broken(ops, Facts(batches={1: Batch(id=1, total=2, counters={"done": 1}, recount={"done": 1})})) == {"I6"}


def test_i6_cancelled_is_not_done(ops, recorder):
    """Neither a batch nor a job that was cancelled becomes done."""
    assert broken(ops, Facts(batch_states={1: ["running", "cancelled", "done"]})) == {"I6"}
    enqueued(recorder, 1)
    moves = [*life(1, "ready", "cancelled"), Move(seq=9, step=Step.END, job=1, state="done", token=0)]
    assert broken(ops, Facts(jobs={1: named(1)}, moves=moves)) == {"I3", "I6"}


PLANS = Facts(
    jobs={n: Job(id=n) for n in (1, 2)},
    schedules=[Schedule(name="s", every=10, cursor=40)],
    fired=[Fired(schedule="s", time=10, job=1), Fired(schedule="s", time=40, job=2)],
    skipped=[Skipped(schedule="s", first=20, last=30)],
)


def test_plans_that_are_decided_once(ops):
    """Fired or skipped, each of them."""
    assert check(ops, PLANS) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"skipped": []},
        {"skipped": [Skipped(schedule="s", first=10, last=30)]},
        {"skipped": [Skipped(schedule="s", first=20, last=30, reason=None)]},
        {"fired": [*PLANS.fired, Fired(schedule="s", time=40, job=1)]},
        {"fired": [PLANS.fired[0], Fired(schedule="s", time=40, job=3)], "jobs": {1: Job(id=1)}},
    ],
    ids=["missing", "fired and skipped", "no reason", "twice", "no job"],
)
def test_i7_a_plan_that_is_not_decided_once(ops, changes):
    """Neither fired nor skipped; both; without a reason; twice; without a job."""
    assert broken(ops, dataclasses.replace(PLANS, **changes)) == {"I7"}


def test_i8_a_limit_that_was_passed(ops, recorder):
    """Two ran in a queue of one; a job that was given back is not counted."""
    for number in (1, 2):
        enqueued(recorder, number)
    jobs = {n: named(n) for n in (1, 2)}
    good = [
        *life(1, "ready", "running", "ready", queue="one"),
        *life(2, "ready", "running", "done", first=5, queue="one"),
    ]
    assert broken(ops, Facts(jobs=jobs, moves=good, limits={"one": 1})) == set()
    bad = [*life(1, "ready", "running", queue="one"), *life(2, "ready", "running", first=5, queue="one")]
    assert broken(ops, Facts(jobs=jobs, moves=bad, limits={"one": 1})) == {"I8"}


def test_i9_two_live_jobs_of_one_key(ops, recorder):
    """Both were live at once."""
    for number in (1, 2):
        enqueued(recorder, number, key="k")
    moves = [*life(1, "ready"), *life(2, "ready", first=5)]
    assert broken(ops, Facts(jobs={n: named(n, key="k") for n in (1, 2)}, moves=moves)) == {"I9"}


@pytest.mark.parametrize(("committed", "rules"), [(1.5, {"I9"}), (math.inf, set())], ids=["before", "after"])
def test_i9_a_job_has_ended_when_others_can_see_it(ops, recorder, committed, rules):
    """The commit of its end may be late."""
    enqueued(recorder, 1)
    enqueued(recorder, 1, created=False, name="again", key="k")
    moves = life(1, "ready", "running", "done")
    moves[-1] = dataclasses.replace(moves[-1], at=1.0, committed=committed)
    assert broken(ops, Facts(jobs={1: named(1, key="k", state="done", finished_at=1.0)}, moves=moves)) == rules


def test_i9_already_there_and_over(ops, recorder):
    """It was told of a job that had ended before it asked; or that never was."""
    enqueued(recorder, 1)
    enqueued(recorder, 1, created=False, name="again", key="k")
    assert broken(ops, Facts(jobs={1: named(1, key="k", finished_at=1.0)})) == {"I9"}
    enqueued(recorder, 7, created=False, name="never", key="l")
    assert broken(ops, Facts(jobs={1: named(1, key="k")})) == {"I1", "I9"}


@pytest.mark.parametrize(
    "numbers",
    [
        {"attempts": 4, "max_attempts": 3},
        {"crashes": 3, "max_crashes": 2},
        {"state": "dead", "reason": "handler_error", "attempts": 2, "max_attempts": 3},
    ],
)
def test_i10_limits_of_attempts(ops, recorder, numbers):
    """Too many attempts, too many crashes, or given up too early."""
    enqueued(recorder, 1)
    assert broken(ops, Facts(jobs={1: named(1, **numbers)})) == {"I10"}


def test_i11_a_job_that_waits_in_vain(ops, recorder):
    """Workers were free, and it did not run."""
    enqueued(recorder, 1)
    assert broken(ops, Facts(jobs={1: named(1, state="ready")}, stuck={1: "nobody claims it"})) == {"I11"}


def test_i11_a_plan_that_is_decided_late(ops, recorder):
    """V1, V2: planners were there, and were held up by others' scope functions."""
    recorder.tell("late plan", schedule="plain", seconds=90.0)
    assert broken(ops, Facts()) == {"I11"}


def test_i12_a_start_in_a_paused_queue(ops, recorder):
    """It was claimed after the pause was answered and before the resume was asked for."""
    enqueued(recorder, 1)
    recorder.tell("pause", queue="q", seq=1)
    recorder.tell("resume", Phase.INVOKE, queue="q", seq=5)
    jobs = {1: named(1)}
    assert broken(ops, Facts(jobs=jobs, moves=life(1, "ready", "running", "done", queue="q"))) == {"I12"}
    assert broken(ops, Facts(jobs=jobs, moves=life(1, "ready", "running", "done", first=5, queue="q"))) == set()


def test_i13_a_start_before_a_need(ops, recorder):
    """It was claimed while the job that it needs ran; once that is done it may be."""
    for number in (1, 2):
        enqueued(recorder, number)
    jobs = {1: named(1), 2: named(2, dependencies=(1,))}
    early = [*life(1, "ready", "running"), *life(2, "waiting", "ready", "running", first=3)]
    assert broken(ops, Facts(jobs=jobs, moves=early)) == {"I13"}
    late = [*life(1, "ready", "running", "done"), *life(2, "waiting", "ready", "running", first=4)]
    assert broken(ops, Facts(jobs=jobs, moves=late)) == set()


def test_i14_an_exit_code_that_lies(ops, recorder):
    """The run left with 0, and units have failed; the wait with 0, and the job is dead."""
    with recorder.asking("batch", name="b") as answer:
        answer.update(id=1, exit_code=0)
    assert broken(ops, Facts(batches={1: Batch(id=1, state="partial")})) == {"I14"}
    enqueued(recorder, 1)
    with recorder.asking("wait", job=1) as answer:
        answer.update(exit_code=0)
    assert broken(ops, Facts(batches={1: Batch(id=1)}, jobs={1: named(1, state="dead")})) == {"I14"}


@pytest.mark.parametrize("events", [["enqueued", "started"], [], ["done"]])
def test_i15_events_that_explain_nothing(ops, recorder, events):
    """The job is done, and its history does not say so."""
    enqueued(recorder, 1)
    assert broken(ops, Facts(jobs={1: named(1)}, events={1: events})) == {"I15"}


def test_i15_a_cancel_that_nobody_wanted(ops, recorder):
    """The run was given back, and the job is cancelled: that needs somebody who asked for it."""
    enqueued(recorder, 1)
    facts = Facts(jobs={1: named(1, state="cancelled")}, events={1: ["enqueued", "released"]})
    assert broken(ops, facts) == {"I15"}
    facts.events[1].insert(1, "cancel_requested")
    assert broken(ops, facts) == set()


def test_i16_a_process_that_is_left(ops):
    """Its job is over."""
    assert broken(ops, Facts(survivors=["program 7 of job 1"])) == {"I16"}


def test_i16_two_programs_of_one_job(ops, recorder):
    """The first was alive when the second had begun."""
    enqueued(recorder, 1, kind="command")
    recorder.tell("program", Phase.INVOKE, name="job 1", pid=7)
    recorder.tell("program", Phase.INVOKE, name="job 1", pid=8)
    facts = Facts(jobs={1: named(1, kind="command", state="running")})
    assert broken(ops, facts) == set()
    recorder.tell("beat", name="job 1", pid=7)
    assert broken(ops, facts) == {"I16"}


def test_i17_a_lower_priority_that_was_preferred(ops, recorder):
    """Job 2 had been ready for ten seconds, and was more important."""
    for job_id in (1, 2):
        enqueued(recorder, job_id)
        run(recorder, job_id)
    jobs = {1: named(1), 2: named(2)}
    moves = [
        Move(seq=1, step=Step.IN, job=1, state="ready", token=0, priority=0, at=1.0),
        Move(seq=2, step=Step.IN, job=2, state="ready", token=0, priority=5, at=1.0),
        Move(seq=3, step=Step.MOVE, job=1, old="ready", state="running", token=1, priority=0, at=11.0),
        Move(seq=4, step=Step.MOVE, job=2, old="ready", state="running", token=1, priority=5, at=12.5),
        Move(seq=5, step=Step.END, job=1, state="done", token=1, at=13.0),
        Move(seq=6, step=Step.END, job=2, state="done", token=1, at=13.0),
    ]
    assert broken(ops, Facts(jobs=jobs, moves=moves)) == {"I17"}
    early = dataclasses.replace(moves[2], at=1.5)
    assert broken(ops, Facts(jobs=jobs, moves=[*moves[:2], early, *moves[3:]])) == set()
    late = dataclasses.replace(moves[1], committed=10.9)
    assert broken(ops, Facts(jobs=jobs, moves=[moves[0], late, *moves[2:]])) == set()
    recorder.tell("locked", Phase.INVOKE, 99, jobs=[2])
    ops[-1] = dataclasses.replace(ops[-1], wall=10.0)
    recorder.tell("locked", Phase.OK, 99)
    assert broken(ops, Facts(jobs=jobs, moves=moves)) == set()


def test_i18_a_free_slot_beside_a_waiting_job(ops, recorder):
    """One of two slots is free for a minute, and job 2 waits; then a worker ends by itself."""
    for job_id in (1, 2):
        enqueued(recorder, job_id)
        run(recorder, job_id)
    jobs = {1: named(1), 2: named(2)}
    moves = [
        Move(seq=1, step=Step.IN, job=1, state="ready", token=0, at=1.0),
        Move(seq=2, step=Step.MOVE, job=1, old="ready", state="running", token=1, at=1.0),
        Move(seq=3, step=Step.IN, job=2, state="ready", token=0, at=2.0),
        Move(seq=4, step=Step.MOVE, job=2, old="ready", state="running", token=1, at=62.0),
        Move(seq=5, step=Step.END, job=1, state="done", token=1, at=70.0),
        Move(seq=6, step=Step.END, job=2, state="done", token=1, at=70.0),
    ]
    assert broken(ops, Facts(jobs=jobs, moves=moves, slots=2)) == {"I18"}
    assert broken(ops, Facts(jobs=jobs, moves=moves, slots=1)) == set()
    assert broken(ops, Facts(jobs=jobs, moves=moves)) == set()
    assert broken(ops, Facts(jobs=jobs, moves=moves, fallen=["worker process 7"])) == {"I18"}


def test_i18_a_shard_that_keeps_its_slot(ops, recorder):
    """K83: both slots are taken, one by a shard whose turn is over; job 2 waits for a minute all the same."""
    for job_id in (1, 2):
        enqueued(recorder, job_id)
        run(recorder, job_id)
    jobs = {1: named(1), 2: named(2)}
    moves = [
        Move(seq=1, step=Step.IN, job=1, state="ready", token=0, at=1.0),
        Move(seq=2, step=Step.MOVE, job=1, old="ready", state="running", token=1, at=1.0),
        Move(seq=3, step=Step.IN, job=9, kind="shard:x", state="ready", token=0, at=1.0),
        Move(seq=4, step=Step.MOVE, job=9, kind="shard:x", old="ready", state="running", token=1, at=1.0),
        Move(seq=5, step=Step.IN, job=2, state="ready", token=0, at=2.0),
        Move(seq=6, step=Step.END, job=1, state="done", token=1, at=62.0),
        Move(seq=7, step=Step.MOVE, job=2, old="ready", state="running", token=1, at=62.0),
        Move(seq=8, step=Step.END, job=2, state="done", token=1, at=70.0),
    ]
    assert broken(ops, Facts(jobs=jobs, moves=moves, slots=2)) == {"I18"}
    released = Move(seq=5, step=Step.MOVE, job=9, kind="shard:x", old="running", state="ready", token=1, at=12.0)
    taken = Move(seq=5, step=Step.MOVE, job=9, kind="shard:x", old="ready", state="running", token=2, at=52.0)
    assert broken(ops, Facts(jobs=jobs, moves=[*moves[:5], released, taken, *moves[5:]], slots=1)) == set()


def test_i20_a_worker_that_is_ready_without_a_store(ops, recorder):
    """Half a minute into an outage the worker still calls itself ready."""
    number = recorder.tell("outage", Phase.INVOKE, brief=False)
    ops[-1] = dataclasses.replace(ops[-1], at=0.0, wall=100.0)
    recorder.tell("ready", worker="w", ready=True)
    ops[-1] = dataclasses.replace(ops[-1], at=30.0, wall=130.0)
    recorder.tell("outage", Phase.OK, number)
    ops[-1] = dataclasses.replace(ops[-1], at=40.0)
    assert broken(ops, Facts()) == {"I20"}
    ops[1] = dataclasses.replace(ops[1], facts={"worker": "w", "ready": False})
    assert broken(ops, Facts()) == set()


def test_every_invariant_has_its_own_test():
    """I1 to I18, I20, I22 and I23, each shown broken here."""
    assert list(INVARIANTS) == [f"I{n}" for n in (*range(1, 19), 20, 22, 23)]
    assert {name.split("_")[1].upper() for name in globals() if name.startswith("test_i")} == set(INVARIANTS)


# -- the history ------------------------------------------------------------------------------------


def test_a_history_survives_its_processes(tmp_path):
    """Half a line at the end of a file is left out; what was asked there has no answer."""
    recorder = to_file(tmp_path, "worker-1")
    with recorder.asking("enqueue", name="a", kind="quick") as answer:
        answer.update(id=1, created=True)
    recorder.tell("enqueue", Phase.INVOKE, name="b", kind="quick")
    with (tmp_path / "worker-1.ndjson").open("ab") as file:
        file.write(b'["enqueue", "ok", {"id"')
    told = History(read(tmp_path)).asked("enqueue")
    assert [(op.phase, op.facts.get("id")) for op in told] == [(Phase.OK, 1), (Phase.UNKNOWN, None)]


def test_how_an_operation_ends(ops, recorder):
    """An answer of the store is a refusal, silence of the store is unknown, and a run always tells its end."""
    for error in (HoldfastError("no"), StoreUnavailable("gone"), ValueError("odd")):
        with pytest.raises(type(error)), recorder.asking("enqueue", name="a"):
            raise error
    with pytest.raises(SystemExit), recorder.running("run", job=1):
        raise SystemExit
    told = [op.phase for op in ops if op.phase is not Phase.INVOKE]
    assert told == [Phase.FAIL, Phase.UNKNOWN, Phase.UNKNOWN, Phase.FAIL]


def test_i22_a_run_in_the_context_of_another(ops, recorder):
    enqueued(recorder, 1)
    with recorder.running("run", job=1, token=1, kind="aside", queue="default", seen=7):
        recorder.tell("effect", job=1, token=1)
    facts = Facts(jobs={1: named(1)}, moves=life(1, "ready", "running", "done"))
    assert "I22" in broken(ops, facts)
    del ops[:]
    enqueued(recorder, 1)
    run(recorder, 1)
    assert "I22" not in broken(ops, facts)


@pytest.mark.parametrize(
    ("told", "is_broken"),
    [
        (("declared", {"schedule": "s", "result": "refused"}), False),
        (("declared", {"schedule": "s", "result": "changed"}), True),
        (("foreign run", {"exit": 14, "ran": []}), False),
        (("foreign run", {"exit": 0, "ran": [1, 2]}), True),
    ],
)
def test_i23_a_name_with_the_code_of_others(ops, recorder, told, is_broken):
    operation, facts = told
    recorder.tell(operation, **facts)
    assert broken(ops, Facts()) == ({"I23"} if is_broken else set())

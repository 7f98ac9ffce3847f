"""``cancel``, ``pause``, ``retry``, ``kill``, ``restart`` and the other actions on jobs."""

from __future__ import annotations

import json
from itertools import islice

import pytest

from holdfast import Selector, State
from holdfast.domain.jobs.job import WorkerId
from holdfast.settings import log_folder
from tests.support.jobs import take_one
from tests.support.processes import wait_until
from tests.worker.commands.test_executor import drain


def test_each_action_changes_the_state(run, app):
    ref = app.enqueue("mail", {"to": 1})
    for arguments, state in (
        (["hold", "--note", "wait a bit"], State.HELD),
        (["unhold"], State.READY),
        (["cancel"], State.CANCELLED),
        (["retry"], State.READY),
    ):
        data = run(arguments[0], ref.id, *arguments[1:], "-o", "json").data
        assert (data["matched"], data["changed"], data["ids"]) == (1, 1, [ref.id])
        assert ref.state is state
    run("set", ref.id, "--priority", "9", "--to-queue", "other")
    assert (ref.job().priority, ref.job().queue) == (9, "other")
    assert run("rm", ref.id).code == 0
    assert run("show", ref.id).code == 3


def test_a_dry_run_changes_nothing(run, app):
    refs = [app.enqueue("mail", {"to": n}) for n in range(3)]
    data = run("cancel", "--kind", "mail", "--dry-run", "-o", "json").data
    assert (data["matched"], data["changed"], data["ids"], data["dry_run"]) == (3, 3, [ref.id for ref in refs], True)
    assert {ref.state for ref in refs} == {State.READY}


def test_actions_on_many_jobs_require_yes(run, app):
    """E8: without a terminal there is no question. Every action on more than one job needs --yes."""
    for n in range(2):
        app.enqueue("mail", {"to": n})
    for action, *options in (["hold"], ["unhold"], ["set", "--priority", "7"], ["cancel"], ["retry"], ["rm"]):
        answer = run(action, "--kind", "mail", *options)
        assert (answer.code, "--yes" in answer.err) == (2, True)
        assert run(action, "--kind", "mail", *options, "--yes", "-o", "json").data["changed"] == 2


def test_the_question_and_the_dry_run_agree(run, app):
    """The question counted jobs that the action cannot change."""
    finished = [app.enqueue("mail", {"to": n}).id for n in range(2)]
    app.worker(drain=True, poll=0.02).run()
    answers = [run("unhold", *finished, *dry_run) for dry_run in ((), ("--dry-run",))]
    assert [answer.code for answer in answers] == [9, 9]
    assert answers[0].err == answers[1].err
    held = app.enqueue("mail", {"to": 3}, hold=True).id
    assert "this would release 1 of 3 jobs" in run("unhold", *finished, held).err


@pytest.mark.parametrize("dry_run", [(), ("--dry-run",)])
def test_an_action_that_can_change_nothing_is_exit_9(run, app, dry_run):
    """E1.3, E2: the action and its dry run exited 0, and the dry run promised a change."""
    job = app.enqueue("mail", {"to": 1})
    app.worker(drain=True, poll=0.02).run()
    answer = run("cancel", job.id, *dry_run, "-o", "json")
    assert (answer.code, answer.document["error"]["code"]) == (9, "E_NOTHING_CHANGED")
    (unchanged,) = answer.data["unchanged"]
    assert (answer.data["matched"], answer.data["changed"], unchanged["ids"]) == (1, 0, [job.id])
    assert unchanged["why"].startswith("done: cancel changes only held, waiting, scheduled, ready and running jobs")
    assert (
        "would be" in answer.document["error"]["message"] if dry_run else "was" in answer.document["error"]["message"]
    )


def test_a_dry_run_says_which_jobs_would_change(run, app):
    """E1.3: with the words of the action itself."""
    held, ready = app.enqueue("mail", {"to": 1}, hold=True), app.enqueue("mail", {"to": 2})
    dry = run("hold", held.id, ready.id, "--dry-run").out
    done = run("hold", held.id, ready.id, "--yes").out
    assert dry.replace("would be held", "held", 1) == done
    assert done.startswith(f"1 of 2 jobs held: {ready.id}; unchanged: job {held.id}, held: hold changes only waiting")


def test_a_restart_makes_no_new_job(app, here, call, run):
    """Sixty jobs stay sixty (SPEC 8.22); each attempt has its own log."""
    for n in range(60):
        call("add", "--label", "batch", "--", "sh", "-c", f"echo $HOLDFAST_ATTEMPT of {n}; exit 1")
    drain(app)
    assert call("restart", "--label", "batch", "--yes").data["changed"] == 60
    drain(app)
    assert app.views.count(Selector()).count == 60
    assert call("log", "1", "--attempt", "1").data["text"] == "1 of 0\n"
    assert call("log", "1", "--attempt", "2").data["path"] == call("log", "1").data["path"]


def test_kill_leaves_waiting_jobs_alone(app, here, call):
    waits = call("add", "--hold", "--", "true").data["id"]
    answer = call("kill", str(waits))
    assert (answer.code, answer.data["changed"]) == (9, 0)
    assert app.views.get(waits).state is State.HELD


def test_a_restart_of_done_jobs_adds_none(app, here, call):
    """Done jobs restart with --done; no job is added, and each attempt has its own number and log."""
    call(
        "sweep",
        "--param",
        "n=" + ",".join(map(str, range(60))),
        "--",
        "sh",
        "-c",
        'echo "$1" $HOLDFAST_ATTEMPT',
        "-",
        "{n}",
    )
    drain(app, slots=2)
    restarted = call("restart", "--label", "sh/*", "--done", "--yes").data
    assert (restarted["matched"], restarted["changed"]) == (60, 60)
    drain(app, slots=2)
    assert app.views.count(Selector()).count == app.views.count(Selector(states=(State.DONE,))).count == 60
    for job in islice(app.views.all(Selector()), 5):
        n = json.loads(job.payload)["parameters"]["n"]
        logs = [call("log", str(job.id), "--attempt", str(number)).data for number in (1, 2)]
        assert [log["text"] for log in logs] == [f"{n} 1\n", f"{n} 2\n"]


def test_a_restart_takes_failures_and_asks(app, here, run, add):
    """E5.6: restart --label ran done jobs again, unasked."""
    jobs = [add("-l", "x", "--", "sh", "-c", f"exit {code}") for code in (0, 1, 1)]
    drain(app)
    refused = run("restart", "--label", "x", "-o", "json")
    assert (refused.code, "restart 2 jobs" in refused.document["error"]["message"]) == (2, True)
    assert run("restart", "--label", "x", "--yes", "-o", "json").data["ids"] == jobs[1:]
    assert app.views.state(jobs[0]) is State.DONE
    app.control.cancel(Selector(ids=tuple(jobs[1:])), actor="ada")
    assert sorted(run("restart", "--label", "x", "--done", "--yes", "-o", "json").data["ids"]) == jobs


def test_a_restart_of_what_is_done_says_how(app, here, run, add):
    """E5.6: an id, a state or --done asks for done jobs."""
    job = add("-l", "x", "--", "true")
    for arguments in ((job,), ("--label", "x", "--state", "done"), ("--label", "x", "--done")):
        drain(app)
        missing = run("restart", "--label", "x", "-o", "json")
        assert (missing.code, "--done" in missing.document["error"]["hint"]) == (3, True)
        assert run("restart", *arguments).code == 0
        assert app.views.state(job) is State.READY


def test_an_action_reports_why_it_skipped_jobs(app, here, run, add):
    job = add("--hold", "--", "true")
    assert f"unchanged: job {job}, held: kill changes only running jobs" in run("kill", str(job)).err
    assert f"job {job}, held: restart changes only done, dead, cancelled and scheduled" in run("restart", str(job)).err


def test_a_kill_arrives_at_once(app, here, run, add):
    """The worker receives the request before its next heartbeat."""
    job = add("--", "sleep", "600")
    with app.worker(commands=True, poll=0.05, plans=False):
        wait_until(lambda: app.views.get(job).state is State.RUNNING)
        assert run("kill", str(job)).code == 0
        wait_until(lambda: app.views.get(job).state is State.CANCELLED)


def test_a_handler_takes_no_memory_from_a_restart(app, run):
    """K43: the option was accepted and ignored."""
    job = app.enqueue("broken")
    drain(app)
    for arguments in ((str(job.id),), ("--state", "dead"), (str(job.id), "--dry-run")):
        answer = run("restart", *arguments, "--memory", "4G")
        assert (answer.code, "--memory is for commands" in answer.err) == (2, True), answer.err
    assert job.state == "dead"


def test_a_deleted_command_takes_its_logs_along(app, here, run, call):
    """E2: all attempts, at once; the dry run and other jobs leave them alone."""
    call("sweep", "--label", "sw", "--param", "n=1,2", "--", "sh", "-c", 'echo "$1"; exit 1', "-", "{n}")
    drain(app)
    call("restart", "--label", "sw*", "--yes")
    drain(app)
    logs = log_folder(app.url)
    kept, deleted = app.views.all(Selector(states=(State.DEAD,)))
    assert len(list(logs.rglob("*.log"))) == 4
    assert run("rm", deleted.id, "--dry-run").code == 0
    assert len(list(logs.rglob("*.log"))) == 4
    answer = run("rm", deleted.id, "-o", "json")
    assert (answer.data["changed"], answer.data["note"]) == (1, None)
    assert [path.name.partition("-")[0] for path in logs.rglob("*.log")] == [str(kept.id)] * 2
    assert len(list(logs.iterdir())) == 1, "the folder of a parameter goes with its last log"


@pytest.mark.parametrize("dry_run", [(), ("--dry-run",)])
def test_logs_on_other_hosts_are_named(app, here, run, add, monkeypatch, dry_run):
    """E2: the worker there deletes them, and the answer says so."""
    job = add("--", "true")
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("socket.gethostname", lambda: "elsewhere")
        drain(app)
    for path in log_folder(app.url).rglob("*.log"):
        path.unlink()  # it is on another disk
    answer = run("rm", job, *dry_run, "-o", "json")
    assert "the logs of 1 job are on other hosts" in answer.data["note"]


def test_a_queue_that_no_live_worker_serves_is_named(run, app):
    """The job moves, and would wait there for ever."""
    ref, note = (
        app.enqueue("mail", {"to": 1}),
        "no live worker serves the queue 'mialer': start one with --queue mialer",
    )
    assert note in run("set", ref.id, "--to-queue", "mialer").out
    assert run("set", ref.id, "--to-queue", "mialer", "--dry-run", "-o", "json").data["note"] == note
    app.store.workers.announce(WorkerId("w"), host="h", pid=1, queues=["mialer"], kinds=["mail"])
    assert run("set", ref.id, "--to-queue", "mialer", "-o", "json").data["note"] is None


def test_lists_and_details_show_a_request(run, app):
    """A2: a job with a cancel request runs until its worker obeys: ls, show and why say so, as the pages do."""
    ref = app.enqueue("mail", {"to": 1})
    take_one(app.store)
    assert run("cancel", ref.id).out == f"1 job asked to stop: {ref.id}\n"
    assert "cancel requested" in run("ls").out
    assert f"job {ref.id}  claimed, not started, cancel requested  mail" in run("show", ref.id).out
    assert "cancel requested: the worker receives it with its next heartbeat" in run("why", ref.id).out
    data = run("cancel", ref.id, "-o", "json")
    assert (data.code, data.data["requested"]) == (9, [])


@pytest.mark.one_backend
@pytest.mark.parametrize(
    "line",
    ["pause 1", "retry 1", "cancel 1", "set 1 --priority 3", "rm 1 --yes", "resume --all", "batch cancel 1 --yes"],
)
def test_an_action_creates_no_store(run, tmp_path, line):
    """E2: with a wrong URL, an action on something that exists left an empty store behind."""
    answer = run(*line.split(), "--url", f"sqlite:///{tmp_path}/mistyped.db", "-o", "json")
    assert (answer.code, answer.document["error"]["code"]) == (4, "E_SCHEMA_MISSING")
    assert not list(tmp_path.glob("mistyped*"))

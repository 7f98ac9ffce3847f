"""The verbs on jobs, as people and scripts use them."""

from __future__ import annotations

import json

import pytest

from holdfast import State
from tests.support.processes import wait_until


def test_enqueue_uses_what_the_kind_says(run, app):
    """Queue, attempts and the rest come from the application that has registered it."""
    answer = run("enqueue", "broken", "-o", "json")
    job = app.get(answer.data["id"]).job()
    assert (job.queue, job.max_attempts, answer.data["created"]) == ("slow", 1, True)


def test_enqueue_takes_options(run, app, tmp_path):
    (tmp_path / "p.json").write_text('{"to": 7}')
    words = ["--delay", "1h", "--label", "nightly", "--priority", "4", "--key", "seven", "-q", "other"]
    first = run("enqueue", "mail", "-p", f"@{tmp_path}/p.json", *words, "-o", "json").data
    again = run("enqueue", "mail", "-p", '{"to": 7}', "--key", "seven", "-o", "json").data
    job = app.get(first["id"]).job()
    assert (job.label, job.priority, job.key, job.queue, job.state) == ("nightly", 4, "seven", "other", "scheduled")
    assert again == {**first, "created": False, "queue": "default"}


def test_quiet_enqueue_prints_the_id_alone(run):
    assert run("enqueue", "mail", "-p", '{"to": 1}', "--quiet").out == "1\n"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["mial"], 3, "Did you mean 'mail'?"),
        (["mail"], 2, "needs the parameter 'to'"),
        (["mail", "-p", '{"to": 1, "of": 2}'], 2, "has no parameter 'of'"),
        (["mail", "-p", "nonsense"], 2, "not JSON"),
        (["mail", "-p", "[1]"], 2, "a JSON object"),
        (["mail", "-p", "@/nowhere.json"], 2, "cannot be read"),
    ],
)
def test_mistakes_of_an_enqueue_are_told(run, words, code, says):
    answer = run("enqueue", *words)
    assert (answer.code, says in answer.err) == (code, True), answer.err


def test_jobs_are_found_by_what_they_are(run, app):
    ids = {label: app.enqueue("mail", {"to": 1}, label=label).id for label in ("red-1", "red-2", "blue")}
    broken = app.enqueue("broken").id

    def found(*words):
        return {job["id"] for job in run("ls", *words, "-o", "json").data["jobs"]}

    assert found("--label", "red-*") == {ids["red-1"], ids["red-2"]}
    assert found("-l", "blue", "-l", "red-1") == {ids["blue"], ids["red-1"]}
    assert found("--queue", "slow") == found("--filter", "queue=slow") == {broken}
    assert found("--filter", "kind=mail label=blue") == {ids["blue"]}
    assert found("--since", "1h") == {*ids.values(), broken}
    assert found("--until", "1h") == set()
    assert found(ids["blue"], "--kind", "mail") == {ids["blue"]}
    assert len(found("-n", "2")) == 2


@pytest.mark.parametrize(
    "words", [["--filter", "colour=red"], ["--state", "tired"], ["--filter", "kind=a kind=b"], ["x"]]
)
def test_mistakes_of_a_selector_are_told(run, words):
    answer = run("ls", *words)
    assert answer.code == 2
    assert answer.err.startswith("error: ")


def test_verbs_change_what_they_say(run, app):
    ref = app.enqueue("mail", {"to": 1})
    for words, state in (
        (["hold", "--note", "wait a bit"], State.HELD),
        (["unhold"], State.READY),
        (["cancel"], State.CANCELLED),
        (["retry"], State.READY),
    ):
        data = run(words[0], ref.id, *words[1:], "-o", "json").data
        assert (data["matched"], data["changed"], data["ids"]) == (1, 1, [ref.id])
        assert ref.state is state
    run("set", ref.id, "--priority", "9", "--to-queue", "other")
    assert (ref.job().priority, ref.job().queue) == (9, "other")
    assert run("rm", ref.id).code == 0
    assert run("show", ref.id).code == 3


def test_a_dry_run_changes_nothing(run, app):
    refs = [app.enqueue("mail", {"to": n}) for n in range(3)]
    data = run("cancel", "--kind", "mail", "--dry-run", "-o", "json").data
    assert (data["matched"], data["changed"], data["dry_run"]) == (3, 0, True)
    assert {ref.state for ref in refs} == {State.READY}


@pytest.mark.parametrize("action", ["cancel", "rm"])
def test_many_jobs_are_not_lost_without_a_yes(run, app, action):
    """A program says --yes; without a terminal nobody can be asked."""
    for n in range(2):
        app.enqueue("mail", {"to": n})
    answer = run(action, "--kind", "mail")
    assert (answer.code, "--yes" in answer.err) == (2, True)
    assert run(action, "--kind", "mail", "--yes", "-o", "json").data["changed"] == 2


def test_the_history_names_who_did_it(run, app):
    ref = app.enqueue("mail", {"to": 1})
    run("cancel", ref.id)
    event = run("show", ref.id, "-o", "json").data["events"][-1]
    assert event["name"] == "cancelled"
    assert not event["actor"].startswith("holdfast:")


def test_wait_exits_with_the_result(run, app):
    good, bad = app.enqueue("mail", {"to": 1}), app.enqueue("broken")
    app.worker(queues=["default", "slow"], drain=True, poll=0.02).run()
    assert [run("wait", *ids).code for ids in ([good.id], [bad.id], [good.id, bad.id])] == [0, 1, 6]
    late = app.enqueue("mail", {"to": 2}, hold=True)
    assert run("wait", late.id, "--timeout", "0s").code == 10


def test_show_tells_everything(run, app):
    ref = app.enqueue("mail", {"to": 1}, hold=True)
    data = run("show", ref.id, "-o", "json").data
    assert data["job"]["payload"] == {"to": 1}
    assert data["why"]
    text = run("show", ref.id).out
    assert all(word in text for word in ("held", "history", "enqueued"))


def test_queues_and_workers(run, app):
    app.enqueue("mail", {"to": 1})
    run("queue", "set", "default", "--limit", "2", "--worker-limit", "1")
    run("queue", "pause", "default", "--note", "deploy")
    (found,) = [queue for queue in run("queue", "ls", "-o", "json").data["queues"] if queue["name"] == "default"]
    assert found == {
        "name": "default",
        "ready": 1,
        "expired": 0,
        "running": 0,
        "limit": 2,
        "worker_limit": 1,
        "paused": True,
        "note": "deploy",
        "autoscaler": None,
        "hosts": [],
    }
    assert run("queue", "set", "default", "--limit", "0", "-o", "json").data["limit"] is None
    assert run("queue", "resume", "default", "-o", "json").data["paused"] is False
    with app.worker():
        (worker,) = wait_until(lambda: run("workers", "-o", "json").data["workers"])
    assert worker["kinds"] == ["broken", "command", "holdfast.ping", "mail"]


def test_the_configuration_says_where_it_comes_from(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "holdfast.toml").write_text('url = "sqlite:///here.db"')
    (tmp_path / "other.toml").write_text('url = "sqlite:///there.db"')

    def origin(*words):
        setting, *_ = run("config", "show", *words, "-o", "json").data["settings"]
        return setting["value"], setting["origin"]

    assert origin()[1] == "HOLDFAST_URL"
    monkeypatch.delenv("HOLDFAST_URL")
    assert origin() == ("sqlite:///here.db", str(tmp_path / "holdfast.toml"))
    assert origin("--config", "other.toml") == ("sqlite:///there.db", "other.toml")
    assert origin("--url", "postgresql://ada:secret@db/x") == ("postgresql://ada:***@db/x", "--url")
    (tmp_path / "holdfast.toml").write_text('ulr = "x"')
    assert run("config", "show").code == 4


def test_codes_are_explained(run):
    assert run("explain", "E_LEASE_LOST", "-o", "json").data["exit_code"] == 15
    assert "Did you mean" in run("explain", "E_LEASE").err
    told = run("explain", "E_WRONG_HOST", "-o", "json").data
    assert (told["exit_code"], told["http_status"]) == (None, 421)
    assert "HTTP 421" in run("explain", "e_wrong_host").out
    assert run("explain", "E_NOT_FOUND", "-o", "json").data["exit_code"] == 3
    codes = run("exit-codes", "-o", "json").data["exit_codes"]
    assert {code["code"]: code["name"] for code in codes}[7] == "aborted"
    assert json.dumps(codes)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_learn_the_commands(run, shell):
    """The script calls the program back, which answers with its own words."""
    assert "_HOLDFAST_COMPLETE" in run("completion", shell).out


def test_a_shell_is_answered(run, monkeypatch):
    """As its script asks."""
    for name, value in (("_HOLDFAST_COMPLETE", "bash_complete"), ("COMP_WORDS", "holdfast retr"), ("COMP_CWORD", "1")):
        monkeypatch.setenv(name, value)
    assert run().out == "plain,retry\n"


def test_the_program_alone_shows_its_commands(run):
    """Whoever types only its name learns what there is."""
    answer = run()
    assert "worker" in answer.out + answer.err

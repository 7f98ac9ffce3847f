"""``holdfast add``, ``sweep``, ``run``, ``log``, ``kill`` and ``restart``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from itertools import islice

import psutil
import pytest

from holdfast import Selector, State
from tests.cli.conftest import payload_of
from tests.support.processes import wait_until
from tests.worker.commands.test_executor import NASTY, drain

pytestmark = pytest.mark.usefixtures("here")


def test_a_program_is_added_and_run(app, call, run, here):
    added = call("add", "--", "echo", "hello", "world").data
    assert (added["added"], app.views.get(added["id"]).label) == (1, "echo")
    assert payload_of(app, added["id"])["cwd"] == str(here)
    drain(app)
    assert call("log", str(added["id"])).data["text"] == "hello world\n"
    assert run("log", str(added["id"]), "-n", "1").out == "hello world\n"
    assert run("add", "--quiet", "--", "true").out.strip().isdecimal()


def test_all_options_reach_the_job(app, call):
    first = call("add", "--hold", "--", "true").data["id"]
    words = ["--label", "l", "--queue", "slow", "--priority", "3", "--retry", "2", "--timeout", "1h", "--memory", "1G"]
    words += ["--cpus", "0.5", "--require-cap", "--env", "A=b=c", "--key", "k", "--after", f"finished:{first}"]
    job = app.views.get(call("add", *words, "--delay", "2h", "--", "make", "-j2").data["id"])
    assert (job.label, job.queue, job.priority, job.max_attempts, job.key) == ("l", "slow", 3, 3, "k")
    assert (str(job.after_when), str(job.state)) == ("finished", "waiting")
    command = json.loads(job.payload)
    assert (command["argv"], command["memory"], command["cpus"]) == (["make", "-j2"], 2**30, 0.5)
    assert (command["timeout"], command["require_cap"], command["env"]["A"]) == ("PT3600S", True, "b=c")


def test_the_environment_goes_with_it_by_name(app, call, monkeypatch):
    """PATH and the like, and what is named; no other variable of this shell."""
    monkeypatch.setenv("SECRET_TOKEN", "x")
    monkeypatch.setenv("LANG", "C.UTF-8")
    plain = payload_of(app, call("add", "--", "true").data["id"])["env"]
    assert plain["PATH"] == os.environ["PATH"]
    assert "SECRET_TOKEN" not in plain
    named = call("add", "--env", "SECRET_TOKEN", "--", "true").data["id"]
    assert payload_of(app, named)["env"]["SECRET_TOKEN"] == "x"
    shown = call("show", str(named)).data["job"]["payload"]["env"]
    assert (shown["SECRET_TOKEN"], shown["LANG"]) == ("***", "C.UTF-8")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["add"], "E_INVALID"),
        (["add", "--env", "NO_SUCH_VARIABLE", "--", "true"], "E_INVALID"),
        (["add", "--env", "=x", "--", "true"], "E_INVALID"),
        (["add", "--memory", "much", "--", "true"], "E_INVALID"),
        (["add", "--cpus", "0", "--", "true"], "E_INVALID"),
        (["add", "--after", "nobody", "--", "true"], "E_INVALID"),
        (["add", "--delay", "soon", "--", "true"], "E_INVALID"),
        (["add", "--from", "nowhere.txt"], "E_INVALID"),
        (["sweep", "--", "echo", "{a}"], "E_INVALID"),
        (["sweep", "--param", "a=1", "--", "echo"], "E_INVALID"),
        (["sweep", "--param", "a=1", "--", "echo", "{b}"], "E_INVALID"),
        (["sweep", "--param", "a=1", "--param", "a=2", "--", "echo", "{a}"], "E_INVALID"),
        (["sweep", "--param", "a b=1", "--", "echo", "{a}"], "E_INVALID"),
    ],
)
def test_what_makes_no_sense_is_refused(run, app, words, code):
    answer = run(words[0], "-o", "json", *words[1:])
    assert (answer.code, answer.document["error"]["code"]) == (2, code)
    assert app.views.count(Selector()).count == 0


def test_who_waits_for_nobody_is_told(run):
    answer = run("add", "--after", "99", "-o", "json", "--", "true")
    assert (answer.code, answer.document["error"]["code"]) == (3, "E_NEED_NOT_FOUND")


def test_one_waits_in_one_way(run, call):
    first, second = (call("add", "--", "true").data["id"] for _ in range(2))
    answer = run("add", "--after", f"ok:{first}", "--after", f"failed:{second}", "-o", "json", "--", "true")
    assert answer.code == 2


def test_labels_keys_and_queues_are_waited_for(app, call):
    call("add", "-l", "nightly", "-q", "slow", "--key", "k", "--", "true")
    for has_dependents in ("label=nightly", "key=k", "queue=slow"):
        assert str(app.views.get(call("add", "--after", has_dependents, "--", "true").data["id"]).state) == "waiting"


def test_a_file_of_commands_is_added_at_once(app, call, here):
    """Words as a shell divides them, which then reads nothing more; or a JSON list."""
    (here / "list").write_text('echo \'a b\' $(id)\n# a comment\n\n["echo", "x; y"]\n')
    assert call("add", "--from", "list").data["added"] == 2
    argvs = [json.loads(job.payload)["argv"] for job in app.views.all(Selector())]
    assert argvs == [["echo", "x; y"], ["echo", "a b", "$(id)"]]


def test_a_bad_line_is_told_and_nothing_is_added(run, app, here):
    (here / "list").write_text("echo fine\necho 'open\n")
    answer = run("add", "-o", "json", "--from", "list")
    assert (answer.code, "line 2" in answer.document["error"]["message"]) == (2, True)
    assert app.views.count(Selector()).count == 0


def test_a_shell_only_where_it_is_asked_for(app, call):
    job = call("add", "--shell", "--", "echo $((1 + 1)) | cat").data["id"]
    drain(app)
    assert call("log", str(job)).data["text"] == "2\n"


def test_a_callback_hears_how_it_ended(app, call, tmp_path):
    """Each value is a word of its own, whatever it holds; nothing is read by a shell."""
    out = tmp_path / "told"
    code = "import json, sys; print(json.dumps(sys.argv[1:]), file=open(sys.argv[1], 'a'))"
    callback = f"{sys.executable} -c '{code.replace(chr(39), chr(34))}' {out} {{id}} {{label}} {{result}} {{exit_code}} {{output}}"
    nasty = "$(touch pwned); `touch pwned`"
    call("add", "--label", nasty, "--callback", callback, "--", "sh", "-c", "echo '; touch pwned'; exit 3")
    drain(app)
    assert json.loads(out.read_text())[1:] == ["1", nasty, "dead", "3", "; touch pwned\n"]
    assert not list(tmp_path.rglob("pwned"))


def test_a_callback_knows_what_it_may_say(run, app):
    assert run("add", "-o", "json", "--callback", "notify {who}", "--", "true").code == 2
    assert app.views.count(Selector()).count == 0


def test_a_queue_is_paused_when_one_fails_for_good(app, call):
    """The others of the queue wait for a person."""
    app.queues.set_limits("slow", limit=1)
    for code in (0, 1, 0):
        call("add", "-q", "slow", "--pause-queue-on-failure", "--", "sh", "-c", f"exit {code}")
    with app.worker(poll=0.05, queues=["slow"], slots=1):
        wait_until(lambda: app.queues.get("slow").paused)
    assert app.queues.get("slow").note == "job 2 failed (exit_1)"


# -- sweeps ------------------------------------------------------------------------------------


def test_a_sweep_is_every_combination(app, call):
    """Key, label, log and directory carry every parameter; the same again adds nothing."""
    words = ["sweep", "--param", "symbol=A,B", "--param", "year=2020,2021", "--workdir", "out"]
    words += ["--", "sh", "-c", "echo $0 $1 {{}}; pwd", "{symbol}", "--year={year}"]
    assert call(*words).data["added"] == 4
    assert call(*words).data == {"id": None, "added": 0, "known": 4, "first": None, "last": None}
    drain(app)
    jobs = list(app.views.all(Selector(labels=("sh/*",))))
    assert {job.label for job in jobs} == {f"sh/symbol={s}/year={y}" for s in "AB" for y in (2020, 2021)}
    texts = {call("log", str(job.id)).data["text"] for job in jobs}
    assert any(text.startswith("A --year=2020 {}\n") and text.endswith("out/symbol=A/year=2020\n") for text in texts)
    assert len({call("log", str(job.id)).data["path"].rpartition("/")[0] for job in jobs}) == 4


def test_values_are_read_by_no_shell(app, call, here, tmp_path):
    values = [text for text in NASTY if "," not in text and "\n" not in text and text]
    (here / "runs.csv").write_text("a\n" + "".join(f'"{value.replace(chr(34), chr(34) * 2)}"\n' for value in values))
    words = [
        "--csv",
        "runs.csv",
        "--workdir",
        "out",
        "--",
        sys.executable,
        "-c",
        "import sys; print(sys.argv[1])",
        "{a}",
    ]
    assert call("sweep", *words).data["added"] == len(values)
    drain(app)
    texts = {call("log", str(job.id)).data["text"] for job in app.views.all(Selector())}
    assert texts == {f"{value}\n" for value in values}
    assert not list(tmp_path.rglob("pwned"))
    assert {found.name for found in here.iterdir()} >= {"runs.csv", "out"}


def test_a_sweep_again_runs_what_has_failed(app, call):
    """What is done stays done, unless all of it is asked for."""
    words = ["--param", "code=0,1", "--", "sh", "-c", 'exit "$1"', "-", "{code}"]
    assert call("sweep", *words).data["added"] == 2
    drain(app)
    again = call("sweep", *words).data
    assert (again["added"], again["known"]) == (1, 1)
    drain(app)
    assert call("sweep", "--again", *words).data["added"] == 2


def test_another_program_is_another_sweep(call):
    for word in ("one", "two"):
        assert call("sweep", "--param", "a=1", "--", "echo", word, "{a}").data["added"] == 1


def test_a_parameter_may_be_for_the_directory_alone(app, call):
    assert call("sweep", "--param", "a=1,1,2", "--workdir", "out", "--", "pwd").data["added"] == 2


@pytest.mark.parametrize("text", ["", "a\n", "a,a\n1,2\n", "a b\n1\n", "a,b\n1\n"])
def test_a_table_that_makes_no_sense_is_refused(run, here, text):
    (here / "runs.csv").write_text(text)
    assert run("sweep", "--csv", "runs.csv", "-o", "json", "--", "echo", "{a}").code == 2


def test_a_table_may_come_from_a_spreadsheet(call, here):
    (here / "runs.csv").write_bytes(b"\xef\xbb\xbfa\r\n1\r\n\r\n2\r\n")
    assert call("sweep", "--csv", "runs.csv", "--", "echo", "{a}").data["added"] == 2


def test_rows_of_a_file_have_as_many_values_as_names(run, here):
    (here / "runs.csv").write_text("a,b\n1\n")
    assert run("sweep", "--csv", "runs.csv", "-o", "json", "--", "echo", "{a}", "{b}").code == 2


# -- again, and here ---------------------------------------------------------------------------


def test_a_restart_makes_no_new_job(app, call, run):
    """Sixty jobs stay sixty (SPEC 8.22); each attempt has a log of its own."""
    for n in range(60):
        call("add", "--label", "batch", "--", "sh", "-c", f"echo $HOLDFAST_ATTEMPT of {n}; exit 1")
    drain(app)
    assert call("restart", "--label", "batch").data["changed"] == 60
    drain(app)
    assert app.views.count(Selector()).count == 60
    assert call("log", "1", "--attempt", "1").data["text"] == "1 of 0\n"
    assert call("log", "1", "--attempt", "2").data["path"] == call("log", "1").data["path"]


def test_only_what_runs_is_killed(app, call):
    waits = call("add", "--hold", "--", "true").data["id"]
    assert call("kill", str(waits)).data["changed"] == 0
    assert app.views.get(waits).state is State.HELD


def test_a_log_is_one_of_a_program(run, app):
    app.enqueue("mail", {"to": 1})
    assert run("log", "1", "-o", "json").code == 2
    assert run("log", "99", "-o", "json").code == 3
    assert run("add", "--hold", "--", "true").code == 0
    assert run("log", "2", "-o", "json").document["error"]["code"] == "E_NOT_FOUND"


def program(*words, **options):
    line = [sys.executable, "-m", "holdfast", *words]
    return subprocess.run(line, capture_output=True, text=True, timeout=60, check=False, **options)


def test_a_program_is_run_here(app, run):
    """With its output on this terminal, and a job to look at afterwards."""
    done = program("run", "--", "sh", "-c", "echo one; sleep 0.1; echo two")
    assert (done.returncode, done.stdout) == (0, "one\ntwo\n")
    failed = program("run", "-o", "json", "--", "sh", "-c", "exit 4")
    assert failed.returncode == 1
    facts = json.loads(failed.stdout)["data"]
    assert (facts["state"], facts["reason"], facts["exit_code"]) == ("dead", "exit_4", 4)
    assert app.views.count(Selector()).count == 2


def test_what_is_run_here_goes_on_nowhere_else(app, run):
    """Ctrl-C, or a reader who has seen enough: the job is cancelled. A retry is made here."""
    stopped = subprocess.Popen([sys.executable, "-m", "holdfast", "run", "--", "sleep", "60"])
    wait_until(lambda: app.views.count(Selector(states=(State.RUNNING,))).count)
    stopped.send_signal(signal.SIGINT)
    assert stopped.wait(60) == 12
    assert (
        program(
            "run", "--retry", "1", "--retry-delay", "100ms", "--", "sh", "-c", "[ $HOLDFAST_ATTEMPT = 2 ]"
        ).returncode
        == 0
    )
    piped = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m holdfast run -- yes | head -2"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert piped.stdout == "y\ny\n"
    wait_until(lambda: app.views.count(Selector(states=(State.RUNNING, State.READY))).count == 0)


def test_what_is_run_here_and_left_is_dead_when_its_worker_is(app, run, here):
    """Also a program that ignores the request to end: nothing of it is left for a lease to lapse."""
    code = "import os, pathlib, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    code += "pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(600)"
    line = [sys.executable, "-m", "holdfast", "run", "--", sys.executable, "-c", code]
    running = subprocess.Popen(line, cwd=here)
    wait_until(lambda: (here / "pid").exists() and (here / "pid").read_text())
    running.send_signal(signal.SIGTERM)
    assert running.wait(60) == 12
    assert not psutil.pid_exists(int((here / "pid").read_text()))
    (job,) = app.views.all(Selector())
    assert str(job.state) == "cancelled"


def test_sixty_restarted_are_sixty(app, call):
    """Done ones too: no job more, and each attempt has a number and a log of its own."""
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
    restarted = call("restart", "--label", "sh/*").data
    assert (restarted["matched"], restarted["changed"]) == (60, 60)
    drain(app, slots=2)
    assert app.views.count(Selector()).count == app.views.count(Selector(states=(State.DONE,))).count == 60
    for job in islice(app.views.all(Selector()), 5):
        n = json.loads(job.payload)["parameters"]["n"]
        logs = [call("log", str(job.id), "--attempt", str(number)).data for number in (1, 2)]
        assert [log["text"] for log in logs] == [f"{n} 1\n", f"{n} 2\n"]


def test_who_follows_waits_for_the_start(app, call):
    job = call("add", "--hold", "--", "echo", "hello").data["id"]
    following = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "log", "-f", str(job)], stdout=subprocess.PIPE, text=True
    )
    app.control.unhold(Selector(ids=(job,)), actor="ada")
    drain(app)
    assert following.communicate(timeout=60)[0] == "hello\n"


def test_a_queue_that_nobody_serves_is_told(app, run):
    with app.worker(queues=["default"], poll=0.05):
        wait_until(app.store.workers.list)
        assert "no worker that is alive serves the queue 'slow'" in run("add", "-q", "slow", "--", "true").err


def test_a_log_is_followed_to_its_end(app, call):
    job = call("add", "--", "sh", "-c", "for n in 1 2 3 4 5; do echo $n; sleep 0.1; done").data["id"]
    with app.worker(poll=0.05):
        wait_until(lambda: app.views.get(job).state is not State.READY)
        followed = program("log", "-f", str(job))
    assert followed.stdout.split() == ["1", "2", "3", "4", "5"]

"""Errors: interrupts, broken streams, missing stores, bad configuration."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.domain.access.masking import mask_store_url
from holdfast.store import open_store
from tests.store.engine.test_database import fill
from tests.support.processes import wait_until
from tests.support.program import ROOT, program

pytestmark = pytest.mark.one_backend

PROGRAM = f"{sys.executable} -m holdfast"


@pytest.fixture
def shell(app, real_database):
    """Runs a line of bash; ``$H`` is the ``holdfast`` command."""

    def call(line, **environ):
        env = {**os.environ, "HOLDFAST_URL": real_database.url, "H": PROGRAM, **environ}
        done = subprocess.run(["bash", "-c", line], cwd=ROOT, env=env, capture_output=True, timeout=60, check=False)
        return done.returncode, done.stdout, done.stderr.decode()

    return call


@pytest.mark.parametrize("arguments", [["wait", "1"], ["top", "-n", "100", "--every", "60"]], ids=" ".join)
@pytest.mark.parametrize("format_", ["json", "ndjson"])
def test_ctrl_c_is_one_document(app, real_database, arguments, format_):
    """The exit code is 130, not that of a result."""
    app.enqueue("mail", {"to": 1}, hold=True)
    with program(*arguments, "-o", format_, url=real_database.url) as running:
        wait_until(lambda: "sqlite" in _files(running.pid) or "socket" in _files(running.pid))
        running.send(signal.SIGINT)
        out, err = running.read()
    last = json.loads(out.splitlines()[-1])
    assert (last["error"] if format_ == "json" else last["_meta"]["error"])["code"] == "E_INTERRUPTED"
    assert "Traceback" not in err
    assert running.code == 130


def _files(pid):
    """The open files of a process; ``sqlite`` stands for the store."""
    targets = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            targets.append(str(link.readlink()))
    return " ".join("sqlite" if target.endswith("jobs.db") else target for target in targets)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("$H ls -o json >&-", 0),
        ("$H ls >/dev/full", 4),
        ("$H enqueue mail -p '{\"to\": 1}' -o json >/dev/full", 4),
        ("$H show 99 -o json >/dev/full", 4),
        ("$H show 99 2>&-", 3),
        ("$H rm --label x <&-", 3),
        ("$H enqueue mail -p - <&-", 2),
    ],
)
def test_closed_and_full_streams(shell, line, code):
    actual, _, err = shell(line)
    assert "Traceback" not in err
    assert actual == code, err


def test_json_is_utf_8_and_text_is_readable_everywhere(shell, app):
    app.enqueue("mail", {"to": 1}, label="😀")
    assert json.loads(shell("$H ls -o json", PYTHONIOENCODING="ascii")[1])["data"]["jobs"][0]["label"] == "😀"
    code, out, _ = shell("$H ls", PYTHONIOENCODING="ascii")
    assert (code, b"\\U0001f600" in out) == (0, True)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:s3cret@h/d",
        "postgresql://h:1/d?password=s3cret&sslpassword=s3cret",
        "postgresql://u:s3#cret@h/d",
        "postgresql://u:s3/c@ret@h/d",
        "host=h password=s3cret",
    ],
)
def test_passwords_are_masked(url):
    assert not {"s3", "cret"} & set(mask_store_url(url).replace("***", " ").replace("@", " ").split())
    assert "s3" not in mask_store_url(url)


@pytest.mark.parametrize("arguments", [["config", "show"], ["ls"], ["doctor"], ["status"]], ids=" ".join)
def test_no_command_prints_a_password(run, arguments):
    for url in ("postgresql://u:s3cret@127.0.0.1:1/d", "host=127.0.0.1 port=1 password=s3cret"):
        answer = run(*arguments, "--url", url, "-o", "json")
        assert "s3cret" not in answer.out + answer.err


def test_a_unit_holds_no_password(run):
    answer = run("service", "install", "--dry-run", "--url", "postgresql://u:s3cret@h/d", "-o", "json")
    assert answer.code == 2
    assert "s3cret" not in answer.out


@pytest.mark.parametrize("action", ["cancel", "hold", "ls", "wait"])
def test_an_id_that_does_not_exist_is_noticed(run, app, action):
    """One missing id refuses the whole command."""
    ref = app.enqueue("mail", {"to": 1})
    answer = run(action, ref.id, "99", "-o", "json")
    assert (answer.code, answer.document["error"]["message"]) == (3, "there is no job 99")
    assert ref.state == "ready"


@pytest.mark.parametrize("arguments", [["ls"], ["show", "1"], ["doctor"], ["db", "check"], ["top"]], ids=" ".join)
def test_reading_creates_no_store(run, tmp_path, arguments):
    """Reading from a misspelt path must not create an empty store."""
    path = tmp_path / "nowhere" / "typo.db"
    answer = run(*arguments, "--url", f"sqlite:///{path}", "-o", "json")
    assert answer.code == (1 if arguments == ["doctor"] else 4)
    assert "there is no store at" in answer.out
    assert not path.parent.exists()


def test_reading_changes_no_foreign_database(run, tmp_path):
    import sqlite3

    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (x)")
    connection.close()
    assert run("ls", "--url", f"sqlite:///{path}").code == 4
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("t",)]
    connection.close()


def test_the_first_enqueue_makes_a_store(run, app, tmp_path):
    answer = run("db", "migrate", "--url", f"sqlite:///{tmp_path}/new.db", "-o", "json")
    assert answer.code == 0
    assert run("ls", "--url", f"sqlite:///{tmp_path}/new.db").code == 0


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["db", "backup", "/nope/x/b.db"], 4),
        (["ls", "9" * 5000], 2),
        (["ls", "--filter", f"id={'9' * 5000}"], 2),
        (["ls", "-n", str(2**63)], 2),
        (["enqueue", "mail", "-p", "[" * 3000], 2),
        (["enqueue", "mail", "-p", '{"a":' * 3000], 2),
        (["enqueue", "mail", "-p", '{"to": 1}', "--key", ""], 2),
        (["enqueue", "mail", "-p", '{"to": 1}', "--queue", ""], 2),
        (["queue", "show", "nope"], 3),
        (["ls", "--url", "sqlite:////tmp"], 4),
        (["lss"], 2),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else str(value),
)
def test_errors_have_their_exit_code(run, arguments, code):
    answer = run(*arguments, "-o", "json")
    assert answer.code == code
    assert answer.document["error"]["code"] not in ("E_INTERNAL", None)


def test_a_misspelt_command_is_guessed(run):
    assert "Did you mean 'ls'?" in run("lss").err


def test_one_limit_can_be_taken_away(run):
    run("queue", "set", "default", "--limit", "3", "--worker-limit", "2")
    run("queue", "set", "default", "--limit", "0")
    shown = run("queue", "show", "default", "-o", "json").data
    assert (shown["limit"], shown["worker_limit"]) == (None, 2)


@pytest.mark.parametrize("text", ["[tool]\nholdfast = 3", "tool = 3", f"slots = {'9' * 5000}"])
def test_an_invalid_configuration_is_reported(run, tmp_path, monkeypatch, text):
    name = "holdfast.toml" if text.startswith("slots") else "pyproject.toml"
    (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    assert run("config", "show", "-o", "json").code == (0 if text == "tool = 3" else 4)


def test_output_of_the_application_is_not_in_the_answer(real_database, tmp_path):
    """Output at import and in handlers goes to stderr: stdout holds only the document."""
    (tmp_path / "noisy.py").write_text(
        "import holdfast\nprint('at import')\napp = holdfast.Holdfast()\n"
        "@app.job()\ndef speak() -> None:\n    print('in a handler')\n"
    )
    env = {**os.environ, "HOLDFAST_URL": real_database.url, "PYTHONPATH": str(ROOT / "src")}
    line = [sys.executable, "-m", "holdfast", "worker", "--drain", "--app", "noisy:app", "-o", "json"]
    store = open_store(real_database.url)
    subprocess.run(line, cwd=tmp_path, env=env, capture_output=True, timeout=60, check=True)
    from holdfast.domain.jobs.new_job import NewJob

    store.jobs.enqueue(NewJob(kind="speak"))
    store.close()
    done = subprocess.run(line, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout)["data"]["results"] == {"done": 1}
    assert "at import" in done.stderr
    assert "in a handler" in done.stderr


def test_a_damaged_store_is_diagnosed(run, tmp_path):
    path = tmp_path / "damaged.db"
    store = open_store(f"sqlite:///{path}")
    fill(store)
    store.close()
    with path.open("r+b") as damaged:
        damaged.seek(8192 + 8)
        damaged.write(b"\xff" * 2000)
    answer = run("db", "check", "--url", f"sqlite:///{path}", "-o", "json")
    assert answer.data is not None, answer.err
    assert (answer.code, answer.data["sound"]) == (1, False)
    assert run("db", "backup", tmp_path / "copy.db", "--url", f"sqlite:///{path}").code == 4
    assert not (tmp_path / "copy.db").exists()


IN_A_DELETED_DIRECTORY = 'cd "$(mktemp -d)" && rmdir "$PWD" && $H '


@pytest.mark.parametrize(
    "command", ["worker --drain", "up", "ls", "add -- true", "batch ls", "doctor", "web", "status"]
)
def test_a_deleted_directory_is_reported(shell, command):
    """Its configuration file, or one above it, cannot be found: with the defaults a worker might prune too early."""
    code, _, err = shell(IN_A_DELETED_DIRECTORY + command, PYTHONPATH=f"{ROOT}/src")
    assert (code, "the current directory does not exist any more" in err) == (4, True), err
    assert "Traceback" not in err


def test_a_command_is_not_added_to_run_in_a_deleted_directory(shell, tmp_path):
    """With a configuration file that --config names, other commands go on."""
    (tmp_path / "holdfast.toml").touch()
    named = f"{IN_A_DELETED_DIRECTORY} --config {tmp_path}/holdfast.toml add"
    assert shell(f"{named} --cwd {tmp_path} -- true", PYTHONPATH=f"{ROOT}/src")[0] == 0
    code, _, err = shell(f"{named} -- true", PYTHONPATH=f"{ROOT}/src")
    assert (code, "does not exist any more" in err) == (4, True), err

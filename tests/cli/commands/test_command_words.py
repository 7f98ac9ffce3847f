"""Where options end and the program begins."""

from __future__ import annotations

import json

import pytest

from holdfast import Selector
from tests.cli.conftest import payload_of, run_process
from tests.worker.commands.test_executor import drain

pytestmark = pytest.mark.usefixtures("here")


def argv_of(app, answer):
    return payload_of(app, answer.data["id"])["argv"]


def test_options_end_at_the_program(app, call, run):
    """E5.1: the words of the program are its own, with -- in front of it or without."""
    assert argv_of(app, call("add", "ls", "-la", "--label", "x")) == ["ls", "-la", "--label", "x"], "E5 is broken"
    assert argv_of(app, call("add", "-l", "x", "--", "ls", "-la")) == ["ls", "-la"]
    assert argv_of(app, call("add", "git", "checkout", "--", "file")) == ["git", "checkout", "--", "file"]
    assert call("sweep", "--param", "a=1,2", "echo", "-l", "{a}").data["added"] == 2
    assert {json.loads(job.payload)["argv"][1] for job in app.views.all(Selector(labels=("echo/*",)))} == {"-l"}
    assert {job.label for job in app.views.all(Selector(labels=("ls", "x", "git")))} == {"ls", "x", "git"}


def test_run_leaves_options_to_the_program(app, run):
    """E5.1: run ls -la ran ls with the label a."""
    listed = run_process("run", "ls", "-la")
    assert (listed.returncode, listed.stdout.startswith("total")) == (0, True)


def test_after_takes_lists(app, call):
    """E5.1: a comma list, repeated options, and a condition for the rest of its list."""
    ids = [call("add", "--hold", "-l", "a,b", "--", "true").data["id"] for _ in range(3)]
    for after in (["--after", f"{ids[0]},{ids[1]}"], ["--after", f"ok:{ids[0]},{ids[1]}"]):
        job = call("add", *after, "--", "true").data["id"]
        assert {each.dependency_id for each in app.views.dependencies(job)} == set(ids[:2])
    job = call("add", "--after", f"finished:{ids[0]},{ids[1]}", "--after", f"finished:{ids[2]}", "true").data["id"]
    assert (len(app.views.dependencies(job)), str(app.views.get(job).after_when)) == (3, "finished")
    job = call("add", "--after", "label=a,b", "true").data["id"]
    assert {each.dependency_id for each in app.views.dependencies(job)} == set(ids)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--after", "2", "3", "--", "make"], "--after 2,3"),
        (["--after", "2", "3"], "--after 2,3"),
        (["--after", "2,", "make"], "finished:17,18"),
        (["--env", "A=1", "B=2", "make"], "--env B="),
        (["X=1", "make"], "--shell"),
        (["--", "--label", "x", "make"], "before the --"),
        (["echo hi > out.txt"], "--shell"),
        (["--", "echo", "hi", ">", "out.txt"], "--no-shell"),
        (["ls", "|", "wc"], "--shell"),
        (["--label", "--", "make"], "--help"),
        (["--label", "--retry", "2", "make"], "--help"),
    ],
)
def test_what_looks_like_a_mistake_is_refused_with_its_fix(run, app, arguments, hint):
    """E5.1, E5.2: nothing is added, and the hint says what to write."""
    answer = run("add", "-o", "json", *arguments)
    assert answer.code == 2
    assert hint in answer.document["error"]["hint"]
    assert app.views.count(Selector()).count == 0


def test_operators_are_taken_when_they_are_meant(app, call):
    words = ["cut", "-d", "|"]
    assert argv_of(app, call("add", "--no-shell", "--", *words)) == words
    assert argv_of(app, call("add", "--shell", "--", "ls", "|", "wc")) == ["/bin/sh", "-c", "ls | wc"]


def test_lines_of_a_shell_run_in_a_shell(app, call, here):
    """E5.2: with --shell every line of text is one; JSON lines say it themselves."""
    (here / "lines").write_text("echo hi > out.txt\n[ -f lines ] && echo yes > yes.txt\n{ echo a; echo b; } > ab.txt\n")
    assert call("add", "--shell", "--from", "lines").data["added"] == 3
    (here / "json").write_text('{"argv": ["echo", "j", ">", "j.txt"], "shell": true}\n["echo", "plain"]\n')
    assert call("add", "--from", "json").data["added"] == 2
    drain(app)
    texts = {file.name: file.read_text() for file in here.glob("*.txt")}
    assert texts == {"out.txt": "hi\n", "yes.txt": "yes\n", "ab.txt": "a\nb\n", "j.txt": "j\n"}


def test_shell_syntax_in_a_file_is_refused_by_line(run, app, here):
    """E5.2: echo hi > out.txt ran as words, and no file was written."""
    (here / "lines").write_text('make\necho hi > out.txt\nX=1 make\n["a", "|", "b"]\ncut -d \'|\' x\n')
    answer = run("add", "-o", "json", "--from", "lines")
    error = answer.document["error"]
    assert (answer.code, "--shell" in error["hint"], app.views.count(Selector()).count) == (2, True, 0)
    assert [number for number in (1, 2, 3, 4, 5) if f"line {number}:" in error["message"]] == [2, 3, 4]
    (here / "lines").write_text('{"argv": ["a", "|", "b"], "shell": false}\n')
    assert run("add", "--from", "lines").code == 0

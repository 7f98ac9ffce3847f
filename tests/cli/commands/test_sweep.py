"""``sweep``."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from holdfast import Selector, State
from tests.worker.commands.test_executor import NASTY, drain

pytestmark = pytest.mark.usefixtures("here")


def test_a_sweep_is_every_combination(app, call):
    """Key, label, log and directory contain every parameter; a second sweep adds nothing."""
    arguments = ["sweep", "--param", "symbol=A,B", "--param", "year=2020,2021", "--workdir", "out"]
    arguments += ["--", "sh", "-c", "echo $0 $1 {{}}; pwd", "{symbol}", "--year={year}"]
    assert call(*arguments).data["added"] == 4
    assert call(*arguments).data == {"id": None, "added": 0, "known": 4, "first": None, "last": None, "cancelled": []}
    drain(app)
    jobs = list(app.views.all(Selector(labels=("sh/*",))))
    assert {job.label for job in jobs} == {f"sh/symbol={s}/year={y}" for s in "AB" for y in (2020, 2021)}
    texts = {call("log", str(job.id)).data["text"] for job in jobs}
    assert any(text.startswith("A --year=2020 {}\n") and text.endswith("out/symbol=A/year=2020\n") for text in texts)
    assert len({call("log", str(job.id)).data["path"].rpartition("/")[0] for job in jobs}) == 4


def test_values_are_read_by_no_shell(app, call, here, tmp_path):
    values = [text for text in NASTY if "," not in text and "\n" not in text and text]
    (here / "runs.csv").write_text("a\n" + "".join(f'"{value.replace(chr(34), chr(34) * 2)}"\n' for value in values))
    arguments = [
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
    assert call("sweep", *arguments).data["added"] == len(values)
    drain(app)
    texts = {call("log", str(job.id)).data["text"] for job in app.views.all(Selector())}
    assert texts == {f"{value}\n" for value in values}
    assert not list(tmp_path.rglob("pwned"))
    assert {file.name for file in here.iterdir()} >= {"runs.csv", "out"}


def test_a_second_sweep_runs_failed_jobs(app, call):
    """Done jobs are left out, except with --again."""
    arguments = ["--param", "code=0,1", "--", "sh", "-c", 'exit "$1"', "-", "{code}"]
    assert call("sweep", *arguments).data["added"] == 2
    drain(app)
    again = call("sweep", *arguments).data
    assert (again["added"], again["known"]) == (1, 1)
    drain(app)
    assert call("sweep", "--again", *arguments).data["added"] == 2


def test_another_command_is_another_sweep(call):
    for word in ("one", "two"):
        assert call("sweep", "--param", "a=1", "--", "echo", word, "{a}").data["added"] == 1


def test_a_parameter_may_be_for_the_directory_alone(app, call):
    assert call("sweep", "--param", "a=1,1,2", "--workdir", "out", "--", "pwd").data["added"] == 2


def test_a_program_of_this_directory_runs_in_the_new_ones(app, call, here):
    """As in the second example of the help."""
    (here / "simulate").write_text("#!/bin/sh\necho $1\n")
    (here / "simulate").chmod(0o755)
    call("sweep", "--param", "seed=7", "--workdir", "out", "--", "./simulate", "{seed}")
    drain(app)
    (job,) = app.views.all(Selector())
    assert (job.label, call("log", str(job.id)).data["text"]) == ("simulate/seed=7", "7\n")


@pytest.mark.parametrize("text", ["", "a\n", "a,a\n1,2\n", "a b\n1\n", "a,b\n1\n"])
def test_an_invalid_table_is_refused(run, here, text):
    (here / "runs.csv").write_text(text)
    assert run("sweep", "--csv", "runs.csv", "-o", "json", "--", "echo", "{a}").code == 2


def test_a_table_may_come_from_a_spreadsheet(call, here):
    (here / "runs.csv").write_bytes(b"\xef\xbb\xbfa\r\n1\r\n\r\n2\r\n")
    assert call("sweep", "--csv", "runs.csv", "--", "echo", "{a}").data["added"] == 2


def test_rows_of_a_file_have_as_many_values_as_names(run, here):
    (here / "runs.csv").write_text("a,b\n1\n")
    assert run("sweep", "--csv", "runs.csv", "-o", "json", "--", "echo", "{a}", "{b}").code == 2


def test_replaced_failures_do_not_count(app, call, run):
    """E5.4: after a sweep was resumed, its label waits for the newest jobs only."""
    script = '[ "$1" = 0 ] || [ -e mended ]'
    arguments = ["--label", "sw", "--param", "n=0,1", "--", "sh", "-c", script, "-", "{n}"]
    call("sweep", *arguments)
    drain(app)
    assert run("wait", "--label", "sw").code == run("wait", "--label", "sw/*").code == 6, "E8"
    poisoned = run("add", "--after", "label=sw", "-o", "json", "true")
    assert "was cancelled at once: dependency" in poisoned.err
    (cancelled,) = poisoned.data["cancelled"]
    assert (cancelled["id"], cancelled["state"]) == (poisoned.data["id"], "cancelled")
    assert cancelled["reason"].startswith("dependency")
    Path("mended").touch()
    call("sweep", *arguments)
    after = call("add", "--after", "label=sw", "true").data["id"]
    drain(app)
    replaced = run("restart", "--label", "sw", "--yes")
    assert (replaced.code, "but none failed" in replaced.err) == (3, True), "E5.6: the failure was run again"
    assert run("restart", "--label", "sw", "--state", "dead", "--yes").code == 3
    assert run("wait", "--label", "sw/*").code == 0
    assert app.views.state(after) is State.DONE
    assert run("wait", *(job.id for job in app.views.all(Selector(labels=("sw/*",))))).code == 6

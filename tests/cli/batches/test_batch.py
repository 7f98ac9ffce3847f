"""``holdfast batch``."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from holdfast.domain.batches.batch import identity
from holdfast.domain.jobs.job import WorkerId
from holdfast.store.batches.runs import RunRequest
from holdfast.worker.batches.conflicts import this_process
from tests.support.processes import PATIENCE
from tests.support.programs import batch_units

pytestmark = pytest.mark.usefixtures("own_store")

PLAIN = ["batch", "run", "tests.support.programs.batch_units:plain"]
GREET = ["batch", "run", "tests.support.programs.batch_units:greet"]


@pytest.fixture
def batch(fitting):
    return lambda action, *arguments: fitting(("batch", action), *arguments)


def test_a_plain_function_is_enough(batch):
    answer = batch("run", PLAIN[2], "--range", "1-5")
    assert answer.code == 6
    assert answer.document["status"] == "partial_failure"
    assert (answer.data["summary"]["succeeded"], answer.data["summary"]["failed"]) == (4, 1)
    (failed,) = batch("units", "1", "--state", "failed").data["units"]
    assert (failed["key"], failed["status"], failed["error"].startswith("ValueError")) == (3, "failed", True)


def test_outcomes_are_counted_by_label(batch):
    answer = batch("run", GREET[2], "--ids", "a,skip,c", "--set", "loud=true")
    summary = answer.data["summary"]
    assert (answer.code, summary["succeeded"], summary["skipped"], summary["labels"]) == (0, 2, 1, {"loud": 2})
    units = {unit["key"]: unit for unit in batch("units", "1").data["units"]}
    assert units["a"]["data"] == "hello a"
    assert units["skip"]["warning"] == "not today"


def test_other_arguments_are_another_batch(batch):
    """SPEC 8.19."""
    assert batch("run", GREET[2], "--ids", "a").data["batch"] == 1
    assert batch("run", GREET[2], "--ids", "a", "--set", "loud=true").data["batch"] == 2
    assert batch("run", GREET[2], "--all").data["batch"] == 3
    again = batch("run", GREET[2], "--ids", "a").data
    assert (again["batch"], again["generation"]) == (4, 2)


def test_keys_come_from_a_file_or_stdin(batch, run, tmp_path, monkeypatch):
    (tmp_path / "keys").write_text("a\n\n b \n")
    answer = batch("run", GREET[2], "--from", str(tmp_path / "keys"))
    assert answer.data["summary"]["succeeded"] == 2
    assert batch("run", GREET[2], "--from", str(tmp_path / "nothing")).code == 2


def test_ndjson_is_a_line_per_unit(run):
    lines = run(*GREET, "--all", "-o", "ndjson").lines
    assert [line.get("key") for line in lines] == ["a", "b", None, None]
    assert lines[2] == {"_meta": {"checkpoint": 2}}
    assert lines[3]["_meta"]["status"] == "success"
    assert lines[3]["_meta"]["lines"] == 3


def test_a_dry_run_writes_nothing(batch, run):
    answer = batch("run", PLAIN[2], "--range", "1-5", "--dry-run")
    assert (answer.code, answer.data["summary"]["pending"], answer.data["dry_run"]) == (0, 5, True)
    assert batch("ls").data["batches"] == []
    batch("run", PLAIN[2], "--range", "1-5")
    assert batch("run", PLAIN[2], "--range", "1-5", "--dry-run").data["summary"]["pending"] == 1


@pytest.mark.parametrize(
    ("options", "pending"),
    [((), 5), (("--limit", "2"), 2), (("--resume-from", "4"), 2), (("--only", "1,5"), 2)],
)
def test_a_dry_run_counts_the_units_that_would_run(batch, options, pending):
    """U9: --limit, --resume-from and --only hold for it too; on a new batch and on one that goes on.

    E3: --resume-from overrules the ledger.
    """
    for run in (("--range", "1-5"), ("--range", "1-5", "--name", "begun")):
        assert batch("run", PLAIN[2], *run, *options, "--dry-run").data["summary"]["pending"] == pending
    batch("run", PLAIN[2], "--range", "1-5", "--name", "begun", "--only", "4")
    answer = batch("run", PLAIN[2], "--range", "1-5", "--name", "begun", *options, "--dry-run")
    assert answer.data["summary"]["pending"] == {5: 4}.get(pending, 2)


def test_resume_of_a_foreground_batch_names_the_command(batch):
    """U9: it does nothing by itself, and says which command does."""
    batch("run", PLAIN[2], "--range", "1-9", "--limit", "1")
    answer = batch("resume", "1")
    assert (answer.code, answer.data["changed"]) == (9, 0)
    assert "run its command again" in answer.data["note"]


def test_holders_and_owners_are_objects(batch, store):
    """U9: no JSON inside of JSON."""
    owner = {"host": "h", "pid": 1, "started": 1.0, "boot": "b", "namespace": "n", "command": "mine"}
    request = RunRequest(
        identity=identity("tests.support.programs.batch_units:plain", {}, "range 1-5"),
        kind="plain", arguments="{}", source="range", actor="ada", owner=json.dumps(owner),
    )  # fmt: skip
    store.batches.open(request, worker=WorkerId("w"))
    assert batch("show", "1").data["holders"] == [owner]
    refused = batch("run", PLAIN[2], "--range", "1-5")
    assert (refused.code, refused.document["error"]["context"]["owner"]) == (9, owner)


def test_a_mistyped_path_makes_no_store(run, tmp_path, monkeypatch):
    """U9: a missing folder is exit 4, with the fix; nothing is created."""
    monkeypatch.setenv("HOLDFAST_URL", f"sqlite:///{tmp_path}/mistyped/jobs.db")
    answer = run(*PLAIN, "--range", "1-5", "-o", "json")
    assert answer.code == 4
    assert "mkdir -p" in answer.document["error"]["hint"]
    assert not (tmp_path / "mistyped").exists()


@pytest.mark.usefixtures("run")
def test_a_closed_pipe_is_exit_0():
    """U9: the reader has seen enough; the batch can be resumed."""
    command = [sys.executable, "-m", "holdfast", *PLAIN, "--range", "10-4000", "-o", "ndjson", "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stderr is not None
        writer.stdout.read(1)
        writer.stdout.close()
        errors = writer.stderr.read()
    assert (writer.returncode, b"Traceback" in errors) == (0, False), "U9 is broken"


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize("format_", ["ndjson", "json", "text"])
def test_a_full_disk_under_the_output_does_not_stop_the_run(batch, format_):
    """D16: the ledger has every unit; exit 4 says that the output was lost, once and without a traceback."""
    command = [sys.executable, "-m", "holdfast", *PLAIN, "--range", "10-400", "--name", "full", "-o", format_]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, check=False, stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr.count("E_OUTPUT"), "Traceback" in done.stderr) == (4, 1, False), done.stderr
    (listed,) = batch("ls").data["batches"]
    assert (listed["state"], listed["summary"]["succeeded"]) == ("done", 391)


@pytest.mark.parametrize("only", ["", " , "])
def test_an_empty_only_is_refused(batch, only):
    """It comes from an empty variable of a script, and nothing would run."""
    answer = batch("run", PLAIN[2], "--range", "1-5", "--only", only)
    assert (answer.code, "--only names no key" in answer.document["error"]["message"]) == (2, True)


def test_once_is_exit_13_when_there_is_nothing_to_do(batch):
    assert batch("run", GREET[2], "--all", "--once").code == 0
    assert batch("run", GREET[2], "--all", "--once").code == 13


def test_only_and_limit_and_resume_from(batch):
    assert batch("run", PLAIN[2], "--range", "1-9", "--only", "2,4").data["summary"]["succeeded"] == 2
    assert batch("run", PLAIN[2], "--range", "10-19", "--limit", "3").data["summary"]["pending"] == 7
    assert batch("run", PLAIN[2], "--range", "10-19", "--resume-from", "18").data["summary"]["succeeded"] == 5


def test_actions_on_a_batch(batch):
    """E2, E4: pause, resume, cancel, retry-failed and rm report their changes; cancel and rm need --yes."""
    batch("run", PLAIN[2], "--range", "1-5")
    dry = batch("retry-failed", "1", "--dry-run").data
    assert (dry["ids"], dry["changed"], dry["units"], dry["dry_run"]) == ([1], 1, 1, True)
    assert batch("retry-failed", "1").data == dry | {"dry_run": False}
    assert batch("retry-failed", "1").code == 9
    assert batch("pause", "1").data["changed"]
    assert batch("run", PLAIN[2], "--range", "1-5").code == 11
    assert batch("resume", "1").data["changed"]
    assert batch("cancel", "1").code == 2
    assert batch("cancel", "1", "--yes").data["units"] == 1
    shown = batch("show", "1").data
    assert (shown["state"], shown["summary"]["cancelled"], shown["holders"]) == ("cancelled", 1, [])
    assert batch("attach", "1").code == 12
    assert batch("cancel", "1", "--yes").code == 9
    assert batch("rm", "1").code == 2
    assert batch("rm", "1", "--yes").data["changed"]
    assert batch("show", "1").code == 3


def test_the_shell_is_shown_harmless_text(run):
    run(*PLAIN, "--range", "1-5")
    assert "\x1b" not in run("batch", "units", "1").out
    assert "partial" in run("batch", "ls").out
    assert "failed" in run("batch", "show", "1").out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["run", PLAIN[2]], 2),
        (["run", PLAIN[2], "--range", "5-1"], 2),
        (["run", PLAIN[2], "--range", "x"], 2),
        (["run", PLAIN[2], "--ids", "x"], 2),
        (["run", PLAIN[2], "--all"], 2),
        (["run", PLAIN[2], "--range", "1-2", "--set", "nope=1"], 2),
        (["run", PLAIN[2], "--range", "1-2", "--set", "nope"], 2),
        (["run", "tests.support.programs.batch_units:nope", "--range", "1-2"], 4),
        (["run", "nope", "--range", "1-2"], 4),
        (["run", "tests.support.programs.batch_units:__doc__", "--range", "1-2"], 4),
        (["units", "99"], 3),
        (["cancel", "99"], 3),
    ],
    ids=lambda value: " ".join(value)[-40:] if isinstance(value, list) else str(value),
)
def test_errors_are_reported(batch, arguments, code):
    answer = batch(*arguments)
    assert (answer.code, answer.document["error"]["code"] != "E_INTERNAL") == (code, True)


def test_a_ledger_is_exported(batch, tmp_path):
    """As CSV or NDJSON; the file is private and complete or absent."""
    batch("run", GREET[2], "--ids", "a,skip,c")
    answer = batch("export", "1", str(tmp_path / "units.csv"))
    assert (answer.code, answer.data["units"]) == (0, 3)
    rows = list(csv.DictReader((tmp_path / "units.csv").read_text().splitlines()))
    assert [(row["key"], row["status"], row["warning"]) for row in rows] == [
        ("a", "done", ""), ("c", "done", ""), ("skip", "skipped", "not today"),
    ]  # fmt: skip
    assert (tmp_path / "units.csv").stat().st_mode & 0o777 == 0o600
    batch("export", "1", str(tmp_path / "units.ndjson"), "--state", "done")
    lines = [json.loads(line) for line in (tmp_path / "units.ndjson").read_text().splitlines()]
    assert [line["data"] for line in lines] == ["hello a", "hello c"]
    assert batch("export", "9", str(tmp_path / "units.csv")).code == 3
    assert batch("export", "1", str(tmp_path / "units.xls")).code == 2
    assert batch("export", "1", str(tmp_path / "none" / "units.csv")).code == 2
    assert sorted(path.name for path in tmp_path.glob("*units*")) == ["units.csv", "units.ndjson"]


@pytest.mark.parametrize("stand", ["paused", "on workers", "not begun"])
def test_cancel_ends_every_unit(batch, run, stand):
    """SPEC 8.13 from the command line."""
    if stand == "paused":
        batch("run", GREET[2], "--ids", "a,b,c", "--limit", "1")
        assert batch("pause", "1").data["changed"]
        rest = 0  # those that were never looked at have no row, and are never run
    else:
        batch_units.app.submit(batch_units.greet, ["a", "b", "c"])
        rest = 3
    if stand == "not begun":
        assert batch("pause", "1").data["changed"]
    assert batch("cancel", "1", "--yes").data["units"] == rest
    shown = batch("show", "1").data
    assert (shown["state"], shown["summary"]["pending"], shown["summary"]["cancelled"]) == ("cancelled", 0, rest)


def test_a_batch_runs_on_workers(batch, run):
    """The same command line gives the same exit code; ``attach`` watches."""
    with batch_units.app.worker(poll=0.1):
        answer = batch("run", GREET[2], "--ids", "a,skip,c", "--where", "workers")
        assert (answer.code, answer.data["summary"]["succeeded"], answer.data["summary"]["skipped"]) == (0, 2, 1)
        assert batch("attach", "1").code == 0
        lines = run("batch", "run", GREET[2], "--ids", "a,b", "--where", "workers", "-o", "ndjson").lines
    assert [line["key"] for line in lines if "key" in line] == ["a", "b"]
    assert lines[-1]["_meta"]["summary"]["succeeded"] == 2


def test_attaching_to_a_paused_batch_is_exit_11(batch):
    """Also without an active run; cancelling a batch with units in flight reports them."""
    batch_units.app.submit(batch_units.greet, ["a", "b"])
    assert batch("pause", "1").data["changed"]
    assert batch("attach", "1").code == 11
    cancelled = batch("cancel", "1", "--yes").data
    assert (cancelled["changed"], cancelled["units"], cancelled["note"]) == (1, 2, None)
    assert not batch("cancel", "1", "--yes").data["changed"]


def test_a_function_of_an_application_runs_on_its_store(run, app, tmp_path, monkeypatch):
    """K79: the audit entry is in the same store, and no other store is opened."""
    monkeypatch.setenv("HOLDFAST_URL", f"sqlite:///{tmp_path}/other.db")
    assert run(*GREET, "--all").code == 0
    assert [entry.action for entry in app.store.audit_log.page()] == ["batch run"]
    assert not (tmp_path / "other.db").exists()


@pytest.mark.parametrize("dead", [True, False])
def test_a_holder_that_does_not_work_any_more_is_named(batch, store, run, real_database, dead):
    """It was shown as running, held by a pid, however long the process was dead."""
    child = subprocess.Popen(["true"])
    owner = msgspec.structs.replace(this_process(), pid=child.pid, started=1, command="mine")
    child.wait()
    owner = owner if dead else msgspec.structs.replace(owner, boot="another host")
    request = RunRequest(
        identity=identity("tests.support.programs.batch_units:plain", {}, "range 1-5"),
        kind="plain", arguments="{}", source="range", actor="ada", owner=owner.encode(),
    )  # fmt: skip
    store.batches.open(request, worker=WorkerId("w"))
    if not dead:
        assert "problem" not in batch("show", "1").data["holders"][0]
        expired = "0" if real_database.name == "sqlite" else "to_timestamp(0)"
        real_database.execute(f"UPDATE holdfast.live SET lease_expires_at = {expired}")
    problem = "its process is dead" if dead else "its lease has expired"
    assert batch("show", "1").data["holders"][0]["problem"] == problem
    assert f"running: {problem}" in run("batch", "ls").out
    text = run("batch", "show", "1").out
    assert (f"running: {problem}" in text, f"(mine); {problem}" in text) == (True, True)

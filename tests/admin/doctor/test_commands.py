"""The doctor on commands: what it examines, and what it does not."""

from __future__ import annotations

import subprocess

from holdfast import After, Selector
from holdfast.admin.doctor import commands
from holdfast.domain.commands.command import COMMAND, Command
from holdfast.domain.health_check import Level
from holdfast.domain.jobs.new_job import NewJob
from tests.admin.doctor.test_checks import messages


def add(store, *argv, cwd="/", **options):
    command = Command(argv=argv, cwd=cwd, **options)
    return store.jobs.enqueue(NewJob(kind=COMMAND, payload=command.dumps())).id


def test_commands_are_checked(store, tmp_path, monkeypatch):
    """The invariants of live commands, a missing directory, and a lock of a dead process."""
    monkeypatch.chdir(tmp_path)
    finished = subprocess.Popen(["true"])
    finished.wait()
    (tmp_path / "x.lock").write_text(f"{finished.pid}\n")
    add(store, "sim", "--out", "a.csv", "1", cwd=str(tmp_path / "gone"))
    add(store, "flock", str(tmp_path / "x.lock"), "sim", memory=1)
    store.jobs.enqueue(NewJob(kind=COMMAND, payload="{}"))  # an invalid payload
    warnings = messages(commands.check_commands(store, tmp_path / "logs"))
    assert warnings["directories"] == f"live programs are to run in '{tmp_path / 'gone'}', which is not on this host"
    assert warnings["stale locks"] == f"{tmp_path / 'x.lock'} names process {finished.pid}, which is dead"
    assert warnings["7 memory caps"] == "1 live programs have no memory cap (jobs 1)"


def test_logs_are_weighed(tmp_path, monkeypatch):
    (tmp_path / "1-1.log").write_bytes(b"x" * 100)
    assert {check.level for check in commands.command_logs(tmp_path)} == {Level.OK}
    monkeypatch.setattr(commands, "MAX_LOG_BYTES", 10)
    assert "1 logs take" in messages(commands.command_logs(tmp_path))["logs"]
    assert list(commands.command_logs(tmp_path / "none")) == []


def test_every_file_with_settings_is_listed(tmp_path):
    below = tmp_path / "a"
    below.mkdir()
    (tmp_path / "holdfast.toml").write_text("slots = 3")
    (below / "holdfast.toml").write_text("slots = 4")
    (below / "pyproject.toml").write_text('[project]\nname = "x"')
    files = [str(below / "holdfast.toml"), str(tmp_path / "holdfast.toml")]
    assert [file for file in commands.config_files(below) if file.startswith(str(tmp_path))] == files


def coverage(store):
    (check,) = [check for check in commands.check_commands(store) if check.name == "commands"]
    return check.message


def test_what_was_not_examined_is_said(store, monkeypatch):
    """E1.6: held commands are examined; those beyond the limit, that wait, or that no shell reads are not."""
    first = add(store, "sh", "-c", "sim > held.csv")
    store.control.hold(Selector(ids=(first,)), actor="ada")
    warnings = messages(commands.check_commands(store))
    assert warnings["4 atomic writes"].endswith("held.csv (job 1)")
    assert "; not examined" not in coverage(store)
    add(store, "sh", "-c", "echo 'open")
    waiting = NewJob(kind=COMMAND, payload=Command(argv=("b",), cwd="/").dumps(), after=After(ids=(first,)))
    store.jobs.enqueue(waiting)
    monkeypatch.setattr(commands, "MAX_COMMANDS", 1)
    add(store, "c")
    assert coverage(store).startswith("1 live commands are examined by their words and variables")
    assert "not examined: 2 more of them, 1 that wait for others" in coverage(store)
    monkeypatch.setattr(commands, "MAX_COMMANDS", 10)
    assert coverage(store).endswith("1 with shell code that cannot be read")

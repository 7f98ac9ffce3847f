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
    assert (
        warnings["directories"] == f"the directory '{tmp_path / 'gone'}' of a live command does not exist on this host"
    )
    assert warnings["stale locks"] == f"{tmp_path / 'x.lock'} names process {finished.pid}, which is dead"
    assert warnings["7 memory caps"] == "1 live command has no memory limit (jobs 1)"


def test_no_check_shows_a_secret(store):
    """E1.1: words of a command are in several messages, whole or cut in the middle of a secret."""
    for _ in range(2):
        add(store, "curl", "-u", "ann:ZQ-1", "http://x")
        add(store, "sim", "--password", "it's ZQ-0")
        add(store, "sim", "x" * 50, "--password", "ZQ-22222222222222222222")
        add(store, "sh", "-c", "rm /data/token=ZQ-3")
        add(store, "sh", "-c", "deploy > ZQ-4.log; holdfast wait 17 ZQ-4; rm -f ZQ-4", env={"API_TOKEN": "ZQ-4"})
    add(store, "sim", cwd="/gone/ZQ-5", env={"PASSWORD": "ZQ-5"})
    checks = list(commands.check_commands(store))
    assert {check.name for check in checks if check.level is Level.WARN} >= {
        *("2 check first", "3 deletes", "4 atomic writes", "8 watch by name", "directories")
    }
    assert "ZQ" not in str(checks)


def test_logs_are_weighed(tmp_path, monkeypatch):
    (tmp_path / "1-1.log").write_bytes(b"x" * 100)
    assert {check.level for check in commands.command_logs(tmp_path)} == {Level.OK}
    monkeypatch.setattr(commands, "MAX_LOG_BYTES", 10)
    assert "1 log takes" in messages(commands.command_logs(tmp_path))["logs"]
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
    assert coverage(store).startswith("examined the words and variables of 1 live command")
    assert "not examined: 2 more of them, 1 that wait for others" in coverage(store)
    monkeypatch.setattr(commands, "MAX_COMMANDS", 10)
    assert coverage(store).endswith("1 with shell code that cannot be read")

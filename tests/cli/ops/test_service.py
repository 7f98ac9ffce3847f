"""``service``."""

from __future__ import annotations

import sys

import pytest

from holdfast.cli.ops.service import quoted, unit_text
from holdfast.errors import InvalidInput
from tests.support.reference import checker


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ("plain-1.2/x", "plain-1.2/x"),
        ("two arguments", '"two arguments"'),
        ("50%", "50%%"),
        ("$HOME", "$$HOME"),
        ('say "x" \\', '"say \\"x\\" \\\\"'),
        ("", '""'),
        ("a;b", '"a;b"'),
    ],
)
def test_arguments_in_a_unit_are_quoted(argument, text):
    assert quoted(argument) == text


def test_control_characters_have_no_place_in_a_unit():
    with pytest.raises(InvalidInput):
        quoted("a\nExecStartPre=evil")


def test_a_unit_is_installed_and_removed(run, tmp_path):
    file = tmp_path / "config" / "systemd" / "user" / "mine.service"
    answer = run(
        "service",
        "install",
        "--name",
        "mine",
        "--app",
        "tests.support.programs.cli_jobs:app",
        "-q",
        "a b",
        "--url",
        "sqlite:///x.db",
        "-o",
        "json",
    )
    assert answer.data["file"] == str(file)
    (line,) = [line for line in file.read_text().splitlines() if line.startswith("ExecStart=")]
    assert line.endswith('up --app tests.support.programs.cli_jobs:app --queue "a b" --url sqlite:///x.db')
    url = ("--url", "sqlite:///x.db")
    assert run("service", "install", "--name", "mine", *url).code == 9
    assert run("service", "install", "--name", "mine", "--force", *url).code == 0
    answer = run("service", "uninstall", "--name", "mine", "-o", "json")
    checker(("service", "uninstall")).validate(answer.document)
    assert not file.exists()
    assert run("service", "uninstall", "--name", "mine").code == 3
    assert run("service", "install", "--name", "../evil").code == 2


def test_a_unit_has_its_three_sections(tmp_path):
    """Each directive has its own line, in the three known sections."""
    text = unit_text([sys.executable, "-m", "holdfast", "up"], tmp_path)
    assert [line for line in text.splitlines() if line.startswith("[")] == ["[Unit]", "[Service]", "[Install]"]


def test_a_unit_keeps_the_settings_of_the_environment(run, monkeypatch):
    """E2: the URL of the store above all; no password goes into a unit."""
    monkeypatch.setenv("HOLDFAST_URL", "sqlite:////data/50% $x.db")
    monkeypatch.setenv("HOLDFAST_RETENTION", "done=7d")
    text = run("service", "install", "--dry-run", "--kind", "mail", "--retention", "dead=0").out
    assert 'Environment="HOLDFAST_URL=sqlite:////data/50%% $x.db"' in text
    assert 'Environment="HOLDFAST_RETENTION=done=7d"' in text
    assert "holdfast up --kind mail --retention dead=0" in text
    assert "HOLDFAST_URL" not in run("service", "install", "--dry-run", "--url", "sqlite:///x.db").out
    monkeypatch.setenv("HOLDFAST_URL", "postgresql://ada:secret@db/jobs")
    answer = run("service", "install", "--dry-run")
    assert (answer.code, "secret" in answer.out + answer.err) == (2, False)

"""``config``, ``exit-codes``, ``explain`` and ``completion``."""

from __future__ import annotations

import json

import pytest


def test_config_shows_the_origin_of_values(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "holdfast.toml").write_text('url = "sqlite:///here.db"')
    (tmp_path / "other.toml").write_text('url = "sqlite:///there.db"')

    def origin(*arguments):
        setting, *_ = run("config", "show", *arguments, "-o", "json").data["settings"]
        return setting["value"], setting["origin"]

    assert origin()[1] == "HOLDFAST_URL"
    monkeypatch.delenv("HOLDFAST_URL")
    assert origin() == (f"sqlite:///{tmp_path}/here.db", str(tmp_path / "holdfast.toml"))
    assert origin("--config", "other.toml") == (f"sqlite:///{tmp_path}/there.db", "other.toml")
    assert origin("--url", "postgresql://ada:secret@db/x") == ("postgresql://ada:***@db/x", "--url")
    (tmp_path / "holdfast.toml").write_text('ulr = "x"')
    assert run("config", "show").code == 4


def test_codes_are_explained(run):
    assert run("explain", "E_LEASE_LOST", "-o", "json").data["exit_code"] == 15
    assert "Did you mean" in run("explain", "E_LEASE").err
    answer = run("explain", "E_WRONG_HOST", "-o", "json").data
    assert (answer["exit_code"], answer["http_status"]) == (None, 421)
    assert "HTTP 421" in run("explain", "e_wrong_host").out
    assert run("explain", "E_NOT_FOUND", "-o", "json").data["exit_code"] == 3
    codes = run("exit-codes", "-o", "json").data["exit_codes"]
    assert {code["code"]: code["name"] for code in codes}[7] == "aborted"
    assert json.dumps(codes)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_learn_the_commands(run, shell):
    """The script calls ``holdfast`` back for the completions."""
    assert "_HOLDFAST_COMPLETE" in run("completion", shell).out


def test_a_shell_is_answered(run, monkeypatch):
    """The variables are those that the script of bash sets."""
    for name, value in (("_HOLDFAST_COMPLETE", "bash_complete"), ("COMP_WORDS", "holdfast retr"), ("COMP_CWORD", "1")):
        monkeypatch.setenv(name, value)
    assert run().out == "plain,retry\n"

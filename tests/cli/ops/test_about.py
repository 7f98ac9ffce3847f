"""``exit-codes``, ``explain`` and ``completion``."""

from __future__ import annotations

import json

import pytest


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

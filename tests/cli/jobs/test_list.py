"""``ls``."""

from __future__ import annotations

import pytest


def test_options_select_jobs(run, app):
    ids = {label: app.enqueue("mail", {"to": 1}, label=label).id for label in ("red-1", "red-2", "blue")}
    broken = app.enqueue("broken").id

    def listed(*arguments):
        return {job["id"] for job in run("ls", *arguments, "-o", "json").data["jobs"]}

    assert listed("--label", "red-*") == {ids["red-1"], ids["red-2"]}
    assert listed("-l", "blue", "-l", "red-1") == {ids["blue"], ids["red-1"]}
    assert listed("--queue", "slow") == listed("--filter", "queue=slow") == {broken}
    assert listed("--filter", "kind=mail label=blue") == {ids["blue"]}
    assert listed("--since", "1h") == {*ids.values(), broken}
    assert listed("--until", "1h") == set()
    assert listed(ids["blue"], "--kind", "mail") == {ids["blue"]}
    assert len(listed("-n", "2")) == 2


@pytest.mark.parametrize(
    "arguments", [["--filter", "colour=red"], ["--state", "tired"], ["--filter", "kind=a kind=b"], ["x"]]
)
def test_an_invalid_selector_is_refused(run, arguments):
    answer = run("ls", *arguments)
    assert answer.code == 2
    assert answer.err.startswith("error: ")


def test_ls_shows_directories(run, call, here, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    call("add", "--", "true")
    assert str(here) in run("ls", "--cwd").out
    assert str(here) not in run("ls").out

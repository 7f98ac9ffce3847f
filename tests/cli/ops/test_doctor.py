"""``holdfast doctor``."""

from __future__ import annotations


def test_advice_is_wrapped_and_never_cut(run, app, monkeypatch):
    """It ended at the width of the terminal, even with -o wide and in a pipe."""
    app.enqueue("mail", {"to": 1})
    answers = {}
    for width in ("80", "100", "200"):
        monkeypatch.setenv("COLUMNS", width)
        answers[width] = run("doctor").out
        assert all(len(line) <= int(width) for line in answers[width].splitlines() if "/" not in line)
    monkeypatch.setenv("COLUMNS", "80")
    answers["wide"] = run("doctor", "-o", "wide").out
    assert all("…" not in out for out in answers.values())
    assert "no worker is alive, and 1 job waits" in " ".join(answers["80"].split())
    assert len(answers["wide"].splitlines()) < len(answers["80"].splitlines())


def test_rules_that_nothing_is_against_share_a_line(run, app):
    app.enqueue("mail", {"to": 1})
    checks = run("doctor", "-o", "json").data["checks"]
    (rules,) = [check["message"] for check in checks if check["name"] == "rules"]
    assert rules.startswith("nothing is against 1 shared paths, 2 check first, 3 deletes")
    assert not any(check["name"][0].isdigit() for check in checks if check["level"] == "ok")

"""``ls`` and ``errors``."""

from __future__ import annotations

import re
import shlex
import time

import pytest

import holdfast
from holdfast.domain.jobs.verdict import Failed
from tests.support.jobs import claim_jobs


def test_options_select_jobs(run, app):
    ids = {label: app.enqueue("mail", {"to": 1}, label=label).id for label in ("red-1", "red-2", "blue")}
    broken = app.enqueue("broken").id

    def listed(*arguments):
        return {job["id"] for job in run("ls", *arguments, "-o", "json").data["jobs"]}

    assert listed("--label", "red-*") == {ids["red-1"], ids["red-2"]}
    assert listed("-l", "blue", "-l", "red-1") == {ids["blue"], ids["red-1"]}
    assert listed("--queue", "slow") == listed("--filter", "queue=slow") == {broken}
    assert listed("--filter", "kind=mail label=blue") == {ids["blue"]}
    assert listed("--state", "dead,ready") == listed("-s", "dead", "-s", "ready") == {*ids.values(), broken}
    assert listed("--state", "dead,held") == set()
    assert listed("--since", "1h") == listed("--since", "yesterday") == {*ids.values(), broken}
    assert listed("--until", "1h") == listed("--until", "2020-02-29") == set()
    assert listed(ids["blue"], "--kind", "mail") == {ids["blue"]}
    assert len(listed("-n", "2")) == 2


@pytest.mark.parametrize(
    "arguments", [["--filter", "colour=red"], ["--state", "tired"], ["--filter", "kind=a kind=b"], ["x"]]
)
def test_an_invalid_selector_is_refused(run, arguments):
    answer = run("ls", *arguments)
    assert answer.code == 2
    assert answer.err.startswith("error: ")


def test_a_filter_reads_times_as_the_options_do(run, app, zone):
    """A day, and a time as lists show it. A time of another zone is refused with the right hint."""
    zone("Europe/Berlin")
    app.enqueue("mail", {"to": 1})
    for since, count in (("today", 1), ("'2020-01-01 06:00:00 CET'", 1), ("'2040-01-01 06:00:00 CET'", 0)):
        assert len(run("ls", "--filter", f"since={since} kind=mail", "-o", "json").data["jobs"]) == count
    refused = run("ls", "--since", "2030-01-01 06:00:00 EST")
    assert (refused.code, "is not a valid time" in refused.err, "offset" in refused.err) == (2, True, True)
    assert run("set", "1", "--run-at", "2040-01-01 06:00:00 CET", "-o", "json").data["changed"] == 1
    assert run("show", "1", "-o", "json").data["job"]["due_at"] == "2040-01-01T05:00:00Z"


def test_ls_shows_directories(run, call, here, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    call("add", "--", "true")
    assert str(here) in run("ls", "--cwd").out
    assert str(here) not in run("ls").out


def test_jobs_of_holdfast_itself_are_left_out(run, app):
    """Issue 22: unless ``--all``, a kind or an id names them."""
    app.run(app.unit(name="count")(lambda n: None), [1, 2], output="none")
    (driver,) = app.views.all(holdfast.Selector(kinds=("holdfast.driver",)))

    def listed(*arguments):
        return [job["id"] for job in run("ls", *arguments, "-o", "json").data["jobs"]]

    assert listed() == listed("--label", driver.label) == []
    assert run("ls").err == "only Holdfast's own jobs match; --all lists them\n"
    assert run("ls", "--label", "nothing").err == "no job matches\n"
    mail = app.enqueue("mail", {"to": 1}).id
    assert listed() == listed("-n", "1") == [mail]
    assert listed("--all") == [mail, driver.id]
    assert (
        listed("--kind", "holdfast.*") == listed("--filter", "kind=holdfast.driver") == listed(driver.id) == [driver.id]
    )


def put_back(database, seconds, column):
    """Set a time of the running job to some seconds ago."""
    at, sign = time.time() - seconds, "to_timestamp(%s)"
    if database.name == "sqlite":
        at, sign = int(at * 1_000_000), "?"
    database.execute(f"UPDATE holdfast.live SET {column} = {sign}", (at,))


def test_a_run_whose_lease_has_expired_is_marked(run, app, real_database):
    """It looked like a healthy one, with a rate and the remaining time."""
    job_id = app.enqueue("mail", {"to": 1}).id
    (lease,) = claim_jobs(app.store, "w", queues=["default"], kinds=["mail"], started=True)
    app.store.leases.report(lease, done=30, total=300)
    assert "30/300" in run("ls").out
    put_back(real_database, 80, "claimed_at")
    put_back(real_database, 12, "lease_expires_at")
    for out in (run("ls").out, run("top").out):
        assert re.search(rf"^{job_id} .*lease expired 1\d s ago$", out, re.MULTILINE)
    text = run("show", job_id).out
    assert ("lease expired 1" in text, " left" in text) == (True, False)


def test_a_run_past_its_timeout_is_marked(run, app, real_database):
    job_id = app.enqueue("mail", {"to": 1}, timeout=20).id
    claim_jobs(app.store, "w", queues=["default"], kinds=["mail"], started=True)
    put_back(real_database, 55, "started_at")
    for out in (run("ls", "-o", "wide").out, run("show", job_id).out):
        assert re.search(r"3\d s past its timeout of 20 s; its thread cannot be stopped: holdfast ask w stop", out)


@pytest.fixture
def failed(app):
    """Makes a job of the kind mail fail with an error; it is retried unless the failure is *permanent*."""

    def fail(error, *, permanent=True):
        ref = app.enqueue("mail", {"to": 1, "subject": "password=hunter22"})
        (lease,) = claim_jobs(app.store, "w", queues=["default"], kinds=["mail"])
        app.store.leases.settle(lease, Failed(error=error, permanent=permanent))
        return ref.id

    return fail


def test_errors_groups_failed_and_retrying_jobs(run, fitting, failed):
    """The command line has the groups of the dashboard, in every format; the next command takes the dead jobs of a group."""
    dead = [failed(f"row {n} is bad") for n in range(3)]
    retrying = failed("row 9 is bad", permanent=False)
    other = failed("no network")
    rows, network = fitting(["errors"]).data["clusters"]
    assert (rows["count"], rows["retrying"], rows["kind"], rows["newest"]) == (4, 1, "mail", retrying)
    assert rows["first"] <= rows["last"]
    assert (network["newest"], network["sample"]) == (other, "no network")
    assert [line["count"] for line in run("errors", "-o", "ndjson").lines[:2]] == [4, 1]
    text = run("errors")
    heading, first, *_ = text.out.splitlines()
    assert heading.split() == ["JOBS", "RETRYING", "KIND", "FIRST", "LAST", "NEWEST", "ERROR"]
    assert "row <n> is bad" in first
    assert text.err == f"next: {rows['command']}\n"
    retried = run(*shlex.split(rows["command"])[1:], "--yes", "-o", "json").data
    assert (retried["ids"], retried["matched"]) == (dead, 3)


def test_errors_shows_no_more_groups_than_asked_for(run, failed):
    assert "no job is dead" in run("errors").err
    for error in ("one", "two", "three"):
        failed(error)
    answer = run("errors", "-n", "1", "--columns", "error,next")
    assert len(answer.out.splitlines()) == 2
    assert "2 smaller groups: --limit 3" in answer.err


def test_errors_masks_secrets(run, failed):
    failed("cannot send password=hunter22 to ada")
    for arguments in ([], ["-o", "json"], ["-o", "wide"]):
        answer = run("errors", *arguments)
        assert "hunter22" not in answer.out + answer.err
        assert "***" in answer.out

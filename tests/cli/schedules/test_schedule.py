"""``holdfast schedule``."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import Plan
from holdfast.domain.commands.command import load_command
from holdfast.domain.jobs.selector import Selector
from holdfast.store.engine.operation import query
from holdfast.testing import plan

MAIL = ["mail", "-p", '{"to": 1}']


@pytest.fixture
def schedule(fitting):
    return lambda action, *words: fitting(("schedule", action), *words)


@pytest.fixture
def nightly(schedule, app):
    app.job(name="planned")(_planned)
    assert app.store
    assert schedule("add", "nightly", "mail", "30 2 * * *", "--tz", "Europe/Berlin", "-p", '{"to": 1}').code == 0


def _planned(plan: Plan) -> None: ...


def code_of(answer):
    return answer.code, answer.document["error"]["code"]


def test_a_schedule_is_made_and_shown(schedule, run, nightly):
    view = schedule("show", "nightly").data
    assert (view["condition"], view["kind"], view["words"]) == ("active", "mail", "at 02:30 (Europe/Berlin)")
    assert view["definition"]["payload"] == {"to": 1}
    assert len(view["next"]) == 3
    assert any("skip 02:30" in warning for warning in view["warnings"])
    (listed,) = schedule("ls").data["schedules"]
    assert listed == view
    text = run("schedule", "show", "nightly").out
    assert "when      at 02:30 (Europe/Berlin)" in text
    assert "nightly  active" in run("schedule", "ls").out


def test_a_scheduled_command_runs_once(schedule, run, app):
    """E9.4: as one that was added does; and before any worker has registered the kind."""
    payload = '{"argv": ["false"], "cwd": "/"}'
    assert schedule("add", "tick", "command", "every 1h", "-p", payload).code == 0
    assert schedule("trigger", "tick").code == 0
    assert run("add", "--", "false").code == 0
    planned, added = sorted(app.views.all(Selector(kinds=("command",))), key=lambda job: job.id)
    assert planned.max_attempts == added.max_attempts == 1


@pytest.mark.parametrize(("timeout", "seconds"), [('"10m"', 600), ('"1h30m"', 5400), ("90", 90), ('"PT2H"', 7200)])
def test_the_timeout_of_a_scheduled_command_is_a_duration(schedule, app, timeout, seconds):
    """Issue 22: as elsewhere, and in ISO 8601; also in an edit."""
    payload = f'{{"argv": ["true"], "cwd": "/", "timeout": {timeout}}}'
    assert schedule("add", "tick", "command", "every 1h", "-p", payload).code == 0
    assert schedule("trigger", "tick").code == 0
    assert schedule("edit", "tick", "-p", payload.replace("true", "false")).code == 0
    assert schedule("trigger", "tick").code == 0
    commands = [load_command(job.payload) for job in app.views.all(Selector(kinds=("command",)))]
    assert [command.timeout for command in commands] == [timedelta(seconds=seconds)] * 2


def test_a_timeout_that_is_not_a_duration_is_refused(schedule, run):
    payload = '{"argv": ["true"], "cwd": "/", "timeout": "soon"}'
    assert run("schedule", "add", "tick", "command", "every 1h", "-p", payload).code == 2


def test_all_options_reach_the_definition(schedule):
    words = ["add", "all", *MAIL[:1], "every 1h", *MAIL[1:], "--phase", "5m", "--catch-up", "every", "--window", "2h"]
    words += [
        "--overlap",
        "allow",
        "--max-backlog",
        "50",
        "--delay",
        "30s",
        "--jitter",
        "10s",
        "--start",
        "2030-01-01T00:00:00Z",
    ]
    words += ["--end", "2031-01-01T00:00:00Z", "--runs", "7", "-q", "slow", "--priority", "3", "--scope", "a"]
    definition = schedule(*words, "--scope", "b", "--ping", "https://x.example/y").data["definition"]
    assert definition == {
        "kind": "mail",
        "payload": {"to": 1},
        "queue": "slow",
        "priority": 3,
        "scopes": ["a", "b"],
        "ping": "https://x.example/***",
        "when": {
            "every": "PT3600S",
            "phase": "PT300S",
            "catch_up": "every",
            "window": "PT7200S",
            "overlap": "allow",
            "max_backlog": 50,
            "delay": "PT30S",
            "jitter": "PT10S",
            "start": "2030-01-01T00:00:00Z",
            "end": "2031-01-01T00:00:00Z",
            "runs": 7,
        },
    }


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["nightly", "mail", "@daily", "-p", '{"to": 1}'], (9, "E_DUPLICATE_SCHEDULE")),
        (["other", "mial", "@daily"], (3, "E_UNKNOWN_KIND")),
        (["other", "mail", "@daily"], (2, "E_INVALID_PAYLOAD")),
        (["other", "mail", "@daily", "-p", '{"to": 1, "cc": 2}'], (2, "E_INVALID_PAYLOAD")),
        (["other", "mail", "@daily", "-p", '{"to": "ada"}'], (2, "E_INVALID_PAYLOAD")),  # V3
        (["other", "mail", "@daily", "--max-backlog", "2000000", "-p", '{"to": 1}'], (2, "E_INVALID")),
        (["other", "mail", "61 * * * *", "-p", '{"to": 1}'], (2, "E_EXPRESSION")),
        (["other", "mail", "0 0 30 2 *", "-p", '{"to": 1}'], (2, "E_NEVER_FIRES")),
        (["other", "mail", "@daily", "--tz", "Mars/Here", "-p", '{"to": 1}'], (2, "E_UNKNOWN_ZONE")),
        (["other", "mail", "@daily", "--delay", "long", "-p", '{"to": 1}'], (2, "E_INVALID")),
        (["other", "mail", "@daily", "--ping", "file:///etc/passwd", "-p", '{"to": 1}'], (2, "E_INVALID")),
        (["other", "mail", "@daily", "--scope", "a", "--scopes-from", "b", "-p", '{"to": 1}'], (2, "E_INVALID")),
        (["other", "mail", "every 5m", "--tz", "Mars/Here", "-p", '{"to": 1}'], (2, "E_INVALID")),
        (["other", "mail", "every 5m", "--scopes-from", "", "-p", '{"to": 1}'], (2, "E_INVALID")),
        (["other", "mail", "every 5m", "--start", "9999-12-31T23:59:59Z", "-p", '{"to": 1}'], (2, "E_INVALID")),
        (["other", "mail", "every 5m", "--start", "5d", "-p", '{"to": 1}'], (2, "E_INVALID")),
        (["other", "mail", "every 5m", "--ping", "http://x.example/ a", "-p", '{"to": 1}'], (2, "E_INVALID")),
        (["a\nb", "mail", "every 5m", "-p", '{"to": 1}'], (2, "E_INVALID")),
        (["other", "planned", "every 5m", "-p", '{"plan": 1}'], (2, "E_INVALID_PAYLOAD")),
    ],
)
def test_invalid_options_are_refused(run, nightly, words, expected):
    """Each error has its code, and nothing is created."""
    assert code_of(run("schedule", "add", *words, "-o", "json")) == expected
    assert len(run("schedule", "ls", "-o", "json").data["schedules"]) == 1


@pytest.mark.parametrize(
    ("expression", "position"), [("61 * * * *", 0), ("0 25 * * *", 2), ("0 0 1-40 * *", 4), ("0 0 * * mon,xyz", 12)]
)
def test_an_invalid_expression_is_reported_with_its_position(run, expression, position):
    answer = run("schedule", "preview", expression, "-o", "json")
    assert code_of(answer) == (2, "E_EXPRESSION")
    assert answer.document["error"]["context"] == {"position": position}
    assert f"at character {position + 1}" in answer.document["error"]["message"]
    assert answer.document["error"]["hint"]


def test_a_preview_uses_no_store(run, monkeypatch):
    monkeypatch.setenv("HOLDFAST_URL", "postgresql://nobody@127.0.0.1:1/none")
    words = ["schedule", "preview", "0 12 * * *", "--tz", "Asia/Kolkata", "--from", "2030-01-01T00:00:00Z", "-n", "2"]
    preview = run(*words, "-o", "json").data
    assert [instant["utc"] for instant in preview["next"]] == ["2030-01-01T06:30:00Z", "2030-01-02T06:30:00Z"]
    assert preview["next"][0]["local"] == "2030-01-01T12:00:00+05:30"
    assert run(*words).out.splitlines()[0] == "at 12:00 (Asia/Kolkata)"
    assert len(run("schedule", "preview", "every 90s", "-n", "7", "-o", "json").data["next"]) == 7


def test_an_edit_keeps_the_other_options(schedule, run, nightly):
    view = schedule("edit", "nightly", "--expression", "0 3 * * *", "--overlap", "allow").data
    assert view["definition"]["when"] == {"cron": "0 3 * * *", "tz": "Europe/Berlin", "overlap": "allow"}
    assert view["definition"]["payload"] == {"to": 1}
    assert schedule("edit", "nightly", "--expression", "every 5m").data["definition"]["when"]["every"] == "PT300S"
    assert code_of(run("schedule", "edit", "nightly", "-o", "json")) == (2, "E_INVALID")
    assert code_of(run("schedule", "edit", "nobody", "--delay", "1s", "-o", "json")) == (3, "E_NO_SUCH_SCHEDULE")


def test_a_pause_has_its_note(schedule, run, nightly):
    assert schedule("pause", "nightly", "--note", "the moon").data["ids"] == ["nightly"]
    again = schedule("pause", "nightly", "--note", "the moon")
    assert (again.code, again.data["changed"]) == (0, 0)  # it sets something: a repetition is a success
    assert "the moon" in run("schedule", "ls").out
    assert schedule("why", "nightly", "2035-01-01T01:30:00Z").data["why"] == "the schedule is paused: the moon"
    assert schedule("resume", "nightly").data["changed"] == 1
    assert schedule("show", "nightly").data["condition"] == "active"


def test_a_trigger_answers_its_jobs(schedule, run, app, nightly):
    (job,) = schedule("trigger", "nightly").data["jobs"]
    assert (app.get(job).job().label, app.get(job).job().state) == ("nightly", "ready")
    assert run("schedule", "trigger", "nightly", "--quiet").out.strip().isdecimal()
    assert code_of(run("schedule", "trigger", "nightly", "--scope", "x", "-o", "json")) == (2, "E_INVALID")


def test_scopes_that_only_the_application_knows(schedule, run, app):
    app.schedules.create("tenants", "mail", "@daily", payload={"to": 1}, scopes="tenants")
    assert code_of(run("schedule", "trigger", "tenants", "-o", "json")) == (2, "E_INVALID")
    assert len(schedule("trigger", "tenants", "--scope", "a").data["jobs"]) == 1


def test_a_dry_backfill_lists_plans_and_fires_nothing(schedule, nightly):
    words = ["backfill", "nightly", "--from", "2030-01-01T00:00:00Z", "--to", "2030-01-01T00:00:00Z"]
    assert schedule(*words).code == 2
    looked = schedule("backfill", "nightly", "--from", "72h", "--dry-run").data
    assert (looked["changed"], looked["jobs"], looked["dry_run"]) == (3, [], True)
    done = schedule("backfill", "nightly", "--from", "72h").data
    assert (done["ids"], len(done["jobs"]), done["unchanged"]) == (looked["ids"], 3, [])
    (before,) = schedule("backfill", "nightly", "--from", "72h").data["unchanged"]
    assert (before["why"], before["count"]) == ("fired before", 3)


def test_a_backfill_lists_one_plan_per_line(run, nightly):
    """D16: 3,600 of them in one line cannot be read."""
    words = ["schedule", "backfill", "nightly", "--from", "2021-01-01T00:00:00Z", "--to", "2021-01-03T12:00:00Z"]
    head, *plans = run(*words, "--dry-run").out.splitlines()
    assert (head, len(plans)) == ("3 plans would be fired", 3)
    assert run(*words, "--dry-run", "--quiet").out.splitlines() == plans
    assert run(*words).out.splitlines() == ["3 plans fired", *plans]


def test_a_schedule_that_is_over_says_so(schedule, nightly, run):
    """D16: also at once, when it is created."""
    answer = schedule("add", "past", "mail", "@daily", "-p", '{"to": 1}', "--end", "2020-01-01T00:00:00Z")
    assert any("Its end has passed, at 2020-01-01 00:00:00 UTC" in warning for warning in answer.data["warnings"])
    assert "Its end has passed" in run("schedule", "show", "past").out
    assert not any("end has passed" in warning for warning in schedule("show", "nightly").data["warnings"])


def test_a_backfill_shows_its_plans_by_the_clock_of_the_user(run, app, nightly, zone):
    """As text; JSON has UTC. So does the note of the audit log."""
    zone("America/Caracas")
    words = ["schedule", "backfill", "nightly", "--from", "2021-01-01T00:00:00Z", "--to", "2021-01-01T12:00:00Z"]
    assert "1 plan would be fired: 2020-12-31 21:30:00 -04\n" in run(*words, "--dry-run").out
    assert run(*words, "--dry-run", "-o", "json").data["ids"] == ["2021-01-01T01:30:00Z"]
    run(*words)
    assert "2020-12-31 20:00:00 -04 to 2021-01-01 08:00:00 -04" in run("audit-log", "-o", "wide").out
    (entry,) = run("audit-log", "-n", "1", "-o", "json").data["entries"]
    assert entry["note"] == "2021-01-01T00:00:00Z to 2021-01-01T12:00:00Z"


def test_the_jobs_of_one_scope_are_listed_cancelled_and_retried(run, app):
    """OPS 4.38: by the label of the schedule and the tag of the scope; the history shows one scope and one state."""
    app.schedules.create("tenants", "mail", "@daily", payload={"to": 2}, scopes=["ada", "bob"], overlap="allow")
    ada, bob = app.schedules.trigger("tenants")
    of_ada = ("--label", "tenants", "--tag", "scope=ada")

    def shown(*words):
        return [plan["job_id"] for plan in run("schedule", "history", "tenants", *words, "-o", "json").data["plans"]]

    listed = run("ls", *of_ada, "-o", "json").data["jobs"]
    assert [job["id"] for job in listed] == [ada], "S5 is broken: the jobs of a scope are not found"
    run("cancel", *of_ada, "--yes")
    assert (shown("--scope", "ada"), shown("--state", "cancelled")) == ([ada], [ada])
    assert (shown("--scope", "bob", "--state", "ready"), shown("--state", "skipped")) == ([bob], [])
    run("retry", *of_ada, "--yes")
    assert sorted(shown("--state", "ready")) == [ada, bob]


def test_the_history_lists_fired_and_skipped_plans(schedule, run, app, real_database, nightly):
    app.schedules.create("minutely", "mail", "* * * * *", payload={"to": 2}, overlap="allow")
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    back = now - timedelta(minutes=10)
    value = int(back.timestamp() * 1e6) if real_database.name == "sqlite" else back
    mark = "?" if real_database.name == "sqlite" else "%s"
    real_database.execute(
        f"UPDATE holdfast.schedule SET cursor = {mark}, next_at = {mark}, check_at = {mark}", (value, value, value)
    )
    plan(app)
    fired, skipped = schedule("history", "minutely").data["plans"]
    assert (fired["decision"], fired["reason"], fired["state"]) == ("fired", "due", "ready")
    assert (skipped["decision"], skipped["count"], skipped["reason"]) == ("skipped", 9, "catch_up")
    assert run("schedule", "history", "minutely").out.splitlines()[2].endswith("catch_up")
    why = schedule("why", "minutely", skipped["first"]).data["why"]
    assert why == "it was not fired: a newer plan was due at the next tick of a planner"
    assert schedule("why", "minutely", fired["first"]).data["why"].startswith(f"it was fired as job {fired['job_id']}")
    assert (
        "is not one of its plans" in schedule("why", "minutely", (now + timedelta(seconds=7)).isoformat()).data["why"]
    )
    assert "not due yet" in schedule("why", "nightly", "2035-01-01T01:30:00Z").data["why"]


@pytest.mark.parametrize("definition", ['{"kind": 1}', '{"kind":"mail","cron":"@daily","tz":"Europe/Atlantis"}'])
def test_one_that_cannot_be_read_hides_no_other(schedule, run, app, nightly, definition):
    """Its definition is of another version, or its time zone is gone."""
    garbage = {
        "definition": definition,
        "declared": None,
        "application": None,
        "version": 0,
        "provider": None,
        "actor": "ada",
        "token": 0,
    }
    garbage |= dict.fromkeys(("at", "cursor", "next_at"), datetime.now(UTC))
    app.store.backend.run(query("create_schedule", name="garbage", **garbage))
    listed = {view["name"]: view["condition"] for view in schedule("ls").data["schedules"]}
    assert listed == {"garbage": "failing", "nightly": "active"}
    assert run("schedule", "show", "garbage").code == 0
    assert run("schedule", "rm", "garbage", "--yes").code == 0


def test_a_scope_that_is_named_twice_is_one(schedule, app):
    app.schedules.create("two", "mail", "@daily", payload={"to": 1}, scopes=["a", "b"])
    assert len(schedule("trigger", "two", "--scope", "a", "--scope", "a").data["jobs"]) == 1
    assert len(schedule("trigger", "two").data["jobs"]) == 2


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "yesterday", "2030-13-01T00:00:00Z"])
def test_an_invalid_timestamp_is_refused(run, nightly, time):
    for words in (
        ["why", "nightly", time],
        ["backfill", "nightly", "--from", time],
        ["preview", "@daily", "--from", time],
    ):
        answer = run("schedule", *words, "-o", "json")
        assert code_of(answer) == (2, "E_INVALID")
        assert "2030-01-01T06:00:00Z" in answer.document["error"]["hint"]


def test_why_refuses_an_unknown_scope(schedule, run, app):
    app.schedules.create("two", "mail", "@daily", payload={"to": 1}, scopes=["a", "b"])
    assert code_of(run("schedule", "why", "two", "2035-01-01T00:00:00Z", "-o", "json")) == (2, "E_INVALID")
    assert "not due yet" in schedule("why", "two", "2035-01-01T00:00:00Z", "--scope", "a").data["why"]


def test_an_unplanned_schedule_has_a_warning(schedule, run, app, real_database):
    app.schedules.create("lost", "mail", "@daily", payload={"to": 1}, scopes="nowhere")
    past = datetime.now(UTC) - timedelta(minutes=5)
    value = int(past.timestamp() * 1e6) if real_database.name == "sqlite" else past
    mark = "?" if real_database.name == "sqlite" else "%s"
    real_database.execute(f"UPDATE holdfast.schedule SET next_at = {mark}", (value,))
    assert "no scheduler fires it" in schedule("show", "lost").data["warnings"][0]
    assert "Due since" in run("schedule", "ls").out


def test_sentences_have_times_of_the_local_clock(schedule, run, app, real_database, zone):
    """``show``, ``ls`` and ``why`` in text, with the zone; JSON has UTC."""
    zone("Asia/Kolkata")
    app.schedules.create("lost", "mail", "@daily", payload={"to": 1}, scopes="nowhere")
    time = datetime(2020, 1, 1, tzinfo=UTC)
    value = int(time.timestamp() * 1e6) if real_database.name == "sqlite" else time
    mark = "?" if real_database.name == "sqlite" else "%s"
    real_database.execute(f"UPDATE holdfast.schedule SET next_at = {mark}", (value,))
    for line in (["show", "lost"], ["ls", "-o", "wide"]):
        assert "Due since 2020-01-01 05:30:00 IST" in run("schedule", *line).out
    assert "Due since 2020-01-01T00:00:00Z" in schedule("show", "lost").data["warnings"][0]
    app.schedules.create("fired", "mail", "@daily", payload={"to": 1})
    app.schedules.backfill("fired", time, time)
    assert re.search(r"it was fired as job 1, at \S+ \S+ IST by", run("schedule", "why", "fired", time.isoformat()).out)
    assert re.search(r"job 1, at \S+Z by", schedule("why", "fired", time.isoformat()).data["why"])


def test_options_are_shown_as_they_are_written(schedule, run):
    words = ["--phase", "5m", "--delay", "90s", "--scope", "a", "--scope", "b", "--start", "2030-01-01T00:00:00Z"]
    schedule("add", "all", "mail", "every 1h", "-p", '{"to": 1}', *words)
    text = run("schedule", "show", "all").out
    for line in ("phase     5m", "delay     1m30s", "scopes    a, b", "start     2030-01-01 00:00:00 UTC"):
        assert line in text


def test_why_explains_plans_outside_start_and_end(schedule):
    words = ["--start", "2030-01-01T00:00:00Z", "--end", "2031-01-01T00:00:00Z", "-p", '{"to": 1}']
    schedule("add", "year", "mail", "@daily", *words)
    assert "starts later" in schedule("why", "year", "2021-01-01T00:00:00Z").data["why"]
    assert "ends before" in schedule("why", "year", "2032-01-01T00:00:00Z").data["why"]


def test_a_list_has_filters_and_a_limit(schedule, run, app, nightly):
    """V3: a list of many schedules is read page by page."""
    for name in ("b", "c", "d"):
        app.schedules.create(name, "planned", "@daily")
    app.schedules.pause("c")

    def names(*words):
        return [view["name"] for view in schedule("ls", *words).data["schedules"]]

    assert names() == ["b", "c", "d", "nightly"]
    assert (names("--kind", "planned"), names("--state", "paused"), names("--name", "ight")) == (
        ["b", "c", "d"],
        ["c"],
        ["nightly"],
    )
    assert (names("--limit", "2"), names("--limit", "2", "--after", "c"), names("--limit", "2", "--all")) == (
        ["b", "c"],
        ["d", "nightly"],
        ["b", "c", "d", "nightly"],
    )
    assert "there are more: --after c" in run("schedule", "ls", "--limit", "2").err
    assert "there are more" not in run("schedule", "ls", "--limit", "4").err


def test_a_preview_honours_the_runs(schedule, app):
    """V3: no more plans are shown than the schedule has left."""
    app.schedules.create("twice", "mail", "every 1s", payload={"to": 1}, runs=2, catch_up="every", overlap="allow")
    assert (len(app.schedules.preview("twice", 5)), len(schedule("show", "twice").data["next"])) == (2, 2)


def test_a_count_that_is_not_exact_says_so(schedule, run, app):
    """V3: more than 10,000 skipped plans are shown as 10,000+."""
    past = datetime.now(UTC) - timedelta(days=30)
    app.schedules.create("minutely", "mail", "* * * * *", payload={"to": 2}, start=past)
    plan(app)
    skipped = schedule("history", "minutely").data["plans"][1]
    assert (skipped["count"], skipped["count_is_minimum"]) == (10_000, True)
    assert "skipped 10,000+" in run("schedule", "history", "minutely").out


def test_a_deleted_schedule_is_gone(schedule, run, nightly):
    assert run("schedule", "rm", "nightly").code == 2  # no terminal to confirm on
    assert schedule("rm", "nightly", "--yes").data["ids"] == ["nightly"]
    assert code_of(run("schedule", "show", "nightly", "-o", "json")) == (3, "E_NO_SUCH_SCHEDULE")


def test_a_declared_schedule_is_shown_as_such(schedule, app):
    app.schedule("@hourly", version=3)(app.job(name="hourly")(lambda: None))
    app.declare_schedules()
    view = schedule("show", "hourly").data
    assert (view["in_code"], view["version"]) == (True, 3)


def test_a_change_requires_the_api_key_where_one_is_set(run, nightly, monkeypatch):
    monkeypatch.setenv("HOLDFAST_API_KEY_SHA256", "0" * 64)
    for words in (["pause", "nightly"], ["rm", "nightly"], ["trigger", "nightly"], ["edit", "nightly", "--runs", "1"]):
        assert code_of(run("schedule", *words, "-o", "json")) == (4, "E_REFUSED")
    assert run("schedule", "ls", "-o", "json").code == 0

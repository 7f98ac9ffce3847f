"""``holdfast db``."""

from __future__ import annotations

import pytest

import holdfast
from holdfast import Selector, State
from holdfast.cli.ops.db import format_size
from tests.support.backends import open_database
from tests.support.reference import checker


def test_a_backup_is_a_store(run, app, tmp_path):
    ref = app.enqueue("mail", {"to": 1}, label="kept")
    file = tmp_path / "backup.db"
    answer = run("db", "backup", file, "-o", "json")
    checker(("db", "backup")).validate(answer.document)
    assert answer.data == {"file": str(file), "bytes": file.stat().st_size}
    jobs = run("ls", "--url", f"sqlite:///{file}", "-o", "json").data["jobs"]
    assert [(job["id"], job["label"]) for job in jobs] == [(ref.id, "kept")]
    again = run("db", "backup", file, "-o", "json")
    assert (again.code, again.document["error"]["code"]) == (2, "E_INVALID")


def test_a_check_that_finds_something_is_exit_1(run, app, real_database):
    ref = app.enqueue("mail", {"to": 1})
    real_database.execute("DELETE FROM holdfast.live")
    answer = run("db", "check", "-o", "json")
    checker(("db", "check")).validate(answer.document)
    assert (answer.code, answer.data["sound"]) == (1, False)
    assert f"not so: {ref.id}" in run("db", "check").out


def test_roles_are_printed_and_applied(run, real_database):
    answer = run("db", "roles", "-o", "json")
    checker(("db", "roles")).validate(answer.document)
    if real_database.name == "sqlite":
        assert answer.code == 2
        return
    assert not answer.data["applied"]
    assert any("holdfast_producer" in statement for statement in answer.data["statements"])
    assert run("db", "roles", "--apply", "-o", "json").data["applied"]


@pytest.fixture
def target(tmp_path):
    with open_database("postgres", tmp_path, real_time=True) as database:
        yield database.url


def test_a_store_is_copied_to_postgres(run, app, real_database, target):
    """The copy keeps ids, refuses while a worker is alive, and closes the old store."""
    if real_database.name != "sqlite":
        answer = run("db", "copy", target, "-o", "json")
        assert answer.code in (2, 9)
        return
    refs = [app.enqueue("mail", {"to": n}) for n in range(3)]
    with app.worker(queues=["other"]):
        answer = run("db", "copy", target, "-o", "json")
        assert (answer.code, answer.document["error"]["code"]) == (9, "E_STORE_IN_USE")
    answer = run("db", "copy", target, "-o", "json")
    checker(("db", "copy")).validate(answer.document)
    assert answer.err == "", "the tables are listed only with --verbose"
    assert answer.data["rows"]["job"] == 3
    jobs = run("ls", "--url", target, "-o", "json").data["jobs"]
    assert sorted(job["id"] for job in jobs) == sorted(ref.id for ref in refs)
    late = run("enqueue", "mail", "-p", '{"to": 9}', "-o", "json")
    assert (late.code, late.document["error"]["code"]) == (4, "E_STORE_MOVED")


@pytest.fixture
def moved(run, app, target):
    """A store with a dead job that was copied to *target*."""
    ref = app.enqueue("broken")
    app.worker(queues=["slow"]).tick()
    assert run("db", "copy", target).code == 0
    return ref


#: Changes of every area; `retry 1` finds the dead job, `cancel 1` a job that it could not change.
CHANGES = (
    *(("retry", "1"), ("cancel", "1"), ("rm", "1", "--yes"), ("set", "1", "--priority", "3")),
    *(("add", "--", "true"), ("run", "--", "true"), ("drain",), ("queue", "pause", "default")),
    *(("schedule", "rm", "nightly"), ("db", "vacuum"), ("db", "commands", "off"), ("up",), ("worker",), ("scheduler",)),
)


@pytest.mark.one_backend  # only a SQLite store can be copied
@pytest.mark.parametrize("line", CHANGES, ids=" ".join)
def test_a_moved_store_refuses_every_change(run, moved, line):
    """E1.9: `up` and `retry` worked on the old store, and what they did was lost."""
    answer = run(*line)
    assert (answer.code, "this store was copied to postgresql://" in answer.err) == (4, True), answer.err
    assert moved.state is State.DEAD


@pytest.mark.one_backend  # only a SQLite store can be copied
def test_reads_of_a_moved_store_say_so(run, moved):
    """E1.9: it looked healthy."""
    for line in (["ls"], ["show", moved.id], ["queue", "ls"], ["top"], ["wait", moved.id]):
        assert "this store was copied to postgresql://" in run(*line).err
    answer = run("doctor", "-o", "json")
    (check,) = [check for check in answer.data["checks"] if "was copied to" in check["message"]]
    assert (answer.code, check["level"]) == (1, "fail")
    assert "holdfast up" not in answer.out, "it would be refused"


@pytest.mark.one_backend  # only a SQLite store can be copied
def test_no_deploy_and_no_wait_relies_on_a_moved_store(run, app, target):
    """E1.9: `audit` was ready for a deploy, and `wait` waited for jobs that no worker runs any more."""
    ref = app.enqueue("mail", {"to": 1})
    assert run("db", "copy", target).code == 0
    assert (run("audit").code, run("audit", "--expect", "1").code) == (4, 4)
    answer = run("wait", ref.id, "--timeout", "5s", "-o", "json")
    assert (answer.code, answer.document["error"]["code"]) == (4, "E_STORE_MOVED")


@pytest.mark.parametrize(("size", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 KB"), (2.5e12, "2.5 TB")])
def test_sizes(size, text):
    assert format_size(size) == text


def test_commands_are_refused_while_they_are_off(run, app):
    """They were added, and failed at once."""
    app.store.command_switch.set(on=False)
    payload = '{"argv": ["true"], "cwd": "/"}'
    for line in (["add", "true"], ["sweep", "--param", "n=1", "--", "echo", "{n}"], ["run", "true"]):
        refused = run(*line)
        assert (refused.code, "holdfast db commands on" in refused.err) == (9, True), refused.err
    assert run("enqueue", "command", "-p", payload).code == 9
    assert run("enqueue", "mail", "-p", '{"to": 1}').code == 0
    assert app.views.count(Selector(kinds=("command",))).count == 0


def test_a_secret_field_is_shown_again_by_an_audited_command(run, app):
    """W2: not while the kind declares it."""
    for secrets, code in ((["card"], 9), ([], 0)):
        again = holdfast.Holdfast(app.url)
        again.job(name="pay", secrets=secrets)(lambda card: None)
        assert again.store
        assert run("db", "secrets", "-o", "json").data == {"fields": [{"kind": "pay", "name": "card"}]}
        assert run("db", "secrets", "--reveal", "pay", "card").code == code
        again.close()
    assert run("db", "secrets", "-o", "json").data == {"fields": []}
    assert run("db", "secrets", "--reveal", "pay", "card").code == 3
    entries = [(entry.action, entry.target) for entry in app.store.audit_log.page()]
    assert entries == [("db secrets", "kind=pay reveal=card")]


def test_commands_are_switched_by_one_word(run, app):
    """E10.1: each change has its entry in the audit log."""
    assert run("db", "commands", "-o", "json").data == {"commands": True}
    for _ in range(2):
        assert run("db", "commands", "off", "-o", "json").data == {"commands": False}
    assert not app.store.command_switch.is_on()
    assert run("db", "commands", "on", "-o", "json").data == {"commands": True}
    entries = [(entry.action, entry.target) for entry in app.store.audit_log.page()]
    assert entries == [("db commands", "commands=on"), ("db commands", "commands=off")]

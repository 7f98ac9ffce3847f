"""Tables of lists: their columns, wide ones too, their order, and lists without headings."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.cli.command import Items
from holdfast.cli.text import Column, Table, age_column, sortable_key
from holdfast.domain.fleet.stop_switch import StopMode
from holdfast.domain.jobs.job import WorkerId
from tests.support.reference import generate

#: Commands that answer with items, and print no table of them.
WITHOUT_TABLE = {("down",), ("top",)}
JOB_COLUMNS = ["ID", "STATE", "KIND", "QUEUE", "TRIES", "AGE", "LABEL", "NOTE"]

pytestmark = pytest.mark.one_backend


@pytest.fixture
def jobs(app):
    """Three jobs: their labels sort otherwise than their ids, and one has none."""
    return [app.enqueue("mail", {"to": n}, label=label).id for n, label in enumerate(("b", "a", None))]


def rows_of(answer):
    assert answer.code == 0, answer.err
    return [line.split() for line in answer.out.splitlines()]


def test_every_list_has_columns_to_choose():
    """E8: ``--columns`` and ``--sort`` belong to each command that lists things, jobs included."""
    for path, command in generate.commands():
        is_list = isinstance(command.answers, Items) or command.answers in ("JOBS", "ERRORS")
        flags = {flag for param in command.params for flag in param.opts}
        assert (is_list and path not in WITHOUT_TABLE) == ({"--columns", "--sort"} <= flags), path


def test_columns_are_chosen_and_ordered(run, jobs):
    """E8: also wide ones; the default has none of them."""
    assert rows_of(run("ls"))[0] == JOB_COLUMNS
    first, second, third = (str(job) for job in jobs)
    assert rows_of(run("ls", "--columns", "label,id,priority")) == [
        ["LABEL", "ID", "PRIORITY"],
        [third, "0"],
        ["a", second, "0"],
        ["b", first, "0"],
    ]


def test_wide_shows_all_columns_and_does_not_cut(run, jobs, app, monkeypatch):
    """E8: ``-o wide`` before or after the command; ``--columns`` still chooses."""
    monkeypatch.setenv("COLUMNS", "40")
    app.enqueue("mail", {"to": 1}, label="long-" * 20)
    wide = run("ls", "-o", "wide")
    assert {"PRIORITY", "WORKER", "COMMAND", "DIRECTORY"} <= set(rows_of(wide)[0])
    assert set(JOB_COLUMNS) < set(rows_of(wide)[0])
    assert "long-" * 20 in wide.out
    assert rows_of(run("-o", "wide", "ls")) == rows_of(wide)
    assert run("ls", "-o", "wide", "--columns", "label", "-n", "1").out == "LABEL\n" + "long-" * 20 + "\n"
    assert max(map(len, run("ls").out.splitlines())) == 40


@pytest.mark.parametrize("flag", ["--columns", "--sort"])
def test_an_unknown_column_is_refused_with_the_valid_names(run, jobs, flag):
    """E8: exit 2."""
    answer = run("queue", "ls", flag, "colour")
    assert (answer.code, answer.out) == (2, "")
    assert "the column 'colour' is unknown" in answer.err
    assert "queue, ready, running, scheduled, waiting, held, limit, per-worker" in answer.err


@pytest.mark.parametrize("arguments", [["--columns", "id"], ["--sort", "id"]], ids=" ".join)
@pytest.mark.parametrize("format_", ["json", "ndjson"])
def test_json_has_no_columns(run, jobs, monkeypatch, format_, arguments):
    """E8: the two options are refused with JSON, wherever the format was chosen."""
    answer = run("ls", *arguments, "-o", format_)
    assert answer.code == 2
    assert f"not for -o {format_}" in answer.out
    monkeypatch.setenv("HOLDFAST_OUTPUT", format_)
    assert run("ls", *arguments).code == 2
    assert run("ls", *arguments, "-o", "text").code == run("ls", *arguments, "-o", "wide").code == 0


def test_rows_are_sorted_within_what_is_shown(run, jobs):
    """E8: descending with a leading minus; rows without a value are last; a limit comes first."""
    first, second, third = (str(job) for job in jobs)

    def ids(*arguments):
        return [row[0] for row in rows_of(run("ls", "--columns", "id", "--quiet", *arguments))]

    assert ids() == [third, second, first]
    assert ids("--sort", "id") == [first, second, third]
    assert ids("--sort", "label") == [second, first, third]
    assert ids("--sort", "-label") == [first, second, third]
    assert ids("--sort", "age") == [third, second, first]
    assert ids("--sort", "-age") == [first, second, third]
    assert ids("--sort", "id", "-n", "2") == [second, third]


@pytest.mark.parametrize(
    ("path", "key"),
    [
        (["ls"], "id"),
        (["ls", "--cwd"], "id"),
        (["batch", "ls"], "id"),
        (["batch", "units", "1"], "key"),
        (["queue", "ls"], "name"),
        (["schedule", "ls"], "name"),
        (["workers"], "id"),
    ],
    ids=" ".join,
)
def test_quiet_lists_print_what_other_commands_take(run, app, jobs, path, key):
    """D16: one id or name per line, whole; with --columns, the columns."""

    @app.unit()
    def work(key: int) -> None: ...

    app.run(work, range(3), output="none")
    app.schedules.create("nightly " + "x" * 90, "mail", "@daily", payload={"to": 1})
    app.store.workers.announce(WorkerId("w1"), host="h", pid=1, queues=["*"], kinds=["mail"], version=None)
    app.store.stop_switch.set(StopMode.DRAIN, actor="ada", note=None)
    (rows,) = [value for value in run(*path, "-o", "json").data.values() if isinstance(value, list)]
    assert run(*path, "--quiet").out.splitlines() == [str(row[key]) for row in rows]
    assert rows
    assert run("cancel", *run("ls", "--quiet").out.split(), "--yes").code == 0


@pytest.mark.parametrize("path", [["ls"], ["queue", "ls"], ["schedule", "ls"], ["config", "show"]], ids=" ".join)
def test_quiet_lists_have_no_heading(run, app, jobs, path):
    """E5.15: only the data."""
    app.schedules.create("nightly", "mail", "@daily", payload={"to": 1})
    heading, *rows = rows_of(run(*path))
    assert [row[0] for row in rows_of(run(*path, "--quiet"))] == [row[0] for row in rows]
    assert rows
    assert heading[0].isupper()


def test_an_age_sorts_the_youngest_first():
    now = datetime.now(UTC)
    column = age_column("AGE", lambda minutes: None if minutes is None else now - timedelta(minutes=minutes))
    table = Table((column,), sorted_by=column, heading=False)
    assert [line.text for line in table.lines([5, None, 1])] == ["1m ago", "5m ago", ""]


def test_keys_of_all_types_can_be_sorted():
    keys = ["b", 10, [1, "x"], 9, "a", 9.5]
    column = Column("KEY", str, sortable_key)
    table = Table((column,), sorted_by=column, heading=False)
    assert [line.text for line in table.lines(keys)] == ["9", "9.5", "10", "[1, 'x']", "a", "b"]

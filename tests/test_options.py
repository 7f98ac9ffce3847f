"""One definition of options for click, typer, argparse and Django: the same contract in each."""

from __future__ import annotations

import argparse
import json
import os
import sys

import click
import click.testing
import pytest
import typer
import typer.core
import typer.testing

import holdfast
from holdfast import options
from holdfast.errors import InvalidInput


@pytest.fixture
def work(real_database):
    with holdfast.Holdfast(real_database.url) as app:

        @app.unit(keys=lambda: range(1, 4))
        def work(n: int, *, loud: bool = False) -> None:
            if n == 3:
                raise ValueError("three")

        def run(batch, *, loud=False):
            app.run(work.bind(loud=loud), batch.keys(work), **batch.run).exit()

        yield run


def by_click(run):
    @click.command(cls=options.command_class(click.Command))
    @click.option("--loud", is_flag=True)
    @options.click
    def command(batch, loud):
        run(batch, loud=loud)

    def call(words):
        answer = click.testing.CliRunner().invoke(command, words)
        return answer.exit_code, answer.stdout

    return call


def by_typer(run):
    typer_app = typer.Typer()

    @typer_app.command(cls=options.command_class(typer.core.TyperCommand))
    @options.typer
    def command(batch: options.BatchArguments, loud: bool = False):
        run(batch, loud=loud)

    def call(words):
        answer = typer.testing.CliRunner().invoke(typer_app, words)
        return answer.exit_code, answer.stdout

    return call


def by_argparse(run, capsys):
    def parse_and_run(parser, words):
        namespace = parser.parse_args(words)
        run(options.batch_arguments(namespace), loud=namespace.loud)

    def call(words):
        parser = argparse.ArgumentParser()
        parser.add_argument("--loud", action="store_true")
        options.add_arguments(parser)
        with pytest.raises(SystemExit) as finished:
            parse_and_run(parser, words)
        return finished.value.code, capsys.readouterr().out

    return call


def by_django(run, capsys):
    from django.conf import settings
    from django.core.management.base import BaseCommand

    if not settings.configured:
        settings.configure()

    class Command(BaseCommand):
        requires_system_checks = ()

        def add_arguments(self, parser):
            parser.add_argument("--loud", action="store_true")
            options.add_arguments(parser)

        def handle(self, *_, **values):
            run(options.batch_arguments(values), loud=values["loud"])

    def call(words):
        with pytest.raises(SystemExit) as finished:
            Command().run_from_argv(["manage.py", "command", *words])
        return finished.value.code, capsys.readouterr().out

    return call


@pytest.fixture(params=["click", "typer", "argparse", "django"])
def call(request, work, capsys):
    match request.param:
        case "click":
            return by_click(work)
        case "typer":
            return by_typer(work)
        case "argparse":
            return by_argparse(work, capsys)
        case _:
            return by_django(work, capsys)


def test_the_contract_holds_in_every_framework(call):
    """Exit codes, the JSON answer, resumption; other arguments are another batch."""
    code, out = call(["--range", "1-5", "--jobs", "2", "--output", "json"])
    document = json.loads(out)
    assert (code, document["error"]["code"]) == (6, "E_PARTIAL_FAILURE")
    assert (document["data"]["summary"]["succeeded"], document["data"]["summary"]["failed"]) == (4, 1)
    code, out = call(["--range", "1-5", "--no-retry-failed", "--output", "json"])
    assert (code, json.loads(out)["data"]["batch"]) == (6, document["data"]["batch"])
    code, out = call(["--ids", "1,2", "--loud", "--output", "json"])
    assert (code, json.loads(out)["data"]["summary"]["succeeded"]) == (0, 2)
    code, out = call(["--range", "5-1", "-o", "json"])
    assert (code, json.loads(out)["error"]["code"]) == (2, "E_INVALID"), "E3"
    code, out = call(["--all", "--limit", "2", "--output", "json"])
    assert (code, json.loads(out)["data"]["summary"]["pending"]) == (0, 1)


@pytest.mark.parametrize("words", [["--jobs", "x"], ["--bogus"], ["surplus"], ["--range"]], ids=" ".join)
def test_usage_errors_of_every_parser_come_in_the_requested_format(call, words, monkeypatch):
    """E3: exit 2 with the envelope, also when the environment asks for it; text is left to the parser."""
    code, out = call(["-o", "json", *words])
    assert (code, json.loads(out)["error"]["code"]) == (2, "E_USAGE")
    code, out = call(["--output=ndjson", *words])
    assert (code, json.loads(out)["_meta"]["error"]["code"]) == (2, "E_USAGE")
    assert call(words) == (2, "")
    monkeypatch.setenv("HOLDFAST_OUTPUT", "json")
    code, out = call(words)
    assert (code, json.loads(out)["error"]["hint"].endswith("--help.")) == (2, True)


def click_group(run):
    group = options.command_class(click.Group)

    @click.group(cls=group)
    def program(): ...

    @program.group(cls=group)
    def email(): ...

    @email.command("resync", cls=options.command_class(click.Command))
    @click.option("--loud", is_flag=True)
    @options.click
    def resync(batch, loud):
        run(batch, loud=loud)

    def call(words):
        answer = click.testing.CliRunner().invoke(program, words)
        return answer.exit_code, answer.stdout

    return call


def typer_group(run):
    program = typer.Typer(cls=options.command_class(typer.core.TyperGroup))
    email = typer.Typer(cls=options.command_class(typer.core.TyperGroup))
    program.add_typer(email, name="email")

    @email.callback()
    def about_email(): ...

    @email.command("resync", cls=options.command_class(typer.core.TyperCommand))
    @options.typer
    def resync(batch: options.BatchArguments, loud: bool = False):
        run(batch, loud=loud)

    def call(words):
        answer = typer.testing.CliRunner().invoke(program, words)
        return answer.exit_code, answer.stdout

    return call


def argparse_root(run, capsys):
    def parse_and_run(parser, words):
        namespace = parser.parse_args(words)
        run(options.batch_arguments(namespace), loud=namespace.loud)

    def call(words):
        program = argparse.ArgumentParser()
        options.add_output_argument(program)
        email = program.add_subparsers(dest="group", required=True).add_parser("email")
        options.add_output_argument(email)
        resync = email.add_subparsers(dest="command", required=True).add_parser("resync")
        resync.add_argument("--loud", action="store_true")
        options.add_arguments(resync)
        with pytest.raises(SystemExit) as finished:
            parse_and_run(program, words)
        return finished.value.code, capsys.readouterr().out

    return call


@pytest.fixture(params=["click", "typer", "argparse"])
def program(request, work, capsys):
    """A program with a group of commands, which takes ``--output`` before the name of the command."""
    match request.param:
        case "click":
            return click_group(work)
        case "typer":
            return typer_group(work)
        case _:
            return argparse_root(work, capsys)


def test_the_format_stands_before_the_command_or_behind_it(program):
    """ROOMS D8: the root takes it for all its commands; a command's own one wins, and nothing outlives the call."""
    line = ["email", "resync", "--range", "1-2"]
    for words in (
        ["-o", "json", *line],
        ["--output=json", *line],
        ["-ojson", *line],
        ["-o", "text", *line, "-o", "json"],
    ):
        code, out = program(words)
        assert (code, json.loads(out)["data"]["summary"]["succeeded"]) == (0, 2), words
    code, out = program(["-o", "json", *line, "--loud", "-o", "ndjson"])
    assert (code, len(out.splitlines()) > 2) == (0, True)
    code, out = program([*line, "--once"])
    assert (code, out.startswith("{")) == (13, False)
    assert os.environ.get("HOLDFAST_OUTPUT") is None


@pytest.mark.parametrize(
    "words",
    [["bogus"], ["email"], ["email", "bogus"], ["email", "resync", "--bogus"], ["email", "resync", "--jobs", "x"]],
    ids=" ".join,
)
def test_usage_errors_below_a_root_come_in_its_format(program, words):
    """Whatever part of the line is wrong."""
    code, out = program(["-o", "json", *words])
    assert (code, json.loads(out)["error"]["code"]) == (2, "E_USAGE")
    assert not program(words)[1].startswith("{")


def test_a_root_refuses_an_unknown_format(program):
    code, _ = program(["-o", "yaml", "email", "resync", "--range", "1-2"])
    assert code == 2


def test_a_group_keeps_an_output_of_its_own(work):
    """The option of a user's group wins: the class adds none."""
    group = options.command_class(click.Group)

    @click.group(cls=group)
    @click.option("-o", "--out", help="A file.")
    def program(out): ...

    answer = click.testing.CliRunner().invoke(program, ["--help"])
    assert ("A file." in answer.stdout, "--output" in answer.stdout) == (True, False)


def test_every_option_reaches_the_run():
    values = {"range": "1-9", "jobs": 3, "max_failures": 0, "deadline": "2h", "fresh": True, "no_retry_failed": True}
    run_options = options.BatchArguments(values).run
    assert run_options == {
        "jobs": 3, "max_failures": 0, "max_total_failures": None, "max_failure_rate": None, "deadline": "2h",
        "limit": None, "resume_from": None, "fresh": True, "allow_concurrent": False, "wait": False,
        "accept_drift": False, "progress_every": None, "checkpoint": None, "output": None, "retry_failed": False, "source": "range 1-9",
            "where": "here", "shards": 3, "rate": None, "conflicts": [], "once": False, "dry_run": False, "name": None,
            "inputs": [], "only": None,
    }  # fmt: skip


@pytest.mark.parametrize("values", [{}, {"range": "1-2", "ids": "1"}, {"range": "2-1"}, {"range": "x"}])
def test_units_are_named_in_exactly_one_way(values):
    """E3: a program of a user ends with exit 2; the commands of Holdfast report the error themselves."""
    work = holdfast.Holdfast("sqlite:///never-opened.db").unit(name="x")(lambda key: None)
    with pytest.raises(SystemExit) as finished:
        options.BatchArguments(values).keys(work)
    assert finished.value.code == 2
    with pytest.raises(InvalidInput):
        options.BatchArguments(values, exits=False).keys(work)


def test_lines_come_from_stdin(monkeypatch, tmp_path):
    app = holdfast.Holdfast("sqlite:///never-opened.db")
    function = app.unit(name="x")(lambda key: None)
    (tmp_path / "keys").write_text("a\n\nb\n")
    with (tmp_path / "keys").open() as lines:
        monkeypatch.setattr(sys, "stdin", lines)
        assert list(options.BatchArguments({"from": "-"}).keys(function)) == ["a", "b"]
    assert options.BatchArguments({"from": str(tmp_path / "keys"), "only": "b"}).run["only"] == ["b"]


def test_a_file_is_absolute_in_the_identity_and_a_stream_needs_a_name(monkeypatch, tmp_path):
    """D3: the text of an option is not the identity of a list."""
    (tmp_path / "keys").write_text("a\n")
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)
    for file in ("keys", "./keys", "nothing"):
        assert options.BatchArguments({"from": file}).source == f"from {tmp_path.resolve() / file}"
    for stream in ("-", "pipe", "/dev/null"):
        with pytest.raises(InvalidInput, match=f"--from {stream} needs --name"):
            _ = options.BatchArguments({"from": stream}, exits=False).run
        with pytest.raises(SystemExit) as finished:
            _ = options.BatchArguments({"from": stream}).run
        assert finished.value.code == 2
        assert options.BatchArguments({"from": stream, "name": "monday"}).run["name"] == "monday"

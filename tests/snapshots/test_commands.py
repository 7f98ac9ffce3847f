"""Snapshots of every command: its help, and what it answers in each format."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from holdfast.cli.main import cli
from tests.snapshots.conftest import Ended
from tests.snapshots.files import check, check_names
from tests.snapshots.lines import HELP_ALONE, LINES
from tests.snapshots.plain import pretty_json, pretty_lines

FORMATS = {"text": str, "json": pretty_json, "ndjson": pretty_lines}
ERRORS = Path(__file__).parents[2] / "docs" / "reference" / "errors.md"


def commands(group: click.Group = cli, path: str = "") -> Iterator[str]:
    """All commands and groups of commands, by their words; the program itself has none."""
    yield path
    with click.Context(group) as ctx:
        for name in group.list_commands(ctx):
            found, words = group.get_command(ctx, name), f"{path} {name}".strip()
            if isinstance(found, click.Group):
                yield from commands(found, words)
            else:
                yield words


COMMANDS = tuple(commands())


def file_of(command: str) -> str:
    return command.replace(" ", "-") or "holdfast"


def lines_of(command: str) -> list[str]:
    """The lines for a command; every error is explained."""
    lines = list(LINES.get(command, ()))
    if command == "explain":
        lines += sorted(set(re.findall(r"`(E_[A-Z_]+)`", ERRORS.read_text(encoding="utf-8"))))
    return lines


def formats_of(line: str) -> tuple[str, ...]:
    """The formats in which a line is run; one that names a format itself is run as it is."""
    return ("text",) if "-o wide" in line else tuple(FORMATS)


def test_every_command_has_lines():
    """Add lines for a new command to tests/snapshots/lines.py."""
    assert set(LINES) | HELP_ALONE == set(COMMANDS)


def test_every_command_has_a_snapshot():
    check_names("cli", {file_of(command) for command in COMMANDS})


@pytest.mark.parametrize("command", COMMANDS, ids=file_of)
def test_a_command_answers_as_before(command: str, call: Callable[..., Ended]):
    told = [_told(command, "--help", call)]
    told += [_told(command, line, call, shape) for line in lines_of(command) for shape in formats_of(line)]
    check("cli", file_of(command), "\n".join(told))


def _told(command: str, line: str, call: Callable[..., Ended], shape: str = "text") -> str:
    """One call as the snapshot has it: the line, the exit code, stdout, stderr."""
    asked = [] if shape == "text" else ["-o", shape]
    words, _, stdin = line.partition(" <<< ")
    ended = call([*command.split(), *asked, *shlex.split(words)], stdin)
    parts = [" ".join(["$ holdfast", *command.split(), *asked, *([line] if line else [])]), f"exit {ended.code}"]
    for name, text in (("stdout", FORMATS[shape](ended.out)), ("stderr", ended.err)):
        if text:
            parts += [f"--- {name}", "\n".join(part.rstrip() for part in text.rstrip("\n").split("\n"))]
    return "\n".join(parts) + "\n"

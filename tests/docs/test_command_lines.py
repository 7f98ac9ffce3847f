"""Every ``holdfast …`` line of the pages names a command that exists, with options that it has.

Every command has examples in its help, and the parser accepts them.
"""

from __future__ import annotations

import re
import shlex
from itertools import groupby

import click
import pytest

from tests.docs.test_snippets import ROOT
from tests.support.reference import generate

PAGES = [
    path.relative_to(ROOT).as_posix()
    for path in (
        *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "docs/guarantees.md", "docs/guarantees-tests.md")),
        *(path for folder in ("docs/guides", "examples", "deploy") for path in sorted((ROOT / folder).rglob("*.md"))),
    )
]
COMMANDS = dict(generate.commands())
GROUPS = {path[:length] for path in COMMANDS for length in range(len(path))}
#: Their options end at the name of the command that they run.
FOREIGN = {("add",), ("run",), ("sweep",)}


def lines_of(markdown: str) -> list[str]:
    """The command lines of a page, without pipes and comments: those of its shell blocks, and its inline code."""
    block = r"^```(?:sh|console|text)\n(.*?)^```$"
    code = "\n".join(re.findall(block, markdown, re.DOTALL | re.MULTILINE)).replace("\\\n", " ").splitlines()
    code += re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", markdown, flags=re.DOTALL | re.MULTILINE))
    pieces = (piece.strip(" $\"'") for line in code for piece in re.split(r"\$\(|&&|\||;|#|>", line))
    return [match[1] for piece in pieces if (match := re.search(r"^(?:.*[\s=])?holdfast ([a-z-].*)", piece))]


def problem_of(line: str) -> str | None:
    """Why a command line cannot work. None: it can."""
    words = re.sub(r"[…)\"'&]", " ", line).split()
    path: tuple[str, ...] = ()
    while words and (*path, words[0]) in {*COMMANDS, *GROUPS}:
        path = (*path, words.pop(0))
    if path not in COMMANDS:
        return f"no command {words[0]!r}" if words and words[0].islower() and words[0].isalpha() else None
    options = [option for option in COMMANDS[path].params if isinstance(option, click.Option)]
    known = {"--help", *(name for option in options for name in (*option.opts, *option.secondary_opts))}
    for word in words:
        if word == "--" or (path in FOREIGN and word == words[0] and not word.startswith("-")):
            return None
        if re.fullmatch(r"--?[a-z][a-z-]*", name := word.partition("=")[0]) and name not in known:
            return f"no option {name!r}"
    return None


def examples_of(help_text: str) -> list[str]:
    """The lines of the last block of a help, which has the examples."""
    _, _, block = help_text.partition("\n\n\b\nExamples:\n")
    return [line.strip() for line in block.splitlines()]


def calls_of(line: str) -> list[list[str]]:
    """The words of each call of ``holdfast`` in a line of shell, also of a call in ``"$(…)"``."""
    inner = re.findall(r"\$\((.*?)\)", line)
    lexer = shlex.shlex(re.sub(r"\$\(.*?\)", "1", line), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    pieces = [list(words) for operator, words in groupby(lexer, lambda word: not word.strip("();<>|&")) if not operator]
    calls = [piece[piece.index("holdfast") + 1 :] for piece in pieces if "holdfast" in piece[:2]]
    return [*calls, *(call for each in inner for call in calls_of(each))]


def parse(words: list[str]) -> tuple[str, ...]:
    """Parse the words of a call as the program does, without running it, and return the command's name."""
    path = next(tuple(words[:length]) for length in (2, 1) if tuple(words[:length]) in COMMANDS)
    COMMANDS[path].make_context(" ".join(path), words[len(path) :])
    return path


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_a_command_has_examples_that_the_parser_accepts(path):
    """Issue 22: one to three, and one of them calls the command itself."""
    examples = examples_of(COMMANDS[path].help)
    assert 1 <= len(examples) <= 3
    calls = [call for line in examples for call in calls_of(line)]
    assert path in [parse(call) for call in calls]


def test_a_group_shows_whole_sentences():
    """Issue 22: the first sentence of a help fits into one line of the list of commands."""
    groups = {path[0] for path in COMMANDS if len(path) > 1}
    cut = {path: text for path in COMMANDS if path[0] in groups and (text := short_help(path)).endswith("...")}
    assert cut == {}


def short_help(path: tuple[str, ...]) -> str:
    """The line of a command in the list of its group, which has 78 columns."""
    longest = max(len(other[-1]) for other in COMMANDS if other[0] == path[0])
    return COMMANDS[path].get_short_help_str(78 - 6 - longest)


@pytest.mark.parametrize("line", ["holdfast ls --stat dead", "holdfast show", "holdfast batch export 7"])
def test_a_wrong_example_is_refused(line):
    with pytest.raises(click.UsageError):
        parse(*calls_of(line))


def test_calls_are_read_from_lines_of_shell():
    line = "until holdfast audit --expect '2 > 1'; do sleep 5; done | holdfast up --slots \"$(holdfast size -q)\" > log"
    assert calls_of(line) == [["audit", "--expect", "2 > 1"], ["up", "--slots", "1"], ["size", "-q"]]


@pytest.mark.parametrize("name", PAGES)
def test_the_commands_of_a_page_exist(name):
    lines = lines_of((ROOT / name).read_text(encoding="utf-8"))
    assert {line: problem for line in lines if (problem := problem_of(line))} == {}


@pytest.mark.parametrize("line", ["lss --state dead", "ls --stat dead", "batch start 7", "queue set mail --limits 4"])
def test_a_wrong_line_is_noticed(line):
    assert problem_of(line)


@pytest.mark.parametrize(
    "line", ["ls --state dead", "run make --all", "add --retry 2 -- make --all", "batch", "--version"]
)
def test_a_right_line_passes(line):
    assert problem_of(line) is None


def test_lines_are_read_from_blocks_and_inline_code():
    page = "Use `holdfast ls -n 5 | wc`.\n\n```sh\nA=1 holdfast up \\\n  --detach  # wait\nmake run\n```\n"
    assert [line.split() for line in lines_of(page)] == [["up", "--detach"], ["ls", "-n", "5"]]

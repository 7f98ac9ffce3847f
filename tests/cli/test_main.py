"""``holdfast`` without a command."""

from __future__ import annotations

from holdfast.cli.main import COMMANDS


def test_no_command_prints_the_list_of_commands(run):
    """``holdfast`` alone prints the list of commands."""
    answer = run()
    assert "worker" in answer.out + answer.err


def test_the_help_lists_commands_by_their_purpose(run):
    """E8: each command has one place, and the first heading is for newcomers."""
    text = run("--help").out
    headings = [line[:-1] for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert headings == ["Options", *COMMANDS]
    assert headings[1] == "Start here"
    names = [name for commands in COMMANDS.values() for name in commands]
    assert len(names) == len(set(names))
    assert all(f"\n  {name} " in text for name in names)


def test_the_help_of_a_command_begins_with_its_own_options(run):
    """E8: the shared options take one line, and --help-all explains them."""
    short, full = run("ls", "--help").out, run("ls", "--help-all").out
    assert "sqlite:///file.db" not in short
    assert all(word in short.rpartition("\nAlso: ")[2] for word in ("-o json", "--url"))
    assert full.startswith(short.partition("\nAlso: ")[0])
    assert "sqlite:///file.db" in full.partition("Shared options:")[2]
    assert "-n, --limit N " in short
    assert "x<=" not in short


def test_a_paragraph_under_a_heading_keeps_its_lines(run):
    """Issue 22: click would wrap the examples of a help into one paragraph."""
    assert "\n  Examples:\n    holdfast drain --timeout 30m" in run("drain", "--help").out
    assert "\n  Exit codes:\n    0   no job is running" in run("audit", "--help").out

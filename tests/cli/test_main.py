"""``holdfast`` without a command."""

from __future__ import annotations


def test_no_command_prints_the_list_of_commands(run):
    """``holdfast`` alone prints the list of commands."""
    answer = run()
    assert "worker" in answer.out + answer.err

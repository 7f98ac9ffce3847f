"""Shell syntax in words and lines of commands."""

from __future__ import annotations

import pytest

from holdfast.domain.commands.shell_syntax import check_executable, check_line, check_operators
from holdfast.errors import InvalidInput

SHELL_WORDS = (
    "|",
    "||",
    "|&",
    "&&",
    "&",
    ";",
    ">",
    ">>",
    "<",
    "<<",
    "2>",
    "2>&1",
    "&>all",
    ">out.txt",
    "2>/dev/null",
    "<in",
)
SHELL_LINES = (
    "echo hi > out.txt",
    "sort<in",
    "a | b",
    "cd x; make",
    "a && b",
    "sleep 5 &",
    "make 2>&1",
    "echo $HOME",
    'echo "$HOME"',
    "echo `id`",
    "echo $(id)",
    "find . -exec rm {} ;",
    "make # all of it",
)
PLAIN_LINES = (
    "cut -d '|' -f 1 file",
    "find . -exec rm {} \\;",
    "curl http://localhost/?a=1&b=2",
    "awk '{print $1}' file",
    "echo '$HOME' \"it's\"",
    "tag a#b",
    "find . -name *.py",
)


@pytest.mark.parametrize("word", SHELL_WORDS)
def test_an_operator_as_a_word_is_refused(word):
    """E5.2: a program would receive it as an argument."""
    with pytest.raises(InvalidInput) as refused:
        check_operators(["echo", "hi", word, "x"])
    assert "--shell" in str(refused.value.hint)


def test_words_that_only_resemble_operators_are_taken():
    """Quoted text of programs, and the end of find's -exec."""
    check_operators(["p", "a|b", "<b>done</b>", "x > y", "-", ">=1", "select 1;", "-d;"])
    check_operators(["find", ".", "-exec", "rm", "{}", ";"])
    with pytest.raises(InvalidInput):
        check_operators(["cd", "x", ";", "find", "-exec"])


@pytest.mark.parametrize("line", SHELL_LINES)
def test_a_line_with_shell_syntax_is_refused(line):
    """E5.2: without a shell it would run as words, with another result."""
    with pytest.raises(InvalidInput) as refused:
        check_line(line)
    assert "--shell" in str(refused.value.hint)


@pytest.mark.parametrize("line", PLAIN_LINES)
def test_a_line_that_a_shell_reads_as_words_is_taken(line):
    check_line(line)


@pytest.mark.parametrize("word", ["X=1", "label=nightly", "3", "finished:3", "--label", "-x"])
def test_a_value_in_place_of_a_program_is_refused(word):
    """E5.1: --after 2 3 made 3 the program."""
    with pytest.raises(InvalidInput) as refused:
        check_executable(word)
    assert refused.value.hint
    check_executable(f"./{word}")

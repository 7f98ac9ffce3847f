"""Shell syntax in the words of a command. Commands run without a shell, which would read such words differently."""

from __future__ import annotations

import re
from collections.abc import Sequence

from holdfast.errors import InvalidInput

#: A word that is an operator, or a redirection with its file.
_OPERATOR = re.compile(
    r"""\|\|? | \|& | &&? | ;;? | <<<? | [<>]                   # a pipe, a list, a redirection
      | (?:\d*|&)>{1,2}(?:&?[\w./~-]+)? | \d*<&?[\w./~-]+       # a redirection with its number and its file
    """,
    re.VERBOSE,
)
#: Options of find that end with the word ";".
_EXEC = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_QUOTED = re.compile(r"""'[^']*' | "(?P<expanded>(?:\\.|[^"\\])*)" | \\.""", re.VERBOSE | re.DOTALL)
_EXPANSION = re.compile(r"(?<!\\)(?:`|\$[A-Za-z_{(])")
#: Characters that a shell reads where they are not quoted. An & inside a word, as in a URL, is taken as it is.
_UNQUOTED = re.compile(r"[|;<>]+|&&?(?=[\s>]|$)|(?:^|(?<=\s))\#|`|\$[A-Za-z_{(]")
#: A quick test: lines without these characters have no shell syntax.
_SUSPICIOUS = re.compile(r"[|;<>&#`$]")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=")
_ADD_SHELL = "Add --shell to run it in a shell"


def shell_words(text: str) -> tuple[str, ...]:
    """The command that runs *text* in a shell."""
    if not text.strip():
        raise InvalidInput("a command has at least one word", hint="Write: holdfast add --shell 'sort < in > out'.")
    return ("/bin/sh", "-c", text)


def check_operators(words: Sequence[str]) -> None:
    """Refuse words that are shell operators: the program would receive them as arguments."""
    for position, word in enumerate(words):
        if _OPERATOR.fullmatch(word) and not (word == ";" and _EXEC & set(words[:position])):
            raise _refusal(word, "--no-shell if the program itself takes this word")


def check_line(line: str, *, remedy: str = _ADD_SHELL) -> None:
    """Refuse a line of words that has shell syntax outside of quotes; *remedy* begins the hint."""
    if not _SUSPICIOUS.search(line):
        return

    def unquoted(match: re.Match[str]) -> str:
        return "$x" if match["expanded"] and _EXPANSION.search(match["expanded"]) else "_"

    if match := _UNQUOTED.search(_QUOTED.sub(unquoted, line)):
        syntax = "$" if match[0].startswith("$") else match[0]
        raise _refusal(syntax, "single quotes around it if the program takes it as it is", remedy)


def check_executable(word: str) -> None:
    """Refuse a first word that is not a program, but a value or a variable that belongs before it."""
    if assigned := _ASSIGNMENT.match(word):
        hint = f"Write --env {assigned[1]}=…, or add --shell. An option takes several values with commas: --after 2,3."
        raise InvalidInput(f"{word!r:.80} is a variable, not a program", hint=hint)
    if word.isdecimal() or word.partition(":")[0] in ("ok", "finished", "failed"):
        raise InvalidInput(f"{word!r:.80} is not a program", hint="Write several jobs with commas: --after 2,3.")
    if word.startswith("-"):
        raise InvalidInput(f"{word!r:.80} is not a program", hint="Write options before the -- and the program.")


def _refusal(syntax: str, literally: str, remedy: str = _ADD_SHELL) -> InvalidInput:
    hint = f"{remedy}, or {literally}."
    return InvalidInput(f"{syntax!r:.40} is for a shell, and no shell reads this command", hint=hint)

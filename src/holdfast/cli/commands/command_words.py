"""The words of a command at the end of a line: where they begin, and mistakes in front of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from holdfast.cli.command import HoldfastCommand
from holdfast.domain.commands.shell_syntax import check_executable, check_operators, shell_words
from holdfast.errors import InvalidInput

argv_argument = click.argument("argv", nargs=-1, type=click.UNPROCESSED, metavar="[--] PROGRAM [WORD]...")
shell_option = click.option(
    "--shell/--no-shell",
    default=None,
    help="Run the words as one line in /bin/sh, or pass words such as | and > unchanged. [refuse such words]",
)


class WordsCommand(HoldfastCommand):
    """A command that ends with a program. Its own options end there: all later words belong to the program."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.allow_interspersed_args = False

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does, but never take an option, or the --, for the value of the option before it."""
        rest = super().parse_args(ctx, args)
        options = [param for param in self.params if isinstance(param, click.Option)]
        names = {"--", *(name for option in options for name in (*option.opts, *option.secondary_opts))}
        for option in options:
            value = ctx.params.get(option.name or "")
            for text in value if isinstance(value, tuple) else (value,):
                if text in names:
                    raise click.UsageError(f"{option.opts[-1]} needs a value, and {text!r} follows it.", ctx)
        return rest


def command_words(argv: Sequence[str], *, shell: bool | None) -> tuple[str, ...]:
    """The words of a program; *shell*: run them in a shell, take them as they are, or (None) refuse shell syntax."""
    if shell:
        return shell_words(" ".join(argv))
    if shell is None and argv:
        check_first_word(argv)
        check_operators(argv)
    return tuple(argv)


def check_first_word(argv: Sequence[str]) -> None:
    """Refuse a first word that cannot be a program, such as a whole command line in quotes."""
    check_executable(argv[0])
    if len(argv) == 1 and len(argv[0].split()) > 1 and not Path(argv[0]).exists():
        hint = "Add --shell, or write the words without quotes around all of them."
        raise InvalidInput(f"{argv[0]!r:.80} is a whole line, not a program", hint=hint)

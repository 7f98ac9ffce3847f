"""``exit-codes``, ``explain`` and ``completion``: commands about the command line itself."""

from __future__ import annotations

import click
from msgspec import Struct

from holdfast.cli.command import Items, command
from holdfast.cli.session import CliSession
from holdfast.cli.text import Column, Table, with_table
from holdfast.domain.names import nearest_name
from holdfast.errors import NotFound
from holdfast.errors.table import EXIT_CODES, ErrorExplanation, ExitCode, error_table


class Script(Struct, frozen=True):
    """A script for a shell."""

    shell: str
    script: str


CODES: Table[ExitCode] = Table(
    (
        Column("CODE", lambda row: row.code),
        Column("NAME", lambda row: row.name),
        Column("MEANING", lambda row: row.meaning),
    )
)


@command("exit-codes", answers=Items("exit_codes", ExitCode))
@with_table(CODES)
def exit_codes(session: CliSession, *, table: Table[ExitCode]) -> None:
    """List the exit codes. All commands use the same ones.

    Examples:
      holdfast exit-codes
    """
    session.output.items("exit_codes", EXIT_CODES.values(), table.lines)


@command("explain", answers=ErrorExplanation)
@click.argument("code")
def explain(session: CliSession, *, code: str) -> None:
    """Explain an error code: what it means and what to do.

    Examples:
      holdfast explain E_LEASE_LOST
    """
    known = error_table()
    row = known.get(code.upper())
    if row is None:
        near = nearest_name(code.upper(), known)
        hint = f"Did you mean {near}?" if near else "docs/reference/errors.md lists them all."
        raise NotFound(f"there is no error code {code!r}", hint=hint)
    number = f"exit {row.exit_code}" if row.http_status is None else f"HTTP {row.http_status}"
    lines = [f"{row.code} ({number})", "", row.meaning]
    session.output.value(row, lambda: [*lines, *(["", f"What to do: {row.hint}"] if row.hint else [])])


@command("completion", answers=Script)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(session: CliSession, *, shell: str) -> None:
    """Print the completion script for a shell. Install it once; then Tab completes commands and options.

    Examples:
      holdfast completion bash >> ~/.bashrc
      holdfast completion fish > ~/.config/fish/completions/holdfast.fish
    """
    from click.shell_completion import get_completion_class

    from holdfast.cli.main import cli

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(cli, {}, "holdfast", "_HOLDFAST_COMPLETE").source()
    session.output.value(Script(shell, script), script.splitlines)

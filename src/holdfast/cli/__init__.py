"""The command line. Sub-commands are imported when they are called."""

from __future__ import annotations

import importlib

import click

from holdfast._version import __version__
from holdfast.errors import HoldfastError

COMMANDS = {"worker": "Run jobs."}


class LazyGroup(click.Group):
    """Knows the names of its commands, and imports only the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"holdfast.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="holdfast")
def cli() -> None:
    """Durable jobs for long-running work."""


def main() -> None:
    """The ``holdfast`` program: errors become one line, a hint and an exit code."""
    try:
        cli.main(standalone_mode=True)
    except HoldfastError as error:
        click.echo(f"error: {error.message} [{error.code}]", err=True)
        if error.hint:
            click.echo(f"hint: {error.hint}", err=True)
        raise SystemExit(error.exit_code) from None

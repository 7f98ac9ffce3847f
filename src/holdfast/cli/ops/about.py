"""``config``, ``exit-codes``, ``explain`` and ``completion``: commands about the command line itself."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import Any

import click
from msgspec import Struct

from holdfast.cli.command import CommandGroup, Items, command
from holdfast.cli.session import CliSession
from holdfast.cli.text import table
from holdfast.domain.access.masking import mask_store_url
from holdfast.domain.commands.command import mask_variables as masked_variables
from holdfast.domain.names import nearest_name
from holdfast.errors import NotFound
from holdfast.errors.table import EXIT_CODES, ErrorExplanation, ExitCode, error_table
from holdfast.output.printer import Line
from holdfast.settings import SettingValue


class Script(Struct, frozen=True):
    """A script for a shell."""

    shell: str
    script: str


@click.group("config", cls=CommandGroup)
def config() -> None:
    """Show the configuration and where it comes from."""


@command("show", answers=Items("settings", SettingValue))
@click.option("--origin", is_flag=True, help="Say where each value came from.")
def show(session: CliSession, *, origin: bool) -> None:
    """Show every setting that is in force.

    From weak to strong: the default, holdfast.toml, [tool.holdfast] of pyproject.toml, HOLDFAST_*, flags.
    """
    values = [_in_force(session, leaf) for each in session.loaded.values.values() for leaf in flatten(each)]
    heads = ("SETTING", "VALUE", "ORIGIN") if origin else ("SETTING", "VALUE")

    def rows(settings: Iterable[SettingValue]) -> Iterator[Line]:
        return table(heads, ([each.name, _format_value(each.value), each.origin][: len(heads)] for each in settings))

    session.output.items("settings", values, rows)


config.add_command(show)


def flatten(setting: SettingValue) -> list[SettingValue]:
    """A table key by key, such as ``command.memory``; any other setting unchanged."""
    if not isinstance(setting.value, dict) or not setting.value:
        return [setting]
    inner = (SettingValue(f"{setting.name}.{key}", value, setting.origin) for key, value in setting.value.items())
    return [leaf for each in inner for leaf in flatten(each)]


def _in_force(session: CliSession, setting: SettingValue) -> SettingValue:
    name, value, origin = setting.name, setting.value, setting.origin
    if name in session.flags:
        value, origin = session.flags[name], f"--{name}"
    return SettingValue(name, _without_secrets(name, value), origin)


def _without_secrets(name: str, value: Any) -> Any:
    """Mask the password of the store's URL and variables with secret names."""
    if name == "url":
        return mask_store_url(value)
    preset, _, variable = name.rpartition(".env.")
    return masked_variables({variable: value})[variable] if preset else value


def _format_value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(item if isinstance(item, str) else shlex.join(item) for item in value)
    return "" if value is None or isinstance(value, dict) else str(value)


@command("exit-codes", answers=Items("exit_codes", ExitCode))
def exit_codes(session: CliSession) -> None:
    """List the exit codes, which are the same for all commands."""
    session.output.items(
        "exit_codes",
        EXIT_CODES.values(),
        lambda rows: table(("CODE", "NAME", "MEANING"), ([str(row.code), row.name, row.meaning] for row in rows)),
    )


@command("explain", answers=ErrorExplanation)
@click.argument("code")
def explain(session: CliSession, *, code: str) -> None:
    """Explain an error code, like E_LEASE_LOST: what it means and what to do."""
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
    """Print the script that makes a shell complete commands and options.

    \b
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

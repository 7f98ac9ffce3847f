"""``config``, ``exit-codes``, ``explain`` and ``completion``: the program about itself."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Iterable, Iterator
from typing import Any

import click
from msgspec import Struct

from holdfast import errors
from holdfast.cli.command import CommandGroup, Items, command
from holdfast.cli.exit_codes import EXITS
from holdfast.cli.session import CliSession
from holdfast.cli.text import table
from holdfast.domain.access.masking import mask_store_url
from holdfast.domain.commands.command import masked as masked_variables
from holdfast.domain.text import nearest
from holdfast.errors import HoldfastError, NotFound
from holdfast.output.printer import Line
from holdfast.settings import flattened


class SettingView(Struct, frozen=True):
    """A setting that is in force, and where it comes from."""

    name: str
    value: Any
    origin: str


class ExitCode(Struct, frozen=True):
    """What an exit code says."""

    code: int
    name: str
    meaning: str


class Explained(Struct, frozen=True):
    """What an error code says."""

    code: str
    #: None: it comes over HTTP, with a status.
    exit_code: int | None
    meaning: str
    hint: str
    retryable: bool
    http_status: int | None = None


class Script(Struct, frozen=True):
    """A script for a shell."""

    shell: str
    script: str


@click.group("config", cls=CommandGroup)
def config() -> None:
    """Show the configuration and where it comes from."""


@command("show", answers=Items("settings", SettingView))
@click.option("--origin", is_flag=True, help="Say where each value came from.")
def show(session: CliSession, *, origin: bool) -> None:
    """Show every setting that is in force.

    From weak to strong: the default, holdfast.toml, [tool.holdfast] of pyproject.toml, HOLDFAST_*, flags.
    """
    found = [_setting(session, *part) for each in session.configured.values() for part in flattened(each)]
    session.output.items("settings", found, lambda rows: _settings_table(rows, origin=origin))


config.add_command(show)


def _setting(session: CliSession, name: str, value: Any, origin: str) -> SettingView:
    if name in session.flags:
        value, origin = session.flags[name], f"--{name}"
    return SettingView(name, _without_secrets(name, value), origin)


def _without_secrets(name: str, value: Any) -> Any:
    """A value that may be seen: no passwords of stores, and no variables whose names sound like secrets."""
    if name == "url":
        return mask_store_url(value)
    table, _, variable = name.rpartition(".env.")
    return masked_variables({variable: value})[variable] if table else value


def _settings_table(settings: Iterable[SettingView], *, origin: bool) -> Iterator[Line]:
    heads = ("SETTING", "VALUE", "ORIGIN") if origin else ("SETTING", "VALUE")
    rows = ([each.name, _shown(each.value), each.origin][: len(heads)] for each in settings)
    return table(heads, rows)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(part if isinstance(part, str) else shlex.join(part) for part in value)
    if isinstance(value, dict):
        return ""
    return "" if value is None else str(value)


@command("exit-codes", answers=Items("exit_codes", ExitCode))
def exit_codes(session: CliSession) -> None:
    """List the exit codes, which are the same for all commands."""
    codes = [ExitCode(code, name, text) for code, (name, text) in EXITS.items()]
    session.output.items(
        "exit_codes",
        codes,
        lambda rows: table(("CODE", "NAME", "MEANING"), ([str(row.code), row.name, row.meaning] for row in rows)),
    )


@command("explain", answers=Explained)
@click.argument("code")
def explain(session: CliSession, *, code: str) -> None:
    """Explain an error code, like E_LEASE_LOST: what it means and what to do."""
    known = {each.code: each for each in [*_of_the_web(), *_of_the_program()]}
    found = known.get(code.upper())
    if found is None:
        raise NotFound(f"there is no error code {code!r}", hint=_nearest(code.upper(), list(known)))
    number = f"exit {found.exit_code}" if found.http_status is None else f"HTTP {found.http_status}"
    lines = [f"{found.code} ({number})", "", found.meaning]
    session.output.value(found, lambda: [*lines, *(["", f"What to do: {found.hint}"] if found.hint else [])])


def _of_the_program() -> Iterator[Explained]:
    for each in all_errors():
        yield Explained(each.code, each.exit_code, inspect.getdoc(each) or "", each.hint, each.retryable)


def _of_the_web() -> Iterator[Explained]:
    """What those meet who ask over HTTP; nothing where the extra is not installed."""
    try:
        from holdfast.web.errors import HttpError
    except ImportError:
        return
    found: list[type[HttpError]] = [HttpError, *HttpError.__subclasses__()]
    for each in found:
        meaning = inspect.getdoc(each) or ""
        yield Explained(each.code, None, meaning, each.hint, each.retryable, http_status=each.status)


def _nearest(code: str, known: list[str]) -> str:
    near = nearest(code, known)
    return f"Did you mean {near}?" if near else "docs/reference/errors.md lists them all."


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


def all_errors() -> list[type[HoldfastError]]:
    classes = [value for value in vars(errors).values() if inspect.isclass(value)]
    return [found for found in classes if issubclass(found, HoldfastError)]

"""``config``, ``exit-codes`` and ``explain``: the program about itself."""

from __future__ import annotations

import inspect

import click

from holdfast import errors
from holdfast.cli.exits import EXITS
from holdfast.cli.render import table
from holdfast.cli.session import Session
from holdfast.cli.shared import Group, command
from holdfast.cli.worker import masked
from holdfast.config import origin_of_url
from holdfast.domain.kind import suggest
from holdfast.errors import HoldfastError, NotFound


@click.group("config", cls=Group)
def config() -> None:
    """Show the configuration and where it comes from."""


@command("show")
@click.option("--origin", is_flag=True, help="Say where each value came from.")
def show(session: Session, *, origin: bool) -> None:
    """Show every setting that is in force."""
    given = session.settings.get("url")
    url, source = (given, "--url") if given else origin_of_url(file=session.config)
    settings = [{"name": "url", "value": masked(url), "origin": source}]
    heads = ("SETTING", "VALUE", "ORIGIN") if origin else ("SETTING", "VALUE")
    rows = [[row["name"], row["value"], row["origin"]][: len(heads)] for row in settings]
    session.output.value({"settings": settings}, lambda: table(heads, rows))


config.add_command(show)


@command("exit-codes")
def exit_codes(session: Session) -> None:
    """List the exit codes, which are the same for all commands."""
    rows = [{"code": code, "name": name, "meaning": text} for code, (name, text) in EXITS.items()]
    lines = [[str(code), name, text] for code, (name, text) in EXITS.items()]
    session.output.items("exit_codes", rows, lambda _: table(("CODE", "NAME", "MEANING"), lines))


@command("explain")
@click.argument("code")
def explain(session: Session, *, code: str) -> None:
    """Explain an error code, like E_LEASE_LOST: what it means and what to do."""
    known = {found.code: found for found in all_errors()}
    found = known.get(code.upper())
    if found is None:
        raise NotFound(f"there is no error code {code!r}", hint=suggest(code.upper(), list(known)))
    data = {
        "code": found.code,
        "exit_code": found.exit_code,
        "meaning": inspect.getdoc(found) or "",
        "hint": found.hint,
        "retryable": found.retryable,
    }
    lines = [f"{found.code} (exit {found.exit_code})", "", str(data["meaning"])]
    session.output.value(data, lambda: [*lines, *(["", f"What to do: {found.hint}"] if found.hint else [])])


@command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(session: Session, *, shell: str) -> None:
    """Print the script that makes a shell complete commands and options.

    \b
    Examples:
      holdfast completion bash >> ~/.bashrc
      holdfast completion fish > ~/.config/fish/completions/holdfast.fish
    """
    from click.shell_completion import get_completion_class

    from holdfast.cli import cli

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(cli, {}, "holdfast", "_HOLDFAST_COMPLETE").source()
    session.output.value({"shell": shell, "script": script}, script.splitlines)


def all_errors() -> list[type[HoldfastError]]:
    classes = [value for value in vars(errors).values() if inspect.isclass(value)]
    return [found for found in classes if issubclass(found, HoldfastError)]

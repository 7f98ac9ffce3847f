"""Options that every command takes, before or after its name; and the program around them all."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import click

from holdfast.cli.session import Session
from holdfast.domain.names import nearest_name
from holdfast.output.printer import Format


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """Remember a shared option that was given; the last one on the line counts."""
    given = ctx.get_parameter_source(param.name or "") is click.core.ParameterSource.COMMANDLINE
    if given and param.name is not None:
        ctx.ensure_object(Session).set(param.name, value)
    return value


def shared_options() -> list[click.Option]:
    formats = click.Choice([str(known) for known in Format])
    options: list[dict[str, Any]] = [
        {"param_decls": ["-o", "--output"], "type": formats, "help": "How to print: for people, or for programs."},
        {"param_decls": ["--quiet"], "is_flag": True, "help": "Print the data alone."},
        {"param_decls": ["--verbose"], "is_flag": True, "help": "Say more, with tracebacks of what went wrong."},
        {"param_decls": ["--no-color"], "is_flag": True, "help": "Print without colours, as NO_COLOR does."},
        {"param_decls": ["--url"], "metavar": "URL", "help": "The store: sqlite:///file.db or postgresql://…"},
        {"param_decls": ["--config"], "metavar": "FILE", "help": "The configuration file to use."},
    ]
    return [click.Option(expose_value=False, callback=_keep, is_eager=True, **option) for option in options]


def with_options(*options: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command several options, in this order."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


class Items(NamedTuple):
    """An answer of many: a list under *name* in JSON, one line each in NDJSON."""

    name: str
    type: Any


class HoldfastCommand(click.Command):
    """A command with the shared options.

    *answers* is the type of what it prints for programs, or the name of one in cli/schemas.py, which
    then need not be loaded before a program asks; one that *changes* the store may need a key.
    """

    def __init__(self, *args: Any, answers: Any = None, changes: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += shared_options()
        self.answers = answers
        self.changes = changes

    def invoke(self, ctx: click.Context) -> Any:
        session = ctx.ensure_object(Session)
        session.creates = self.changes
        if self.changes:
            session.check_key()
        return super().invoke(ctx)


class CommandGroup(click.Group):
    """A group of commands with the shared options; those named in *lazy* are imported when they are called."""

    def __init__(self, *args: Any, lazy: dict[str, tuple[str, str]] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += shared_options()
        self._lazy = lazy or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._lazy})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self._lazy:
            module, _, name = self._lazy[cmd_name][0].partition(":")
            command: click.Command = getattr(importlib.import_module(f"holdfast.cli.{module}"), name)
            return command
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """As click does it, with the nearest command named when there is none of this name."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = nearest_name(args[0], self.list_commands(ctx))
            if near is None:
                raise
            raise click.UsageError(f"{error.message} Did you mean {near!r}?", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if not self._lazy:
            super().format_commands(ctx, formatter)
            return
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in sorted(self._lazy.items())])


def command(name: str, *, answers: Any, changes: bool = False) -> Callable[[Callable[..., Any]], HoldfastCommand]:
    """A command that gets the session first."""

    def make(function: Callable[..., Any]) -> HoldfastCommand:
        passing = click.make_pass_decorator(Session, ensure=True)(function)
        made = click.command(name, cls=HoldfastCommand, answers=answers, changes=changes)(passing)
        assert isinstance(made, HoldfastCommand)
        return made

    return make

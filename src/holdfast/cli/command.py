"""Command and group classes that add the shared options, before or after a command's name."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import click

from holdfast.cli.session import CliSession
from holdfast.domain.names import nearest_name
from holdfast.output.printer import Format


def _record_flag(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """Store a shared option from the command line in the session; the last occurrence wins."""
    from_line = ctx.get_parameter_source(param.name or "") is click.core.ParameterSource.COMMANDLINE
    if from_line and param.name is not None:
        ctx.ensure_object(CliSession).flags[param.name] = value
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
    return [click.Option(expose_value=False, callback=_record_flag, is_eager=True, **option) for option in options]


def with_options(*options: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add several options to a command; the help lists them in this order."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


class Items(NamedTuple):
    """An answer with many items: a list under *name* in JSON, one line each in NDJSON."""

    name: str
    type: Any


class _WithSharedOptions(click.Command):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += shared_options()

    def get_help_option_names(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - the same in every context
        # click caches the help option of the first context, so it must not depend on that context.
        return ["-h", "--help"]


class HoldfastCommand(_WithSharedOptions):
    """A command with the shared options.

    *answers* is the type of the printed answer, or its name in ``cli/schemas.py``. A name defers the
    import until the schema is needed. *changes* marks commands that write to the store. They create a missing one,
    unless *creates* is false.
    """

    def __init__(
        self, *args: Any, answers: Any = None, changes: bool = False, creates: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.answers = answers
        self.changes = changes
        self._creates = changes and creates

    def invoke(self, ctx: click.Context) -> Any:
        session = ctx.ensure_object(CliSession)
        session.changes, session.creates = self.changes, self._creates
        if self.changes:
            session.check_key()
        return super().invoke(ctx)


class CommandGroup(_WithSharedOptions, click.Group):
    """A group of commands with the shared options; it imports the commands in *lazy* when they are called."""

    def __init__(self, *args: Any, lazy: dict[str, tuple[str, str]] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
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
        """Resolve as click does; the error for an unknown command suggests the nearest one."""
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


def command(
    name: str,
    *,
    answers: Any,
    changes: bool = False,
    creates: bool = True,
    group: click.Group | None = None,
    cls: type[HoldfastCommand] = HoldfastCommand,
) -> Callable[[Callable[..., Any]], HoldfastCommand]:
    """Turn a function into a command, or a sub-command of *group*; its first argument is the session."""

    def decorate(function: Callable[..., Any]) -> HoldfastCommand:
        with_session = click.make_pass_decorator(CliSession, ensure=True)(function)
        decorated = click.command(name, cls=cls, answers=answers, changes=changes, creates=creates)(with_session)
        assert isinstance(decorated, HoldfastCommand)
        if group is not None:
            group.add_command(decorated)
        return decorated

    return decorate

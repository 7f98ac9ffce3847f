"""Command and group classes that add the shared options, before or after a command's name."""

from __future__ import annotations

import gc
import importlib
import inspect
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import click

from holdfast.cli.session import WIDE, CliSession
from holdfast.domain.names import nearest_name
from holdfast.output.printer import Format


def _record_flag(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """Store a shared option from the command line in the session; the last occurrence wins."""
    from_line = ctx.get_parameter_source(param.name or "") is click.core.ParameterSource.COMMANDLINE
    if from_line and param.name is not None:
        ctx.ensure_object(CliSession).flags[param.name] = value
    return value


def shared_options() -> list[click.Option]:
    formats = click.Choice([*map(str, Format), WIDE])
    options: list[dict[str, Any]] = [
        {
            "param_decls": ["-o", "--output"],
            "type": formats,
            "help": "Format of the output: text, JSON, NDJSON, or wide: text with all columns, in lines of any length.",
        },
        {
            "param_decls": ["--quiet"],
            "is_flag": True,
            "help": "Print only data, without notes. Lists print ids or names.",
        },
        {"param_decls": ["--verbose"], "is_flag": True, "help": "Print details, and tracebacks of errors."},
        {"param_decls": ["--no-color"], "is_flag": True, "help": "Print without colours. NO_COLOR does the same."},
        {"param_decls": ["--url"], "metavar": "URL", "help": "URL of the store: sqlite:///file.db or postgresql://…"},
        {"param_decls": ["--config"], "metavar": "FILE", "help": "Path of the configuration file."},
    ]
    return [click.Option(expose_value=False, callback=_record_flag, is_eager=True, **option) for option in options]


def with_options(*options: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add several options to a command; the help lists them in this order."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def limit_option(default: int, most: int) -> Callable[..., Any]:
    help_ = "Maximum number of rows."
    return click.option("-n", "--limit", default=default, show_default=True, type=click.IntRange(1, most), help=help_)


class Items(NamedTuple):
    """An answer with many items: a list under *name* in JSON, one line each in NDJSON."""

    name: str
    type: Any


#: The limits of a number, as click appends them to the help of an option.
NUMBER_LIMITS = r"; [-\d.<=]*x[<>=]+[-\d.]+(?=\])|  \[[-\d.<=]*x[<>=]+[-\d.]+\]"
#: In the metadata of a context: show the shared options in the help.
HELP_ALL = "holdfast.help_all"


def _show_help_all(ctx: click.Context, _param: click.Parameter, value: Any) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta[HELP_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


def keep_blocks(text: str) -> str:
    """Keep the lines of paragraphs under a heading, such as ``Examples:``, where click would wrap them."""
    return re.sub(r"\n\n(?=[A-Z][a-z ]*:\n)", "\n\n\b\n", inspect.cleandoc(text))


class _WithSharedOptions(click.Command):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.help = keep_blocks(self.help or "")
        for param in self.params:
            if isinstance(param, click.Option) and isinstance(
                param.type, click.types.IntParamType | click.types.FloatParamType
            ):
                param.metavar = param.metavar or "N"
        self._shared = shared_options()
        flag: dict[str, Any] = {"is_flag": True, "is_eager": True, "expose_value": False, "callback": _show_help_all}
        self._shared.append(click.Option(["--help-all"], help="Show the shared options too, and exit.", **flag))
        self.params += self._shared

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The command's own options first; the shared ones in one line, and whole with --help-all."""
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        for heading, chosen in (
            ("Options", [option for option in options if option not in self._shared]),
            ("Shared options", self._shared if HELP_ALL in ctx.meta else []),
        ):
            if records := [record for option in chosen if (record := option.get_help_record(ctx)) is not None]:
                with formatter.section(heading):
                    formatter.write_dl([(names, re.sub(NUMBER_LIMITS, "", text)) for names, text in records])
        if HELP_ALL not in ctx.meta:
            formatter.write_paragraph()
            names = "-o json|ndjson|wide, --quiet, --verbose, --no-color, --url URL, --config FILE"
            formatter.write_text(f"Also: {names} (--help-all explains them).")
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)

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

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does, but never repeat a payload without its option: it may contain secrets."""
        ctx.allow_extra_args = any(param.name == "payload" for param in self.params)
        if (extra := super().parse_args(ctx, args)) and not ctx.resilient_parsing:
            raise click.UsageError("There are too many arguments. A payload needs its option: -p '{…}'.", ctx)
        return extra

    def invoke(self, ctx: click.Context) -> Any:
        if not gc.isenabled():  # main has disabled it; the modules of the command live to the end, too
            gc.freeze()
            gc.enable()
        session = ctx.ensure_object(CliSession)
        session.changes, session.creates = self.changes, self._creates
        if self.changes:
            session.check_key()
        return super().invoke(ctx)


class CommandGroup(_WithSharedOptions, click.Group):
    """A group of commands with the shared options.

    *lazy* are the commands by the headings of the help. They are imported when they are called.
    """

    def __init__(self, *args: Any, lazy: dict[str, dict[str, tuple[str, str]]] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._headings = lazy or {}
        self._lazy = {name: place for commands in self._headings.values() for name, (place, _) in commands.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._lazy})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self._lazy:
            module, _, name = self._lazy[cmd_name].partition(":")
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
        if not self._headings:
            super().format_commands(ctx, formatter)
        width = max(map(len, self._lazy), default=0)
        for heading, commands in self._headings.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), text) for name, (_, text) in commands.items()])


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

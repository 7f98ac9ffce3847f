"""The options of a batch command, once for click, typer, argparse and Django's management commands.

::

    @click.command(cls=options.command_class(click.Command))
    @options.click
    def command(batch: options.BatchArguments) -> None:
        app.run(resync, batch.keys(resync), **batch.run).exit()
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from holdfast.client.batches.function import UnitFunction
from holdfast.client.batches.keys import KeyFile, epochs, listed_keys, parse_key, parse_range
from holdfast.client.batches.options import RunOptions
from holdfast.domain.batches.batch import DEFAULT_SHARDS
from holdfast.errors import InvalidInput
from holdfast.output.printer import requested_format


class Option(NamedTuple):
    """One option; a *bool* is a flag."""

    name: str
    type: type[str | int | float | bool]
    default: Any
    text: str
    metavar: str = ""

    @property
    def flags(self) -> tuple[str, ...]:
        """Its names on a command line; the format has a letter too."""
        name = f"--{self.name.replace('_', '-')}"
        return ("-o", name) if self.name == "output" else (name,)


#: The source of the keys: a command line names exactly one of them.
SOURCES = (
    Option("range", str, None, "Whole numbers as FROM-TO, or days as FROM..TO; both ends included.", "LO-HI"),
    Option("ids", str, None, "Keys, separated by commas.", "A,B,…"),
    Option("all", bool, False, "All keys that keys= of the function lists."),
    Option("from", str, None, "File with one key per line; - is stdin, and needs --name.", "FILE"),
)
#: The options of the run itself.
RUN_OPTIONS = (
    Option("jobs", int, 1, "Maximum number of units at the same time. [1]", "N"),
    Option("max_failures", int, None, "Stop after this many failures in a row; 0: never. [5]", "N"),
    Option("max_total_failures", int, None, "Stop after this many failures in total.", "N"),
    Option("max_failure_rate", float, None, "Stop when a larger share of the units fails, such as 0.1.", "SHARE"),
    Option("deadline", str, None, "Stop after this time, with exit 10.", "TIME"),
    Option("limit", int, None, "Maximum number of units in this run.", "N"),
    Option("epochs", str, None, "Divide the range into units of N keys or days, months or years.", "N|year|month"),
    Option("only", str, None, "Run only these keys of the input.", "A,B,…"),
    Option("resume_from", str, None, "Start at this key, in the order of the input.", "KEY"),
    Option("no_retry_failed", bool, False, "Do not retry units that failed in earlier runs."),
    Option("fresh", bool, False, "Start over: run all units again as a new generation."),
    Option("allow_concurrent", bool, False, "Run beside another run of this batch."),
    Option("wait", bool, False, "Wait until the other run of this batch ends."),
    Option("once", bool, False, "Do nothing (exit 13) if the last generation is done without failures."),
    Option("dry_run", bool, False, "Show what would run, and run nothing."),
    Option("name", str, None, "Name of the batch. [derived from its keys]", "NAME"),
    Option("inputs", str, None, "Input files. If one changes between runs, the batch refuses to continue.", "A,B,…"),
    Option(
        "accept_drift",
        bool,
        False,
        "Continue although the version, an input or the module changed, or failed keys are gone.",
    ),
    Option("where", str, "here", "Run it here or on the workers. [here]", "here|workers"),
    Option("shards", int, DEFAULT_SHARDS, f"On workers: units at the same time. [{DEFAULT_SHARDS}]", "N"),
    Option("rate", float, None, "Maximum number of units that start in a second.", "N"),
    Option("conflicts", str, None, "Refuse while these run: pid:PATH, systemd:NAME, pm2:NAME, worker:QUEUE.", "A,B,…"),
    Option(
        "checkpoint", str, None, "Write the ledger after each unit, N units or a time. [50, 1s]", "each|auto|N|TIME"
    ),
    Option(
        "progress_every",
        int,
        None,
        "Units between lines of progress on stderr. [text: 10, at most one line a second; else none]",
        "N",
    ),
)
OUTPUT = Option("output", str, None, "Format of the output: text, json or ndjson.", "FORMAT")
ALL = (*SOURCES, *RUN_OPTIONS, OUTPUT)


class BatchArguments:
    """The options of a batch command after parsing: the keys of the run, and its options.

    An invalid option is printed in the format of ``--output``, and ends the program with exit 2. The commands of
    Holdfast itself raise it (*exits* is false).
    """

    def __init__(self, values: Mapping[str, Any], *, exits: bool = True) -> None:
        self._values = {option.name: values.get(option.name, option.default) for option in ALL}
        self._exits = exits

    @property
    def source(self) -> str:
        """The name of the keys in the identity of the batch."""
        name, value = self._named_source()
        value = self._file_name(value) if name == "from" else value
        cut = "" if self._values["epochs"] is None else f" by {self._values['epochs']}"
        return "all" if name == "all" else f"{name} {value}{cut}"

    def _file_name(self, file: str) -> str:
        """The file as part of the identity: absolute. A stream could be any list, so the batch needs a name."""
        if file != "-" and (Path(file).is_file() or not Path(file).exists()):
            return str(Path(file).resolve())
        if self._values["name"] is None:
            text = "--from - needs --name" if file == "-" else f"--from {file} needs --name: it is not a regular file"
            raise InvalidInput(text, hint="Name this list of keys: the same name continues its batch.")
        return file

    def keys(self, function: UnitFunction[..., Any]) -> Iterable[Any]:
        """The keys, converted for *function*. The command line must name exactly one source, which can be read."""
        with self._checked():
            keys = self._keys(function)
            if isinstance(keys, list) and keys:
                function.check_key(keys[0])
            return keys

    def _checked(self) -> AbstractContextManager[object]:
        from holdfast.client.batches.run import exit_on_error  # not for --help: it imports all that runs a batch

        return exit_on_error(RunOptions(output=self._values["output"])) if self._exits else nullcontext()

    def _keys(self, function: UnitFunction[..., Any]) -> Iterable[Any]:
        name, value = self._named_source()
        cut = self._values["epochs"]
        if cut is not None and name != "range":
            raise InvalidInput("only a range can be cut into epochs", hint="Add --range LO-HI, or --range FROM..TO.")
        match name:
            case "range" if cut is not None:
                whole = parse_range(value)
                return epochs(whole[0], whole[-1], cut)  # type: ignore[arg-type] # two numbers, or two days
            case "range":
                return parse_range(value)
            case "ids":
                return [parse_key(function, word) for word in _words(value)]
            case "all":
                return listed_keys(function.options)
            case _:
                return KeyFile(function, value)

    def _named_source(self) -> tuple[str, Any]:
        named = [(option.name, self._values[option.name]) for option in SOURCES if self._values[option.name]]
        if len(named) > 1:
            flags = " and ".join(f"--{name}" for name, _ in named)
            raise InvalidInput(f"units come from one place, not from {flags}", hint="Leave all but one out.")
        if not named:
            raise InvalidInput("which units?", hint="Name one of --range LO-HI, --ids A,B, --all, --from FILE.")
        return named[0]

    @property
    def run(self) -> dict[str, Any]:
        """The options for :meth:`holdfast.Holdfast.run`. A command that has its own keys needs no source."""
        with self._checked():
            return self._run()

    def _run(self) -> dict[str, Any]:
        values = {option.name: self._values[option.name] for option in (*RUN_OPTIONS, OUTPUT)}
        del values["epochs"]
        if values["only"] is not None:
            values["only"] = _words(values["only"])
            if not values["only"]:
                raise InvalidInput("--only names no key", hint="Without --only, all keys run. Was a variable empty?")
        retry = not values.pop("no_retry_failed")
        lists = {name: _words(values[name]) for name in ("conflicts", "inputs")}
        source = self.source if any(self._values[option.name] for option in SOURCES) else None
        return {**values, **lists, "retry_failed": retry, "source": source}


def take(values: dict[str, Any], *, exits: bool) -> BatchArguments:
    """Remove the options of a batch from the arguments of a command."""
    named = {option.name: values.pop(option.name) for option in ALL if option.name in values}
    return BatchArguments(named, exits=exits)


def click(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a click command, whose function gets them as ``batch``."""
    return _with_click_options(function, ALL)


def own_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same for commands of Holdfast itself, which have their own ``--output``."""
    return _with_click_options(function, (*SOURCES, *RUN_OPTIONS))


def _with_click_options(function: Callable[..., Any], options: Sequence[Option]) -> Callable[..., Any]:
    import click as library

    @wraps(function)
    def wrapper(*args: Any, **values: Any) -> Any:
        return function(*args, batch=take(values, exits=OUTPUT in options), **values)

    command: Callable[..., Any] = wrapper
    for option in reversed(options):
        kind: dict[str, Any] = {"is_flag": True} if option.type is bool else {"type": option.type}
        command = library.option(
            *option.flags, option.name, default=option.default, metavar=option.metavar or None, help=option.text, **kind
        )(command)
    return command


def command_class(base: type[Any]) -> type[Any]:
    """A class of commands or groups for the ``cls=`` of click and typer.

    *base* is ``click.Command``, ``click.Group`` or typer's ``TyperCommand``, ``TyperGroup``. The commands print their
    own usage errors in the format of ``--output`` too. A group takes ``--output`` for all its commands.
    """
    return _group_class(base) if hasattr(base, "resolve_command") else _command_class(base)


def _command_class(base: type[Any]) -> type[Any]:
    class BatchCommand(base):  # type: ignore[misc] # the class of either library
        def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
            words = list(args)
            try:
                return super().make_context(info_name, args, parent, **extra)
            except Exception as error:  # typer has its own copy of click's errors
                if words and getattr(error, "exit_code", None) == InvalidInput.exit_code:
                    path = " ".join(filter(None, [getattr(parent, "command_path", None), info_name]))
                    _exit_on_usage_error(words, error.format_message(), path)  # type: ignore[attr-defined]
                raise

    return BatchCommand


#: The format that a group received, in the data that click shares between the contexts of one call.
_FORMAT_OF_GROUP = "holdfast.output"


def _group_class(base: type[Any]) -> type[Any]:
    class BatchGroup(_command_class(base)):  # type: ignore[misc] # the class of either library
        def get_params(self, context: Any) -> list[Any]:
            params = list(super().get_params(context))
            taken = {flag for param in params for flag in param.opts}
            return params if taken & set(OUTPUT.flags) else [*params, _group_option(base)]

        def invoke(self, context: Any) -> Any:
            with _format_in_environment(_checked_format(context.meta.get(_FORMAT_OF_GROUP))):
                try:
                    return super().invoke(context)
                except Exception as error:
                    if getattr(error, "exit_code", None) == InvalidInput.exit_code and hasattr(error, "format_message"):
                        _exit_on_usage_error([], error.format_message(), context.command_path)
                    raise

    return BatchGroup


def _group_option(base: type[Any]) -> Any:
    import click as library

    def keep(context: Any, _: Any, value: str | None) -> None:
        if value is not None:
            context.meta[_FORMAT_OF_GROUP] = value

    described: dict[str, Any] = {
        "param_decls": [*OUTPUT.flags, OUTPUT.name],
        "type": str,
        "metavar": OUTPUT.metavar,
        "help": OUTPUT.text,
        "expose_value": False,
        "callback": keep,
    }
    if issubclass(base, library.Group):
        return library.Option(**described)
    from typer.core import TyperOption  # newer versions of typer have their own copy of click

    return TyperOption(**described)


def _checked_format(name: str | None) -> str | None:
    """The format that a group received; an unknown one ends the program with exit 2."""
    if name is not None:
        from holdfast.client.batches.run import exit_on_error  # not for --help

        with exit_on_error(RunOptions(output=name)):
            pass
    return name


@contextmanager
def _format_in_environment(name: str | None) -> Iterator[None]:
    """Make *name* the format of all that is run meanwhile; None changes nothing."""
    if name is None:
        yield
        return
    before = os.environ.get("HOLDFAST_OUTPUT")
    os.environ["HOLDFAST_OUTPUT"] = name
    try:
        yield
    finally:
        if before is None:
            del os.environ["HOLDFAST_OUTPUT"]
        else:
            os.environ["HOLDFAST_OUTPUT"] = before


def typer(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a typer command, whose function gets them as ``batch``."""
    import typer as library

    @wraps(function)
    def wrapper(*args: Any, **values: Any) -> Any:
        named = {option.name: values.pop(_parameter(option)) for option in ALL}
        return function(*args, batch=BatchArguments(named), **values)

    signature = inspect.signature(function, eval_str=True)
    own = [parameter for name, parameter in signature.parameters.items() if name != "batch"]
    added = [
        inspect.Parameter(
            _parameter(option),
            inspect.Parameter.KEYWORD_ONLY,
            default=library.Option(option.default, *option.flags, help=option.text, metavar=option.metavar or None),
            annotation=option.type if option.type is bool else option.type | None,
        )
        for option in ALL
    ]
    wrapper.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *added)}
    del wrapper.__wrapped__
    return wrapper


def _parameter(option: Option) -> str:
    """The name of the parameter for an option; ``from`` alone is a keyword of Python."""
    return f"batch_{option.name}"


def add_arguments(parser: Any) -> None:
    """Add the options to a parser of argparse; a Django command calls this in its own ``add_arguments``.

    The parser prints its usage errors in the format of ``--output``.
    """
    from argparse import SUPPRESS  # not for click and typer

    _report_usage_errors(parser)
    for option in ALL:
        if option.type is bool:
            parser.add_argument(*option.flags, dest=option.name, action="store_true", help=option.text)
        else:
            kind, text = {"type": option.type, "metavar": option.metavar}, option.text.replace("%", "%%")
            # A subparser without --output keeps the format of its root parser.
            default = SUPPRESS if option is OUTPUT else option.default
            parser.add_argument(*option.flags, dest=option.name, default=default, help=text, **kind)


def add_output_argument(parser: Any) -> None:
    """Add ``--output`` to a parser of argparse that has subparsers; :func:`batch_arguments` reads it.

    The parser prints its usage errors in that format, and so do its subparsers with the options of a batch.
    """
    from argparse import SUPPRESS  # not for click and typer

    _report_usage_errors(parser)
    parser.add_argument(*OUTPUT.flags, dest=OUTPUT.name, default=SUPPRESS, metavar=OUTPUT.metavar, help=OUTPUT.text)


def _exit_on_usage_error(words: Sequence[str], message: str, path: str) -> None:
    from holdfast.client.batches.run import exit_on_usage_error  # not for --help

    exit_on_usage_error(words, message, path)


def _report_usage_errors(parser: Any) -> None:
    parse, report, words = parser.parse_known_args, parser.error, list[str]()

    def parse_known_args(args: Sequence[str] | None = None, namespace: Any = None) -> Any:
        words[:] = sys.argv[1:] if args is None else args
        with _format_in_environment(requested_format(words)):  # a subparser sees only the words behind its name
            return parse(args, namespace)

    def error(message: str) -> None:
        if getattr(parser, "called_from_command_line", True):  # call_command of Django raises errors
            _exit_on_usage_error(words, message, parser.prog)
        report(message)

    parser.parse_known_args, parser.error = parse_known_args, error


def batch_arguments(namespace: Any) -> BatchArguments:
    """The options from the namespace of argparse, or from the options that Django passes to ``handle``."""
    return BatchArguments(namespace if isinstance(namespace, Mapping) else vars(namespace))


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def parse_arguments(pairs: Iterable[str]) -> dict[str, Any]:
    """Arguments as ``name=JSON``; a value that is not JSON is a string."""
    arguments: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.isidentifier():
            raise InvalidInput(f"{pair!r} is not a valid argument", hint="Write --set name=value.")
        try:
            arguments[name] = msgspec.json.decode(text)
        except msgspec.DecodeError:
            arguments[name] = text
    return arguments

"""The options of a batch command, once for click, typer, argparse and Django's management commands.

::

    @click.command()
    @options.click
    def command(batch: options.Asked) -> None:
        app.run(resync, batch.keys(resync), **batch.run).exit()
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from holdfast.client.batches.epochs import epochs
from holdfast.client.batches.function import UnitFunction
from holdfast.domain.batches.sharding import DEFAULT_SHARDS
from holdfast.errors import InvalidInput


class Option(NamedTuple):
    """One option: what it is called, what it takes, and what it means. A *bool* is a flag."""

    name: str
    type: type[str | int | float | bool]
    default: Any
    text: str
    metavar: str = ""

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"


#: Where the keys come from: exactly one of them is to be given.
SOURCES = (
    Option("range", str, None, "Whole numbers or, as FROM..TO, days; both ends included.", "LO-HI"),
    Option("ids", str, None, "These keys.", "A,B,…"),
    Option("all", bool, False, "All keys, as the function's own keys= lists them."),
    Option("from", str, None, "One key per line; - is stdin.", "FILE"),
)
#: How the run is to go.
RUNNING = (
    Option("jobs", int, 1, "Units at a time. [1]", "N"),
    Option("max_failures", int, None, "Stop after so many in a row; 0 is never. [5]", "N"),
    Option("max_total_failures", int, None, "Stop after so many in all.", "N"),
    Option("max_failure_rate", float, None, "Stop when more than this share fails.", "SHARE"),
    Option("deadline", str, None, "Stop after so long, with exit 10.", "TIME"),
    Option("limit", int, None, "Run no more than so many units now.", "N"),
    Option("epochs", str, None, "Cut the range into units of N keys or days, or of a year or month.", "N|year|month"),
    Option("only", str, None, "Of the keys, run only these.", "A,B,…"),
    Option("resume_from", str, None, "Begin at this key, in the order of the input.", "KEY"),
    Option("no_retry_failed", bool, False, "Leave failed units of earlier runs alone."),
    Option("fresh", bool, False, "Begin a new generation, whatever became of the last."),
    Option("allow_concurrent", bool, False, "Join a run that is under way."),
    Option("wait", bool, False, "Wait for a run that is under way."),
    Option("once", bool, False, "Do nothing when the last generation ended clean: exit 13."),
    Option("dry_run", bool, False, "Say what would be run; run nothing."),
    Option("name", str, None, "A name for the batch, instead of where its keys come from.", "NAME"),
    Option("inputs", str, None, "Files whose change is drift.", "A,B,…"),
    Option("accept_drift", bool, False, "Go on though version or inputs have changed."),
    Option("where", str, "here", "Where it runs: here, or on the workers. [here]", "here|workers"),
    Option("shards", int, DEFAULT_SHARDS, f"On workers, units at a time. [{DEFAULT_SHARDS}]", "N"),
    Option("rate", float, None, "Begin no more than so many units in a second.", "N"),
    Option("conflicts", str, None, "Must not run: pid:PATH, systemd:NAME, pm2:NAME, worker:QUEUE.", "A,B,…"),
    Option("progress_every", int, 10, "A line of progress every so many units. [10]", "N"),
)
OUTPUT = Option("output", str, None, "How to print: text, json or ndjson.", "FORMAT")
ALL = (*SOURCES, *RUNNING, OUTPUT)


class BatchArguments:
    """What the line asks for: where the keys come from, and how the run is to go."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = {option.name: values.get(option.name, option.default) for option in ALL}

    @property
    def source(self) -> str:
        """What the keys are called in the identity."""
        name, value = self._given()
        cut = "" if self._values["epochs"] is None else f" by {self._values['epochs']}"
        return "all" if name == "all" else f"{name} {value}{cut}"

    def keys(self, function: UnitFunction[..., Any]) -> Iterable[Any]:
        """The keys, as *function* takes them.

        Raises:
            InvalidInput: Not exactly one way was named, or it cannot be read.
        """
        found = self._keys(function)
        if isinstance(found, list) and found:
            function.check_key(found[0])
        return found

    def _keys(self, function: UnitFunction[..., Any]) -> Iterable[Any]:
        name, value = self._given()
        cut = self._values["epochs"]
        if cut is not None and name != "range":
            raise InvalidInput("only a range can be cut into epochs", hint="Add --range LO-HI, or --range FROM..TO.")
        match name:
            case "range" if cut is not None:
                spread = parse_range(value)
                return epochs(spread[0], spread[-1], cut)  # type: ignore[arg-type] # two numbers, or two days
            case "range":
                return parse_range(value)
            case "ids":
                return [typed(function, word) for word in _words(value)]
            case "all":
                if function.keys is None:
                    raise InvalidInput(
                        f"{function.options.name} does not list its keys", hint="Give app.unit its keys=."
                    )
                return function.keys()
            case _:
                return Lines(function, value)

    def _given(self) -> tuple[str, Any]:
        named = [(option.name, self._values[option.name]) for option in SOURCES if self._values[option.name]]
        if len(named) > 1:
            flags = " and ".join(f"--{name}" for name, _ in named)
            raise InvalidInput(f"units come from one place, not from {flags}", hint="Leave all but one out.")
        if not named:
            raise InvalidInput("which units?", hint="Name one of --range LO-HI, --ids A,B, --all, --from FILE.")
        return named[0]

    @property
    def run(self) -> dict[str, Any]:
        """The options of :meth:`holdfast.Holdfast.run`; a program may have keys of its own."""
        values = {option.name: self._values[option.name] for option in (*RUNNING, OUTPUT)}
        del values["epochs"]
        values["only"] = None if values["only"] is None else _words(values["only"])
        retry = not values.pop("no_retry_failed")
        lists = {name: _words(values[name]) for name in ("conflicts", "inputs")}
        source = self.source if any(self._values[option.name] for option in SOURCES) else None
        return {**values, **lists, "retry_failed": retry, "source": source}


def take(values: dict[str, Any]) -> BatchArguments:
    """Take the options of a batch out of a command's own."""
    return BatchArguments({option.name: values.pop(option.name) for option in ALL if option.name in values})


def click(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a click command the options; its function gets them as ``batch``."""
    return _clicked(function, ALL)


def own_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same for a command of Holdfast, which has its own ``--output``."""
    return _clicked(function, (*SOURCES, *RUNNING))


def _clicked(function: Callable[..., Any], options: Sequence[Option]) -> Callable[..., Any]:
    import click as library

    @wraps(function)
    def called(*args: Any, **values: Any) -> Any:
        return function(*args, batch=take(values), **values)

    made: Callable[..., Any] = called
    for option in reversed(options):
        kind: dict[str, Any] = {"is_flag": True} if option.type is bool else {"type": option.type}
        spelt = ("-o", "--output") if option is OUTPUT else (option.flag,)
        made = library.option(
            *spelt, option.name, default=option.default, metavar=option.metavar or None, help=option.text, **kind
        )(made)
    return made


def typer(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a typer command the options; its function gets them as ``batch``."""
    import typer as library

    @wraps(function)
    def called(*args: Any, **values: Any) -> Any:
        named = {option.name: values.pop(_parameter(option)) for option in ALL}
        return function(*args, batch=BatchArguments(named), **values)

    signature = inspect.signature(function, eval_str=True)
    own = [parameter for name, parameter in signature.parameters.items() if name != "batch"]
    added = [
        inspect.Parameter(
            _parameter(option),
            inspect.Parameter.KEYWORD_ONLY,
            default=library.Option(option.default, option.flag, help=option.text, metavar=option.metavar or None),
            annotation=option.type if option.type is bool else option.type | None,
        )
        for option in ALL
    ]
    called.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *added)}
    del called.__wrapped__
    return called


def _parameter(option: Option) -> str:
    """The name of an option as that of a parameter: ``from`` is none."""
    return f"batch_{option.name}"


def add_arguments(parser: Any) -> None:
    """Give a parser of argparse the options; a management command of Django calls it from its own method."""
    for option in ALL:
        if option.type is bool:
            parser.add_argument(option.flag, dest=option.name, action="store_true", help=option.text)
        else:
            spelt = ("-o", "--output") if option is OUTPUT else (option.flag,)
            parser.add_argument(
                *spelt,
                dest=option.name,
                type=option.type,
                default=option.default,
                metavar=option.metavar,
                help=option.text.replace("%", "%%"),
            )


def asked(namespace: Any) -> BatchArguments:
    """The options from what argparse has parsed, or from what Django hands to ``handle``."""
    return BatchArguments(namespace if isinstance(namespace, Mapping) else vars(namespace))


def _words(text: str | None) -> list[str]:
    """What stands between commas."""
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def parse_range(text: str) -> Sequence[int] | Sequence[date]:
    """``LO-HI``, both ends included, negative numbers too; or days, ``2024-01-01..2024-12-31``."""
    if ".." in text:
        return _parse_days(text)
    found = re.fullmatch(r"(-?\d{1,18})-(-?\d{1,18})", text)
    if found is None:
        hint = "Write LO-HI, for example 1-100, both ends included; numbers have 18 digits at most."
        raise InvalidInput(f"{text!r} is no range", hint=hint)
    if int(found[1]) > int(found[2]):
        raise InvalidInput(f"{text!r} runs backwards", hint=f"Write {found[2]}-{found[1]}.")
    return range(int(found[1]), int(found[2]) + 1)


def _parse_days(text: str) -> list[date]:
    first, _, last = text.partition("..")
    try:
        return [low for low, _ in epochs(date.fromisoformat(first), date.fromisoformat(last), 1)]
    except ValueError:
        raise InvalidInput(f"{text!r} is no range of days", hint="Write 2024-01-01..2024-12-31.") from None


def parse_arguments(pairs: Iterable[str]) -> dict[str, Any]:
    """``name=JSON``; what is no JSON is a text."""
    found = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.isidentifier():
            raise InvalidInput(f"{pair!r} is no argument", hint="Write --set name=value.")
        try:
            found[name] = msgspec.json.decode(text)
        except msgspec.DecodeError:
            found[name] = text
    return found


def typed(function: UnitFunction[..., Any], word: str) -> Any:
    """A word as the function takes it: a number, or a text."""
    if function.key_type is int:
        if not re.fullmatch(r"-?\d{1,18}", word):
            raise InvalidInput(f"{word!r} is no key of {function.options.name}", hint="Its keys are whole numbers.")
        return int(word)
    return word


class Lines:
    """The lines of a file as keys; read anew each time, in flat memory."""

    def __init__(self, function: UnitFunction[..., Any], file: str) -> None:
        self._function = function
        self._file = file
        if file != "-" and not Path(file).is_file():
            raise InvalidInput(f"there is no file {file}", hint="Give a file with one key per line, or - for stdin.")

    def __iter__(self) -> Iterator[Any]:
        if self._file == "-":
            yield from self._keys(sys.stdin)
            return
        try:
            with Path(self._file).open(encoding="utf-8") as lines:
                yield from self._keys(lines)
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"the keys cannot be read: {error}") from None

    def _keys(self, lines: Iterable[str]) -> Iterator[Any]:
        return (typed(self._function, line.strip()) for line in lines if line.strip())

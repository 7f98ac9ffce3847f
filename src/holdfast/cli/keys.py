"""Where the keys of a batch come from, as the line says."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from holdfast.batch import UnitFunction
from holdfast.errors import InvalidInput


def keys_from(function: UnitFunction[..., Any], asked: dict[str, Any]) -> tuple[Iterable[Any], str]:
    """The keys and what they are called in the identity; takes its options out of *asked*.

    Raises:
        InvalidInput: Not exactly one way was named, or it cannot be read.
    """
    ways = {name: asked.pop(name) for name in ("range_", "ids", "everything", "file")}
    named = [name for name, value in ways.items() if value]
    if len(named) != 1:
        raise InvalidInput("which units?", hint="Name one of --range LO-HI, --ids A,B, --all, --from FILE.")
    match named[0]:
        case "range_":
            found = parse_range(ways["range_"])
            return found, f"range {ways['range_']}"
        case "ids":
            return [typed(function, word.strip()) for word in ways["ids"].split(",")], f"ids {ways['ids']}"
        case "everything":
            if function.keys is None:
                raise InvalidInput(f"{function.options.name} does not list its keys", hint="Give app.unit its keys=.")
            return function.keys(), "all"
        case _:
            return _Lines(function, ways["file"]), f"from {ways['file']}"


def parse_range(text: str) -> range:
    """``LO-HI``, both ends included; negative numbers too."""
    found = re.fullmatch(r"(-?\d{1,18})-(-?\d{1,18})", text)
    if found is None or int(found[1]) > int(found[2]):
        raise InvalidInput(f"{text!r} is no range", hint="Write LO-HI, for example 1-100, both ends included.")
    return range(int(found[1]), int(found[2]) + 1)


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


class _Lines:
    """The lines of a file as keys; read anew each time, in flat memory."""

    def __init__(self, function: UnitFunction[..., Any], file: str) -> None:
        self._function = function
        self._file = file

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


def typed(function: UnitFunction[..., Any], word: str) -> Any:
    """A word as the function takes it: a number, or a text."""
    if function.key_type is int:
        if not re.fullmatch(r"-?\d{1,18}", word):
            raise InvalidInput(f"{word!r} is no key of {function.options.name}", hint="Its keys are whole numbers.")
        return int(word)
    return word

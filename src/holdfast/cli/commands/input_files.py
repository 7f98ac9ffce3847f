"""Commands and their parameters, from the line and from files."""

from __future__ import annotations

import csv
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from holdfast.domain.commands.command import grid
from holdfast.domain.commands.preset import PresetValues
from holdfast.errors import InvalidInput


def rows_of(parameters: Sequence[str], file: str | None) -> Iterator[dict[str, str]]:
    """The sets of parameters: a grid, or the rows of a file."""
    if bool(parameters) == (file is not None):
        raise InvalidInput("parameters come from --param or from --csv", hint="Add --param year=2020,2021.")
    if file is None:
        values: dict[str, list[str]] = {}
        for text in parameters:
            name, given, listed = text.partition("=")
            if not given or not name.isidentifier() or name in values:
                raise InvalidInput(f"{text!r} is no new parameter", hint="Write --param year=2020,2021.")
            values[name] = list(dict.fromkeys(listed.split(",")))
        yield from grid(values)
        return
    try:
        with Path(file).open(encoding="utf-8-sig", newline="") as lines:
            yield from _cells(file, list(csv.reader(lines, strict=True)))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"{file} cannot be read: {error}") from None


def _cells(file: str, table: list[list[str]]) -> Iterator[dict[str, str]]:
    if len(table) < 2:
        raise InvalidInput(f"{file} has no rows below a row of names")
    names = table[0]
    if len(set(names)) < len(names) or not all(name.isidentifier() for name in names):
        raise InvalidInput(f"{file}: the first row names parameters, each once, not {names!r:.100}")
    for number, row in enumerate(table[1:], start=2):
        if row and len(row) != len(names):
            raise InvalidInput(f"{file}, row {number} has {len(row)} values, not {len(names)}")
        if row:
            yield dict(zip(names, row, strict=True))


class InputLine(PresetValues, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A line of a file of commands: its words, and what outweighs the options of the line that adds them all."""

    argv: list[str] = []  # noqa: RUF012 - each entry has its own
    key: str | None = None
    label: str | None = None
    after: str | list[str] | None = None
    delay: str | None = None
    hold: bool | None = None
    env: dict[str, str] | None = None

    def own(self, source: str) -> dict[str, Any]:
        """What it says besides its words, as the options are named."""
        said: dict[str, Any] = {
            name: value for name in _OWN if (value := getattr(self, name)) is not None and value is not False
        }
        if self.after is not None:
            said["dependencies"] = (self.after,) if isinstance(self.after, str) else tuple(self.after)
        return said | {"source": source} if said else {}


_OWN = tuple(name for name in InputLine.__struct_fields__ if name not in ("argv", "key", "after"))
_objects = msgspec.json.Decoder(InputLine)
_lists = msgspec.json.Decoder(list[str])
#: So many lines that cannot be read are named.
NAMED = 20


class BadLines:
    """Lines that cannot be added: all of them are told, and then nothing is added."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._found: list[tuple[int, str]] = []

    def add(self, number: int, error: object) -> None:
        self._found.append((number, str(error)))

    def refuse(self) -> None:
        """Raise if there were any.

        Raises:
            InvalidInput: The message names the lines, the first ones with what is wrong.
        """
        if not self._found:
            return
        told = "".join(f"\n  line {number}: {text}" for number, text in self._found[:NAMED])
        more = f"\n  and {len(self._found) - NAMED:,} more" if len(self._found) > NAMED else ""
        count = f"{len(self._found):,} lines" if len(self._found) > 1 else "1 line"
        lines = [number for number, _ in self._found[:1000]]
        hint = 'A line is words, a JSON list of words, or {"argv": […], "cwd": …, "env": …, "label": …, "key": …, …}.'
        raise InvalidInput(f"{self._file}: {count} cannot be added; nothing was{told}{more}", hint=hint, lines=lines)


def entries_of(file: str, bad: BadLines) -> Iterator[tuple[int, InputLine]]:
    """The commands of a file by line: words as a shell would divide them, a JSON list of words, or a JSON object."""
    try:
        text = sys.stdin.buffer.read().decode() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{file} cannot be read: {error}") from None
    for number, line in enumerate(text.split("\n"), start=1):  # no other character ends a line of JSON
        bare = line.strip()
        if not bare or bare.startswith("#"):
            continue
        try:
            yield number, _entry(bare)
        except (ValueError, msgspec.DecodeError) as error:
            bad.add(number, error)


def _entry(line: str) -> InputLine:
    if line[0] == "{":
        return _objects.decode(line)
    return InputLine(argv=_lists.decode(line) if line[0] == "[" else _words(line))


def _words(line: str) -> list[str]:
    """As a shell divides them. Where nothing is quoted that is where the spaces are, which is much faster to find."""
    return line.split() if line.isascii() and not _QUOTED.search(line) else shlex.split(line)


_QUOTED = re.compile(r"""['"\\]""")

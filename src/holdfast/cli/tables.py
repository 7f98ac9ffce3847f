"""Commands and their parameters, from the line and from files."""

from __future__ import annotations

import csv
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from holdfast.domain.command import grid
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


def lines_of(file: str) -> Iterator[list[str]]:
    """The commands of a file: words as a shell would divide them, or a JSON list of words per line."""
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{file} cannot be read: {error}") from None
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            yield msgspec.json.decode(line, type=list[str]) if line.lstrip().startswith("[") else shlex.split(line)
        except (ValueError, msgspec.DecodeError) as error:
            raise InvalidInput(
                f"{file}, line {number}: {error}", hint="Close the quotes, or write a JSON list."
            ) from None

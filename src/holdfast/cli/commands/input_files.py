"""Input files of ``add --from``: one command per line."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from holdfast.domain.commands.preset import PresetValues
from holdfast.errors import InvalidInput


class InputLine(PresetValues, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A line of a file of commands; its fields take precedence over the options of ``add``."""

    argv: list[str] = []  # noqa: RUF012 - msgspec copies the default
    key: str | None = None
    label: str | None = None
    after: str | list[str] | None = None
    delay: str | None = None
    hold: bool | None = None
    env: dict[str, str] | None = None

    def overrides(self, source: str) -> dict[str, Any]:
        """The fields that are set, without the command itself, under the names of the options."""
        fields: dict[str, Any] = {
            name: value for name in _OVERRIDES if (value := getattr(self, name)) is not None and value is not False
        }
        if self.after is not None:
            fields["dependencies"] = (self.after,) if isinstance(self.after, str) else tuple(self.after)
        return fields | {"source": source} if fields else {}


_OVERRIDES = tuple(name for name in InputLine.__struct_fields__ if name not in ("argv", "key", "after"))
_objects = msgspec.json.Decoder(InputLine)
_lists = msgspec.json.Decoder(list[str])
#: Number of bad lines that an error message shows; its data names up to 1000.
SHOWN_BAD_LINES = 20


class BadLines:
    """Collects the lines of a file that cannot be added, for one error about all of them."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._errors: list[tuple[int, str]] = []

    def add(self, number: int, error: object) -> None:
        self._errors.append((number, str(error)))

    def refuse(self) -> None:
        """Raise InvalidInput if there are bad lines."""
        if not self._errors:
            return
        shown = "".join(f"\n  line {number}: {text}" for number, text in self._errors[:SHOWN_BAD_LINES])
        more = f"\n  and {len(self._errors) - SHOWN_BAD_LINES:,} more" if len(self._errors) > SHOWN_BAD_LINES else ""
        count = f"{len(self._errors):,} lines" if len(self._errors) > 1 else "1 line"
        lines = [number for number, _ in self._errors[:1000]]
        hint = 'A line is words, a JSON list of words, or {"argv": […], "cwd": …, "env": …, "label": …, "key": …, …}.'
        raise InvalidInput(f"{self._file}: {count} cannot be added; nothing was{shown}{more}", hint=hint, lines=lines)


def read_lines(file: str, bad: BadLines) -> Iterator[tuple[int, InputLine]]:
    """The commands of a file with their line numbers; unreadable lines go to *bad*."""
    try:
        text = sys.stdin.buffer.read().decode() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{file} cannot be read: {error}") from None
    # splitlines() would also split at U+2028 and others, which JSON strings may contain.
    for number, line in enumerate(text.split("\n"), start=1):
        bare = line.strip()
        if not bare or bare.startswith("#"):
            continue
        try:
            yield number, _parse_line(bare)
        except (ValueError, msgspec.DecodeError) as error:
            bad.add(number, error)


def _parse_line(line: str) -> InputLine:
    if line[0] == "{":
        return _objects.decode(line)
    return InputLine(argv=_lists.decode(line) if line[0] == "[" else _split(line))


def _split(line: str) -> list[str]:
    """Split as a shell does; a line without quotes takes the much faster ``str.split``."""
    return line.split() if line.isascii() and not _QUOTED.search(line) else shlex.split(line)


_QUOTED = re.compile(r"""['"\\]""")

"""What a command prints: one value as text for people, as one JSON document, or line by line."""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TextIO, TypeVar

from holdfast.domain.names import escape_controls

if TYPE_CHECKING:
    from holdfast.output.envelope import Failure

T = TypeVar("T")
Status = Literal["success", "partial_failure", "error"]


class PipeClosed(Exception):
    """Whoever read our output has seen enough. Not an OSError: click would call that a failure."""


class OutputError(Exception):
    """The output cannot be written, for a reason that is no reader's: a full disk, say."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


def repair_streams() -> None:
    """Make sure that there is somewhere to read from and to write to, and that every text can be written."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - for the whole run
        elif mode == "w" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


class Format(StrEnum):
    """How to print."""

    TEXT = "text"
    JSON = "json"
    NDJSON = "ndjson"


class Line(NamedTuple):
    """A line of a table, harmless already; *paint* says from where to where which style holds on a terminal."""

    text: str
    paint: tuple[tuple[int, int, str], ...] = ()

    def painted(self) -> str:
        text = self.text
        for begin, end, style in reversed(self.paint):
            text = f"{text[:begin]}\x1b[{style}m{text[begin:end]}\x1b[0m{text[end:]}"
        return text


class Output:
    """Prints to stdout what programs read, and to stderr what only people want to know."""

    def __init__(
        self,
        format: Format,  # noqa: A002
        *,
        quiet: bool = False,
        color: bool | None = None,
        began: float | None = None,
    ) -> None:
        self.format = format
        self.quiet = quiet
        self.began = time.monotonic() if began is None else began
        self._color = color
        self._out: TextIO = sys.stdout
        if format is not Format.TEXT and isinstance(self._out, io.TextIOWrapper):
            self._out.reconfigure(encoding="utf-8")  # JSON is UTF-8, whatever the terminal is
        self._lines = 0
        self._open = False

    def keep_stdout(self) -> None:
        """For programs, stdout is ours alone: whatever the user's own code prints goes to stderr from now on."""
        if self.format is Format.TEXT or self._out is not sys.__stdout__:
            return
        self._out.flush()
        self._out = os.fdopen(os.dup(self._out.fileno()), "w", encoding="utf-8")
        os.dup2(2, 1)

    def flush(self) -> None:
        self._out.flush()

    @property
    def color(self) -> bool:
        """Only for people: on a terminal that can, and when nobody forbids it."""
        if self._color is not None:
            return self._color
        requested = "NO_COLOR" not in os.environ and os.environ.get("TERM", "dumb") != "dumb"
        return self.format is Format.TEXT and requested and self._out.isatty()

    def value(self, data: Any, text: Callable[[], Iterable[str | Line]], *, ndjson_summary: bool = False) -> None:
        """Print one value; *text* gives its lines for people.

        *ndjson_summary*: lines were printed before, and this is their summary.
        """
        match self.format:
            case Format.TEXT:
                self.lines(text())
            case Format.JSON:
                self._write(json_line(self._envelope("success", data)))
            case Format.NDJSON if ndjson_summary:
                self._end("success", summary=data)
            case Format.NDJSON:
                self._write(json_line(builtins(data)))
                self._end("success")

    def items(
        self,
        name: str,
        items: Iterable[T],
        text: Callable[[Iterable[T]], Iterable[str | Line]],
        *,
        facts: Callable[[T], Any] = lambda item: item,
    ) -> None:
        """Print many values, one after the other, in flat memory.

        *name* is their place in the JSON document, *facts* what programs see of each.
        """
        match self.format:
            case Format.TEXT:
                self.lines(text(items))
            case Format.JSON:
                self._stream(name, map(facts, items))
            case Format.NDJSON:
                for item in map(facts, items):
                    self._write(json_line(builtins(item)))
                self._end("success")

    def lines_of(self, items: Iterable[Any], *, checkpoint: int) -> None:
        """Print lines for programs, and that all up to number *checkpoint* are durable."""
        for item in items:
            self._write(json_line(item))
        self._write(json_line({"_meta": {"checkpoint": checkpoint}}))
        self.flush()

    def lines(self, lines: Iterable[str | Line]) -> None:
        """Print lines for people, made harmless; painted where there are colours."""
        for line in lines:
            if isinstance(line, Line):
                self._write(line.painted() if self.color else line.text)
            else:
                self._write(escape_controls(line))

    def note(self, text: str) -> None:
        """A line for people beside the data; not with ``--quiet``."""
        if not self.quiet:
            _tell(text)

    def error(self, error: Failure, *, data: Any = None, status: Status = "error") -> None:
        """Tell of a failure: for programs on stdout, for people on stderr."""
        match self.format:
            case Format.TEXT:
                _tell(f"error: {error.message} [{error.code}]")
                if error.hint:
                    _tell(f"hint: {error.hint}")
            case Format.JSON if self._open:
                self._close(status, error)
            case Format.JSON:
                self._write(json_line(self._envelope(status, data, error)))
            case Format.NDJSON:
                self._end(status, error, data)

    def _envelope(self, status: Status, data: Any, error: Failure | None = None) -> Any:
        from holdfast.output.envelope import Envelope, Meta

        return Envelope(status=status, data=builtins(data), error=error, meta=Meta(self._duration()))

    def _duration(self) -> int:
        return round((time.monotonic() - self.began) * 1000)

    def _stream(self, name: str, items: Iterable[Any]) -> None:
        """The envelope around a list that is never held as a whole. What fails on the way is told at its end."""
        from holdfast.output.envelope import SCHEMA_VERSION

        self._write(f'{{"schema_version": {SCHEMA_VERSION}, "data": {{{json_line(name)}: [', end="")
        try:
            for count, item in enumerate(items):
                self._write((", " if count else "") + json_line(builtins(item)), end="")
        except BaseException as error:
            self._open = not isinstance(error, PipeClosed)
            raise
        self._close("success")

    def _close(self, status: Status, error: Failure | None = None) -> None:
        """The end of a document whose list was open."""
        meta = f'{{"duration_ms": {self._duration()}}}'
        self._write(f']}}, "status": "{status}", "error": {json_line(builtins(error))}, "meta": {meta}}}')
        self._open = False

    def _end(self, status: Status, error: Failure | None = None, summary: Any = None) -> None:
        from holdfast.output.envelope import NdjsonEnd

        end = NdjsonEnd(status=status, lines=self._lines, error=error, summary=builtins(summary))
        self._write(json_line({"_meta": end}))

    def _write(self, text: str, end: str = "\n") -> None:
        try:
            self._out.write(text + end)
        except BrokenPipeError:
            raise PipeClosed from None
        except OSError as error:
            raise OutputError(error) from None
        self._lines += 1


class SilentOutput(Output):
    """Says nothing: for programs that look at the result themselves."""

    def __init__(self) -> None:
        super().__init__(Format.TEXT, quiet=True)

    def value(self, data: Any, text: Callable[[], Iterable[str | Line]], *, ndjson_summary: bool = False) -> None:
        """Nothing."""

    def error(self, error: Failure, *, data: Any = None, status: Status = "error") -> None:
        """Nothing."""


def builtins(value: Any) -> Any:
    """Structs, instants and enums as JSON has them; times end in Z."""
    import msgspec

    return msgspec.to_builtins(value, str_keys=True)


def json_line(value: Any) -> str:
    import msgspec

    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:  # half a character, from the environment or a file's name
        import json

        return json.dumps(builtins(value))


def _tell(text: str) -> None:
    with suppress(OSError):
        sys.stderr.write(escape_controls(text) + "\n")

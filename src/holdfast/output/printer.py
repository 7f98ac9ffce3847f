"""The printer of commands: text for people, one JSON document, NDJSON."""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TextIO, TypeVar

from holdfast.domain.names import escape_controls

if TYPE_CHECKING:
    from holdfast.output.envelope import Failure

T = TypeVar("T")
Status = Literal["success", "partial_failure", "error"]


class PipeClosed(Exception):
    """The reader has closed the pipe. Not an OSError, which click would report as a failure."""


class OutputError(Exception):
    """The output cannot be written, for example because the disk is full."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


def repair_streams() -> None:
    """Replace missing standard streams, and make every character writable."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - for the whole run
        elif mode == "w" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


class Format(StrEnum):
    """The format of the output."""

    TEXT = "text"
    JSON = "json"
    NDJSON = "ndjson"


def requested_format(arguments: Sequence[str]) -> Format | None:
    """Find ``--output`` without a parser, so that usage errors come in the requested format too."""
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=False):
        separate = argument in ("-o", "--output")
        value = following if separate else argument.removeprefix("--output=").removeprefix("-o")
        if argument.startswith(("-o", "--output")) and value in list(Format):
            return Format(value)
    return None


class Line(NamedTuple):
    """A line of a table without control characters; *styles* are (begin, end, ANSI style) for terminals."""

    text: str
    styles: tuple[tuple[int, int, str], ...] = ()

    def painted(self) -> str:
        text = self.text
        for begin, end, style in reversed(self.styles):
            text = f"{text[:begin]}\x1b[{style}m{text[begin:end]}\x1b[0m{text[end:]}"
        return text


class Output:
    """Prints data to stdout, and notes for people to stderr."""

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
            self._out.reconfigure(encoding="utf-8")  # JSON is UTF-8, even if the terminal is not
        self._lines = 0
        self._open = False

    def keep_stdout(self) -> None:
        """With JSON, redirect everything that user code prints from stdout to stderr."""
        if self.format is Format.TEXT or self._out is not sys.__stdout__:
            return
        self._out.flush()
        self._out = os.fdopen(os.dup(self._out.fileno()), "w", encoding="utf-8")
        os.dup2(2, 1)

    def flush(self) -> None:
        with self._translated():
            self._out.flush()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Name errors of the output. After one the rest goes to /dev/null, also what is buffered."""
        try:
            yield
        except OSError as error:
            with open(os.devnull, "w") as null:  # noqa: PTH123
                os.dup2(null.fileno(), self._out.fileno())
            raise (PipeClosed if isinstance(error, BrokenPipeError) else OutputError(error)) from None

    @property
    def color(self) -> bool:
        """Whether to print colours: text on a capable terminal, unless NO_COLOR is set."""
        if self._color is not None:
            return self._color
        allowed = "NO_COLOR" not in os.environ and os.environ.get("TERM", "dumb") != "dumb"
        return self.format is Format.TEXT and allowed and self._out.isatty()

    def value(
        self,
        data: Any,
        text: Callable[[], Iterable[str | Line]],
        *,
        ndjson_summary: bool = False,
        error: Failure | None = None,
    ) -> None:
        """Print one value; *text* returns its lines for people.

        *ndjson_summary*: lines were printed before, and *data* is their summary. *error*: the command fails all the
        same, and this is why.
        """
        status: Status = "success" if error is None else "error"
        match self.format:
            case Format.TEXT:
                self.lines(text())
                if error is not None:
                    self.error(error)
            case Format.JSON:
                self._write(json_line(self._envelope(status, data, error)))
            case Format.NDJSON if ndjson_summary:
                self._end(status, error, summary=data)
            case Format.NDJSON:
                self._write(json_line(builtins(data)))
                self._end(status, error)

    def items(
        self,
        name: str,
        items: Iterable[T],
        text: Callable[[Iterable[T]], Iterable[str | Line]],
        *,
        data: Callable[[T], Any] = lambda item: item,
    ) -> None:
        """Print many values one by one, in constant memory.

        *name* is their key in the JSON document; *data* converts each for JSON.
        """
        match self.format:
            case Format.TEXT:
                self.lines(text(items))
            case Format.JSON:
                self._stream(name, map(data, items))
            case Format.NDJSON:
                for item in map(data, items):
                    self._write(json_line(builtins(item)))
                self._end("success")

    def checkpointed_lines(self, lines: str, count: int, *, checkpoint: int) -> None:
        """Print NDJSON lines, and a line that all items up to number *checkpoint* are durable; in one write."""
        self._write(f"{lines}\n{json_line({'_meta': {'checkpoint': checkpoint}})}")
        self._lines += count
        self.flush()

    def lines(self, lines: Iterable[str | Line]) -> None:
        """Print lines for people, with control characters escaped."""
        is_colored = self.color
        for line in lines:
            if isinstance(line, Line):
                self._write(line.painted() if is_colored else line.text)
            else:
                self._write(escape_controls(line))

    def raw(self, data: bytes) -> None:
        """Print bytes as they are, at once."""
        self._out.flush()
        with self._translated():
            self._out.buffer.write(data)
            self._out.buffer.flush()

    def note(self, text: str) -> None:
        """Print a line for people on stderr; not with ``--quiet``."""
        if not self.quiet:
            _print_to_stderr(text)

    def error(self, error: Failure, *, data: Any = None, status: Status = "error") -> None:
        """Print a failure: JSON on stdout, text on stderr."""
        match self.format:
            case Format.TEXT:
                _print_to_stderr(f"error: {error.message} [{error.code}]")
                if error.hint:
                    _print_to_stderr(f"hint: {error.hint}")
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
        """Print the envelope around a list item by item; a failure on the way is reported at the end."""
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
        meta = f'{{"duration_ms": {self._duration()}}}'
        self._write(f']}}, "status": "{status}", "error": {json_line(builtins(error))}, "meta": {meta}}}')
        self._open = False

    def _end(self, status: Status, error: Failure | None = None, summary: Any = None) -> None:
        from holdfast.output.envelope import NdjsonEnd

        values = builtins(summary)
        if isinstance(values, dict):  # the counts of a batch are its summary itself
            values = values.pop("summary", {}) | values
        end = NdjsonEnd(status=status, lines=self._lines, error=error, summary=values)
        self._write(json_line({"_meta": end}))

    def _write(self, text: str, end: str = "\n") -> None:
        with self._translated():
            self._out.write(text + end)
        self._lines += 1


class SilentOutput(Output):
    """Prints nothing: the caller reads the result itself."""

    def __init__(self) -> None:
        super().__init__(Format.TEXT, quiet=True)

    def value(
        self,
        data: Any,
        text: Callable[[], Iterable[str | Line]],
        *,
        ndjson_summary: bool = False,
        error: Failure | None = None,
    ) -> None:
        """Print nothing."""

    def error(self, error: Failure, *, data: Any = None, status: Status = "error") -> None:
        """Print nothing."""


def builtins(value: Any) -> Any:
    """Structs, datetimes and enums as JSON values; times end in Z."""
    import msgspec

    return msgspec.to_builtins(value, str_keys=True)


def json_line(value: Any) -> str:
    import msgspec

    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:  # a lone surrogate, from the environment or the name of a file
        import json

        return json.dumps(builtins(value))


def _print_to_stderr(text: str) -> None:
    with suppress(OSError):
        sys.stderr.write(escape_controls(text) + "\n")

"""Input files: keys, commands and tables, from a file, a pipe or stdin."""

from __future__ import annotations

import codecs
import io
import stat
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO

from holdfast.errors import InvalidInput

#: Byte order marks of UTF-16, which Windows calls Unicode.
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class InputFile:
    """UTF-8 text from a file, a pipe (``/dev/stdin``, ``<(…)``) or stdin (``-``).

    A byte order mark at its start is not part of the text. It is opened at once: what cannot be read is refused before
    any work begins. A pipe can be read only once.

    Raises:
        InvalidInput: It is missing, a directory, unreadable or not UTF-8; the message names it, and the line.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._stream: IO[bytes] | None = None
        if name == "-":
            self._stream = getattr(sys.stdin, "buffer", None) or io.BytesIO(sys.stdin.read().encode())
            return
        try:
            mode = Path(name).stat().st_mode
            if stat.S_ISDIR(mode):
                raise InvalidInput(f"{name} is a directory", hint="Give a file, or - for stdin.")
            stream = Path(name).open("rb")  # noqa: SIM115 - a pipe stays open until it is read
        except FileNotFoundError:
            raise InvalidInput(f"there is no file {name}", hint="Give a file, or - for stdin.") from None
        except OSError as error:
            raise self._unreadable(error) from None
        if stat.S_ISREG(mode):
            stream.close()
        else:
            self._stream = stream

    @property
    def reads_once(self) -> bool:
        """Whether it can be read only once."""
        return self._stream is not None

    def lines(self) -> Iterator[tuple[int, str]]:
        """The lines with their numbers, without their ends: a line ends at LF, CR or both."""
        number = 0
        for text in self._texts():
            for line in text.removesuffix("\n").removesuffix("\r").split("\r"):
                number += 1
                yield number, line

    def text(self) -> str:
        """All of it, with its line ends as they are."""
        return "".join(self._texts())

    def _texts(self) -> Iterator[str]:
        """The text up to each LF. It is decoded while the file is open, which an error closes."""
        try:
            with self._open() as lines:
                for number, raw in enumerate(lines, start=1):
                    yield self._decoded(raw, number)
        except OSError as error:
            raise self._unreadable(error) from None

    def _open(self) -> AbstractContextManager[IO[bytes]]:
        if self._stream is None:
            return Path(self._name).open("rb")
        stream, self._stream = self._stream, io.BytesIO()
        return nullcontext(stream) if self._name == "-" else stream

    def _decoded(self, raw: bytes, number: int) -> str:
        try:
            return raw.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            where = f"{self._shown}, line {number}"
            hint = "Convert it: iconv -f UTF-16 -t UTF-8." if raw.startswith(UTF_16) else "Save it as UTF-8."
            raise InvalidInput(f"{where}: byte 0x{raw[error.start]:02x} is not UTF-8", hint=hint) from None

    def _unreadable(self, error: OSError) -> InvalidInput:
        return InvalidInput(f"{self._shown} cannot be read: {error.strerror or error}")

    @property
    def _shown(self) -> str:
        return "stdin" if self._name == "-" else self._name

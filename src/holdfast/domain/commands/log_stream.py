"""Logs as streams: filters for the bytes of a log that arrive in pieces of any size."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable

from holdfast.domain.access.masking import MASK, MIN_SECRET_CHARS
from holdfast.domain.names import escape_controls

#: Colours and styles of text. No other sequence is sent to a terminal: one may move the cursor, or type an answer.
_STYLE = re.compile(r"\x1b\[[0-9;:]*m")
_PART_OF_STYLE = re.compile(r"\x1b(?:\[[0-9;:]*)?\Z")
#: Longer sequences are not styles.
MAX_STYLE_CHARS = 64
_PIECES = re.compile(r"(\x1b\[[0-9;:]*m|[\r\b])")
RESET = "\x1b[0m"


class SecretFilter:
    """Replaces secrets in a stream. All other bytes pass unchanged; only the beginning of a secret is held back."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = sorted({text.encode() for text in secrets if len(text) >= MIN_SECRET_CHARS}, key=len)
        self._pattern = re.compile(b"|".join(re.escape(secret) for secret in reversed(self._secrets)))
        self._kept = b""

    def feed(self, data: bytes, *, last: bool = False) -> bytes:
        """The bytes that can be shown now; with *last*, all that are left."""
        if not self._secrets:
            return data
        text = self._kept + data
        cut = len(text) if last else len(text) - self._begun(text)
        for match in self._pattern.finditer(text):
            if match.start() < cut < match.end():
                cut = match.start()
        self._kept = text[cut:]
        return self._pattern.sub(MASK.encode(), text[:cut])

    def _begun(self, text: bytes) -> int:
        """Length of the longest end of *text* with which a secret begins."""
        longest = min(len(text), len(self._secrets[-1]) - 1)
        sizes = range(longest, 0, -1)
        return next((size for size in sizes if any(each.startswith(text[-size:]) for each in self._secrets)), 0)


class TerminalFilter:
    """Makes a stream safe for a terminal: text, colours, carriage returns and backspaces pass; the rest is escaped."""

    def __init__(self, *, color: bool) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._color = color
        self._kept = ""
        self._styled = False

    def feed(self, data: bytes, *, last: bool = False) -> str:
        """The text that can be printed now; with *last*, all that is left, and the end of colours."""
        text = self._kept + self._decoder.decode(data, last)
        self._kept = ""
        part = None if last else _PART_OF_STYLE.search(text)
        if part and len(part[0]) < MAX_STYLE_CHARS:
            text, self._kept = text[: part.start()], part[0]
        shown = "".join(map(self._piece, _PIECES.split(text)))
        if last and self._styled:
            shown += RESET
        return shown

    def _piece(self, text: str) -> str:
        if text in ("\r", "\b"):
            return text
        if not _STYLE.fullmatch(text):
            return escape_controls(text)
        self._styled = self._color
        return text if self._color else ""

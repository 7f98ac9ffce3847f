"""The colours that programs write, as spans; whatever else a terminal would obey is left out."""

from __future__ import annotations

import re
from collections.abc import Iterator

from markupsafe import Markup, escape

from holdfast.web.pages.format import visible

#: An escape sequence: of colours (its numbers are the group), any other one, or a title for the window.
_SEQUENCE = re.compile(
    r"\x1b\[([0-9;:]{0,60})m|(?:\x1b\[|\x9b)[0-?]{0,60}[ -/]{0,20}[@-~]"
    r"|\x1b[\]PX^_][^\x07\x1b]{0,4000}(?:\x07|\x1b\\)?|\x1b(?![\[\]PX^_])[ -/]{0,5}[0-~]"
)
_WORDS = {1: "b", 2: "d", 3: "it", 4: "u"}
_ENDS = {22: {"b", "d"}, 23: {"it"}, 24: {"u"}}


def ansi(text: str, mark: str = "") -> Markup:
    """The text as HTML: its colours as spans, what is to be *mark*ed, everything else escaped."""
    return Markup("").join(_pieces(text, mark))


def plain(text: str) -> str:
    """The text without escape sequences."""
    return _SEQUENCE.sub("", text)


def _pieces(text: str, mark: str) -> Iterator[Markup]:
    style: set[str] = set()
    begin = 0
    for found in _SEQUENCE.finditer(text):
        yield _piece(text[begin : found.start()], style, mark)
        if found[1] is not None:
            style = _after(style, found[1])
        begin = found.end()
    yield _piece(text[begin:], style, mark)


def _piece(text: str, style: set[str], mark: str) -> Markup:
    if not text:
        return Markup("")
    shown = _marked(visible(text.replace("\r\n", "\n")), mark)
    return Markup('<span class="{}">{}</span>').format(" ".join(sorted(style)), shown) if style else shown


def _marked(text: str, mark: str) -> Markup:
    if not mark:
        return escape(text)
    parts = re.split(f"({re.escape(mark)})", text, flags=re.IGNORECASE)
    return Markup("").join(
        Markup("<mark>{}</mark>").format(part) if place % 2 else escape(part) for place, part in enumerate(parts)
    )


def _after(style: set[str], codes: str) -> set[str]:
    """What is in force after a sequence. Colours out of the eight are told as the nearest of them, or not at all."""
    now = set(style)
    numbers = [int(code) if code else 0 for code in codes.replace(":", ";").split(";")][:16]
    while numbers:
        code = numbers.pop(0)
        if code == 0:
            now = set()
        elif code in _WORDS:
            now.add(_WORDS[code])
        elif code in _ENDS:
            now -= _ENDS[code]
        elif code in (38, 48):
            # A colour out of many: 5;n or 2;r;g;b.
            chosen = _of_many(numbers)
            now = _coloured(now, "f" if code == 38 else "g", chosen)
        elif code in (39, 49):
            now = _coloured(now, "f" if code == 39 else "g", None)
        elif 30 <= code <= 37 or 90 <= code <= 97:
            now = _coloured(now, "f", code % 10)
        elif 40 <= code <= 47 or 100 <= code <= 107:
            now = _coloured(now, "g", code % 10)
    return now


def _of_many(numbers: list[int]) -> int | None:
    way = numbers.pop(0) if numbers else 0
    taken = [numbers.pop(0) for _ in range(min(len(numbers), {5: 1, 2: 3}.get(way, 0)))]
    return taken[0] % 8 if way == 5 and taken and taken[0] < 16 else None


def _coloured(style: set[str], letter: str, colour: int | None) -> set[str]:
    """The style with another colour; black and white are those of the page."""
    kept = {word for word in style if not (word.startswith(letter) and word[1:].isdigit())}
    return kept | {f"{letter}{colour}"} if colour else kept
